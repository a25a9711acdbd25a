/*
 * What yaml.c and yaml_syntax.c share: the text as libyaml reads it, and what is done when libyaml
 * gives up. Nobody else includes it.
 */
#ifndef STILE_POLICY_YAML_INTERNAL_H
#define STILE_POLICY_YAML_INTERNAL_H

#include <yaml.h>

#include "policy/yaml.h"

struct yaml_input {
	/* owned */
	char *copy; /* NULL until something in the text is replaced; then text points into it */
	/* plain */
	struct str text; /* without a byte order mark */
	size_t at;
	size_t since_event; /* bytes handed to libyaml since its last event */
	size_t patches_left;
	bool too_long; /* since_event went beyond its bound */
};

/* A character that YAML gives a meaning to, where a person began a value with it. */
struct yaml_patch {
	size_t offset; /* in the input's text */
	uint32_t line, col;
	char c;
};

/* Did libyaml give up over such a character? True fills *ret: with it replaced, more can be read.
 */
bool yaml_syntax_patch(const yaml_parser_t *p, const struct yaml_input *in, struct yaml_patch *ret);
/* Adds the fault over which libyaml gave up, in our words. */
void yaml_syntax_fault(const yaml_parser_t *p, const struct yaml_input *in, struct faults *f);

#endif
