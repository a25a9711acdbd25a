/*
 * What an origin was given must not come back: looks through a run of bytes, as it streams by, for
 * a credential's value in the spellings in which programs echo what they got, and blanks it. A
 * blank is as long as what it covers, so no length that anybody counted changes: not a
 * Content-Length, not a range, not the frames within a WebSocket or of gRPC.
 *
 * A redactor is what is looked for: made once a value, immutable, in memory like the secret's. A
 * redaction is one search. The session's exchange_redact.c calls it.
 */
#ifndef STILE_PROXY_CREDENTIALS_REDACT_H
#define STILE_PROXY_CREDENTIALS_REDACT_H

#include "logging/err.h"
#include "logging/str.h"
#include "policy/config.h"

struct redactor; /* safe for threads */

/* Looks for value as c sends it: raw, in base64 at each alignment and in lines of 8
 * characters or more (LF, CRLF), in hexadecimal, each of these with any of its characters escaped
 * for a URL, for JSON or for HTML. What is shorter than LIMIT_REDACT_MIN is not looked for, since
 * it would be found everywhere; nor is a key that signs, since it is never sent: *ret is NULL then
 * if nothing is left. -1: memory is out. */
int redactor_new(const struct config_credential *c, struct str value, struct redactor **ret,
		 struct err *e) ATTR_NODISCARD;
void redactor_free(struct redactor *r); /* wipes; NULL is accepted */

typedef void (*redact_sink)(void *arg, struct str data);

struct redaction {
	/* owned */
	unsigned char *held; /* what may be the beginning of a match */
	/* borrowed */
	const struct redactor *r;
	/* plain */
	size_t n, cap;
	size_t released; /* of held: already with the sink */
	uint64_t found;
};

void redaction_init(struct redaction *x, const struct redactor *r);
void redaction_clear(struct redaction *x); /* wipes */
/* Gives to sink all of what came so far that cannot be the beginning of a match. The same bytes,
 * however they are cut, come out as the same bytes. -1: memory is out, and `in` is lost. */
int redaction_push(struct redaction *x, struct str in, redact_sink sink, void *arg,
		   struct err *e) ATTR_NODISCARD;
/* No more comes: the rest. */
void redaction_end(struct redaction *x, redact_sink sink, void *arg);
/* Nothing came for a while: gives what is held to the sink, if it is less than half of what is
 * looked for (a message may end so, and its reader wait for it). It stays known, and if the match
 * comes true its rest is blanked. */
void redaction_release(struct redaction *x, redact_sink sink, void *arg);
/* After how long without a byte that is right; 0: it would give nothing. */
unsigned redaction_patience_ms(const struct redaction *x);

/* The same in place, of something that is whole. cut: its end may have been cut off, so what may be
 * the beginning of a match there is blanked too. How many were found. */
size_t redact_in_place(const struct redactor *r, char *p, size_t n, bool cut);
/* Is there anything to be found? Changes nothing. */
bool redact_finds(const struct redactor *r, struct str s);

#endif
