/*
 * Strict UTF-8, and the one list of characters that could forge a line, clear a screen or turn text
 * around. It keeps no state and allocates nothing. strbuf, err, log and json call it.
 */
#include "logging/utf8.h"

#include <string.h>

#include "logging/attrs.h"

static bool is_tail(unsigned char c)
{
	return (c & 0xc0) == 0x80;
}

/* The second byte carries what makes a form overlong, a surrogate or too large. */
static bool second_fits(unsigned char first, unsigned char second)
{
	switch (first) {
	case 0xe0: return second >= 0xa0 && second <= 0xbf;
	case 0xed: return second >= 0x80 && second <= 0x9f;
	case 0xf0: return second >= 0x90 && second <= 0xbf;
	case 0xf4: return second >= 0x80 && second <= 0x8f;
	default: return is_tail(second);
	}
}

size_t utf8_decode(struct str s, uint32_t *ret_cp)
{
	const unsigned char *p = (const unsigned char *)s.p;
	size_t n;
	uint32_t cp;

	if (p[0] < 0x80) {
		*ret_cp = p[0];
		return 1;
	}
	*ret_cp = UTF8_INVALID;
	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		n = 2;
	else if (p[0] >= 0xe0 && p[0] <= 0xef)
		n = 3;
	else if (p[0] >= 0xf0 && p[0] <= 0xf4)
		n = 4;
	else
		return 1;
	if (s.n < n || !second_fits(p[0], p[1]))
		return 1;
	cp = p[0] & (0xffU >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if (!is_tail(p[i]))
			return 1;
		cp = cp << 6 | (p[i] & 0x3f);
	}
	*ret_cp = cp;
	return n;
}

bool utf8_is_hazard(uint32_t cp)
{
	if (cp < 0xa0)
		return cp < 0x20 || cp >= 0x7f;
	if (cp == UTF8_INVALID || cp == 0x061c)
		return true;
	if (cp < 0x200e || cp > 0x2069)
		return false;
	return cp <= 0x200f || (cp >= 0x2028 && cp <= 0x202e) || cp >= 0x2066;
}

size_t utf8_clean(struct str s)
{
	size_t i = 0;

	while (i < s.n) {
		unsigned char c = (unsigned char)s.p[i];
		uint32_t cp;
		size_t n;

		if (c >= 0x20 && c < 0x7f) {
			i++;
			continue;
		}
		n = utf8_decode(str_skip(s, i), &cp);
		if (utf8_is_hazard(cp))
			break;
		i += n;
	}
	return i;
}

static size_t put_hex(char *out, char kind, uint32_t v, unsigned digits)
{
	out[0] = '\\';
	out[1] = kind;
	for (unsigned i = 0; i < digits; i++)
		out[2 + i] = "0123456789abcdef"[v >> 4 * (digits - 1 - i) & 0xf];
	return 2 + digits;
}

size_t utf8_escape_one(struct str s, char out[UTF8_ESCAPE_MAX], size_t *ret_len)
{
	uint32_t cp;
	size_t n = utf8_decode(s, &cp);

	if (!utf8_is_hazard(cp)) {
		memcpy(out, s.p, n);
		*ret_len = n;
	} else if (cp == UTF8_INVALID || cp < 0x80) {
		*ret_len = put_hex(out, 'x', (unsigned char)s.p[0], 2);
	} else {
		*ret_len = put_hex(out, 'u', cp, 4);
	}
	return n;
}

size_t utf8_escape(struct str s, char *out, size_t cap)
{
	size_t len = 0;

	while (s.n) {
		char one[UTF8_ESCAPE_MAX];
		size_t n;
		size_t took = utf8_escape_one(s, one, &n);

		if (n >= cap - len)
			break;
		memcpy(out + len, one, n);
		len += n;
		s = str_skip(s, took);
	}
	out[len] = '\0';
	return len;
}
