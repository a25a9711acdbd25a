/*
 * A placeholder where none is swapped: in heads that never become an exchange (CONNECT, what cannot
 * be read) and in those that no rule admits. That they are refused says little; that a sandbox
 * tried to send its key there is what an auditor looks for.
 */
#ifndef STILE_PROXY_SESSION_MISUSE_H
#define STILE_PROXY_SESSION_MISUSE_H

#include "proxy/http/message.h"
#include "proxy/session/snapshot.h"

/* -1: REASON_PLACEHOLDER_MISUSED, the head holds one. */
int misuse_check(const struct snapshot *s, const struct request *r, struct err *e) ATTR_NODISCARD;
/* The request is refused as e says: if it holds one, e says that instead, and both in its text. */
void misuse_note(const struct snapshot *s, const struct request *r, struct err *e);

#endif
