/*
 * See index.h. The table is one array with open addressing, half full at most; the keys are the
 * hosts of the targets themselves, so nothing is copied.
 */
#include "policy/index.h"

#include <stdlib.h>
#include <string.h>

struct slot {
	uint64_t hash;
	struct index_entry *first, *last; /* NULL: free */
};

struct index {
	/* owned */
	struct index_entry *entries;
	struct slot *slots;
	/* plain */
	size_t mask;
	struct index_entry *any_first, *any_last;
};

#define HASH_START 1469598103934665603ull
#define HASH_PRIME 1099511628211ull
/* Tells a suffix from a whole name: `a.test` and `*.a.test` share a table. */
#define HASH_WILDCARD 0x9e3779b97f4a7c15ull

static uint64_t mix(uint64_t h)
{
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ull;
	return h ^ h >> 32;
}

/* From the right, so that each suffix's hash falls out on the way. */
static uint64_t hash_back(uint64_t h, const char *text, size_t from, size_t to)
{
	for (size_t i = to; i > from; i--)
		h = (h ^ (unsigned char)text[i - 1]) * HASH_PRIME;
	return h;
}

static struct slot *find_slot(const struct index *x, uint64_t hash, struct str text, bool wildcard)
{
	for (size_t i = hash & x->mask;; i = (i + 1) & x->mask) {
		struct slot *s = &x->slots[i];

		if (!s->first)
			return s;
		if (s->hash == hash &&
		    (s->first->target->host_kind == TARGET_HOST_WILDCARD) == wildcard &&
		    str_eq(host_str(&s->first->target->host), text))
			return s;
	}
}

static void append(struct index_entry **first, struct index_entry **last, struct index_entry *e)
{
	if (*last)
		(*last)->next = e;
	else
		*first = e;
	*last = e;
}

static void add(struct index *x, struct index_entry *e)
{
	const struct target *t = e->target;
	struct str text = host_str(&t->host);
	bool wildcard = t->host_kind == TARGET_HOST_WILDCARD;
	struct slot *s;
	uint64_t h;

	if (t->host_kind == TARGET_HOST_ANY) {
		append(&x->any_first, &x->any_last, e);
		return;
	}
	h = hash_back(HASH_START, text.p, 0, text.n);
	h = mix(wildcard ? h ^ HASH_WILDCARD : h);
	s = find_slot(x, h, text, wildcard);
	s->hash = h;
	append(&s->first, &s->last, e);
}

struct index *index_new(const struct rule *rules, size_t rules_n)
{
	struct index *x = calloc(1, sizeof(*x));
	size_t n = 0, k = 0, size = 16;

	if (!x)
		return NULL;
	for (size_t i = 0; i < rules_n; i++)
		n += rules[i].targets_n;
	while (size < n * 2)
		size *= 2;
	x->mask = size - 1;
	x->entries = calloc(n ? n : 1, sizeof(*x->entries));
	x->slots = calloc(size, sizeof(*x->slots));
	if (!x->entries || !x->slots) {
		index_free(x);
		return NULL;
	}
	for (size_t i = 0; i < rules_n; i++)
		for (size_t j = 0; j < rules[i].targets_n; j++) {
			struct index_entry *e = &x->entries[k++];

			e->rule = &rules[i];
			e->target = &rules[i].targets[j];
			add(x, e);
		}
	return x;
}

void index_free(struct index *x)
{
	if (!x)
		return;
	free(x->entries);
	free(x->slots);
	free(x);
}

size_t index_find(const struct index *x, const struct host *host,
		  const struct index_entry *ret[INDEX_LISTS_MAX])
{
	struct str text = host_str(host);
	uint64_t h = HASH_START;
	size_t end = text.n, n = 0;

	/* Suffixes first, shortest first: every label boundary but the name itself. */
	for (size_t i = text.n; i > 0; i--) {
		struct slot *s;

		if (text.p[i - 1] != '.' || host->kind != HOST_NAME)
			continue;
		h = hash_back(h, text.p, i, end);
		end = i;
		s = find_slot(x, mix(h ^ HASH_WILDCARD), str_skip(text, i), true);
		if (s->first && n < INDEX_LISTS_MAX - 2)
			ret[n++] = s->first;
	}
	h = hash_back(h, text.p, 0, end);
	struct slot *s = find_slot(x, mix(h), text, false);
	if (s->first)
		ret[n++] = s->first;
	if (x->any_first)
		ret[n++] = x->any_first;
	return n;
}
