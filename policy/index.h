/*
 * Which rules speak of a host: a hash table of exact names and one of wildcard suffixes, whose
 * hashes are made in one walk over the name from the right. So finding the rules costs the length
 * of the name, whatever the length of the list.
 */
#ifndef STILE_POLICY_INDEX_H
#define STILE_POLICY_INDEX_H

#include "policy/rule.h"

/* One target of one rule; those of one host hang together in file order. */
struct index_entry {
	const struct rule *rule;
	const struct target *target;
	const struct index_entry *next;
};

struct index; /* immutable once made */
struct policy;

/* Of all targets of all rules; borrows them. NULL when memory is out. */
struct index *index_new(const struct rule *rules, size_t rules_n);
void index_free(struct index *x);

/* The most lists that one host can find: its own name, each suffix, and `*`. */
#define INDEX_LISTS_MAX 130

/* The lists that speak of host, each in file order; how many. */
size_t index_find(const struct index *x, const struct host *host,
		  const struct index_entry *ret[INDEX_LISTS_MAX]);

/* The index of a policy, for whoever compares its rules. */
const struct index *policy_index(const struct policy *p);

#endif
