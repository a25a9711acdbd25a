/*
 * Writes JSON (RFC 8259) into a strbuf. Strings may hold any bytes: control characters, DEL, C1,
 * bidi controls, U+2028/2029 and invalid UTF-8 become escapes, so a line stays one line and stays
 * valid. It does not read JSON; jansson does.
 */
#ifndef STILE_LOGGING_JSON_H
#define STILE_LOGGING_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "logging/strbuf.h"

struct json {
	/* borrowed (the caller's) */
	struct strbuf *out;
	/* plain */
	bool need_comma;
};

void json_init(struct json *j, struct strbuf *out);
void json_open(struct json *j, char bracket);  /* '{' or '[' */
void json_close(struct json *j, char bracket); /* '}' or ']' */
void json_key(struct json *j, const char *key);
void json_str(struct json *j, struct str s);
/* A key that is a literal, given with its quotes and colon (JSON_KEY): nothing of it is looked at.
 */
#define JSON_KEY(name) STR("\"" name "\":")
void json_key_slowly(struct json *j, struct str quoted); /* for json_key_literal alone */

static ATTR_INLINE void json_key_literal(struct json *j, struct str quoted)
{
	size_t comma = j->need_comma ? 1 : 0;
	char *p = strbuf_room(j->out, quoted.n + 1);

	if (!p) {
		json_key_slowly(j, quoted);
		return;
	}
	*p = ',';
	memcpy(p + comma, quoted.p, quoted.n);
	p[comma + quoted.n] = '\0';
	j->out->len += comma + quoted.n;
	j->need_comma = false;
}

/* Text that is JSON already: members of the object that is open, without a comma at either end. */
void json_members(struct json *j, struct str members);
/* At most max bytes of s; a longer one is cut on a character boundary and ends in "[cut]". */
void json_str_max(struct json *j, struct str s, size_t max);
void json_u64(struct json *j, uint64_t n);
void json_bool(struct json *j, bool b);
/* json_key and a value in one; the _opt form writes nothing for an empty slice. */
void json_kv_str(struct json *j, const char *key, struct str s);
void json_kv_opt(struct json *j, const char *key, struct str s);
void json_kv_u64(struct json *j, const char *key, uint64_t n);

#endif
