/*
 * See index.h. Both tables are arrays with open addressing, half full at most; their keys are the
 * hosts and paths of the targets themselves, so nothing is copied. No seed: the keys are the
 * admin's, and who asks can only look up.
 */
#include "policy/index.h"

#include <stdlib.h>
#include <string.h>

#define BRANCHED_FROM	 17 /* allows of one host: fewer are looked at one by one */
#define BRANCH_DEPTH_MAX (INDEX_CHAINS_MAX - 2)
#define KINDS_COMPARED	 64
#define HASH_START	 1469598103934665603ULL
#define HASH_PRIME	 1099511628211ULL
/* Tells a suffix from a whole name: `a.test` and `*.a.test` share a table. */
#define HASH_WILDCARD 0x9e3779b97f4a7c15ULL

struct slot {
	uint64_t hash;
	struct index_list list; /* all NULL: free */
};

/* The allows of one list whose patterns begin with the same literal segments. */
struct branch {
	uint64_t hash;
	const struct index_list *list; /* NULL: free */
	struct str beginning;
	const struct index_entry *first;
	struct index_entry *last;
};

struct index {
	/* owned */
	struct index_entry *entries;
	uint32_t *places; /* of a slot in `slots`, plus one; 0: free */
	struct slot *slots;
	struct branch *branches; /* NULL: no list needs them */
	/* plain */
	size_t entries_n, mask, slots_n, branch_mask;
	struct index_list any;
};

static uint64_t mix(uint64_t h)
{
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	return h ^ h >> 32;
}

/* ---- hosts ---- */

/* From the right, so that each suffix's hash falls out on the way. */
static uint64_t hash_back(uint64_t h, const char *text, size_t from, size_t to)
{
	for (size_t i = to; i > from; i--)
		h = (h ^ (unsigned char)text[i - 1]) * HASH_PRIME;
	return h;
}

/* The place where the list of that host is written down, or would be. */
static uint32_t *find_place(const struct index *x, uint64_t hash, struct str text, bool wildcard)
{
	for (size_t i = hash & x->mask;; i = (i + 1) & x->mask) {
		uint32_t *place = &x->places[i];
		const struct slot *s = *place ? &x->slots[*place - 1] : NULL;
		const struct target *t = s ? s->list.all->target : NULL;

		if (!s || (s->hash == hash && (t->host_kind == TARGET_HOST_WILDCARD) == wildcard &&
			   str_eq(host_str(&t->host), text)))
			return place;
	}
}

static const struct index_list *find_list(const struct index *x, uint64_t hash, struct str text,
					  bool wildcard)
{
	uint32_t place = *find_place(x, hash, text, wildcard);

	return place ? &x->slots[place - 1].list : NULL;
}

size_t index_find(const struct index *x, const struct host *host,
		  const struct index_list *ret[INDEX_LISTS_MAX])
{
	const struct index_list *l;
	struct str text = host_str(host);
	uint64_t h = HASH_START;
	size_t end = text.n, n = 0;

	if (host->kind == HOST_NONE)
		return 0;
	/* Suffixes first, shortest first: every label boundary but the name itself. */
	for (size_t i = text.n; i > 0 && host->kind == HOST_NAME; i--) {
		if (text.p[i - 1] != '.')
			continue;
		h = hash_back(h, text.p, i, end);
		end = i;
		l = find_list(x, mix(h ^ HASH_WILDCARD), str_skip(text, i), true);
		if (l && n < INDEX_LISTS_MAX - 2)
			ret[n++] = l;
	}
	l = find_list(x, mix(hash_back(h, text.p, 0, end)), text, false);
	if (l)
		ret[n++] = l;
	if (x->any.all)
		ret[n++] = &x->any;
	return n;
}

/* ---- paths ---- */

/* What every path begins with that the pattern matches: its segments before the first wildcard. */
static struct str beginning_of(const struct target *t, unsigned *ret_depth)
{
	struct str text = t->path ? pattern_str(t->path) : STR("");
	ptrdiff_t star = str_find(text, '*');
	unsigned depth = 0;

	if (star >= 0) {
		text.n = (size_t)star;
		while (text.n > 0 && text.p[text.n - 1] != '/')
			text.n--;
		text.n -= text.n > 0;
	}
	for (size_t i = 0; i < text.n; i++) {
		if (text.p[i] != '/')
			continue;
		if (depth == BRANCH_DEPTH_MAX) {
			text.n = i;
			break;
		}
		depth++;
	}
	*ret_depth = depth;
	return text;
}

static uint64_t hash_list(const struct index_list *l)
{
	return mix((uintptr_t)l ^ HASH_START);
}

static uint64_t hash_on(uint64_t h, const char *text, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		h = (h ^ (unsigned char)text[i]) * HASH_PRIME;
	return h;
}

static struct branch *find_branch(const struct index *x, uint64_t hash, const struct index_list *l,
				  struct str beginning)
{
	for (size_t i = hash & x->branch_mask;; i = (i + 1) & x->branch_mask) {
		struct branch *b = &x->branches[i];

		if (!b->list ||
		    (b->hash == hash && b->list == l && str_eq(b->beginning, beginning)))
			return b;
	}
}

size_t index_allows(const struct index *x, const struct index_list *l, struct str path,
		    const struct index_entry *ret[INDEX_CHAINS_MAX])
{
	uint64_t h = hash_list(l);
	size_t n = 0, hashed = 0;
	unsigned depth = 0;

	if (!l->branched) {
		ret[0] = l->allows;
		return l->allows ? 1 : 0;
	}
	/* The beginnings of the path end before each slash and at its own end. */
	for (size_t i = 0; i <= path.n && depth <= l->depth; i++) {
		const struct branch *b;

		if (i < path.n && path.p[i] != '/')
			continue;
		h = hash_on(h, path.p, hashed, i);
		hashed = i;
		b = find_branch(x, mix(h), l, str_head(path, i));
		if (b->list)
			ret[n++] = b->first;
		depth++;
	}
	return n;
}

/* ---- building ---- */

static bool same_kind(const struct index_entry *a, const struct index_entry *b)
{
	return a->rule->effect == b->rule->effect && a->target->scheme == b->target->scheme &&
	       a->target->port_first == b->target->port_first &&
	       a->target->port_last == b->target->port_last && a->rule->tls == b->rule->tls &&
	       (a->target->path || a->rule->methods) == (b->target->path || b->rule->methods);
}

static void add_kind(struct index_list *l, struct index_entry *e)
{
	size_t left = KINDS_COMPARED;

	/* A double costs time alone, so it is enough to look at the first ones. */
	for (const struct index_entry *k = l->kinds; k && left > 0; k = k->next_kind, left--)
		if (same_kind(k, e))
			return;
	if (l->last_kind)
		l->last_kind->next_kind = e;
	else
		l->kinds = e;
	l->last_kind = e;
}

static void list_add(struct index_list *l, struct index_entry *e)
{
	struct index_entry **last = &l->last_allow;

	if (l->last)
		l->last->next = e;
	else
		l->all = e;
	l->last = e;
	add_kind(l, e);
	if (e->rule->effect == RULE_DENY)
		last = &l->last_deny;
	else
		l->allows_n++;
	if (*last)
		(*last)->next_match = e;
	else if (e->rule->effect == RULE_DENY)
		l->denies = e;
	else
		l->allows = e;
	*last = e;
}

static void add(struct index *x, struct index_entry *e)
{
	const struct target *t = e->target;
	struct str text = host_str(&t->host);
	bool wildcard = t->host_kind == TARGET_HOST_WILDCARD;
	uint32_t *place;
	uint64_t h;

	if (t->host_kind == TARGET_HOST_ANY) {
		list_add(&x->any, e);
		return;
	}
	h = hash_back(HASH_START, text.p, 0, text.n);
	h = mix(wildcard ? h ^ HASH_WILDCARD : h);
	place = find_place(x, h, text, wildcard);
	if (!*place) {
		*place = (uint32_t)++x->slots_n;
		x->slots[*place - 1].hash = h;
	}
	list_add(&x->slots[*place - 1].list, e);
}

/* Puts the allows of a long list into branches. */
static void branch_out(struct index *x, struct index_list *l)
{
	const struct index_entry *next;

	for (const struct index_entry *e = l->allows; e; e = next) {
		/* The entries are the index's own. */
		struct index_entry *mine = &x->entries[e - x->entries];
		unsigned depth;
		struct str beginning = beginning_of(e->target, &depth);
		uint64_t h = mix(hash_on(hash_list(l), beginning.p, 0, beginning.n));
		struct branch *b = find_branch(x, h, l, beginning);

		next = e->next_match;
		mine->next_match = NULL;
		if (b->last)
			b->last->next_match = mine;
		else
			*b = (struct branch){h, l, beginning, mine, mine};
		b->last = mine;
		if (depth > l->depth)
			l->depth = depth;
	}
	l->allows = NULL;
	l->branched = true;
}

static size_t twice(size_t n)
{
	size_t size = 16;

	while (size < n * 2)
		size *= 2;
	return size;
}

static int add_branches(struct index *x)
{
	size_t n = x->any.allows_n >= BRANCHED_FROM ? x->any.allows_n : 0;

	for (size_t i = 0; i < x->slots_n; i++)
		if (x->slots[i].list.allows_n >= BRANCHED_FROM)
			n += x->slots[i].list.allows_n;
	if (n == 0)
		return 0;
	x->branch_mask = twice(n) - 1;
	x->branches = calloc(x->branch_mask + 1, sizeof(*x->branches));
	if (!x->branches)
		return -1;
	if (x->any.allows_n >= BRANCHED_FROM)
		branch_out(x, &x->any);
	for (size_t i = 0; i < x->slots_n; i++)
		if (x->slots[i].list.allows_n >= BRANCHED_FROM)
			branch_out(x, &x->slots[i].list);
	return 0;
}

struct index *index_new(const struct rule *rules, size_t rules_n)
{
	struct index *x = calloc(1, sizeof(*x));
	size_t n = 0;

	if (!x)
		return NULL;
	for (size_t i = 0; i < rules_n; i++)
		n += rules[i].targets_n;
	x->mask = twice(n) - 1;
	x->entries = calloc(n ? n : 1, sizeof(*x->entries));
	x->places = calloc(x->mask + 1, sizeof(*x->places));
	x->slots = calloc(n ? n : 1, sizeof(*x->slots));
	if (!x->entries || !x->places || !x->slots)
		goto failed;
	for (size_t i = 0; i < rules_n; i++)
		for (size_t j = 0; j < rules[i].targets_n; j++) {
			struct index_entry *e = &x->entries[x->entries_n++];

			e->rule = &rules[i];
			e->target = &rules[i].targets[j];
			add(x, e);
		}
	if (add_branches(x) < 0)
		goto failed;
	return x;
failed:
	index_free(x);
	return NULL;
}

void index_free(struct index *x)
{
	if (!x)
		return;
	free(x->entries);
	free(x->places);
	free(x->slots);
	free(x->branches);
	free(x);
}
