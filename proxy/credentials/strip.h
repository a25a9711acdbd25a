/*
 * What of a client's request an origin could read as an identity, and taking it out. The rule and
 * the list are in README.md; inject.c calls this.
 */
#ifndef STILE_PROXY_CREDENTIALS_STRIP_H
#define STILE_PROXY_CREDENTIALS_STRIP_H

#include "proxy/http/message.h"

/* Takes out the field `target` (may be empty) and every field that carries an identity. Was there
 * one? */
bool strip_fields(struct fields *f, struct str target);
/* The same for the keys of the query, which shrinks in place: a slice of it that was taken before
 * is stale. Everything that stays keeps its bytes. */
bool strip_query(struct url *u, struct str target);

#endif
