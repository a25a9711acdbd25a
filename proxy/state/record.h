/*
 * One sandbox as it stands in the shared state: a JSON object under the hash of its token. The
 * token itself is in none. Whoever can write there can make tokens; what they write is bounded and
 * strictly read all the same. Pure.
 */
#ifndef STILE_PROXY_STATE_RECORD_H
#define STILE_PROXY_STATE_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "logging/err.h"
#include "logging/str.h"
#include "logging/strbuf.h"

#define STATE_DIGEST_BYTES 32 /* SHA-256 of the token */
#define STATE_DIGEST_HEX   (2 * STATE_DIGEST_BYTES)
#define STATE_NAME_MAX	   65 /* with its terminator */

struct state_record {
	unsigned char digest[STATE_DIGEST_BYTES]; /* where it stands, not in its text */
	char name[STATE_NAME_MAX], policy[STATE_NAME_MAX], listener[STATE_NAME_MAX];
	int64_t created_us, ends_us; /* since 1970 */
	bool revoked;
};

/* 1 to 64 letters, digits, dots, underscores, hyphens: what may stand in a log as a name. */
bool state_is_name(struct str s);
/* -1: out has no room. */
int state_record_format(const struct state_record *r, struct strbuf *out) ATTR_NODISCARD;
/* All but the digest. -1: it is none, and err says why in words of our own. */
int state_record_parse(struct str text, struct state_record *ret, struct err *e) ATTR_NODISCARD;
void state_digest_write(const unsigned char digest[STATE_DIGEST_BYTES],
			char out[STATE_DIGEST_HEX + 1]);
int state_digest_read(struct str hex, unsigned char ret[STATE_DIGEST_BYTES]) ATTR_NODISCARD;

#endif
