/*
 * Writes JSON into a strbuf. Clean runs are copied whole, because this is done for each request;
 * only what needs an escape is looked at more closely. It does not check that brackets match or
 * that keys are unique. record.c and the proxy's answers call it.
 *
 * A byte that is no valid UTF-8 cannot stand in JSON; it becomes the four characters \xNN (in the
 * line: \\xNN), so that the reader still sees which byte it was.
 */
#include "logging/json.h"

#include <string.h>

#include "logging/utf8.h"

#define CUT_MARK "[cut]"

void json_init(struct json *j, struct strbuf *out)
{
	*j = (struct json){.out = out};
}

/* The comma in front of whatever comes next, if something stands before it. */
static void separate(struct json *j)
{
	if (j->need_comma)
		strbuf_addc(j->out, ',');
	j->need_comma = false;
}

void json_open(struct json *j, char bracket)
{
	separate(j);
	strbuf_addc(j->out, bracket);
}

void json_close(struct json *j, char bracket)
{
	strbuf_addc(j->out, bracket);
	j->need_comma = true;
}

#define EACH_BYTE(c) (0x0101010101010101U * (c))

/* Not 0 if one of eight bytes may not stand in a JSON string as it is, or is not ASCII. In each
 * byte the top bit tells; (x - 1) & ~x has it where x is 0. */
static inline uint64_t has_special(uint64_t v)
{
	uint64_t quote = v ^ EACH_BYTE('"'), backslash = v ^ EACH_BYTE('\\');
	uint64_t del = v ^ EACH_BYTE(0x7f);
	uint64_t found = v | ((v - EACH_BYTE(0x20)) & ~v);

	found |= (quote - EACH_BYTE(1)) & ~quote;
	found |= (backslash - EACH_BYTE(1)) & ~backslash;
	found |= (del - EACH_BYTE(1)) & ~del;
	return found & EACH_BYTE(0x80);
}

static uint64_t load32(const char *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint64_t load64(const char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

typedef signed char bytes16 __attribute__((vector_size(16)));
typedef uint64_t words2 __attribute__((vector_size(16)));

/* The same of sixteen. As a signed number what is not ASCII is below the space too. */
static inline bool has_special16(words2 w)
{
	bytes16 v = (bytes16)w;
	words2 bad = (words2)((v < 0x20) | (v == 0x7f) | (v == '"') | (v == '\\'));

	return (bad[0] | bad[1]) != 0;
}

static words2 load128(const char *p)
{
	words2 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Whether all of s is ASCII that needs no escape. The last step overlaps the one before it instead
 * of going byte by byte: most strings of a record are short. */
static bool is_plain(struct str s)
{
	size_t i = 0;

	if (s.n >= 16) {
		for (; i + 16 < s.n; i += 16)
			if (has_special16(load128(s.p + i)))
				return false;
		return !has_special16(load128(s.p + s.n - 16));
	}
	if (s.n >= 8)
		return !has_special16((words2){load64(s.p), load64(s.p + s.n - 8)});
	if (s.n >= 4)
		return !has_special(load32(s.p) | load32(s.p + s.n - 4) << 32);
	for (; i < s.n; i++)
		if (has_special(EACH_BYTE((unsigned char)s.p[i])))
			return false;
	return true;
}

/* Length of the run at the start of s that may stand in a JSON string as it is. */
static size_t clean_run(struct str s)
{
	size_t i = 0;

	while (i < s.n) {
		unsigned char c = (unsigned char)s.p[i];
		uint32_t cp;
		size_t n;

		if (s.n - i >= 8 && !has_special(load64(s.p + i))) {
			i += 8;
			continue;
		}
		if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
			i++;
			continue;
		}
		if (c < 0x80)
			break;
		n = utf8_decode(str_skip(s, i), &cp);
		if (utf8_is_hazard(cp))
			break;
		i += n;
	}
	return i;
}

/* Writes the one character at the start of s escaped; returns the bytes it took. */
static size_t put_escaped(struct strbuf *out, struct str s)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char first = (unsigned char)s.p[0];
	uint32_t cp;
	size_t took = utf8_decode(s, &cp);

	if (cp == '"' || cp == '\\') {
		char two[] = {'\\', (char)cp};

		strbuf_add(out, str_from(two, sizeof(two)));
	} else if (cp == UTF8_INVALID) {
		char five[] = {'\\', '\\', 'x', hex[first >> 4], hex[first & 0xf]};

		strbuf_add(out, str_from(five, sizeof(five)));
	} else {
		char six[] = {'\\',
			      'u',
			      hex[cp >> 12 & 0xf],
			      hex[cp >> 8 & 0xf],
			      hex[cp >> 4 & 0xf],
			      hex[cp & 0xf]};

		strbuf_add(out, str_from(six, sizeof(six)));
	}
	return took;
}

static void put_text(struct strbuf *out, struct str s)
{
	for (;;) {
		size_t n = clean_run(s);

		strbuf_add(out, str_head(s, n));
		s = str_skip(s, n);
		if (s.n == 0)
			return;
		s = str_skip(s, put_escaped(out, s));
	}
}

/* The common case in one step: comma, quote, plain text, quote and what stands behind (a colon
 * after a key). False when the text is not plain or the room is short; then nothing is written. */
static bool put_plain(struct json *j, struct str s, char behind)
{
	char *p;
	size_t len = 0;

	if (!is_plain(s))
		return false;
	p = strbuf_room(j->out, s.n + 4);
	if (!p)
		p = strbuf_reserve(j->out, s.n + 4);
	if (!p)
		return false;
	if (j->need_comma)
		p[len++] = ',';
	p[len++] = '"';
	if (s.n)
		memcpy(p + len, s.p, s.n);
	len += s.n;
	p[len++] = '"';
	if (behind)
		p[len++] = behind;
	p[len] = '\0';
	j->out->len += len;
	return true;
}

void json_key(struct json *j, const char *key)
{
	struct str s = str_from_c(key);

	if (!put_plain(j, s, ':')) {
		json_str(j, s);
		strbuf_addc(j->out, ':');
	}
	j->need_comma = false;
}

void json_key_slowly(struct json *j, struct str quoted)
{
	separate(j);
	strbuf_add(j->out, quoted);
}

void json_members(struct json *j, struct str members)
{
	if (members.n == 0)
		return;
	separate(j);
	strbuf_add(j->out, members);
	j->need_comma = true;
}

void json_str(struct json *j, struct str s)
{
	json_str_max(j, s, SIZE_MAX);
}

/* The longest length <= max that does not end inside a character. A run of stray tail bytes longer
 * than a character has no boundary to respect. */
static size_t cut_at(struct str s, size_t max)
{
	for (size_t back = 0; back < 4 && back <= max; back++)
		if (((unsigned char)s.p[max - back] & 0xc0) != 0x80)
			return max - back;
	return max;
}

void json_str_max(struct json *j, struct str s, size_t max)
{
	if (s.n <= max && put_plain(j, s, '\0')) {
		j->need_comma = true;
		return;
	}
	separate(j);
	strbuf_addc(j->out, '"');
	if (s.n > max) {
		put_text(j->out, str_head(s, cut_at(s, max)));
		strbuf_add(j->out, STR(CUT_MARK));
	} else {
		put_text(j->out, s);
	}
	strbuf_addc(j->out, '"');
	j->need_comma = true;
}

void json_u64(struct json *j, uint64_t n)
{
	separate(j);
	strbuf_addu(j->out, n);
	j->need_comma = true;
}

void json_bool(struct json *j, bool b)
{
	separate(j);
	strbuf_add(j->out, b ? STR("true") : STR("false"));
	j->need_comma = true;
}

void json_kv_str(struct json *j, const char *key, struct str s)
{
	json_key(j, key);
	json_str(j, s);
}

void json_kv_opt(struct json *j, const char *key, struct str s)
{
	if (s.n)
		json_kv_str(j, key, s);
}

void json_kv_u64(struct json *j, const char *key, uint64_t n)
{
	json_key(j, key);
	json_u64(j, n);
}
