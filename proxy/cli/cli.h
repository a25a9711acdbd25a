/*
 * The command line: one function a subcommand, and what several of them share. argv[0] is the
 * subcommand's own name. Each returns the exit code: 0 done, 1 failed (or denied, for explain), 2
 * wrong usage or configuration.
 */
#ifndef STILE_PROXY_CLI_CLI_H
#define STILE_PROXY_CLI_CLI_H

#include <stdio.h>

#include "logging/strbuf.h"
#include "policy/config.h"

#define EXIT_USAGE 2

int cmd_run(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_test(int argc, char **argv);
int cmd_log(int argc, char **argv);
int cmd_ca(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_sandbox(int argc, char **argv);
int cmd_credentials(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_help(int argc, char **argv);

/* The subcommands, in the order of the documentation; ends with a NULL name. */
struct cli_command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *usage;   /* one line, without "stile " */
	const char *summary; /* a few words */
	const char *text;    /* the rest of `stile help NAME` */
};
extern const struct cli_command cli_commands[];

/* The file of -c, or the first of ./stile.yaml and /etc/stile/stile.yaml that exists; NULL: none.
 */
const char *cli_find_config(const char *from_flag);
/* Loads it and prints its faults and warnings to stderr. NULL: it cannot be used (exit 2). */
struct config *cli_load_config(const char *from_flag);
/* "stile: FILE:LINE:COL: text" a line, to stderr. */
void cli_print_faults(struct faults *f);
/* "stile CMD: text (see `stile help CMD`)" to stderr; returns EXIT_USAGE. */
int cli_usage(const char *cmd, const char *fmt, ...) ATTR_PRINTF(2, 3);
/* getopt_long; but a value that is a flag is one that was forgotten (`--allow -- CMD` is no host
 * called --), and is ':' as if there were none. What must begin so is written --flag=VALUE. */
struct option;
int cli_getopt(int argc, char **argv, const char *shorts, const struct option *longs, int *ret_at);
/* cli_usage for what getopt did not like: `opt` is what it returned, ':' or '?'. Long flags must
 * have values past 255. */
int cli_bad_flag(const char *cmd, int opt, char **argv);
/* "stile: no such command", with the nearest one, to stderr; returns EXIT_USAGE. */
int cli_unknown_command(const char *given);
/* Could a request have this method? serve refuses every other before a rule is asked (RFC 9110
 * section 9.1). */
bool cli_is_method(const char *word);
/* To a stream that may be a terminal: what could move its cursor is escaped. */
void cli_put_printable(FILE *to, struct str s);
/* "stile: text" to stderr; returns 1. */
int cli_fail(const struct err *e);
/* The word of `words` (NULL-terminated) nearest to `given`, or NULL if none is near. */
const char *cli_nearest(const char *given, const char *const *words);
/* The names of its policies, with commas. */
void cli_add_policies(const struct config *c, struct strbuf *out);
/* The CA folder of a configuration. */
const char *cli_ca_dir(const struct config *c);

#endif
