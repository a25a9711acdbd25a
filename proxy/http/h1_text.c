/*
 * Classes of bytes, lines, field lines and lists: the grammar that heads and trailers share (RFC
 * 9110 section 5, RFC 9112 sections 2.2 and 5). It knows no field by name.
 */
#include "proxy/http/h1_text.h"

#include <string.h>

#include "logging/limits.h"

#define SHOWN 64 /* bytes of a name in a message */

/* Sums of H1_TOKEN, H1_VALUE and H1_TARGET; a row holds 16 bytes. */
/* clang-format off */
const uint8_t h1_class[256] = {
	0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0,
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	2, 7, 6, 7, 7, 7, 7, 7, 6, 6, 7, 7, 6, 7, 7, 6,
	7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 6, 6, 6, 6, 6, 6,
	6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
	7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 6, 6, 6, 7, 7,
	7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
	7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 6, 7, 6, 7, 0,
	6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6,
	6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6,
	6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6,
	6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6,
	6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6,
	6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6,
	6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6,
	6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6,
};
/* clang-format on */

/* Yes for what is no H1_TARGET. */
static ATTR_INLINE bytes16 stops_target(bytes16 v)
{
	return (bytes16)(v < 0x21) | (bytes16)(v == 0x7f);
}

static size_t token_end(const char *p, size_t i, size_t n)
{
	for (;;) {
		i = bytes16_find(p, i, n, h1_stops_name);
		if (i == n || !(h1_class[(uint8_t)p[i]] & H1_TOKEN))
			return i;
		i++;
	}
}

size_t h1_target_end(const char *p, size_t i, size_t n)
{
	return bytes16_find(p, i, n, stops_target);
}

size_t h1_span(struct str s, unsigned class)
{
	size_t i = 0;

	switch (class) {
	case H1_TOKEN: return token_end(s.p, 0, s.n);
	case H1_VALUE: return h1_value_end(s.p, 0, s.n);
	case H1_TARGET: return h1_target_end(s.p, 0, s.n);
	}
	while (i < s.n && (h1_class[(uint8_t)s.p[i]] & class))
		i++;
	return i;
}

bool h1_is_field(const struct field *f)
{
	return f->name.n > 0 && h1_all(f->name, H1_TOKEN) && h1_all(f->value, H1_VALUE);
}

static int malformed(struct err *e, const char *what)
{
	return err_reason(e, REASON_MALFORMED_REQUEST, "%s", what);
}

int h1_next_line(struct str *rest, struct str *ret, struct err *e)
{
	const char *p = rest->p;
	size_t n = rest->n, end = h1_value_end(p, 0, n);
	ptrdiff_t lf;

	/* As it nearly always is: nothing before the CRLF that a line may not hold. */
	if (n - end >= 2 && p[end] == '\r' && p[end + 1] == '\n') {
		*ret = (struct str){p, end};
		*rest = (struct str){p + end + 2, n - end - 2};
		return 0;
	}
	lf = str_find(*rest, '\n');
	if (lf < 0)
		return malformed(e, "the head ends in the middle of a line");
	if (lf == 0 || rest->p[lf - 1] != '\r')
		return malformed(e, "a line that ends in a bare LF");
	*ret = str_head(*rest, (size_t)lf - 1);
	*rest = str_skip(*rest, (size_t)lf + 1);
	return 0;
}

/* Why the line is none: its name ends at `at`, and not at a colon. */
static int refuse_name(struct str line, size_t at, struct err *e)
{
	unsigned char c;

	if (at == line.n)
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "a field line without a colon: \"%.*s\"",
				  (int)str_head(line, SHOWN).n, line.p);
	c = (unsigned char)line.p[at];
	if (at == 0 && (c == ' ' || c == '\t'))
		return malformed(e, "a line that begins with white space (folded lines are not "
				    "taken)");
	if (at == 0 && c == ':')
		return malformed(e, "a field without a name");
	if (c == ' ' || c == '\t')
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "white space in or behind the field name \"%.*s\"",
				  (int)str_head(line, at < SHOWN ? at : SHOWN).n, line.p);
	return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x in a field name", c);
}

int h1_next_field(struct str *rest, struct field *ret, struct err *e)
{
	struct str line = STR(""), value;
	size_t n, bad;

	if (rest->n >= 2 && rest->p[0] == '\r' && rest->p[1] == '\n') {
		*rest = str_skip(*rest, 2);
		return 0;
	}
	if (h1_next_line(rest, &line, e) < 0)
		return -1;
	n = h1_span(line, H1_TOKEN);
	if (n > LIMIT_FIELD_NAME_BYTES)
		return err_reason(e, REASON_HEAD_TOO_LARGE, "a field name of more than %d bytes",
				  LIMIT_FIELD_NAME_BYTES);
	if (n == 0 || n == line.n || line.p[n] != ':')
		return refuse_name(line, n, e);
	value = str_trim_ows(str_skip(line, n + 1));
	bad = h1_span(value, H1_VALUE);
	if (bad < value.n)
		return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x in the value of %.*s",
				  (unsigned char)value.p[bad], (int)(n < SHOWN ? n : SHOWN),
				  line.p);
	*ret = (struct field){str_head(line, n), value};
	return 1;
}

bool h1_next_element(struct str *rest, struct str *ret)
{
	while (rest->p) {
		struct str one = str_trim_ows(str_split(rest, ','));

		if (one.n > 0) {
			*ret = one;
			return true;
		}
	}
	return false;
}

bool h1_list_has(struct str list, struct str word)
{
	struct str one;

	while (h1_next_element(&list, &one)) {
		struct str params = one;

		if (str_eq_nocase(str_trim_ows(str_split(&params, ';')), word))
			return true;
	}
	return false;
}
