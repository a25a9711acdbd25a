/*
 * A token as programs and endpoints hand it out: JSON with the value and its end, or the bare
 * value. Their memory is wiped.
 */
#ifndef STILE_PROXY_CREDENTIALS_TOKEN_H
#define STILE_PROXY_CREDENTIALS_TOKEN_H

#include <jansson.h>

#include "proxy/credentials/store.h"

/* An object. The library's memory is wiped as it is freed, from the first call on. NULL, with e:
 * it is not JSON, not an object, has a key twice, or is deeper than LIMIT_SOURCE_JSON_DEPTH. */
json_t *token_json(struct str text, struct err *e);
/* The text of a list or map that a configuration holds, of whatever depth. NULL: there is none. */
json_t *token_json_config(const char *text);
/* A text of o, copied; -1: it is missing, or no text. The error names the key, never a value. */
int token_json_secret(const json_t *o, const char *key, struct secret **ret,
		      struct err *e) ATTR_NODISCARD;
/* How long from now until `key` of o, in microseconds: RFC 3339, or seconds since 1970; below 0
 * when it has passed, never 0; 0 when there is no such key. -1: it is neither. */
int token_json_end(const json_t *o, const char *key, int64_t *ret_us, struct err *e) ATTR_NODISCARD;

/* `key` of o as a number of seconds, in microseconds: as above, from now on. */
int token_json_life(const json_t *o, const char *key, int64_t *ret_us,
		    struct err *e) ATTR_NODISCARD;

/* What a helper prints: {"token": ..., "expires_at": ...}, or the bare token with one newline
 * behind it. */
int token_parse(struct str text, struct secret **ret, int64_t *ret_life_us,
		struct err *e) ATTR_NODISCARD;

#endif
