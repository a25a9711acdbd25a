/*
 * See reading.h. Unicode's tables are libunistring's, which the log's exporter uses too: they are
 * large, change each year, and are kept well there.
 */
#include "policy/reading.h"

#include <stdlib.h>
#include <string.h>
#include <unicase.h>
#include <uninorm.h>
#include <unistr.h>

static bool is_one_of(char c, const char *set)
{
	return c == '/' || (c != '\0' && strchr(set, c));
}

bool reading_behind_authority(struct str path, const char *separators, const char *ends,
			      struct str *ret)
{
	size_t at = 0;

	while (at < path.n && is_one_of(path.p[at], separators))
		at++;
	if (at < 2)
		return false;
	while (at < path.n && !is_one_of(path.p[at], ends))
		at++;
	*ret = at < path.n && path.p[at] != '?' && path.p[at] != '#' ? str_skip(path, at)
								     : STR("/");
	return true;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* How long is the `(X(...)Y(...))` that s begins with? 0: it does not. */
static size_t session_size(struct str s)
{
	size_t at = 1;

	if (s.n < 6 || s.p[0] != '(')
		return 0;
	while (at + 2 < s.n && is_letter(s.p[at]) && s.p[at + 1] == '(') {
		at += 2;
		while (at < s.n && s.p[at] != ')' && s.p[at] != '(' && s.p[at] != '/')
			at++;
		if (at == s.n || s.p[at] != ')')
			return 0;
		at++;
	}
	return at > 1 && at < s.n && s.p[at] == ')' ? at + 1 : 0;
}

size_t reading_without_sessions(struct str path, char *to)
{
	size_t n = 0;

	for (size_t i = 0; i < path.n; i++) {
		size_t size = path.p[i] == '/' ? session_size(str_skip(path, i + 1)) : 0;

		if (size > 0)
			i += size;
		else
			to[n++] = path.p[i];
	}
	if (n == 0 && path.n > 0)
		to[n++] = '/';
	return n;
}

size_t reading_without_params(struct str path, char *to)
{
	bool is_param = false;
	size_t n = 0;

	for (size_t i = 0; i < path.n; i++) {
		is_param = path.p[i] != '/' && (is_param || path.p[i] == ';');
		if (!is_param)
			to[n++] = path.p[i];
	}
	return n;
}

bool reading_needs_fold(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if ((uint8_t)s.p[i] & 0x80)
			return true;
	return false;
}

/* U+0300 to U+036F, the accents, in UTF-8. */
static bool is_accent(const char *p, size_t left)
{
	uint8_t a = (uint8_t)p[0], b = left > 1 ? (uint8_t)p[1] : 0;

	return (a == 0xcc && b >= 0x80) || (a == 0xcd && b >= 0x80 && b <= 0xaf);
}

int reading_fold(struct str s, bool drop, char **ret, size_t *ret_n, bool *ret_broken)
{
	/* A byte of Latin-1 becomes two. */
	uint8_t *text = malloc(2 * s.n + 1), *folded = NULL;
	size_t n = 0, folded_n = 0, kept = 0;

	if (!text)
		return -1;
	*ret_broken = false;
	for (size_t i = 0; i < s.n;) {
		ucs4_t c;
		int size = u8_mbtoucr(&c, (const uint8_t *)s.p + i, s.n - i);

		if (size > 0) {
			memcpy(text + n, s.p + i, (size_t)size);
			n += (size_t)size;
			i += (size_t)size;
			continue;
		}
		*ret_broken = true;
		if (!drop) {
			text[n++] = (uint8_t)(0xc0 | (uint8_t)s.p[i] >> 6);
			text[n++] = (uint8_t)(0x80 | ((uint8_t)s.p[i] & 0x3f));
		}
		i++;
	}
	folded = u8_casefold(text, n, NULL, UNINORM_NFKD, NULL, &folded_n);
	free(text);
	if (!folded)
		return -1;
	for (size_t i = 0; i < folded_n; i++) {
		if (is_accent((char *)folded + i, folded_n - i))
			i++;
		else
			folded[kept++] = folded[i];
	}
	*ret = (char *)folded;
	*ret_n = kept;
	return 0;
}

/* What an ending of one of these is dropped from or added to, in lower case as all here. */
static const char *const formats[] = {"html", "htm",  "json",  "xml",	   "xhtml", "php",
				      "txt",  "text", "csv",   "yaml",	   "yml",   "atom",
				      "rss",  "diff", "patch", "aspx",	   "asp",   "jsp",
				      "do",   "pdf",  "md",    "markdown", "ics",   "action"};

struct str reading_without_format(struct str segment, bool last)
{
	size_t dot = segment.n;
	struct str ending;

	while (dot > 0 && segment.p[dot - 1] != '.')
		dot--;
	if (dot < 2)
		return segment;
	ending = str_skip(segment, dot);
	if (str_eq(ending, STR("git")))
		return str_head(segment, dot - 1);
	for (size_t i = 0; last && i < ARRAY_LEN(formats); i++)
		if (str_eq(ending, str_from_c(formats[i])))
			return str_head(segment, dot - 1);
	return segment;
}

bool reading_is_file(struct str segment)
{
	for (size_t i = 0; i + 1 < segment.n; i++)
		if (segment.p[i] == '.' && is_letter(segment.p[i + 1]))
			return true;
	return false;
}

bool reading_is_index(struct str segment)
{
	struct str stem = reading_without_format(segment, true);

	return stem.n < segment.n && (str_eq(stem, STR("index")) || str_eq(stem, STR("default")));
}
