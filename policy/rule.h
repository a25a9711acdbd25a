/*
 * Rules as plain data: what load.c makes out of the YAML and what policy.c decides by. A rule with
 * a list of targets has one `struct target` a target; they share the rule's other fields.
 */
#ifndef STILE_POLICY_RULE_H
#define STILE_POLICY_RULE_H

#include "policy/ipaddr.h"
#include "policy/pattern.h"
#include "policy/url.h"

enum rule_effect { RULE_ALLOW, RULE_DENY };
enum rule_tls { RULE_TLS_INSPECT, RULE_TLS_PASSTHROUGH };

/* `client_credentials:`, what becomes of an identity that the client brings. PASS leaves it, but
 * for the place into which the rule's own credential goes. */
enum rule_client { RULE_CLIENT_PASS, RULE_CLIENT_STRIP, RULE_CLIENT_DENY };

enum target_host_kind {
	TARGET_HOST_EXACT,    /* host */
	TARGET_HOST_WILDCARD, /* *.suffix: every name below it */
	TARGET_HOST_ANY,      /* * */
};

struct target {
	enum scheme scheme;
	enum target_host_kind host_kind;
	struct host host; /* EXACT: the host; WILDCARD: the suffix without "*." */
	uint16_t port_first, port_last;
	/* owned */
	struct pattern *path; /* NULL: any */
	/* plain */
	uint32_t line, col; /* of the target in the file */
};

struct rule {
	/* owned */
	char *name;	  /* NULL: none given */
	char *credential; /* NULL: none; the name in `credentials:` */
	struct target *targets;
	char **methods;		/* NULL: any; GET stands for HEAD too */
	struct iprange *ranges; /* `addresses:` */
	/* plain */
	size_t targets_n, methods_n, ranges_n;
	enum rule_effect effect;
	enum rule_tls tls;
	enum rule_client client; /* not said: STRIP with a credential, PASS without */
	bool ech_refuse;
	uint32_t order; /* place in the file, from 0 */
	uint32_t line, col;
	/* borrowed from the policy, or static (`--allow`) */
	const char *file;
};

/* Frees what the rule owns and leaves it empty. */
void rule_clear(struct rule *r);

#endif
