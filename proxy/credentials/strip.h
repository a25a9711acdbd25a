/*
 * What of a client's request an origin could read as an identity, and taking it out. The rule and
 * the list are in README.md; inject.c calls this.
 */
#ifndef STILE_PROXY_CREDENTIALS_STRIP_H
#define STILE_PROXY_CREDENTIALS_STRIP_H

#include "proxy/http/message.h"

/* What to look for. */
struct strip {
	struct str field, query; /* these, whatever they are called; may be empty */
	bool sigv4;	 /* and what a signature of AWS consists of, whether it says who or not */
	bool identities; /* and all that could be an identity */
};

/* Is there such a field or key of the query? */
bool strip_finds(const struct strip *s, const struct fields *f, const struct url *u);
/* Takes such fields out. Was there one? */
bool strip_fields(const struct strip *s, struct fields *f);
/* The same for the keys of the query, which shrinks in place: a slice of it that was taken before
 * is stale. Everything that stays keeps its bytes. */
bool strip_query(const struct strip *s, struct url *u);

#endif
