/*
 * A connection that speaks Redis' protocol (RESP 2): commands out, answers in, in their order. The
 * bytes go through net/'s stream, over TCP, TLS or a Unix socket alike; hiredis writes the commands
 * and reads the answers. Each answer has a deadline, and a bound in bytes and in members.
 */
#ifndef STILE_PROXY_STATE_RESP_H
#define STILE_PROXY_STATE_RESP_H

#include "logging/err.h"
#include "logging/str.h"
#include "proxy/net/stream.h"

struct resp;

enum resp_kind { RESP_NIL, RESP_TEXT, RESP_NUMBER, RESP_LIST, RESP_ERROR };

struct resp_value {
	/* owned */
	char *bytes;	       /* TEXT and ERROR: n of them */
	struct resp_value **v; /* LIST: n of them, none NULL */
	/* plain */
	enum resp_kind kind;
	size_t n;
	long long number;
};

struct str resp_text(const struct resp_value *v); /* of a TEXT or an ERROR; else empty */
/* What the other side complains of, in words of our own: what it sends may repeat a secret. */
const char *resp_complaint(const struct resp_value *v);

struct resp_options {
	/* TLS is up where there is any; taken over, also on failure */
	struct stream *s;
	struct loop *loop;
	/* The connection is of no use any more; called once, from the loop, never from inside a
	 * call of this file. What was asked is not answered. */
	void (*failed)(void *arg, const struct err *why);
	void *arg;
};

int resp_new(const struct resp_options *o, struct resp **ret, struct err *e) ATTR_NODISCARD;
void resp_free(struct resp *r); /* buries it; NULL is accepted */
/* answered is called with the answer, from the loop. -1: too much is under way, or memory out.
 * Secrets among the arguments are wiped when they are sent. */
int resp_ask(struct resp *r, size_t argc, const struct str *argv,
	     void (*answered)(void *arg, const struct resp_value *v), void *arg,
	     struct err *e) ATTR_NODISCARD;
void resp_set_owner(struct resp *r, void (*failed)(void *arg, const struct err *why), void *arg);

#endif
