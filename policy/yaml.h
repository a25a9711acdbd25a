/*
 * A YAML file as a tree whose every node knows its line and column. libyaml does the reading; this
 * adds the bounds (size, depth, nodes, what aliases may add) and the faults that YAML itself
 * forbids or that mislead: duplicate keys, merge keys, a second document, tags, bytes that are not
 * UTF-8.
 */
#ifndef STILE_POLICY_YAML_H
#define STILE_POLICY_YAML_H

#include "logging/err.h"
#include "logging/str.h"
#include "logging/strbuf.h"

/* Faults of one run, in file order; bounded by LIMIT_YAML_FAULTS, the rest is counted. */
struct fault {
	uint32_t line, col; /* from 1, columns count characters; 0: the file as a whole */
	bool warning;	    /* said, but not in the way */
	char *text;	    /* owned */
};

struct faults {
	/* owned */
	struct fault *v;
	char *file; /* as the user named it */
	/* plain */
	size_t n, cap, dropped;
	size_t errors, warnings;
	bool no_memory; /* for the text of one that was counted */
};

void faults_init(struct faults *f, const char *file);
void faults_clear(struct faults *f);
void fault_add(struct faults *f, uint32_t line, uint32_t col, const char *fmt, ...)
	ATTR_PRINTF(4, 5);
void fault_warn(struct faults *f, uint32_t line, uint32_t col, const char *fmt, ...)
	ATTR_PRINTF(4, 5);
/* All of them sorted by place, one "FILE:LINE:COL: text\n" each ("warning: " before a warning). */
void faults_print(struct faults *f, struct strbuf *out);

enum yaml_kind { YAML_NULL, YAML_SCALAR, YAML_SEQ, YAML_MAP };

struct yaml_node {
	enum yaml_kind kind;
	bool quoted; /* a scalar in quotes or a block scalar: always a string */
	uint32_t line, col;
	struct str text; /* scalar */
	/* SEQ: items; MAP: key, value, key, value, ... keys are scalars. Owned by the tree. */
	const struct yaml_node **v;
	size_t n; /* items, or pairs */
};

struct yaml_doc;

/* Reads text. A tree even if there are faults, so that more can be found; NULL only when nothing
 * could be read at all (then f says why). Freed with yaml_doc_free. */
struct yaml_doc *yaml_parse(struct str text, struct faults *f);
void yaml_doc_free(struct yaml_doc *d);
const struct yaml_node *yaml_root(const struct yaml_doc *d);
/* False when reading stopped early (a syntax error, a limit): what the tree lacks may well be in
 * the file, so only what it has can be judged. */
bool yaml_complete(const struct yaml_doc *d);
/* The value of `key`, or NULL. */
const struct yaml_node *yaml_get(const struct yaml_node *map, const char *key);

#endif
