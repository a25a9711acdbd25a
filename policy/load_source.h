/*
 * How the keys of a source that calls an endpoint are told to the loader: a row a key. Shared by
 * load_source.c and the files of single kinds; nobody else includes it.
 */
#ifndef STILE_POLICY_LOAD_SOURCE_H
#define STILE_POLICY_LOAD_SOURCE_H

#include "policy/load.h"

enum row_type {
	ROW_TEXT,
	ROW_URL,    /* https, or http for this machine and its link */
	ROW_SECRET, /* {file: PATH} or {env: NAME} */
	ROW_EITHER, /* a text, or one of these */
	ROW_WORD,   /* one of `words` */
};

struct row {
	enum config_key key;
	enum config_param_key param;
	enum row_type type;
	bool required;
	const char *const *words;
	size_t words_n;
};

/* Reads what v has of n rows into c->params, which has room for them; a required one that is
 * missing is a fault of `what`, at node. */
void load_rows(struct loader *l, const struct yaml_node *node, const char *what,
	       const struct section_values *v, const struct row *rows, size_t n,
	       struct config_credential *c);

/* ---- kinds with a file of their own ---- */

void load_vault(struct loader *l, const struct yaml_node *node, struct config_credential *c);
/* What `as` has to be for it; at node. */
void load_vault_as(struct loader *l, const struct yaml_node *node,
		   const struct config_credential *c);

#endif
