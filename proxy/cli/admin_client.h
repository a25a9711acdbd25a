/*
 * How a subcommand asks the stile that runs: finds its admin socket, sends one request, reads one
 * answer. What can be asked is in admin_ops.h.
 */
#ifndef STILE_PROXY_CLI_ADMIN_CLIENT_H
#define STILE_PROXY_CLI_ADMIN_CLIENT_H

#include <jansson.h>

#include "logging/err.h"

struct admin_flags {
	const char *config; /* -c; NULL: the usual ones */
	const char *socket; /* --socket; NULL: the configuration's `admin` */
};

/* Sends q, which it takes over, and gives the answer to *ret: an object whose "ok" is true; the
 * caller's json_decref. 0; or an exit code, with the reason on stderr: 1 when nobody answers or the
 * answer is no, 2 when it cannot be said whom to ask. */
int admin_ask(const struct admin_flags *f, json_t *q, json_t **ret);
/* The answer itself on stdout. */
int admin_print_json(const json_t *answer);
/* As a cell of a table: printable, "-" where there is nothing. */
void admin_print_cell(const char *s, int width);
/* Seconds, as people say them: 45s, 12m, 3h, 4d; "-" where there is no such key. */
void admin_print_span(const json_t *o, const char *key, int width);

#endif
