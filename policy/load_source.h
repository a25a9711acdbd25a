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
	ROW_FILE,   /* {file: PATH}: a secret of several lines, which no variable holds */
	ROW_PATH,   /* PATH, of a file that is no secret */
	ROW_WORD,   /* one of `words` */
	ROW_WORDS,  /* a text or a list of texts: a JSON array */
	ROW_TIME,   /* from `least_s` to `most_s`: seconds */
	ROW_OWN,    /* `read` sees to it */
};

struct row {
	enum config_key key;
	enum config_param_key param;
	enum row_type type;
	bool required;
	const char *const *words;
	size_t words_n;
	/* ROW_TEXT and each of ROW_WORDS: letters, digits and these alone; NULL: whatever is in it.
	 */
	const char *also;
	uint32_t least_s, most_s;
	/* ROW_OWN: a heap text, or NULL after a fault. */
	char *(*read)(struct loader *l, const struct yaml_node *node, const char *what);
};

/* A kind that is nothing but rows. */
struct source_kind {
	enum config_key key; /* in `from` */
	enum credential_source source;
	enum section section;
	const char *what;
	const struct row *rows;
	size_t rows_n;
	/* What `from` is in messages: the first of these that is given, or else `standard`. */
	enum config_param_key from[4];
	const char *standard;
	/* What no row can say alone; called when there was no fault. */
	void (*check)(struct loader *l, const struct yaml_node *node,
		      const struct config_credential *c);
};

/* Reads what v has of n rows into c->params, which has room for them; a required one that is
 * missing is a fault of `what`, at node. */
void load_rows(struct loader *l, const struct yaml_node *node, const char *what,
	       const struct section_values *v, const struct row *rows, size_t n,
	       struct config_credential *c);

/* ---- kinds with a file of their own ---- */

/* load_aws.c */
extern const struct source_kind kind_aws;
/* load_issuers.c */
extern const struct source_kind kind_jwt, kind_github_app, kind_gcp, kind_kubernetes;

void load_vault(struct loader *l, const struct yaml_node *node, struct config_credential *c);
/* What `as` has to be for it; at node. */
void load_vault_as(struct loader *l, const struct yaml_node *node,
		   const struct config_credential *c);

#endif
