/*
 * What the files of `stile doctor` share: the table of clients, and how one is run.
 */
#ifndef STILE_PROXY_CLI_DOCTOR_H
#define STILE_PROXY_CLI_DOCTOR_H

#include <stdbool.h>

#include "logging/err.h"
#include "logging/strbuf.h"
#include "policy/policy.h"

/* A client that is made to ask for one URL. In argv and `env`, {url} is that URL, {dir} a folder
 * of its own, {file} the program that is written there. */
struct doctor_tool {
	const char *name;
	const char *const *version; /* fails: it is not installed */
	const char *const *build;   /* NULL: nothing to be built first */
	const char *const *ask;
	const char *const *env;	     /* NULL: as it is */
	const char *file, *text;     /* NULL: needs no program */
	const char *const *answered; /* what it prints once the origin has answered */
	const char *proxy_how;	     /* how it is led to a proxy */
	const char *trust_how;	     /* how it is made to trust a CA */
};
extern const struct doctor_tool doctor_tools[]; /* ends with a NULL name */

struct doctor_run {
	int status; /* as of a shell; 127: no such program */
	bool timed_out;
};

/* Runs argv with `env` on top of the environment, standard input empty, in dir, and gathers what it
 * prints to both streams (its end is dropped when out is full). Whatever it leaves running in its
 * process group is killed, and it is itself after timeout_ms. */
int doctor_run(const char *const *argv, const char *const *env, const char *dir,
	       unsigned timeout_ms, struct strbuf *out, struct doctor_run *ret,
	       struct err *e) ATTR_NODISCARD;

/* The first https URL, in the order of the rules, that GET is allowed for. -1: none. */
int doctor_find_url(const struct policy *p, struct strbuf *ret_url);

#endif
