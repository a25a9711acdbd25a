/*
 * Reads scenarios and runs them, one step a line. The format is in README.md.
 */
#ifndef STILE_TESTS_REPLAY_SCENARIO_H
#define STILE_TESTS_REPLAY_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>

struct scenario {
	char *name;
	const char *file;
	unsigned line; /* of its name */
	char *rules;   /* YAML, or NULL */
	char *config;
	struct step *steps;
	size_t steps_n;
};

struct scenarios {
	struct scenario *v;
	size_t n;
};

/* Ends the process when the file cannot be read. */
void scenarios_read(const char *path, struct scenarios *ret);
void scenarios_free(struct scenarios *s);
/* NULL: as expected; else what was not, until the next call. `loosely`: what peers get and what the
 * records say is not compared (for runs in which memory fails). */
const char *scenario_run(const struct scenario *s, bool loosely, bool trace);

#endif
