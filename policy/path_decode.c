/*
 * How a path's bytes are folded and decoded for deny rules: lower case, escapes once more, and what
 * some reader takes for ASCII as ASCII. For patterns (pattern.c) and paths (path_forms.c) alike.
 */
#include "logging/hex.h"
#include "policy/lookalike.h"
#include "policy/pattern_parts.h"

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool path_is_escape(const char *p, size_t left)
{
	return left >= 3 && p[0] == '%' && hex_value(p[1]) >= 0 && hex_value(p[2]) >= 0;
}

/* Where p[0..n) ends in a character that some readers take for ASCII, what they read takes its
 * place (lookalike.h). The new length. */
static size_t fold_tail(char *p, size_t n)
{
	char out[LOOKALIKE_MAX];
	size_t size = 1;
	int chars;

	while (size < 4 && size < n && ((uint8_t)p[n - size] & 0xc0) == 0x80)
		size++;
	if (size == 1 || lookalike_utf8_size((uint8_t)p[n - size]) != size)
		return n;
	chars = lookalike(lookalike_utf8((const uint8_t *)p + n - size, size), out);
	if (chars < 0)
		return n;
	n -= size;
	for (int i = 0; i < chars; i++)
		p[n++] = out[i] != '/' ? out[i] : chars == 1 ? LIKE_SLASH : WITHIN_SLASH;
	return n;
}

bool path_decode_once(char *p, size_t *n)
{
	size_t out = 0;
	bool ok = true;

	for (size_t i = 0; i < *n; i++) {
		int v;

		if (!path_is_escape(p + i, *n - i)) {
			p[out++] = p[i];
			if ((uint8_t)p[i] & 0x80)
				out = fold_tail(p, out);
			continue;
		}
		v = hex_value(p[i + 1]) * 16 + hex_value(p[i + 2]);
		i += 2;
		if (v == 0xc0 || v == 0xc1)
			ok = false;
		if (v == '/')
			p[out++] = KEPT_SLASH;
		else if (v > 0 && v < 0x20)
			p[out++] = OTHER_CONTROL;
		else
			p[out++] = lower((char)v);
		if (v & 0x80)
			out = fold_tail(p, out);
	}
	*n = out;
	return ok;
}

bool path_has_escape(const char *p, size_t n)
{
	for (const char *at = p; (at = memchr(at, '%', n - (size_t)(at - p))); at++)
		if (path_is_escape(at, n - (size_t)(at - p)))
			return true;
	return false;
}

void path_fold(char *to, struct str from)
{
	for (size_t i = 0; i < from.n; i++) {
		char c = from.p[i];

		to[i] = c > 0 && c < 0x20 ? OTHER_CONTROL : lower(c);
	}
}
