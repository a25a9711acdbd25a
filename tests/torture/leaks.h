/*
 * A scenario of leaks.c: uses a part of the program as its callers do, and frees everything.
 */
#ifndef STILE_TESTS_TORTURE_LEAKS_H
#define STILE_TESTS_TORTURE_LEAKS_H

#include <stdbool.h>
#include <stdio.h>

struct leak_scenario {
	const char *name;
	/* 0, and in out what came of it, which is then the same as without a failure; -1: it was
	 * told that it failed, in the way that its callers would hear. */
	int (*run)(FILE *out);
};

extern const struct leak_scenario leak_scenarios[]; /* until a NULL name */

/* leaks_layers.c */
int leaks_heads(FILE *out);
int leaks_graves(FILE *out);
int leaks_dial(FILE *out);
int leaks_names(FILE *out);
int leaks_sandboxes(FILE *out);
int leaks_plan(FILE *out);

/* Between these nothing fails: for what the scenario does for itself. */
bool leaks_pause(void);
void leaks_resume(bool was);

#endif
