/*
 * Reads and writes IP addresses and ranges, and judges which addresses a connection may go to. The
 * tables follow the IANA special-purpose registries (RFC 6890 and its updates); whatever they do
 * not know outside 2000::/3 is refused as well. No sockets, no names; called by hostname.c, load.c
 * and, for every address that a name resolves to, by the policy.
 */
#include "policy/ipaddr.h"

#include <stdio.h>
#include <string.h>

#include "logging/hex.h"

#define V4_BITS 32
#define V6_BITS 128
/* More IPv4 addresses than one IPv6 address can carry: local-use NAT64 has four layouts, ISATAP
 * one. */
#define EMBEDDED_MAX 8

struct v4_special {
	uint8_t b[4];
	uint8_t bits;
	const char *what;
};

struct v6_special {
	uint8_t b[16];
	uint8_t bits;
	const char *what;
};

/*
 * Within each table the first entry that has the address names it, so the narrow ones stand first.
 * AS112 (192.31.196.0/24, 192.175.48.0/24), AMT (192.52.193.0/24) and the PCP and TURN anycast
 * addresses are "globally reachable" in the registry. They are refused all the same: no web origin
 * lives there, and an anycast answers from whatever announces it nearest, often the local network.
 */
static const struct v4_special v4_specials[] = {
	{{0, 0, 0, 0}, 32, "unspecified"},
	{{0, 0, 0, 0}, 8, "this network"},
	{{10, 0, 0, 0}, 8, "private"},
	{{100, 64, 0, 0}, 10, "shared address space"},
	{{127, 0, 0, 0}, 8, "loopback"},
	{{169, 254, 0, 0}, 16, "link-local"},
	{{172, 16, 0, 0}, 12, "private"},
	{{192, 0, 0, 0}, 29, "IPv4 service continuity"},
	{{192, 0, 0, 8}, 32, "IPv4 dummy address"},
	{{192, 0, 0, 9}, 32, "PCP anycast"},
	{{192, 0, 0, 10}, 32, "TURN anycast"},
	{{192, 0, 0, 170}, 31, "NAT64 discovery"},
	{{192, 0, 0, 0}, 24, "IETF protocol assignments"},
	{{192, 0, 2, 0}, 24, "documentation"},
	{{192, 31, 196, 0}, 24, "AS112"},
	{{192, 52, 193, 0}, 24, "AMT"},
	{{192, 88, 99, 0}, 24, "6to4 relay anycast"},
	{{192, 168, 0, 0}, 16, "private"},
	{{192, 175, 48, 0}, 24, "AS112"},
	{{198, 18, 0, 0}, 15, "benchmarking"},
	{{198, 51, 100, 0}, 24, "documentation"},
	{{203, 0, 113, 0}, 24, "documentation"},
	{{224, 0, 0, 0}, 4, "multicast"},
	{{255, 255, 255, 255}, 32, "broadcast"},
	{{240, 0, 0, 0}, 4, "reserved"},
};

static const struct v6_special v6_specials[] = {
	{{0}, 128, "unspecified"},
	{{[15] = 1}, 128, "loopback"},
	{{0}, 96, "IPv4-compatible"},
	{{[10] = 0xff, 0xff}, 96, "IPv4-mapped"},
	{{[8] = 0xff, 0xff}, 96, "IPv4-translated"},
	{{0x00, 0x64, 0xff, 0x9b}, 96, "NAT64"},
	{{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, "local-use NAT64"},
	{{0x01, 0x00}, 64, "discard-only"},
	{{0x01, 0x00, 0, 0, 0, 0, 0, 0x01}, 64, "dummy prefix"},
	{{0x20, 0x01, 0x00, 0x00}, 32, "Teredo"},
	{{0x20, 0x01, 0x00, 0x01, [15] = 1}, 128, "PCP anycast"},
	{{0x20, 0x01, 0x00, 0x01, [15] = 2}, 128, "TURN anycast"},
	{{0x20, 0x01, 0x00, 0x01, [15] = 3}, 128, "DNS-SD anycast"},
	{{0x20, 0x01, 0x00, 0x02}, 48, "benchmarking"},
	{{0x20, 0x01, 0x00, 0x03}, 32, "AMT"},
	{{0x20, 0x01, 0x00, 0x04, 0x01, 0x12}, 48, "AS112"},
	{{0x20, 0x01, 0x00, 0x10}, 28, "ORCHID"},
	{{0x20, 0x01, 0x00, 0x20}, 28, "ORCHIDv2"},
	{{0x20, 0x01, 0x00, 0x30}, 28, "drone remote ID"},
	{{0x20, 0x01, 0x00, 0x00}, 23, "IETF protocol assignments"},
	{{0x20, 0x01, 0x0d, 0xb8}, 32, "documentation"},
	{{0x20, 0x02}, 16, "6to4"},
	{{0x26, 0x20, 0x00, 0x4f, 0x80, 0x00}, 48, "AS112"},
	{{0x3f, 0xff, 0x00, 0x00}, 20, "documentation"},
	{{0x5f, 0x00}, 16, "segment routing"},
	{{0xfc, 0x00}, 7, "private"},
	{{0xfe, 0x80}, 10, "link-local"},
	{{0xfe, 0xc0}, 10, "site-local"},
	{{0xff, 0x00}, 8, "multicast"},
};

/*
 * Where clouds hand out credentials, and the servers beside them. Most lie in link-local or private
 * space, and two lie in public space; all are listed so that a range which admits their neighbours
 * does not admit them.
 */
static const uint8_t v4_metadata[][4] = {
	{169, 254, 169, 254}, /* nearly every cloud */
	{169, 254, 169, 253}, /* AWS: DNS */
	{169, 254, 169, 252}, /* GKE: node metadata server */
	{169, 254, 169, 251}, /* AWS: key management */
	{169, 254, 169, 250}, /* AWS: key management */
	{169, 254, 169, 123}, /* AWS: time */
	{169, 254, 170, 2},   /* AWS ECS: task credentials */
	{169, 254, 170, 23},  /* AWS EKS: pod identity */
	{169, 254, 42, 42},   /* Scaleway */
	{169, 254, 0, 23},    /* Tencent */
	{100, 100, 100, 200}, /* Alibaba */
	{192, 0, 0, 192},     /* Oracle, classic */
	{168, 63, 129, 16},   /* Azure: the wire server, a public range */
	{192, 80, 8, 124},    /* Equinix Metal, a public range */
};

static const uint8_t v6_metadata[][16] = {
	{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54},		 /* AWS fd00:ec2::254 */
	{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x53},		 /* AWS: DNS */
	{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x01, 0x23},		 /* AWS: time */
	{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x00, 0x23},		 /* AWS EKS: pod identity */
	{0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54},		 /* GCP fd20:ce::254 */
	{0xfd, 0x00, 0x00, 0x42, [14] = 0x00, 0x42},		 /* Scaleway fd00:42::42 */
	{0xfd, 0x00, 0x00, 0xc1, [12] = 0xa9, 0xfe, 0xa9, 0xfe}, /* Oracle */
	{0xfd, 0x00, 0xa9, 0xfe, 0xa9, 0xfe, [15] = 0x01},	 /* Linode */
	{0xfe, 0x80, [12] = 0xa9, 0xfe, 0xa9, 0xfe},		 /* OpenStack */
};

/* ---- reading ---- */

/* Dotted decimal: four parts, each 0 to 255 without leading zeros. Octal, hexadecimal and short
 * forms are not addresses here (RFC 3986 section 3.2.2). */
static int parse_v4(struct str in, uint8_t ret[4])
{
	uint8_t out[4];
	size_t at = 0;

	for (int part = 0; part < 4; part++) {
		unsigned v = 0;
		size_t start;

		if (part > 0 && (at == in.n || in.p[at++] != '.'))
			return -1;
		start = at;
		while (at < in.n && at - start < 3 && in.p[at] >= '0' && in.p[at] <= '9')
			v = v * 10 + (unsigned)(in.p[at++] - '0');
		if (at == start || v > 255 || (in.p[start] == '0' && at - start > 1))
			return -1;
		out[part] = (uint8_t)v;
	}
	if (at != in.n)
		return -1;
	memcpy(ret, out, 4);
	return 0;
}

/* One group of 1 to 4 hexadecimal digits at *at. */
static int parse_group(struct str in, size_t *at, uint8_t ret[2])
{
	unsigned v = 0;
	size_t start = *at;

	while (*at < in.n && *at - start < 4 && hex_value(in.p[*at]) >= 0)
		v = v << 4 | (unsigned)hex_value(in.p[(*at)++]);
	if (*at == start)
		return -1;
	ret[0] = (uint8_t)(v >> 8);
	ret[1] = (uint8_t)(v & 0xff);
	return 0;
}

/* RFC 4291 section 2.2: groups, at most one "::" that stands for one group or more, the last 32
 * bits possibly in dotted decimal. No zone. */
static int parse_v6(struct str in, uint8_t ret[16])
{
	uint8_t out[16] = {0};
	size_t at = 0, len = 0, gap = 0;
	bool have_gap = false;

	if (in.n >= 2 && in.p[0] == ':' && in.p[1] == ':') {
		have_gap = true;
		at = 2;
	}
	while (at < in.n) {
		if (len >= 16)
			return -1;
		/* A dot before the next colon: the rest is an IPv4 address. */
		const char *colon = memchr(in.p + at, ':', in.n - at);
		if (!colon && memchr(in.p + at, '.', in.n - at)) {
			if (len > 12 || parse_v4(str_skip(in, at), out + len) < 0)
				return -1;
			len += 4;
			break;
		}
		if (parse_group(in, &at, out + len) < 0)
			return -1;
		len += 2;
		if (at == in.n)
			break;
		if (in.p[at++] != ':' || at == in.n)
			return -1;
		if (in.p[at] == ':') {
			if (have_gap)
				return -1;
			have_gap = true;
			gap = len;
			at++;
		}
	}
	if (have_gap ? len > 14 : len != 16)
		return -1;
	if (have_gap) {
		memmove(out + 16 - (len - gap), out + gap, len - gap);
		memset(out + gap, 0, 16 - len);
	}
	memcpy(ret, out, 16);
	return 0;
}

int ipaddr_parse(struct str in, struct ipaddr *ret)
{
	struct ipaddr a = {0};

	if (in.n == 0 || in.n >= IPADDR_TEXT_MAX)
		return -1;
	if (memchr(in.p, ':', in.n)) {
		a.family = 6;
		if (parse_v6(in, a.b) < 0)
			return -1;
	} else {
		a.family = 4;
		if (parse_v4(in, a.b) < 0)
			return -1;
	}
	*ret = a;
	return 0;
}

/* ---- writing ---- */

static char *put_decimal(char *p, unsigned v)
{
	if (v >= 100)
		*p++ = (char)('0' + v / 100);
	if (v >= 10)
		*p++ = (char)('0' + v / 10 % 10);
	*p++ = (char)('0' + v % 10);
	return p;
}

static char *put_v4(char *p, const uint8_t b[4])
{
	for (int i = 0; i < 4; i++) {
		if (i > 0)
			*p++ = '.';
		p = put_decimal(p, b[i]);
	}
	return p;
}

static char *put_hex(char *p, unsigned v)
{
	static const char digits[] = "0123456789abcdef";
	int shift = 12;

	while (shift > 0 && v >> shift == 0)
		shift -= 4;
	for (; shift >= 0; shift -= 4)
		*p++ = digits[v >> shift & 0xf];
	return p;
}

static unsigned group_of(const uint8_t b[16], int i)
{
	return (unsigned)b[2 * i] << 8 | b[2 * i + 1];
}

/* The first longest run of two or more zero groups (RFC 5952 section 4.2). */
static void find_gap(const uint8_t b[16], int groups, int *ret_at, int *ret_n)
{
	*ret_at = -1;
	*ret_n = 1;
	for (int i = 0; i < groups;) {
		int n = 0;

		while (i + n < groups && group_of(b, i + n) == 0)
			n++;
		if (n > *ret_n) {
			*ret_at = i;
			*ret_n = n;
		}
		i += n + 1;
	}
}

static const uint8_t mapped_prefix[12] = {[10] = 0xff, 0xff};

/* The mapped form alone is written with a dotted tail (RFC 5952 section 5). */
static char *put_v6(char *p, const uint8_t b[16])
{
	bool mapped = memcmp(b, mapped_prefix, sizeof(mapped_prefix)) == 0;
	int groups = mapped ? 6 : 8;
	int gap_at, gap_n;

	find_gap(b, groups, &gap_at, &gap_n);
	for (int i = 0; i < groups; i++) {
		if (i == gap_at) {
			*p++ = ':';
			*p++ = ':';
			i += gap_n - 1;
			continue;
		}
		if (i > 0 && p[-1] != ':')
			*p++ = ':';
		p = put_hex(p, group_of(b, i));
	}
	if (mapped) {
		*p++ = ':';
		p = put_v4(p, b + 12);
	}
	return p;
}

void ipaddr_format(const struct ipaddr *a, char ret[IPADDR_TEXT_MAX])
{
	char *p = ret;

	if (a->family == 4)
		p = put_v4(p, a->b);
	else if (a->family == 6)
		p = put_v6(p, a->b);
	*p = '\0';
}

bool ipaddr_eq(const struct ipaddr *a, const struct ipaddr *b)
{
	return a->family == b->family && memcmp(a->b, b->b, a->family == 4 ? 4 : 16) == 0;
}

/* ---- ranges ---- */

static unsigned family_bits(const struct ipaddr *a)
{
	return a->family == 4 ? V4_BITS : V6_BITS;
}

static bool bits_eq(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	if (memcmp(a, b, whole) != 0)
		return false;
	return rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

/* Clears the host bits of a; true when one was set. */
static bool clear_host_bits(struct ipaddr *a, unsigned bits)
{
	bool was_set = false;

	for (unsigned i = bits; i < family_bits(a); i++) {
		uint8_t mask = (uint8_t)(0x80 >> i % 8);

		if (a->b[i / 8] & mask)
			was_set = true;
		a->b[i / 8] &= (uint8_t)~mask;
	}
	return was_set;
}

int iprange_parse(struct str in, struct iprange *ret, struct err *e)
{
	struct iprange r = {0};
	ptrdiff_t slash = str_find(in, '/');
	struct str addr = slash < 0 ? in : str_head(in, (size_t)slash);
	char text[IPADDR_TEXT_MAX];
	uint64_t bits;

	if (ipaddr_parse(addr, &r.base) < 0)
		return err_set(e, "not an address or range (write 10.0.0.0/8, fd00::/8 or one "
				  "address; no leading zeros, no zone)");
	bits = family_bits(&r.base);
	if (slash >= 0) {
		struct str len = str_skip(in, (size_t)slash + 1);

		if (len.n > 3 || str_to_u64(len, &bits) < 0 || bits > family_bits(&r.base) ||
		    (len.n > 1 && len.p[0] == '0'))
			return err_set(e, "the prefix length must be 0 to %u",
				       family_bits(&r.base));
	}
	r.bits = (uint8_t)bits;
	if (clear_host_bits(&r.base, r.bits)) {
		ipaddr_format(&r.base, text);
		return err_set(e, "the range has host bits set (write %s/%u)", text, r.bits);
	}
	*ret = r;
	return 0;
}

bool iprange_has(const struct iprange *r, const struct ipaddr *a)
{
	return a->family != 0 && r->base.family == a->family && r->bits <= family_bits(a) &&
	       bits_eq(r->base.b, a->b, r->bits);
}

/* ---- what an IPv6 address carries ---- */

static bool v6_starts(const struct ipaddr *a, const uint8_t *prefix, unsigned bits)
{
	return a->family == 6 && bits_eq(a->b, prefix, bits);
}

static void embedded_add(struct ipaddr *list, unsigned *n, uint8_t b0, uint8_t b1, uint8_t b2,
			 uint8_t b3)
{
	list[(*n)++] = (struct ipaddr){4, {b0, b1, b2, b3}};
}

/*
 * 64:ff9b:1::/48 (RFC 8215) is divided by each network as it likes, so any of the layouts of RFC
 * 6052 section 2.2 that fit may be in force, and a translator does not look at the suffix bits. All
 * readings count, but for those in 0.0.0.0/8, which is what the wrong layouts yield for a right
 * address; only when nothing else is left is the /96 reading taken even so.
 */
static void embedded_local_nat64(const uint8_t b[16], struct ipaddr *list, unsigned *n)
{
	unsigned before = *n;

	if (b[6] != 0)
		embedded_add(list, n, b[6], b[7], b[9], b[10]);
	if (b[7] != 0)
		embedded_add(list, n, b[7], b[9], b[10], b[11]);
	if (b[9] != 0)
		embedded_add(list, n, b[9], b[10], b[11], b[12]);
	if (b[12] != 0 || *n == before)
		embedded_add(list, n, b[12], b[13], b[14], b[15]);
}

static unsigned embedded_all(const struct ipaddr *a, struct ipaddr list[EMBEDDED_MAX])
{
	static const uint8_t translated[12] = {[8] = 0xff, 0xff};
	static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};
	static const uint8_t local_nat64[6] = {0x00, 0x64, 0xff, 0x9b, 0x00, 0x01};
	static const uint8_t zero[12] = {0};
	const uint8_t *b = a->b;
	unsigned n = 0;

	if (a->family != 6)
		return 0;
	if (v6_starts(a, zero, 96)) {
		/* :: and ::1 are themselves, not compatible addresses. */
		if (b[12] || b[13] || b[14] || b[15] > 1)
			embedded_add(list, &n, b[12], b[13], b[14], b[15]);
	} else if (v6_starts(a, mapped_prefix, 96) || v6_starts(a, translated, 96) ||
		   v6_starts(a, nat64, 96)) {
		embedded_add(list, &n, b[12], b[13], b[14], b[15]);
	} else if (v6_starts(a, local_nat64, 48)) {
		embedded_local_nat64(b, list, &n);
	} else if (b[0] == 0x20 && b[1] == 0x02) { /* 6to4, RFC 3056 section 2 */
		embedded_add(list, &n, b[2], b[3], b[4], b[5]);
	} else if (b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 0) {
		/* Teredo, RFC 4380 section 4: the server, then the client with its bits turned. */
		embedded_add(list, &n, b[4], b[5], b[6], b[7]);
		embedded_add(list, &n, b[12] ^ 0xff, b[13] ^ 0xff, b[14] ^ 0xff, b[15] ^ 0xff);
	}
	/* ISATAP (RFC 5214 section 6.1) is an interface identifier: it lives under any prefix. */
	if ((b[8] & ~0x02) == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe)
		embedded_add(list, &n, b[12], b[13], b[14], b[15]);
	return n;
}

bool ipaddr_embedded_v4(const struct ipaddr *a, unsigned which, struct ipaddr *ret)
{
	struct ipaddr list[EMBEDDED_MAX];

	if (which >= embedded_all(a, list))
		return false;
	*ret = list[which];
	return true;
}

/* ---- judging ---- */

bool ipaddr_is_metadata(const struct ipaddr *a)
{
	if (a->family == 4)
		for (size_t i = 0; i < ARRAY_LEN(v4_metadata); i++)
			if (memcmp(a->b, v4_metadata[i], 4) == 0)
				return true;
	if (a->family == 6)
		for (size_t i = 0; i < ARRAY_LEN(v6_metadata); i++)
			if (memcmp(a->b, v6_metadata[i], 16) == 0)
				return true;
	return false;
}

/* The word for a itself, without a look at what it carries. NULL: public. */
static const char *special_word(const struct ipaddr *a)
{
	if (ipaddr_is_metadata(a))
		return "cloud metadata";
	if (a->family == 4) {
		for (size_t i = 0; i < ARRAY_LEN(v4_specials); i++)
			if (bits_eq(a->b, v4_specials[i].b, v4_specials[i].bits))
				return v4_specials[i].what;
		return NULL;
	}
	if (a->family != 6)
		return "no address";
	for (size_t i = 0; i < ARRAY_LEN(v6_specials); i++)
		if (bits_eq(a->b, v6_specials[i].b, v6_specials[i].bits))
			return v6_specials[i].what;
	/* Global unicast is 2000::/3; the rest is not given out (IANA, IPv6 address space). */
	return a->b[0] >> 5 == 1 ? NULL : "not global unicast";
}

const char *ipaddr_special(const struct ipaddr *a, char *buf, size_t size)
{
	struct ipaddr list[EMBEDDED_MAX];
	unsigned n = embedded_all(a, list);
	const struct ipaddr *worst = NULL;
	const char *word = special_word(a);
	char text[IPADDR_TEXT_MAX];

	if (n == 0 || ipaddr_is_metadata(a))
		return word;
	for (unsigned i = 0; i < n && !worst; i++)
		if (special_word(&list[i]))
			worst = &list[i];
	ipaddr_format(worst ? worst : &list[0], text);
	if (worst)
		snprintf(buf, size, "carries %s (%s)", text, special_word(worst));
	else
		snprintf(buf, size, "carries %s", text);
	return buf;
}

/* Does one of the ranges admit a? `exact`: only a full-length one counts. */
static bool ranges_have(const struct iprange *ranges, size_t n, const struct ipaddr *a, bool exact)
{
	for (size_t i = 0; i < n; i++)
		if (iprange_has(&ranges[i], a) && (!exact || ranges[i].bits == family_bits(a)))
			return true;
	return false;
}

static bool is_own(const struct ipaddr *a, const struct ipaddr *own, size_t own_n)
{
	for (size_t i = 0; i < own_n; i++)
		if (ipaddr_eq(a, &own[i]))
			return true;
	return false;
}

int ipaddr_judge(const struct ipaddr *a, const struct iprange *ranges, size_t ranges_n,
		 const struct ipaddr *own, size_t own_n, struct err *e)
{
	struct ipaddr list[EMBEDDED_MAX + 1];
	unsigned n = embedded_all(a, list + 1);
	char text[IPADDR_TEXT_MAX], buf[96];
	const char *why;

	list[0] = *a;
	for (unsigned i = 0; i <= n; i++) {
		const struct ipaddr *one = &list[i];
		bool metadata = ipaddr_is_metadata(one);
		bool mine = is_own(one, own, own_n);
		/* An address that carries another is never one that an origin needs. */
		bool carrier = i == 0 && n > 0;

		if (!metadata && !mine && !carrier && !special_word(one))
			continue;
		if (ranges_have(ranges, ranges_n, one, metadata))
			continue;
		why = ipaddr_special(a, buf, sizeof(buf));
		ipaddr_format(a, text);
		return err_reason(e, REASON_ADDRESS_DENIED, "address %s is refused: %s%s", text,
				  why ? why : "it is one of this host's own",
				  metadata ? " (only its exact address in `addresses:` opens it)"
					   : "");
	}
	return 0;
}
