/*
 * Reads a host into its one spelling. Bytes are counted, never taken for a C string: a NUL is a
 * byte like any other and is refused. It decides between name and address once, so that policy,
 * resolver, certificate check and log all speak of the same thing. Resolves nothing; called by
 * url.c and load.c.
 */
#include "policy/hostname.h"

#include <string.h>

#include "logging/bytes16.h"

/* The byte of a name in its canonical case; 0 for a byte that no name has (letters, digits, '-',
 * '_' and the dot between labels). */
static char name_byte(char c)
{
	if (c >= 'A' && c <= 'Z')
		return (char)(c - 'A' + 'a');
	if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.')
		return c;
	return 0;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Would another reader take a name with this last label for an IPv4 address? (The "ends in a
 * number" check of the WHATWG URL standard, which inet_aton(3) agrees with: digits only, or 0x and
 * then hexadecimal digits or nothing.) */
static bool label_is_number(struct str label)
{
	size_t digits = 0, i;

	while (digits < label.n && is_digit(label.p[digits]))
		digits++;
	if (digits == label.n)
		return true;
	if (label.n < 2 || label.p[0] != '0' || (label.p[1] | 0x20) != 'x')
		return false;
	for (i = 2; i < label.n; i++)
		if (!is_hex(label.p[i]))
			return false;
	return true;
}

static int refuse_byte(struct str in, size_t at, struct err *e)
{
	unsigned char c = (unsigned char)in.p[at];

	if (c == '\\')
		return err_reason(e, REASON_AMBIGUOUS_URL,
				  "a backslash at byte %zu of the host, which some readers take "
				  "for a slash",
				  at + 1);
	if (c == ':')
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "a colon at byte %zu of the host (an IPv6 address stands in "
				  "brackets)",
				  at + 1);
	return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x at %zu of the host%s", c,
			  at + 1,
			  c >= 0x80 ? " (an international name is sent as its xn-- form)" : "");
}

/* `[` address `]` (RFC 3986 section 3.2.2). A zone names an interface of this host, so it is
 * nothing that a client may choose; IPvFuture is nothing that anybody speaks. */
static int parse_bracketed(struct str in, struct host *ret, struct err *e)
{
	struct ipaddr a;

	if (in.n < 2 || in.p[in.n - 1] != ']')
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "an opening bracket in the host, but no closing one at its end");
	in = str_head(str_skip(in, 1), in.n - 2);
	if (str_find(in, '%') >= 0)
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "an IPv6 zone in the host (only the bare address is taken)");
	if (ipaddr_parse(in, &a) < 0 || a.family != 6)
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "what stands in brackets is not an IPv6 address");
	host_from_ipaddr(&a, ret);
	return 0;
}

/* Checks the labels of a name without its trailing dot and finds the last one. */
static int check_labels(struct str name, struct str *ret_last, struct err *e)
{
	size_t start = 0;

	for (size_t i = 0; i <= name.n; i++) {
		if (i < name.n && name.p[i] != '.') {
			if (!name_byte(name.p[i]))
				return refuse_byte(name, i, e);
			continue;
		}
		if (i == start)
			return err_reason(e, REASON_MALFORMED_REQUEST,
					  "an empty label at byte %zu of the host", i + 1);
		if (i - start > LIMIT_LABEL_BYTES)
			return err_reason(e, REASON_MALFORMED_REQUEST,
					  "a label of %zu bytes in the host (at most %d)",
					  i - start, LIMIT_LABEL_BYTES);
		*ret_last = str_from(name.p + start, i - start);
		start = i + 1;
	}
	return 0;
}

/* Yes for what no name has, and for the dot. */
static ATTR_INLINE bytes16 stops_label(bytes16 v)
{
	return ~(bytes16_letter(v) | bytes16_range(v, '0', '9') | (bytes16)(v == '-') |
		 (bytes16)(v == '_'));
}

/* The host's text; what stands behind it in the last sixteen bytes is nothing. */
static void set_text(struct host *h, struct str name)
{
	bytes16 v;

	if (name.n < 16) {
		v = bytes16_lower(bytes16_load_few(name.p, name.n));
		memcpy(h->text, &v, sizeof(v));
	}
	for (size_t i = 0; i < name.n && name.n >= 16; i += 16) {
		/* The last sixteen, some of them again. */
		if (name.n - i < 16)
			i = name.n - 16;
		v = bytes16_lower(bytes16_load(name.p + i));
		memcpy(h->text + i, &v, sizeof(v));
	}
	h->text[name.n] = '\0';
	h->len = (uint8_t)name.n;
}

bool host_parse_common(struct str in, struct host *ret)
{
	struct bytes16_walk walk;
	size_t start = 0, end;
	struct ipaddr a;

	if (in.n == 0 || in.n > LIMIT_HOST_BYTES)
		return false;
	walk = bytes16_walk(in.p, 0, in.n, stops_label);
	for (;;) {
		end = bytes16_next(&walk, stops_label);
		if (end == start || end - start > LIMIT_LABEL_BYTES)
			return false;
		if (end == in.n)
			break;
		if (in.p[end] != '.')
			return false;
		start = end + 1;
	}
	/* A last label that a number could be (label_is_number) begins with a digit. */
	if (is_digit(in.p[start])) {
		if (ipaddr_parse(in, &a) < 0)
			return false;
		/* That has no other spelling. */
		ret->kind = HOST_IPV4;
		ret->addr = a;
	} else {
		ret->kind = HOST_NAME;
		ret->addr = (struct ipaddr){0};
	}
	set_text(ret, in);
	return true;
}

int host_parse(struct str in, struct host *ret, struct err *e)
{
	struct str name = in, last = STR_NONE;
	struct ipaddr a;

	if (host_parse_common(in, ret))
		return 0;
	if (in.n == 0)
		return err_reason(e, REASON_MALFORMED_REQUEST, "an empty host");
	if (in.p[0] == '[')
		return parse_bracketed(in, ret, e);
	if (name.n > 1 && name.p[name.n - 1] == '.')
		name.n--;
	if (name.n > LIMIT_HOST_BYTES)
		return err_reason(e, REASON_MALFORMED_REQUEST, "a host of %zu bytes (at most %d)",
				  name.n, LIMIT_HOST_BYTES);
	if (check_labels(name, &last, e) < 0)
		return -1;
	if (label_is_number(last)) {
		if (name.n != in.n || ipaddr_parse(name, &a) < 0)
			return err_reason(e, REASON_AMBIGUOUS_URL,
					  "a host that ends in a number but is not a plain IPv4 "
					  "address (four decimal parts without leading zeros)");
		host_from_ipaddr(&a, ret);
		return 0;
	}
	ret->kind = HOST_NAME;
	ret->len = (uint8_t)name.n;
	ret->addr = (struct ipaddr){0};
	for (size_t i = 0; i < name.n; i++)
		ret->text[i] = name_byte(name.p[i]);
	ret->text[name.n] = '\0';
	return 0;
}

void host_from_ipaddr(const struct ipaddr *a, struct host *ret)
{
	ret->kind = a->family == 4 ? HOST_IPV4 : a->family == 6 ? HOST_IPV6 : HOST_NONE;
	ret->addr = *a;
	ipaddr_format(a, ret->text);
	ret->len = (uint8_t)strlen(ret->text);
}

bool host_eq(const struct host *a, const struct host *b)
{
	/* No host equals nothing, not even another one that is missing. */
	return a->kind != HOST_NONE && a->kind == b->kind && a->len == b->len &&
	       memcmp(a->text, b->text, a->len) == 0;
}

void host_add_url(const struct host *h, struct strbuf *out)
{
	if (h->kind == HOST_IPV6)
		strbuf_addc(out, '[');
	strbuf_add(out, host_str(h));
	if (h->kind == HOST_IPV6)
		strbuf_addc(out, ']');
}

const char *host_port(const struct host *h, unsigned port, char mem[HOST_PORT_ROOM])
{
	struct strbuf b;

	strbuf_init_fixed(&b, mem, HOST_PORT_ROOM);
	host_add_url(h, &b);
	strbuf_addc(&b, ':');
	strbuf_addu(&b, port);
	return strbuf_cstr(&b);
}
