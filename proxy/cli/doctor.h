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

/* ---- what became of a question (doctor_judge.c) ---- */

enum doctor_verdict {
	DOCTOR_ANSWERED, /* by the origin */
	DOCTOR_REFUSED,	 /* by stile */
	DOCTOR_UNTRUSTED,
	DOCTOR_NO_WAY, /* it looked the name up, or dialled it, itself */
	DOCTOR_TIMEOUT,
	DOCTOR_OTHER,
};

/* The URL itself may hold any of the words that are looked for: it is made underscores. */
void doctor_blank_out(struct strbuf *out, const char *url);
enum doctor_verdict doctor_judge(const struct doctor_tool *t, const struct strbuf *out,
				 const struct doctor_run *run);
/* One word for a table; "ok" when it is as wanted. */
const char *doctor_word(enum doctor_verdict v, enum doctor_verdict wanted);
/* What to do; said: what it printed when it asked for the allowed URL. */
void doctor_advise(const struct doctor_tool *t, enum doctor_verdict allowed,
		   enum doctor_verdict denied, const struct strbuf *said, struct strbuf *ret);
/* To stdout: the lines that show why, or else the end, for whoever has to find out more. */
void doctor_print_said(enum doctor_verdict v, const char *what, const struct strbuf *out);

/* The first https URL, in the order of the rules, that GET is allowed for. -1: none. */
int doctor_find_url(const struct policy *p, struct strbuf *ret_url);

#endif
