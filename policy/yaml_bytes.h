/*
 * What must be true of the bytes of a configuration file before YAML is read: UTF-8, no control
 * characters, no directives. Only yaml.c includes this.
 */
#ifndef STILE_POLICY_YAML_BYTES_H
#define STILE_POLICY_YAML_BYTES_H

#include "policy/yaml.h"

/* Puts every fault of the bytes into f. 0: they can be read; *ret_copy (the caller frees it) is a
 * copy of the same length in which what was at fault is replaced, or NULL if text is fine as it is.
 * -1: reading on would make no sense. */
int yaml_bytes_check(struct str text, struct faults *f, char **ret_copy) ATTR_NODISCARD;

#endif
