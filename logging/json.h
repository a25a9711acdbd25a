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

#define JSON_CUT_MARK "[cut]" /* at the end of what was cut */

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
