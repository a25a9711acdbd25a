/*
 * Looks at the bytes of a configuration file before YAML is read. The YAML reader would stop at the
 * first bad byte and give its place as an offset; here each gets its line and column, and reading
 * goes on behind it. Called by yaml.c alone.
 */
#include "policy/yaml_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"

struct scan {
	struct str text;
	size_t at;
	uint32_t line, col;
	uint32_t told_line; /* a line of foreign bytes is one fault */
	char *copy;	    /* owned; NULL until something had to be replaced */
	struct faults *f;
};

/* The length of the character at p, and the character; 0 for bytes that are not UTF-8
 * (RFC 3629 section 4: no surrogates, no overlong forms, nothing past U+10FFFF). */
static size_t decode(const unsigned char *p, size_t n, uint32_t *ret)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	uint32_t c = len == 1 ? p[0] : len == 0 ? 0 : p[0] & (0xffU >> (len + 1));

	if (len == 0 || len > n || p[0] > 0xf4)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*ret = c;
	return len;
}

/* YAML 1.2.2 section 5.1 (printable characters), less what breaks a line for some readers and not
 * for others, and less what turns the direction of the text that a person sees. */
static const char *why_refused(uint32_t c)
{
	if (c < 0x20 || c == 0x7f || (c > 0x7f && c < 0xa0))
		return c == 0x85 ? "an invisible line break" : "a control character";
	if (c == 0x2028 || c == 0x2029)
		return "an invisible line break";
	if ((c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069))
		return "an invisible character that reorders the text around it";
	if (c == 0xfeff)
		return "a byte order mark inside the file";
	if ((c & 0xfffe) == 0xfffe)
		return "a code point that is not a character";
	return NULL;
}

static int replace(struct scan *s, size_t n)
{
	if (!s->copy) {
		s->copy = malloc(s->text.n);
		if (!s->copy)
			return -1;
		memcpy(s->copy, s->text.p, s->text.n);
	}
	memset(s->copy + s->at, 'x', n); /* no indicator of YAML */
	return 0;
}

static int refuse(struct scan *s, size_t n, uint32_t c, const char *why)
{
	if (s->told_line != s->line) {
		s->told_line = s->line;
		if (why)
			fault_add(s->f, s->line, s->col, "%s, U+%04X (remove it)", why, c);
		else
			fault_add(s->f, s->line, s->col,
				  "byte 0x%02x is not UTF-8 (save the file as UTF-8)",
				  (unsigned char)s->text.p[s->at]);
	}
	return replace(s, n);
}

static int step(struct scan *s)
{
	const unsigned char *p = (const unsigned char *)s->text.p + s->at;
	size_t left = s->text.n - s->at, len;
	uint32_t c = 0;
	const char *why;

	len = decode(p, left, &c);
	if (len > 0 && (c == '\n' || (c == '\r' && (left < 2 || p[1] != '\n')))) {
		s->line++;
		s->col = 1;
		s->at++;
		return 0;
	}
	why = len > 0 && c != '\t' && c != '\r' ? why_refused(c) : NULL;
	if ((len == 0 || why) && refuse(s, len ? len : 1, c, why) < 0)
		return -1;
	s->at += len ? len : 1;
	s->col++;
	return 0;
}

static bool is_utf16(struct str t)
{
	return t.n >= 2 && (memcmp(t.p, "\xff\xfe", 2) == 0 || memcmp(t.p, "\xfe\xff", 2) == 0 ||
			    t.p[0] == '\0' || t.p[1] == '\0');
}

/* A `%` at the start of a line is a directive. %YAML is harmless; %TAG gives meaning to tags, which
 * are not read, and costs the reader time that grows with the square of their number. */
static bool is_directive(const struct scan *s)
{
	struct str rest = str_skip(s->text, s->at);

	return s->col == 1 && rest.n > 0 && rest.p[0] == '%' && !str_starts(rest, STR("%YAML "));
}

static bool is_plain(char c)
{
	return c >= 0x20 && c < 0x7f;
}

int yaml_bytes_check(struct str text, struct faults *f, char **ret_copy)
{
	struct scan s = {.text = text, .line = 1, .col = 1, .f = f};

	if (text.n > LIMIT_CONFIG_BYTES) {
		fault_add(f, 0, 0, "the file is larger than %d MiB (the limit)",
			  LIMIT_CONFIG_BYTES >> 20);
		return -1;
	}
	if (is_utf16(text)) {
		fault_add(f, 1, 1, "the file is UTF-16 or binary (save it as UTF-8)");
		return -1;
	}
	if (str_starts(text, STR("\xef\xbb\xbf")))
		s.at = 3;
	while (s.at < text.n) {
		if (is_plain(text.p[s.at]) && s.col > 1) {
			s.at++;
			s.col++;
			continue;
		}
		if (is_directive(&s)) {
			fault_add(f, s.line, 1,
				  "a YAML directive (remove the line; quote a value that begins "
				  "with %%)");
			goto failed;
		}
		if (step(&s) < 0) {
			fault_add(f, 0, 0, "out of memory");
			goto failed;
		}
	}
	*ret_copy = s.copy;
	return 0;
failed:
	free(s.copy);
	return -1;
}
