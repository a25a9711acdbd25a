/*
 * What the files load*.c share: how a tree becomes a config. Nobody else includes it; config.h is
 * what the rest of the program sees.
 *
 * A reader takes a node and returns 0, or -1 after it has added a fault. Readers go on after a
 * fault wherever there is more to find, so that one run shows all of them; whether there were any
 * is decided once, at the end, by the number of errors.
 */
#ifndef STILE_POLICY_LOAD_H
#define STILE_POLICY_LOAD_H

#include "policy/config.h"
#include "policy/load_keys.h"

struct loader {
	/* borrowed */
	struct faults *f;
	struct config *c; /* under construction */
	struct str dir;	  /* of the file, with its slash; empty: the current one */
	const struct yaml_node *policies_node;
	const char *const *allows; /* targets of --allow */
	const char *allows_for; /* the policy that they go to; NULL: the only one, or `default` */
	/* plain */
	size_t allows_n;
	bool partial; /* the tree lacks its end: what is missing is no fault */
	bool *used;   /* owned: one a credential */
	size_t rules_n;
	size_t errors_before; /* that f held when loading began */
};

/* For "%.*s": text of the file, cut to what a message can carry. */
#define SHOW(s) (int)((s).n > 64 ? 64 : (s).n), (s).p

/* ---- load_value.c: single values ---- */

/* A heap copy; NULL, and a fault, when memory is out. */
char *load_keep(struct loader *l, struct str s);
/* calloc for n things, n > 0, in the same way. */
void *load_array(struct loader *l, size_t n, size_t size);

/* A text that is not empty. `what` names the value in messages. A boolean or a number of YAML
 * without quotes is a fault. */
int load_text(struct loader *l, const struct yaml_node *node, const char *what, struct str *ret);
/* The same with numbers admitted as they are spelt. */
int load_plain(struct loader *l, const struct yaml_node *node, const char *what, struct str *ret);
/* A time with a unit, such as 15s, between least and most, all in milliseconds. */
int load_time(struct loader *l, const struct yaml_node *node, const char *what, uint64_t least_ms,
	      uint64_t most_ms, uint64_t *ret_ms);
/* A number, or bytes such as 64KiB, between least and most. */
int load_count(struct loader *l, const struct yaml_node *node, const char *what, uint64_t least,
	       uint64_t most, uint64_t *ret);
int load_bytes(struct loader *l, const struct yaml_node *node, const char *what, uint64_t least,
	       uint64_t most, uint64_t *ret);
/* The name of an environment variable. */
bool load_is_variable(struct str s);
/* One of n words; *ret is its place. */
int load_word(struct loader *l, const struct yaml_node *node, const char *what,
	      const char *const *words, size_t n, size_t *ret);
/* A list that is not empty. NULL after a fault. */
const struct yaml_node *load_list(struct loader *l, const struct yaml_node *node, const char *what);
/* The same for a list of maps; item: one of them as it is written. */
const struct yaml_node *load_items(struct loader *l, const struct yaml_node *node, const char *what,
				   const char *item);
/* A map, its keys sorted into ret; NULL in it: not given. */
int load_section(struct loader *l, const struct yaml_node *node, const char *what,
		 enum section section, struct section_values *ret);
/* Letters, digits, dot, underscore, hyphen; 1 to 64 of them: what may stand in a log as a name. */
int load_name(struct loader *l, const struct yaml_node *node, const char *what, struct str s);
/* A path, relative to the folder of the configuration file. NULL after a fault. */
char *load_path(struct loader *l, const struct yaml_node *node, struct str s);

/* ---- one part of the file each ---- */

void load_listen(struct loader *l, const struct yaml_node *node);
void load_admin(struct loader *l, const struct yaml_node *node); /* before load_listen */
void load_metrics(struct loader *l, const struct yaml_node *node);
void load_ca(struct loader *l, const struct yaml_node *node);
void load_upstream(struct loader *l, const struct yaml_node *node);
void load_log(struct loader *l, const struct yaml_node *node);
void load_user(struct loader *l, const struct yaml_node *node);
void load_deny(struct loader *l, const struct yaml_node *node);
void load_reload(struct loader *l, const struct yaml_node *node);
void load_limits(struct loader *l, const struct yaml_node *node);
void load_limits_defaults(struct config_limits *c);
void load_credentials(struct loader *l, const struct yaml_node *node);
void load_unused_credentials(struct loader *l);
/* The value of an `addresses:` key, NULL accepted; *ret is a heap array. */
void load_ranges(struct loader *l, const struct yaml_node *node, struct iprange **ret,
		 size_t *ret_n);
/* `from`, and `ttl` behind it. */
void load_source(struct loader *l, const struct yaml_node *node, struct config_credential *c);
void load_source_ttl(struct loader *l, const struct section_values *v, struct config_credential *c);
/* `as: {header: NAME}` and its like: c->as and its name. */
void load_as_header(struct loader *l, const struct yaml_node *node, struct config_credential *c);
void load_as_query(struct loader *l, const struct yaml_node *node, struct config_credential *c);
void load_as_basic(struct loader *l, const struct yaml_node *node, struct config_credential *c);
/* load_placeholder.c: `as: {placeholder: {...}}`; and what all of them together must be. */
void load_as_placeholder(struct loader *l, const struct yaml_node *node,
			 struct config_credential *c);
void load_placeholders_check(struct loader *l);
/* load_aws.c: `as: {sigv4: ...}`; and that a credential's two halves fit. */
void load_sigv4(struct loader *l, const struct yaml_node *node, struct config_credential *c);
void load_aws_fits(struct loader *l, const struct config_credential *c);
/* Warns where a rule lets the value go into what a host makes public. c: NULL is accepted. */
void load_placeholder_doubt(struct loader *l, const struct yaml_node *node,
			    const struct config_credential *c, const struct rule *r);
/* The value of a `credential:` key: *ret is the name, if there is one; the result what it names.
 * NULL: a fault was added, or the tree lacks its end. */
const struct config_credential *load_credential_name(struct loader *l, const struct yaml_node *node,
						     char **ret);
void load_state(struct loader *l, const struct yaml_node *node); /* before load_listen */
/* `upstream.proxy`. */
void load_parent(struct loader *l, const struct yaml_node *node);
void load_policies(struct loader *l, const struct yaml_node *node);
/* A policy of nothing but the targets of --allow. */
void load_allows_only(struct loader *l);
/* One entry of `rules:`. -1 if it is no rule; r is then empty. */
int load_rule(struct loader *l, const struct yaml_node *node, struct rule *r);
/* The tests of one policy, appended to the config's. */
void load_tests(struct loader *l, const char *policy, const struct yaml_node *node);

/* ---- load_target.c: pure ---- */

/* `[scheme://]host[:port][/path]`. 0, or -1 with what is wrong and what to write instead. */
int load_target(struct str text, struct target *ret, struct err *e) ATTR_NODISCARD;
/* What to say about a target that is wider or narrower than it may look; NULL: nothing. */
const char *load_target_doubt(const struct target *t);

/* ---- load_doubts.c ---- */

/* Warnings about rules that never decide or that undo each other. */
void load_doubts(struct loader *l, const struct policy *p);

#endif
