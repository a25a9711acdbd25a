/*
 * Hosts and URLs a byte at a time, and every text written anew: the plain readers that those of
 * policy/, which take what is canonical already as it is, are compared with.
 */
#ifndef STILE_TESTS_UNIT_POLICY_URL_PLAIN_H
#define STILE_TESTS_UNIT_POLICY_URL_PLAIN_H

#include <stdlib.h>
#include <string.h>

#include "policy/lookalike.h"
#include "policy/url.h"

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

static int refuse_host_byte(struct str in, size_t at, struct err *e)
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
				return refuse_host_byte(name, i, e);
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

static int plain_host_parse(struct str in, struct host *ret, struct err *e)
{
	struct str name = in, last = STR_NONE;
	struct ipaddr a;

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

/* What a raw byte of the target is. */
enum byte_class {
	BAD,	   /* control, space, DEL: no request line may hold it */
	KEEP,	   /* pchar of RFC 3986 section 3.3, or '/' */
	DOT,	   /* KEEP, and possibly a dot segment */
	ENCODE,	   /* printable, not allowed by RFC 3986, sent all the same */
	HIGH,	   /* 0x80 to 0xff */
	PERCENT,   /* an escape */
	BACKSLASH, /* a slash to some readers */
	QUESTION,  /* ends the path */
	HASH,	   /* a fragment, which no request carries */
};

#define B BAD
#define K KEEP
#define E ENCODE
#define H HIGH
/* clang-format off */
static const uint8_t byte_class[256] = {
	B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, B,
	B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, B,
	/* space ! " # $ % & ' ( ) * + , - . / */
	B, K, E, HASH, K, PERCENT, K, K, K, K, K, K, K, K, DOT, K,
	/* 0 to 9 : ; < = > ? */
	K, K, K, K, K, K, K, K, K, K, K, K, E, K, E, QUESTION,
	/* @ and A to O; P to Z [ \ ] ^ _ */
	K, K, K, K, K, K, K, K, K, K, K, K, K, K, K, K,
	K, K, K, K, K, K, K, K, K, K, K, E, BACKSLASH, E, E, K,
	/* ` and a to o; p to z { | } ~ DEL */
	E, K, K, K, K, K, K, K, K, K, K, K, K, K, K, K,
	K, K, K, K, K, K, K, K, K, K, K, E, E, E, K, B,
	H, H, H, H, H, H, H, H, H, H, H, H, H, H, H, H,
	H, H, H, H, H, H, H, H, H, H, H, H, H, H, H, H,
	H, H, H, H, H, H, H, H, H, H, H, H, H, H, H, H,
	H, H, H, H, H, H, H, H, H, H, H, H, H, H, H, H,
	H, H, H, H, H, H, H, H, H, H, H, H, H, H, H, H,
	H, H, H, H, H, H, H, H, H, H, H, H, H, H, H, H,
	H, H, H, H, H, H, H, H, H, H, H, H, H, H, H, H,
	H, H, H, H, H, H, H, H, H, H, H, H, H, H, H, H,
};
/* clang-format on */
#undef B
#undef K
#undef E
#undef H

/* The canonical text under construction. */
struct target_out {
	char *p; /* room for LIMIT_TARGET_BYTES and one escape more, or for three times the input */
	size_t n;
	uint8_t prev;	/* the byte before, decoded: what UTF-8 sequences are judged by */
	bool maybe_dot; /* a dot stands at the start of a segment */
};

static int ambiguous(struct err *e, const char *what, size_t at)
{
	return err_reason(e, REASON_AMBIGUOUS_URL, "%s at byte %zu of path and query", what,
			  at + 1);
}

static int malformed_byte(struct err *e, struct str in, size_t at)
{
	return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x at %zu of path and query",
			  (unsigned char)in.p[at], at + 1);
}

static int too_long(struct err *e)
{
	return err_reason(e, REASON_TARGET_TOO_LONG,
			  "the target is longer than %d bytes in its canonical form",
			  LIMIT_TARGET_BYTES);
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* The value of the escape at in[at], or -1 if it is broken. */
static int escape_value(struct str in, size_t at)
{
	int hi, lo;

	if (in.n - at < 3)
		return -1;
	hi = hex_value(in.p[at + 1]);
	lo = hex_value(in.p[at + 2]);
	return hi < 0 || lo < 0 ? -1 : hi << 4 | lo;
}

static bool begins_u_escape(struct str in, size_t at)
{
	if (in.n - at < 6 || (in.p[at + 1] != 'u' && in.p[at + 1] != 'U'))
		return false;
	for (size_t i = 2; i < 6; i++)
		if (hex_value(in.p[at + i]) < 0)
			return false;
	return true;
}

static void out_escape(struct target_out *o, uint8_t v)
{
	static const char digits[] = "0123456789ABCDEF";

	o->p[o->n++] = '%';
	o->p[o->n++] = digits[v >> 4];
	o->p[o->n++] = digits[v & 0xf];
}

/* RFC 3986 section 2.3. */
static bool is_unreserved(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

/* Is v, behind prev, part of a UTF-8 sequence that is longer than it need be? Careless decoders
 * read %C0%AF as a slash and %C0%AE as a dot (RFC 3629 section 10). C0 and C1 begin nothing else.
 */
static bool is_overlong(uint8_t prev, uint8_t v)
{
	if (v == 0xc0 || v == 0xc1)
		return true;
	if (v < 0x80 || v > 0xbf)
		return false;
	return (prev == 0xe0 && v < 0xa0) || (prev == 0xf0 && v < 0x90) ||
	       (prev == 0xf8 && v < 0x88) || (prev == 0xfc && v < 0x84);
}

/* A dot that was just written begins a segment; %2F begins one as well for whoever decodes it. */
static void note_dot(struct target_out *o)
{
	size_t before = o->n - 1;

	if (before >= 1 &&
	    (o->p[before - 1] == '/' || (before >= 3 && memcmp(o->p + before - 3, "%2F", 3) == 0)))
		o->maybe_dot = true;
}

static int path_escape(struct str in, size_t at, struct target_out *o, struct err *e)
{
	int v = escape_value(in, at);

	if (v < 0)
		return ambiguous(e, "a broken percent-encoding", at);
	if (v < 0x20 || v == 0x7f)
		return ambiguous(e, v == 0 ? "an encoded NUL" : "an encoded control character", at);
	if (v == '\\')
		return ambiguous(e, "an encoded backslash", at);
	if (is_overlong(o->prev, (uint8_t)v))
		return ambiguous(e, "UTF-8 in a longer form than its shortest", at);
	o->prev = (uint8_t)v;
	if (!is_unreserved((uint8_t)v)) {
		out_escape(o, (uint8_t)v);
		/* What is escaped twice may be a dot or a slash to a reader who decodes twice, what
		 * is not ASCII to one who folds, and a blank is nothing to one who trims. */
		o->maybe_dot |= v == '%' || v >= 0x80 || v == ' ';
		return 0;
	}
	o->p[o->n++] = (char)v;
	if (v == '.')
		note_dot(o);
	return 0;
}

/* Up to the '?' or the end. Returns how many bytes it read, or -1. */
static ptrdiff_t canon_path(struct str in, struct target_out *o, struct err *e)
{
	size_t at = 0;

	while (at < in.n) {
		uint8_t c = (uint8_t)in.p[at];

		if (o->n > LIMIT_TARGET_BYTES)
			return too_long(e);
		switch ((enum byte_class)byte_class[c]) {
		case KEEP: o->p[o->n++] = (char)c; break;
		case DOT:
			o->p[o->n++] = (char)c;
			note_dot(o);
			break;
		case ENCODE: out_escape(o, c); break;
		case HIGH:
			if (is_overlong(o->prev, c))
				return ambiguous(e, "UTF-8 in a longer form than its shortest", at);
			out_escape(o, c);
			o->maybe_dot = true;
			break;
		case PERCENT:
			if (path_escape(in, at, o, e) < 0)
				return -1;
			at += 3;
			continue;
		case QUESTION: return (ptrdiff_t)at;
		case BAD: return malformed_byte(e, in, at);
		case BACKSLASH: return ambiguous(e, "a backslash", at);
		case HASH: return ambiguous(e, "a fragment", at);
		}
		o->prev = c;
		at++;
	}
	return (ptrdiff_t)at;
}

/* The query is data between client and origin: it is kept byte for byte, where a byte may be sent.
 */
static int canon_query(struct str in, size_t at, struct target_out *o, struct err *e)
{
	for (; at < in.n; at++) {
		uint8_t c = (uint8_t)in.p[at];

		if (o->n > LIMIT_TARGET_BYTES)
			return too_long(e);
		switch ((enum byte_class)byte_class[c]) {
		case PERCENT:
			if (escape_value(in, at) >= 0)
				o->p[o->n++] = (char)c;
			else if (begins_u_escape(in, at))
				return ambiguous(e, "an escape that begins with %u", at);
			else
				out_escape(o, c);
			break;
		case HIGH: out_escape(o, c); break;
		case BAD: return malformed_byte(e, in, at);
		case HASH: return ambiguous(e, "a fragment", at);
		case KEEP:
		case DOT:
		case ENCODE:
		case BACKSLASH:
		case QUESTION: o->p[o->n++] = (char)c; break;
		}
	}
	return 0;
}

/* The byte at s[at], an escape decoded as often as it can be (%252F, %25252f, ...). *ret_n: how
 * many characters stand for it. */
static uint8_t byte_at(struct str s, size_t at, size_t *ret_n)
{
	size_t i = at + 1;
	int v;

	*ret_n = 1;
	if (s.p[at] != '%')
		return (uint8_t)s.p[at];
	while (s.n - i >= 4 && s.p[i] == '2' && s.p[i + 1] == '5' && hex_value(s.p[i + 2]) >= 0 &&
	       hex_value(s.p[i + 3]) >= 0)
		i += 2;
	v = escape_value(s, i - 1);
	if (v < 0)
		return '%';
	*ret_n = i + 2 - at;
	return (uint8_t)v;
}

/* What the character at s[at] may be read as: ASCII, in out. As lookalike(), and *ret_n as above.
 * What is no UTF-8 is left out: some decoders drop it. */
static int reading_at(struct str s, size_t at, char out[static LOOKALIKE_MAX], size_t *ret_n)
{
	uint8_t bytes[4];
	size_t size = 0, want = 1, n;
	uint32_t cp;

	*ret_n = 0;
	while (size < want && at + *ret_n < s.n) {
		bytes[size] = byte_at(s, at + *ret_n, &n);
		if (size > 0 && (bytes[size] & 0xc0) != 0x80)
			break;
		if (size == 0)
			want = lookalike_utf8_size(bytes[0]);
		*ret_n += n;
		size++;
	}
	if (size < want || (want == 1 && bytes[0] >= 0x80) || bytes[0] > 0xf4)
		return 0;
	cp = lookalike_utf8(bytes, size);
	return cp >= 0xd800 && cp < 0xe000 ? 0 : lookalike(cp, out);
}

/* Where a reader of a path stands within a segment. */
enum dots {
	DOTS_OTHER = -1, /* it holds something else, or one of parameters began */
	DOTS_NONE,	 /* nothing but blanks yet */
	DOTS_ONE,
	DOTS_TWO,
	DOTS_ONE_BLANK, /* and blanks behind, which Windows drops */
	DOTS_TWO_BLANK,
};

/* The next of them at that character; *found: the segment was one of dots up to here. Parameters
 * end one (a Java server takes `..;x` for `..`), and so does what a decoded path may be cut at. */
static enum dots dots_next(enum dots d, char c, bool *found)
{
	bool is = d > DOTS_NONE;

	switch (c) {
	case '/':
	case '\\': *found |= is; return DOTS_NONE;
	case ';':
	case '?':
	case '#':
	case '\0': *found |= is; return DOTS_OTHER;
	case ' ': return d == DOTS_ONE ? DOTS_ONE_BLANK : d == DOTS_TWO ? DOTS_TWO_BLANK : d;
	case '.': return d == DOTS_NONE ? DOTS_ONE : d == DOTS_ONE ? DOTS_TWO : DOTS_OTHER;
	default: return DOTS_OTHER;
	}
}

/* Does the canonical path hold `.` or `..` as a segment, in any reading? */
static bool has_dot_segment(struct str path)
{
	enum dots d = DOTS_OTHER;
	bool found = false;
	char out[LOOKALIKE_MAX];
	size_t n;

	for (size_t at = 0; at < path.n && !found; at += n) {
		int chars = reading_at(path, at, out, &n);

		if (chars < 0)
			d = DOTS_OTHER;
		for (int i = 0; i < chars; i++)
			d = dots_next(d, out[i], &found);
	}
	return found || d > DOTS_NONE;
}

/* After a failure: the bytes as they came, for the log alone. mem is big enough for them up to
 * LIMIT_TARGET_BYTES. */
static void keep_raw(struct str in, struct url *ret)
{
	size_t n = in.n < LIMIT_TARGET_BYTES ? in.n : LIMIT_TARGET_BYTES;
	char *question;

	if (n > 0)
		memcpy(ret->mem, in.p, n);
	question = memchr(ret->mem, '?', n);
	ret->has_query = question != NULL;
	ret->path = str_from(ret->mem, question ? (size_t)(question - ret->mem) : n);
	ret->query = question ? str_from(question + 1, n - ret->path.n - 1) : STR_NONE;
}

/* Fills path and query of ret from `in`: a path that starts with '/' or, after an authority,
 * nothing or a query at once. */
static int canon_target(struct str in, struct url *ret, struct err *e)
{
	struct target_out o = {0};
	size_t path_n, room = LIMIT_TARGET_BYTES;
	ptrdiff_t read;

	/* One escape may be written when the bound is just reached, and one '/' before it all. */
	if (in.n < LIMIT_TARGET_BYTES / 3)
		room = 3 * in.n;
	ret->mem = malloc(room + 4);
	if (!ret->mem)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	o.p = ret->mem;
	if (in.n == 0 || in.p[0] != '/')
		o.p[o.n++] = '/';
	if (in.n > LIMIT_TARGET_BYTES) {
		too_long(e);
		goto refused;
	}
	read = canon_path(in, &o, e);
	if (read < 0)
		goto refused;
	path_n = o.n;
	if (o.maybe_dot && has_dot_segment(str_from(o.p, path_n))) {
		err_reason(e, REASON_AMBIGUOUS_URL, "a dot segment in the path");
		goto refused;
	}
	ret->has_query = (size_t)read < in.n;
	if (ret->has_query) {
		o.p[o.n++] = '?';
		if (canon_query(in, (size_t)read + 1, &o, e) < 0)
			goto refused;
	}
	if (o.n > LIMIT_TARGET_BYTES) {
		too_long(e);
		goto refused;
	}
	ret->path = str_from(o.p, path_n);
	ret->query = ret->has_query ? str_from(o.p + path_n + 1, o.n - path_n - 1) : STR_NONE;
	return 0;
refused:
	keep_raw(in, ret);
	return -1;
}

/* ---- authority ---- */

/* 1*DIGIT, 1 to 65535. Some readers would take a leading zero for octal, or cut the number. */
static int parse_port(struct str in, uint16_t *ret, struct err *e)
{
	unsigned v = 0;

	if (in.n == 0)
		return err_reason(e, REASON_MALFORMED_REQUEST, "a colon without a port");
	for (size_t i = 0; i < in.n; i++)
		if (in.p[i] < '0' || in.p[i] > '9')
			return err_reason(e, REASON_MALFORMED_REQUEST,
					  "byte 0x%02x in the port (only digits are taken)",
					  (unsigned char)in.p[i]);
	if (in.n > 1 && in.p[0] == '0')
		return err_reason(e, REASON_AMBIGUOUS_URL, "a port with leading zeros");
	for (size_t i = 0; i < in.n && i < 6; i++)
		v = v * 10 + (unsigned)(in.p[i] - '0');
	if (in.n > 5 || v == 0 || v > 65535)
		return err_reason(e, REASON_MALFORMED_REQUEST, "a port outside 1 to 65535");
	*ret = (uint16_t)v;
	return 0;
}

/* host[:port] without userinfo (RFC 3986 section 3.2). default_port 0: the port must be spelled
 * out. */
static int parse_authority(struct str in, uint16_t default_port, struct host *ret_host,
			   uint16_t *ret_port, struct err *e)
{
	struct str host = in, rest = STR_NONE;
	struct host h = {0};
	uint16_t port = default_port;
	ptrdiff_t end;

	if (str_find(in, '@') >= 0)
		return err_reason(e, REASON_AMBIGUOUS_URL,
				  "userinfo before the host (what stands before the @ is no host)");
	if (in.n > 0 && in.p[0] == '[') {
		end = str_find(in, ']');
		if (end < 0)
			return err_reason(e, REASON_MALFORMED_REQUEST, "a bracket is not closed");
		end++;
		if ((size_t)end < in.n && in.p[end] != ':')
			return err_reason(e, REASON_MALFORMED_REQUEST,
					  "bytes between the bracket and the port");
	} else {
		end = str_find(in, ':');
		if (end >= 0 && str_find(str_skip(in, (size_t)end + 1), ':') >= 0)
			return err_reason(e, REASON_MALFORMED_REQUEST,
					  "two colons in host and port (an IPv6 address stands in "
					  "brackets)");
	}
	if (end >= 0 && (size_t)end < in.n) {
		host = str_head(in, (size_t)end);
		rest = str_skip(in, (size_t)end + 1);
	}
	if (plain_host_parse(host, &h, e) < 0)
		return -1;
	if (host.n < in.n) {
		if (parse_port(rest, &port, e) < 0)
			return -1;
	} else if (port == 0) {
		return err_reason(e, REASON_MALFORMED_REQUEST, "a host without a port");
	}
	*ret_host = h;
	*ret_port = port;
	return 0;
}

static int plain_parse_host_field(struct str in, uint16_t default_port, struct host *ret_host,
				  uint16_t *ret_port, struct err *e)
{
	return parse_authority(in, default_port, ret_host, ret_port, e);
}

/* ---- the forms of a request target ---- */

/* Takes `http://` or `https://`, of what is asked `ws://` and `wss://` too, off *in (case does not
 * matter, RFC 3986 section 3.1). */
static int parse_scheme(struct str *in, bool asked, enum scheme *ret, struct err *e)
{
	ptrdiff_t colon = str_find(*in, ':');
	struct str word = str_head(*in, colon < 0 ? 0 : (size_t)colon);
	enum scheme s;

	if (str_eq_nocase(word, STR("http")))
		s = SCHEME_HTTP;
	else if (str_eq_nocase(word, STR("https")))
		s = SCHEME_HTTPS;
	else if (asked && str_eq_nocase(word, STR("ws")))
		s = SCHEME_WS;
	else if (asked && str_eq_nocase(word, STR("wss")))
		s = SCHEME_WSS;
	else
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "the target is not an http:// or https:// URL (no other scheme "
				  "is carried)");
	*ret = s;
	*in = str_skip(*in, word.n + 1);
	if (!str_starts(*in, STR("//")))
		return err_reason(e, REASON_AMBIGUOUS_URL, "the scheme is not followed by //");
	*in = str_skip(*in, 2);
	return 0;
}

static int parse_url(struct str in, bool asked, struct url *ret, struct err *e)
{
	struct str authority;
	size_t end = 0;
	int rc;

	*ret = (struct url){0};
	if (parse_scheme(&in, asked, &ret->scheme, e) < 0)
		return -1;
	/* A backslash stays within the authority, where host_parse refuses it: some readers end the
	 * authority there and others do not. */
	while (end < in.n && in.p[end] != '/' && in.p[end] != '?' && in.p[end] != '#')
		end++;
	authority = str_head(in, end);
	in = str_skip(in, end);
	rc = parse_authority(authority, scheme_default_port(ret->scheme), &ret->host, &ret->port,
			     e);
	/* A bad authority is the fault that is told; the path is read for the log. */
	if (canon_target(in, ret, rc < 0 ? NULL : e) < 0)
		rc = -1;
	return rc;
}

static int plain_parse_asked(struct str in, struct url *ret, struct err *e)
{
	return parse_url(in, true, ret, e);
}

static int plain_parse_origin_form(enum scheme scheme, const struct host *host, uint16_t port,
				   struct str in, struct url *ret, struct err *e)
{
	int rc;

	*ret = (struct url){0};
	ret->scheme = scheme;
	ret->host = *host;
	ret->port = port;
	rc = canon_target(in, ret, e);
	/* The asterisk of OPTIONS (RFC 9112 section 3.2.4) is no path. */
	if (rc == 0 && str_eq(in, STR("*")))
		ret->path = str_skip(ret->path, 1);
	else if (rc == 0 && (in.n == 0 || in.p[0] != '/')) {
		keep_raw(in, ret);
		rc = err_reason(e, REASON_MALFORMED_REQUEST,
				"the target is neither a path nor an absolute URL");
	}
	return rc;
}

#endif
