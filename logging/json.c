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

#include "logging/plain.h"
#include "logging/utf8.h"

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

/* Length of the run at the start of s that may stand in a JSON string as it is. */
static size_t clean_run(struct str s)
{
	size_t i = 0;

	while (i < s.n) {
		unsigned char c = (unsigned char)s.p[i];
		uint32_t cp;
		size_t n;

		if (s.n - i >= 16 && !plain_any(plain_odd(bytes16_load(s.p + i)))) {
			i += 16;
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

	if (!plain_is(s))
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
		strbuf_add(j->out, STR(JSON_CUT_MARK));
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
