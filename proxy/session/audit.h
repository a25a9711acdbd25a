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
	char rule_at_mem[1024];
	struct strbuf rule_at;
};

/* An empty record of that event; m, where it may borrow from, outlives it. */
void audit_init(struct record *r, struct audit_mem *m, enum record_event event);

/* What many records say alike, as it stands in them, so that it is not put together for each: of
 * rules, and of the origins' addresses. A worker has one. */
struct audit_texts;
struct audit_texts *audit_texts_new(void);    /* NULL: memory is out */
void audit_texts_free(struct audit_texts *t); /* NULL is accepted */
/* The rules that they are of may be gone. */
void audit_texts_forget(struct audit_texts *t);

/* tls, of the client's side. */
void audit_tls(struct record *r, const struct caller *c);
/* listener, client, sandbox, http, tls. */
void audit_caller(struct record *r, const struct caller *c, const struct identity *id);
/* policy, policy_version. NULL: none. */
void audit_policy(struct record *r, const struct policy *p);
/* method, scheme, host, port, path, query: of a request that was read, or as far as it was. */
void audit_request(struct record *r, const struct request *q);
/* method CONNECT, scheme, host, port. */
void audit_target(struct record *r, enum scheme scheme, const struct host *host, uint16_t port);
/* rule, rule_at, credential. NULL: none. */
void audit_rule(struct record *r, struct audit_mem *m, const struct rule *rule);
/* audit_policy and audit_rule, of the worker's own snapshot, whose texts are t; or of another one,
 * and t is NULL. */
void audit_decided(struct record *r, struct audit_mem *m, struct audit_texts *t,
		   const struct policy *p, const struct rule *rule);
/* via: NULL when it was dialled. What r says of it is good until this is called again. */
void audit_upstream(struct record *r, struct audit_texts *t, const struct ipaddr *a, uint16_t port,
		    const struct config_parent *via);
void audit_decision(struct record *r, bool allow, enum reason reason);
void audit_error(struct record *r, const struct err *e);

#endif
