/*
 * Brings up a connection to the shared state: its name, the connection, TLS, the password, the
 * database; all of it within LIMIT_MS_STATE_CONNECT.
 */
#ifndef STILE_PROXY_STATE_LINK_H
#define STILE_PROXY_STATE_LINK_H

#include "logging/strbuf.h"
#include "policy/config.h"
#include "proxy/net/resolve.h"
#include "proxy/state/resp.h"

struct link;

struct link_options {
	/* borrowed; outlive it */
	struct loop *loop;
	struct resolver *resolver;
	const struct config_state *to;
	/* Both with auth_arg. What is shown to it; an empty password: nothing. NULL: nothing ever.
	 */
	int (*login)(void *arg, struct strbuf *user, struct strbuf *password, struct err *e);
	int (*tls)(void *arg, SSL **ret, struct err *e); /* of rediss:// */
	/* Before any of them is dialled. */
	void (*found)(void *arg, const struct ipaddr *addrs, size_t n);
	/* Once, from the loop, never from inside link_start. r: the callee's, who sets its owner;
	 * or NULL and why. */
	void (*done)(void *arg, struct resp *r, const struct err *why);
	void *arg, *auth_arg;
};

int link_start(const struct link_options *o, struct link **ret, struct err *e) ATTR_NODISCARD;
void link_cancel(struct link *l); /* done is not called; NULL is accepted */

#endif
