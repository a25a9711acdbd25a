/*
 * Builds the tree out of libyaml's events. Nodes, texts and lists live in an arena that goes with
 * the document; an alias shares the children of its anchor, and what all aliases stand for together
 * is counted, so a small file cannot grow in the hands of whoever walks the tree. What is valid
 * YAML and misleads becomes a fault here. Called by yaml.c alone.
 */
#include "policy/yaml_build.h"

#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"

#define ARENA_BLOCK	65536
#define KEYS_COMPARED	16 /* a map of more keys finds doubles by hash */
#define ANCHOR_NAME_MAX 256

/* A mark of libyaml, which counts from 0, as two arguments. */
#define AT(mark) (uint32_t)(mark).line + 1, (uint32_t)(mark).column + 1

struct block {
	struct block *next;
	size_t used, size;
	_Alignas(max_align_t) char mem[];
};

struct yaml_doc {
	/* owned */
	struct block *blocks;
	/* plain */
	const struct yaml_node *root; /* NULL: nothing in the file */
	bool complete;
};

struct frame {
	struct yaml_node *node;
	size_t first; /* its first child on the stack of children */
	size_t weight;
	size_t anchor; /* place in anchors, plus one */
};

struct anchor {
	const char *name;
	const struct yaml_node *node;
	size_t weight; /* nodes that an alias stands for; 0 while the node is still open */
};

struct yaml_builder {
	/* owned */
	const struct yaml_node **kids; /* children of all open collections, one upon the other */
	struct yaml_doc *doc;	       /* until it is taken */
	/* plain */
	size_t kids_n, kids_cap;
	struct frame frames[LIMIT_YAML_DEPTH];
	size_t depth;
	struct anchor anchors[LIMIT_YAML_ANCHORS];
	size_t anchors_n;
	size_t nodes, aliased, documents;
	bool stopped; /* a limit was met: nothing more is read */
	/* borrowed */
	struct faults *f;
};

/* ---- the arena ---- */

static void *arena_get(struct yaml_doc *d, size_t n, size_t align)
{
	struct block *b = d->blocks;
	size_t at = b ? (b->used + align - 1) & ~(align - 1) : 0;

	if (!b || at + n > b->size) {
		size_t size = n > ARENA_BLOCK / 4 ? n : ARENA_BLOCK - sizeof(*b);

		b = malloc(sizeof(*b) + size);
		if (!b)
			return NULL;
		b->size = size;
		b->next = d->blocks;
		d->blocks = b;
		at = 0;
	}
	b->used = at + n;
	return b->mem + at;
}

static const char *arena_text(struct yaml_doc *d, const void *p, size_t n)
{
	char *to = arena_get(d, n + 1, 1);

	if (!to)
		return NULL;
	if (n > 0)
		memcpy(to, p, n);
	to[n] = '\0';
	return to;
}

/* ---- stopping ---- */

/* Stops the reading. True if the caller is to say why: it is said once. */
static bool stop(struct yaml_builder *b)
{
	bool first = !b->stopped;

	b->stopped = true;
	return first;
}

static void stop_memory(struct yaml_builder *b)
{
	if (stop(b))
		fault_add(b->f, 0, 0, "out of memory");
}

/* ---- nodes ---- */

void yaml_builder_too_many(struct faults *f, const yaml_mark_t *m)
{
	fault_add(f, AT(*m), "more than %d values in the file (the limit)", LIMIT_YAML_NODES);
}

static struct yaml_node *new_node(struct yaml_builder *b, enum yaml_kind kind, const yaml_mark_t *m)
{
	struct yaml_node *node;

	if (b->nodes == LIMIT_YAML_NODES) {
		if (stop(b))
			yaml_builder_too_many(b->f, m);
		return NULL;
	}
	node = arena_get(b->doc, sizeof(*node), _Alignof(struct yaml_node));
	if (!node) {
		stop_memory(b);
		return NULL;
	}
	b->nodes++;
	*node = (struct yaml_node){
		.kind = kind,
		.line = (uint32_t)m->line + 1,
		.col = (uint32_t)m->column + 1,
	};
	return node;
}

/* Hands a finished node to the collection that is open, or makes it the root. */
static void place(struct yaml_builder *b, const struct yaml_node *node, size_t weight)
{
	if (b->depth == 0) {
		if (b->documents == 1)
			b->doc->root = node;
		return;
	}
	b->frames[b->depth - 1].weight += weight;
	if (!b->kids || b->kids_n == b->kids_cap) {
		size_t cap = b->kids_cap ? b->kids_cap * 2 : 256;
		const struct yaml_node **kids = realloc(b->kids, cap * sizeof(const void *));

		if (!kids) {
			stop_memory(b);
			return;
		}
		b->kids = kids;
		b->kids_cap = cap;
	}
	b->kids[b->kids_n++] = node;
}

/* Remembers the anchor of a node, if it has one. Its place plus one, or 0. */
static size_t add_anchor(struct yaml_builder *b, const yaml_char_t *name,
			 const struct yaml_node *node, size_t weight, const yaml_mark_t *m)
{
	size_t n = name ? strlen((const char *)name) : 0;
	const char *copy;

	if (!name)
		return 0;
	if (b->anchors_n == LIMIT_YAML_ANCHORS || n > ANCHOR_NAME_MAX) {
		if (stop(b))
			fault_add(b->f, AT(*m),
				  "more than %d anchors, or a name of more than %d bytes "
				  "(the limits)",
				  LIMIT_YAML_ANCHORS, ANCHOR_NAME_MAX);
		return 0;
	}
	copy = arena_text(b->doc, name, n);
	if (!copy) {
		stop_memory(b);
		return 0;
	}
	b->anchors[b->anchors_n++] = (struct anchor){copy, node, weight};
	return b->anchors_n;
}

/* ---- scalars and aliases ---- */

static bool is_null(struct str s)
{
	return s.n == 0 || str_eq(s, STR("~")) || str_eq(s, STR("null")) ||
	       str_eq(s, STR("Null")) || str_eq(s, STR("NULL"));
}

static void refuse_tag(struct yaml_builder *b, const yaml_char_t *tag, const yaml_mark_t *m)
{
	struct str t = str_from_c((const char *)tag);
	struct str core = STR("tag:yaml.org,2002:");
	bool is_core = str_starts(t, core);

	if (!tag)
		return;
	t = is_core ? str_skip(t, core.n) : t;
	fault_add(b->f, AT(*m), "a tag, %s%.*s (tags are not read: remove it, or quote a text)",
		  is_core ? "!!" : "", (int)(t.n > 40 ? 40 : t.n), t.p);
}

static void on_scalar(struct yaml_builder *b, const yaml_event_t *e)
{
	struct str text = str_from(e->data.scalar.value, e->data.scalar.length);
	bool quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	struct yaml_node *node;

	refuse_tag(b, e->data.scalar.tag, &e->start_mark);
	if (text.n > LIMIT_YAML_SCALAR) {
		if (stop(b))
			fault_add(b->f, AT(e->start_mark),
				  "a value longer than %d bytes (the limit)", LIMIT_YAML_SCALAR);
		return;
	}
	/* Whoever shows the text ends it there: "unknown key `methods`". */
	if (str_find(text, '\0') >= 0)
		fault_add(b->f, AT(e->start_mark), "a text with the character U+0000 (remove it)");
	node = new_node(b, quoted || !is_null(text) ? YAML_SCALAR : YAML_NULL, &e->start_mark);
	if (!node)
		return;
	node->quoted = quoted;
	node->text = str_from(arena_text(b->doc, text.p, text.n), text.n);
	if (!node->text.p) {
		stop_memory(b);
		return;
	}
	add_anchor(b, e->data.scalar.anchor, node, 1, &e->start_mark);
	place(b, node, 1);
}

static const struct anchor *find_anchor(const struct yaml_builder *b, const char *name)
{
	for (size_t i = b->anchors_n; i > 0; i--)
		if (strcmp(b->anchors[i - 1].name, name) == 0)
			return &b->anchors[i - 1];
	return NULL;
}

/* The alias becomes a node of its own, so that faults in it have its place, with the children of
 * the anchor. */
static void on_alias(struct yaml_builder *b, const yaml_event_t *e)
{
	const char *name = (const char *)e->data.alias.anchor;
	const struct anchor *a = find_anchor(b, name);
	struct yaml_node *node = new_node(b, YAML_NULL, &e->start_mark);
	uint32_t line, col;

	if (!node)
		return;
	line = node->line;
	col = node->col;
	/* After such a fault the tree is not what was meant: nobody shall find more in it. */
	if (!a || a->weight == 0)
		b->doc->complete = false;
	if (!a)
		fault_add(b->f, line, col,
			  "no anchor &%.40s stands before this (quote a value that begins with *)",
			  name);
	else if (a->weight == 0)
		fault_add(b->f, line, col, "the alias *%.40s stands within its own anchor", name);
	if (!a || a->weight == 0) {
		place(b, node, 1);
		return;
	}
	b->aliased += a->weight;
	if (b->aliased > LIMIT_YAML_ALIASED) {
		if (stop(b))
			fault_add(b->f, AT(e->start_mark),
				  "aliases stand for more than %d values (the limit)",
				  LIMIT_YAML_ALIASED);
		return;
	}
	*node = *a->node;
	node->line = line;
	node->col = col;
	place(b, node, a->weight);
}

/* ---- collections ---- */

static void on_start(struct yaml_builder *b, enum yaml_kind kind, const yaml_char_t *anchor,
		     const yaml_char_t *tag, const yaml_mark_t *m)
{
	struct yaml_node *node;

	refuse_tag(b, tag, m);
	if (b->depth == LIMIT_YAML_DEPTH) {
		if (stop(b))
			fault_add(b->f, AT(*m), "nested more than %d levels deep (the limit)",
				  LIMIT_YAML_DEPTH);
		return;
	}
	node = new_node(b, kind, m);
	if (!node)
		return;
	b->frames[b->depth++] = (struct frame){
		.node = node,
		.first = b->kids_n,
		.weight = 1,
		.anchor = add_anchor(b, anchor, node, 0, m),
	};
}

static uint64_t hash_text(struct str s)
{
	uint64_t h = 0xcbf29ce484222325U;

	for (size_t i = 0; i < s.n; i++)
		h = (h ^ (unsigned char)s.p[i]) * 0x100000001b3U;
	return h ^ h >> 29;
}

/* Where each key stands that was seen in this map: `slots` holds places plus one. */
struct seen {
	uint32_t *slots; /* owned; NULL: compare with each */
	size_t mask;
};

static const struct yaml_node *seen_before(struct seen *s, const struct yaml_node **pairs,
					   size_t kept, const struct yaml_node *key)
{
	size_t at;

	if (!s->slots) {
		for (size_t i = 0; i < kept; i++)
			if (str_eq(pairs[2 * i]->text, key->text))
				return pairs[2 * i];
		return NULL;
	}
	for (at = hash_text(key->text) & s->mask; s->slots[at]; at = (at + 1) & s->mask) {
		const struct yaml_node *other = pairs[2 * (s->slots[at] - 1)];

		if (str_eq(other->text, key->text))
			return other;
	}
	s->slots[at] = (uint32_t)kept + 1;
	return NULL;
}

/* Is this a key that can stay? If not, f knows why. */
static bool check_key(struct yaml_builder *b, struct seen *s, const struct yaml_node **pairs,
		      size_t kept, const struct yaml_node *key)
{
	const struct yaml_node *other;

	if (key->kind == YAML_SEQ || key->kind == YAML_MAP) {
		fault_add(b->f, key->line, key->col, "a key must be a word, not a list or a map");
		return false;
	}
	if (key->kind == YAML_NULL && key->text.n == 0) {
		fault_add(b->f, key->line, key->col, "an empty key");
		return false;
	}
	if (!key->quoted && str_eq(key->text, STR("<<"))) {
		fault_add(b->f, key->line, key->col,
			  "a merge key << (merges are not read: write the keys out)");
		return false;
	}
	other = seen_before(s, pairs, kept, key);
	if (other)
		fault_add(b->f, key->line, key->col,
			  "duplicate key `%.*s` (it already stands in line %u)",
			  (int)(key->text.n > 64 ? 64 : key->text.n), key->text.p, other->line);
	return !other;
}

/* Checks the keys of the map whose n pairs are given, and drops those pairs that cannot stay.
 * Returns the number of pairs that are left. */
static size_t check_keys(struct yaml_builder *b, const struct yaml_node **pairs, size_t n)
{
	struct seen s = {0};
	size_t kept = 0;

	if (n > KEYS_COMPARED) {
		s.mask = 64;
		while (s.mask < 2 * n)
			s.mask *= 2;
		s.slots = calloc(s.mask--, sizeof(*s.slots));
		if (!s.slots) {
			stop_memory(b);
			return 0;
		}
	}
	for (size_t i = 0; i < n; i++) {
		const struct yaml_node *key = pairs[2 * i], *value = pairs[2 * i + 1];

		if (!check_key(b, &s, pairs, kept, key))
			continue;
		pairs[2 * kept] = key;
		pairs[2 * kept + 1] = value;
		kept++;
	}
	free(s.slots);
	return kept;
}

static void on_end(struct yaml_builder *b)
{
	struct frame *fr = &b->frames[b->depth - 1];
	const struct yaml_node **kids = b->kids ? b->kids + fr->first : NULL;
	size_t n = kids ? b->kids_n - fr->first : 0;

	/* A frame is pushed with its node; libyaml gives no end without a begin. */
	if (fr->node->kind == YAML_MAP) /* NOLINT(clang-analyzer-core.NullDereference) */
		n = 2 * check_keys(b, kids, n / 2);
	if (kids && n > 0) {
		fr->node->v = arena_get(b->doc, n * sizeof(*kids), _Alignof(const void *));
		if (!fr->node->v) {
			stop_memory(b);
			return;
		}
		memcpy(fr->node->v, kids, n * sizeof(*kids));
	}
	fr->node->n = fr->node->kind == YAML_MAP ? n / 2 : n;
	if (fr->anchor > 0)
		b->anchors[fr->anchor - 1].weight = fr->weight;
	b->kids_n = fr->first;
	b->depth--;
	place(b, fr->node, fr->weight);
}

/* ---- the builder ---- */

bool yaml_builder_event(struct yaml_builder *b, const yaml_event_t *e)
{
	switch (e->type) {
	case YAML_DOCUMENT_START_EVENT:
		if (++b->documents == 2 && stop(b))
			fault_add(b->f, AT(e->start_mark),
				  "a second document (a file holds one: remove the ---)");
		break;
	case YAML_SCALAR_EVENT: on_scalar(b, e); break;
	case YAML_ALIAS_EVENT: on_alias(b, e); break;
	case YAML_SEQUENCE_START_EVENT:
		on_start(b, YAML_SEQ, e->data.sequence_start.anchor, e->data.sequence_start.tag,
			 &e->start_mark);
		break;
	case YAML_MAPPING_START_EVENT:
		on_start(b, YAML_MAP, e->data.mapping_start.anchor, e->data.mapping_start.tag,
			 &e->start_mark);
		break;
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT: on_end(b); break;
	case YAML_NO_EVENT:
	case YAML_STREAM_START_EVENT:
	case YAML_STREAM_END_EVENT:
	case YAML_DOCUMENT_END_EVENT: break;
	}
	return !b->stopped;
}

void yaml_builder_stop(struct yaml_builder *b)
{
	/* What stands behind the document takes nothing from it. */
	if (b->depth > 0 || !b->doc->root)
		b->doc->complete = false;
	while (b->depth > 0) {
		size_t depth = b->depth;

		on_end(b);
		if (b->depth == depth)
			return; /* memory is out, and said to be */
	}
}

struct yaml_builder *yaml_builder_new(struct faults *f)
{
	struct yaml_builder *b = calloc(1, sizeof(*b));
	struct yaml_doc *d = calloc(1, sizeof(*d));

	if (!b || !d) {
		fault_add(f, 0, 0, "out of memory");
		free(b);
		free(d);
		return NULL;
	}
	d->complete = true;
	b->doc = d;
	b->f = f;
	return b;
}

struct yaml_doc *yaml_builder_take(struct yaml_builder *b)
{
	struct yaml_doc *d = b->doc;

	b->doc = NULL;
	return d;
}

void yaml_builder_free(struct yaml_builder *b)
{
	if (!b)
		return;
	yaml_doc_free(b->doc);
	free(b->kids);
	free(b);
}

/* ---- the document ---- */

void yaml_doc_free(struct yaml_doc *d)
{
	if (!d)
		return;
	while (d->blocks) {
		struct block *next = d->blocks->next;

		free(d->blocks);
		d->blocks = next;
	}
	free(d);
}

const struct yaml_node *yaml_root(const struct yaml_doc *d)
{
	return d ? d->root : NULL;
}

bool yaml_complete(const struct yaml_doc *d)
{
	return d && d->complete;
}

const struct yaml_node *yaml_get(const struct yaml_node *map, const char *key)
{
	struct str k = str_from_c(key);

	if (!map || map->kind != YAML_MAP)
		return NULL;
	for (size_t i = 0; i < map->n; i++)
		if (str_eq(map->v[2 * i]->text, k))
			return map->v[2 * i + 1];
	return NULL;
}
