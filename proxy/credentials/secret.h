/*
 * The memory of one secret: pages of its own, locked, left out of core dumps, zero in a forked
 * child, wiped when the last reference goes. For this folder's sources; others see store.h.
 */
#ifndef STILE_PROXY_CREDENTIALS_SECRET_H
#define STILE_PROXY_CREDENTIALS_SECRET_H

#include "proxy/credentials/store.h"

struct redactor;

/* Room for at most `room` bytes, still empty; NULL when memory is out. */
struct secret *secret_new(size_t room);
/* Where the value goes; secret_trim says how much of the room it took. Only before it is shared. */
char *secret_room(struct secret *s);
void secret_trim(struct secret *s, size_t n);
/* One with `value`, and one with `a`, `between` and `b`; NULL when memory is out. */
struct secret *secret_copy(struct str value);
struct secret *secret_join(struct str a, char between, struct str b);
/* What finds it in an answer; taken over. Only before it is shared. */
void secret_set_redactor(struct secret *s, struct redactor *r);

/* What every source owes to the rest: not empty, at most LIMIT_SECRET_BYTES, no control character
 * (it could split a head: RFC 9110 section 5.5). The text says what is wrong, never with the value.
 */
int secret_check(const struct secret *s, struct err *e) ATTR_NODISCARD;
/* The same for a value of c: what is shown in a TLS handshake has several lines, and must be a
 * certificate with its key. */
int secret_check_as(const struct config_credential *c, const struct secret *s,
		    struct err *e) ATTR_NODISCARD;

#endif
