/*
 * Which rules speak of a host: a hash table of exact names and of wildcard suffixes, whose hashes
 * are made in one walk over the name from the right. Where one host has many allow rules, a second
 * table finds those whose literal beginning is a beginning of the path. So finding the rules costs
 * the length of the name and of the path, whatever the length of the list.
 */
#ifndef STILE_POLICY_INDEX_H
#define STILE_POLICY_INDEX_H

#include "policy/rule.h"

/* One target of one rule. Every chain is in file order. */
struct index_entry {
	const struct rule *rule;
	const struct target *target;
	const struct index_entry *next;	      /* of the same host */
	const struct index_entry *next_kind;  /* the next that differs in what a tunnel asks for */
	const struct index_entry *next_match; /* the next deny; or allow of the same branch */
};

/* What is said of one host, one suffix, or `*`. */
struct index_list {
	const struct index_entry *all;	  /* by next */
	const struct index_entry *kinds;  /* by next_kind: the first of each effect, scheme, port
					     range, tls, and whether it speaks of requests */
	const struct index_entry *denies; /* by next_match */
	const struct index_entry *allows; /* by next_match; NULL when they are in branches */
	size_t allows_n;
	unsigned depth; /* of the deepest branch, in segments */
	bool branched;
	/* while it is built */
	struct index_entry *last, *last_kind, *last_deny, *last_allow;
};

struct index; /* immutable once made */
struct policy;

/* Of all targets of all rules; borrows them. NULL when memory is out. */
struct index *index_new(const struct rule *rules, size_t rules_n);
void index_free(struct index *x); /* NULL is accepted */

/* The most lists that one host can find: its own name, each suffix, and `*`. */
#define INDEX_LISTS_MAX 130

/* The lists that speak of host; how many. A host that is missing finds none. */
size_t index_find(const struct index *x, const struct host *host,
		  const struct index_list *ret[INDEX_LISTS_MAX]);

/* The most chains of one list that one path can find. */
#define INDEX_CHAINS_MAX 34

/* The chains (by next_match) that hold every allow of the list that could match the path. */
size_t index_allows(const struct index *x, const struct index_list *l, struct str path,
		    const struct index_entry *ret[INDEX_CHAINS_MAX]);

/* The index of a policy, for whoever compares its rules. */
const struct index *policy_index(const struct policy *p);

#endif
