/*
 * What the questions of all issuers have in common: a URL made of a base and a path, a bearer, JSON
 * both ways, and what a status that is no success means. For this folder's sources, on the broker's
 * loop.
 */
#ifndef STILE_PROXY_CREDENTIALS_ENDPOINT_H
#define STILE_PROXY_CREDENTIALS_ENDPOINT_H

#include "proxy/credentials/fetch.h"
#include "proxy/credentials/source.h"
#include "proxy/http/message.h"

struct endpoint_question {
	/* borrowed until endpoint_ask returns */
	const struct source_setting *s; /* addresses and timeout are its credential's */
	const char *base;		/* a URL; one slash at its end is not doubled */
	struct str path;		/* with its slash; and query */
	struct str bearer;		/* Authorization; empty: none */
	struct str type;		/* of body; empty: JSON */
	struct str body;
	struct str accept; /* empty: JSON */
	struct field more; /* one field on top; no name: none */
	/* counted */
	struct trust *trust; /* as in fetch.h */
	/* plain */
	size_t most; /* as in fetch.h */
	bool post;
};

typedef void endpoint_done_fn(void *arg, const struct fetch_answer *a, const struct err *why);

/* As fetch_start. */
int endpoint_ask(const struct endpoint_question *q, endpoint_done_fn *done, void *arg,
		 struct fetch **ret, struct err *e) ATTR_NODISCARD;

/* How a source reads what came: the value and its life, or why there is none. */
typedef int endpoint_read_fn(void *self, const struct fetch_answer *a, struct secret **ret,
			     int64_t *ret_life_us, struct err *e);
/* The end of a question whose answer holds the value: read by `read`, or why there is no answer,
 * given to the source's on_result. */
void endpoint_answered(const struct source_setting *s, const struct fetch_answer *a,
		       const struct err *why, endpoint_read_fn *read, void *self);

/* For people: the status, and the first of hints that is for it. Returns -1. */
struct endpoint_hint {
	unsigned status; /* 0: ends the list */
	const char *text;
};
int endpoint_refused(const struct fetch_answer *a, const struct endpoint_hint *hints,
		     struct err *e);

#endif
