/*
 * Exporting, for the two commands that do.
 */
#ifndef STILE_PROXY_CLI_EXPORT_H
#define STILE_PROXY_CLI_EXPORT_H

#include <stdio.h>

#include "proxy/export/export.h"

/* Exports and says so: what came out on `to`, what is wrong on stderr. Returns the exit code. */
int cli_export(const struct export_options *o, FILE *to);

#endif
