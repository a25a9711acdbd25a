/*
 * A compiled policy: immutable, reference-counted, shared by all workers. A decision finds the
 * rules for a host by hash (index.h), so its price does not grow with the list.
 */
#ifndef STILE_POLICY_POLICY_H
#define STILE_POLICY_POLICY_H

#include "policy/rule.h"

struct policy;

struct policy_request {
	enum scheme scheme; /* http or https; ws or wss where it asks for a WebSocket */
	const struct host *host;
	uint16_t port;
	struct str method;
	struct str path; /* canonical */
};

/* What a request for u asks, by that method; borrows from both. */
static inline struct policy_request policy_request_for(const struct url *u, struct str method)
{
	return (struct policy_request){u->scheme, &u->host, u->port, method, u->path};
}

struct policy_decision {
	bool allow;
	enum reason reason; /* REASON_NONE when allowed */
	/* borrowed from the policy: hold a reference as long as you hold this */
	const struct rule
		*rule; /* that decided: the allow or the deny; NULL for no_rule and TRACE */
};

/* What could be admitted behind a CONNECT to host:port, by the first allow of each kind in file
 * order that no deny of the whole host beats. */
struct policy_connect {
	bool allow;	    /* one of the four below is set */
	enum reason reason; /* if not */
	/* borrowed from the policy; NULL: not admitted that way */
	const struct rule
		*inspect; /* https, to be intercepted; the requests inside are judged anew */
	const struct rule *passthrough; /* https, relayed after the SNI agreed */
	const struct rule *http;	/* cleartext HTTP */
	const struct rule *tcp;		/* anything */
	const struct rule *deny;	/* the deny that beat them, if one did */
};

/* Takes the rules (array and contents) over, also on failure. `version` is text for the log (a hash
 * of the file). */
int policy_new(const char *name, const char *file, const char *version, struct rule *rules,
	       size_t rules_n, struct policy **ret, struct err *e) ATTR_NODISCARD;
struct policy *policy_ref(struct policy *p);
void policy_unref(struct policy *p); /* NULL is accepted */

/* Borrowed from p; i < policy_rules_n, in file order. */
const char *policy_name(const struct policy *p);
const char *policy_version(const struct policy *p);
size_t policy_rules_n(const struct policy *p);
const struct rule *policy_rule(const struct policy *p, size_t i);

/* The heart of the product: deny beats allow wherever it stands; of the allows the first in file
 * order decides; nothing matches: no_rule. A WebSocket is admitted by ws and wss targets alone.
 * Allow compares with the canonical path, deny broadly (pattern.h). A deny of tcp:// is one of all
 * that a connection to that port may carry. A passthrough rule never admits a request that we can
 * read. TRACE is method_refused, and where the rule brings a credential so are its other spellings
 * and TRACK. */
void policy_decide(const struct policy *p, const struct policy_request *q,
		   struct policy_decision *ret);
/* `inspect` and `passthrough` exclude each other: the first in file order of the https rules
 * decides. A deny with a path or methods cannot be checked inside a passthrough or tcp tunnel, so
 * it refuses that tunnel. */
void policy_decide_connect(const struct policy *p, const struct host *host, uint16_t port,
			   struct policy_connect *ret);
/* Could any rule admit something at this name, whatever scheme, port, path? False also where a deny
 * closes the whole host to all that is allowed there. For the stub DNS. */
bool policy_admits_name(const struct policy *p, const struct host *host);
/* Does an allow name this host itself, and not by a pattern? */
bool policy_spells_name(const struct policy *p, const struct host *host);

/* ipaddr_judge with the rule's ranges. */
int policy_check_addr(const struct rule *r, const struct ipaddr *a, const struct ipaddr *own,
		      size_t own_n, struct err *e) ATTR_NODISCARD;

/* For `explain`: the rule that came nearest to admitting q, and in words what differs ("the path
 * does not match", "the rule covers port 443", "*.x covers names below x, not x itself"). NULL if
 * the policy has no allow rule that shares anything with it. */
const struct rule *policy_nearest(const struct policy *p, const struct policy_request *q,
				  struct strbuf *ret_why);

/* Does a deny of that target speak of the scheme? tcp:// of all that a connection to the port may
 * carry, https of wss and http of ws. */
bool target_denies_scheme(const struct target *t, enum scheme s);
/* "file:line" of a rule, for rule_at. */
void rule_add_at(const struct rule *r, struct strbuf *out);
/* A target as it would be written in a rule. */
void target_add(const struct target *t, struct strbuf *out);

#endif
