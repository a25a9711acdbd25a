/*
 * A client's token: whose connection this is, the bound on guessing, and the end of everything that
 * a token carried when the token ends. identity.h says who is calling; here it becomes so.
 */
#ifndef STILE_PROXY_SESSION_CLIENT_TOKEN_H
#define STILE_PROXY_SESSION_CLIENT_TOKEN_H

#include "proxy/session/client.h"

/* For a head that was read at the proxy port itself. -1: c->request is to be refused with *e, and
 * the answer to be held back for *ret_hold_ms. 1: the token is asked for where others may have made
 * it; to be called again when client_drive is (CLIENT_TOKEN). */
int client_identify(struct client *c, uint64_t *ret_hold_ms, struct err *e) ATTR_NODISCARD;
/* The same for the record of one that is refused anyway. */
void client_identify_quietly(struct client *c);
/* The connection is over. */
void client_token_leave(struct client *c);

/* Drives those whose tokens were asked for and that have an answer. */
void client_token_look(struct worker *w);
/* Closes what belongs to a token that has ended, with its records; arms w->token_timer for the next
 * one. Its timer's and its letter's. */
void client_token_sweep(struct worker *w);

#endif
