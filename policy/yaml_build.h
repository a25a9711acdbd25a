/*
 * From the events of libyaml to a tree. Only yaml.c includes this.
 */
#ifndef STILE_POLICY_YAML_BUILD_H
#define STILE_POLICY_YAML_BUILD_H

#include <yaml.h>

#include "policy/yaml.h"

struct yaml_builder;

/* NULL when memory is out, which f then knows. The document belongs to the builder until it is
 * taken. */
struct yaml_builder *yaml_builder_new(struct faults *f);
void yaml_builder_free(struct yaml_builder *b); /* NULL is accepted */
/* Adds what the event says. False: a limit was met, a fault says which, and nothing more is to be
 * read. */
bool yaml_builder_event(struct yaml_builder *b, const yaml_event_t *e);
/* Reading has stopped before the end: what is open is closed as it is, and a key that waits for its
 * value goes. */
void yaml_builder_stop(struct yaml_builder *b);
struct yaml_doc *yaml_builder_take(struct yaml_builder *b);
/* The fault of a file with more than LIMIT_YAML_NODES values, m being where the first of them
 * stands that is one too many. */
void yaml_builder_too_many(struct faults *f, const yaml_mark_t *m);

#endif
