/*
 * Hosts and addresses: host_parse, ipaddr_parse, ipaddr_format, iprange_parse, ipaddr_judge. The
 * input is one text; its first 16 bytes are an address as well.
 * - What is accepted parses from its canonical text to itself, in any case.
 * - ipaddr_parse accepts what inet_pton accepts, as the same bytes, and nothing else.
 * - A text that inet_aton reads as an address is never a name: it is refused, or it is canonical
 *   dotted decimal and the same address.
 * - A name has lower-case labels of legal length and no dot at its end.
 * - A range has no host bits, has its own base, and reads back from its text.
 * - What is judged fit is public by a second opinion, and an IPv4 address that is refused is also
 *   refused within every IPv6 form that carries it.
 */
#include <arpa/inet.h>

#include "policy/hostname.h"
#include "tests/fuzz/fuzz.h"

static bool is_c_string(struct str s, char *buf, size_t size)
{
	if (s.n >= size || str_find(s, '\0') >= 0)
		return false;
	memcpy(buf, s.p, s.n);
	buf[s.n] = '\0';
	return true;
}

/* ---- addresses ---- */

static void check_same_as_libc(struct str in, bool ok, const struct ipaddr *a)
{
	char text[64];
	uint8_t b[16];
	int v6 = str_find(in, ':') >= 0;

	if (!is_c_string(in, text, sizeof(text)))
		return;
	CHECK((inet_pton(v6 ? AF_INET6 : AF_INET, text, b) == 1) == ok);
	if (ok)
		CHECK(a->family == (v6 ? 6 : 4) && memcmp(a->b, b, v6 ? 16 : 4) == 0);
}

static void check_ipaddr(const struct ipaddr *a)
{
	char text[IPADDR_TEXT_MAX], libc[64];
	struct ipaddr again;
	uint8_t b[16];

	ipaddr_format(a, text);
	CHECK(ipaddr_parse(str_from_c(text), &again) == 0);
	CHECK(ipaddr_eq(a, &again));
	CHECK(inet_pton(a->family == 6 ? AF_INET6 : AF_INET, text, b) == 1);
	CHECK(memcmp(b, a->b, a->family == 6 ? 16 : 4) == 0);
	/* What libc writes is read as the same address, whatever it looks like. */
	CHECK(inet_ntop(a->family == 6 ? AF_INET6 : AF_INET, a->b, libc, sizeof(libc)));
	CHECK(ipaddr_parse(str_from_c(libc), &again) == 0 && ipaddr_eq(a, &again));
}

static bool is_plainly_private(const uint8_t *b)
{
	return b[0] == 0 || b[0] == 10 || b[0] == 127 || (b[0] == 169 && b[1] == 254) ||
	       (b[0] == 172 && (b[1] & 0xf0) == 16) || (b[0] == 192 && b[1] == 168) ||
	       (b[0] == 100 && (b[1] & 0xc0) == 64) || b[0] >= 224;
}

static bool judged(const struct ipaddr *a)
{
	struct err e = ERR_INIT;

	if (ipaddr_judge(a, NULL, 0, NULL, 0, &e) == 0)
		return true;
	fuzz_check_err(&e);
	CHECK(e.reason == REASON_ADDRESS_DENIED);
	return false;
}

static void check_carriers(const struct ipaddr *v4)
{
	static const struct {
		uint8_t b[16];
		size_t at;
	} forms[] = {
		{{[10] = 0xff, 0xff}, 12},			/* mapped */
		{{[8] = 0xff, 0xff}, 12},			/* translated */
		{{0}, 12},					/* compatible */
		{{0x00, 0x64, 0xff, 0x9b}, 12},			/* NAT64 */
		{{0x00, 0x64, 0xff, 0x9b, 0, 1}, 12},		/* NAT64, local use */
		{{0x20, 0x02}, 2},				/* 6to4 */
		{{0x20, 0x01}, 4},				/* Teredo server */
		{{0x26, 0x06, 0x47, 0, [10] = 0x5e, 0xfe}, 12}, /* ISATAP */
	};

	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		struct ipaddr a = {.family = 6};

		memcpy(a.b, forms[i].b, 16);
		memcpy(a.b + forms[i].at, v4->b, 4);
		CHECK(!judged(&a));
	}
}

static void check_judgement(const struct ipaddr *a)
{
	struct iprange exact = {*a, a->family == 4 ? 32 : 128}, all = {{a->family, {0}}, 0};
	struct err e = ERR_INIT;
	char buf[96];
	bool ok = judged(a);

	if (a->family == 4) {
		CHECK(!ok || !is_plainly_private(a->b));
		if (!ok)
			check_carriers(a);
	} else {
		CHECK(!ok || a->b[0] >> 5 == 1);
	}
	CHECK(!ok || !ipaddr_special(a, buf, sizeof(buf)));
	/* One of this host's own addresses needs a range, however public it is. */
	CHECK(ipaddr_judge(a, NULL, 0, a, 1, &e) < 0);
	/* The whole space does not open a metadata address; its exact address does. */
	if (ipaddr_is_metadata(a)) {
		CHECK(!ok && ipaddr_judge(a, &all, 1, NULL, 0, &e) < 0);
		if (a->family == 4)
			CHECK(ipaddr_judge(a, &exact, 1, NULL, 0, &e) == 0);
	}
}

static void read_ipaddr(struct str in)
{
	struct ipaddr a = {0};
	bool ok = ipaddr_parse(in, &a) == 0;

	check_same_as_libc(in, ok, &a);
	if (!ok)
		return;
	check_ipaddr(&a);
	check_judgement(&a);
}

static void read_range(struct str in)
{
	struct iprange r, again;
	struct err e = ERR_INIT;
	char text[IPADDR_TEXT_MAX + 8], addr[IPADDR_TEXT_MAX];

	if (iprange_parse(in, &r, &e) < 0) {
		fuzz_check_err(&e);
		return;
	}
	CHECK(iprange_has(&r, &r.base));
	ipaddr_format(&r.base, addr);
	(void)snprintf(text, sizeof(text), "%s/%u", addr, r.bits);
	CHECK(iprange_parse(str_from_c(text), &again, &e) == 0);
	CHECK(ipaddr_eq(&r.base, &again.base) && r.bits == again.bits);
}

static void read_raw(struct str in)
{
	struct ipaddr a = {.family = 6};

	if (in.n < 16)
		return;
	memcpy(a.b, in.p, 16);
	check_ipaddr(&a);
	check_judgement(&a);
	a = (struct ipaddr){.family = 4, .b = {a.b[0], a.b[1], a.b[2], a.b[3]}};
	check_ipaddr(&a);
	check_judgement(&a);
}

/* ---- hosts ---- */

static void check_name(const struct host *h)
{
	size_t label = 0;

	CHECK(h->len > 0 && h->len <= LIMIT_HOST_BYTES && h->text[h->len - 1] != '.');
	for (size_t i = 0; i < h->len; i++) {
		char c = h->text[i];

		CHECK((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
		      c == '.');
		label = c == '.' ? 0 : label + 1;
		CHECK(label <= LIMIT_LABEL_BYTES && (c != '.' || h->text[i + 1] != '.'));
	}
}

static void check_fixed(const struct host *h)
{
	struct strbuf text;
	struct host again;
	struct err e = ERR_INIT;

	CHECK(h->len == strlen(h->text));
	strbuf_init(&text, LIMIT_HOST_BYTES + 4);
	host_add_url(h, &text);
	CHECK(host_parse(strbuf_str(&text), &again, &e) == 0);
	CHECK(host_eq(h, &again));
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] >= 'a' && text.data[i] <= 'z')
			text.data[i] = (char)(text.data[i] - 'a' + 'A');
	if (h->kind == HOST_NAME)
		strbuf_addc(&text, '.');
	CHECK(host_parse(strbuf_str(&text), &again, &e) == 0);
	CHECK(host_eq(h, &again));
	strbuf_clear(&text);
}

static void read_host(struct str in)
{
	struct host h;
	struct err e = ERR_INIT;
	struct in_addr old;
	char text[512];
	bool is_text = is_c_string(in, text, sizeof(text));

	if (host_parse(in, &h, &e) < 0) {
		fuzz_check_err(&e);
		CHECK(e.reason == REASON_MALFORMED_REQUEST || e.reason == REASON_AMBIGUOUS_URL);
		return;
	}
	CHECK(is_text);
	check_fixed(&h);
	switch (h.kind) {
	case HOST_NAME:
		check_name(&h);
		CHECK(inet_aton(h.text, &old) == 0 && inet_aton(text, &old) == 0);
		break;
	case HOST_IPV4:
		CHECK(inet_aton(text, &old) == 1 && memcmp(&old, h.addr.b, 4) == 0);
		CHECK(str_eq(in, host_str(&h)));
		break;
	case HOST_IPV6: CHECK(in.p[0] == '[' && h.addr.family == 6); break;
	case HOST_NONE: CHECK(!"a host of no kind"); break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = fuzz_copy(str_from(data, size));
	struct str in = str_from(copy, size);

	read_ipaddr(in);
	read_range(in);
	read_raw(in);
	read_host(in);
	free(copy);
	return 0;
}
