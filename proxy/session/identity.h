/*
 * Which sandbox is calling, and so which policy speaks for it. Today the entrance decides; tokens
 * and transparent listeners will be told apart here and nowhere else.
 */
#ifndef STILE_PROXY_SESSION_IDENTITY_H
#define STILE_PROXY_SESSION_IDENTITY_H

#include "proxy/session/worker.h"

struct identity {
	/* borrowed: the snapshot's and the entrance's */
	const struct policy *policy; /* NULL: none of that name any more: everything is refused */
	struct str sandbox;
};

struct identity identity_of(const struct entrance *en, const struct snapshot *s);

#endif
