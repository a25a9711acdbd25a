/*
 * The common part of the records that session/ writes, and the small helpers around them.
 */
#ifndef STILE_PROXY_SESSION_AUDIT_H
#define STILE_PROXY_SESSION_AUDIT_H

#include "logging/record.h"
#include "proxy/session/exchange.h"
#include "proxy/session/identity.h"

/* Text that a record borrows while it is formatted. */
struct audit_mem {
	char upstream[80];
	char rule_at_mem[1024];
	struct strbuf rule_at;
};

void audit_init(struct record *r, struct audit_mem *m, enum record_event event);

/* tls, of the client's side. */
void audit_tls(struct record *r, const struct caller *c);
/* listener, client, sandbox, policy, policy_version, http, tls. */
void audit_caller(struct record *r, const struct caller *c, const struct identity *id);
/* method, scheme, host, port, path, query: of a request that was read, or as far as it was. */
void audit_request(struct record *r, const struct request *q);
/* method CONNECT, scheme, host, port. */
void audit_target(struct record *r, enum scheme scheme, const struct host *host, uint16_t port);
void audit_rule(struct record *r, struct audit_mem *m, const struct rule *rule);
/* via: NULL when it was dialled. */
void audit_upstream(struct record *r, struct audit_mem *m, const struct ipaddr *a, uint16_t port,
		    const struct config_parent *via);
void audit_decision(struct record *r, bool allow, enum reason reason);
void audit_error(struct record *r, const struct err *e);

#endif
