/*
 * A configuration out of a text that has no fault.
 */
#ifndef STILE_TESTS_UNIT_SESSION_CONFIG_OF_H
#define STILE_TESTS_UNIT_SESSION_CONFIG_OF_H

#include "policy/config.h"

/* One reference; NULL: it has a fault. */
static inline struct config *config_of(const char *text)
{
	struct config *c = NULL;
	struct faults f;

	faults_init(&f, "x.yaml");
	if (config_load_text("x.yaml", str_from_c(text), &c, &f) < 0)
		c = NULL;
	faults_clear(&f);
	return c;
}

#endif
