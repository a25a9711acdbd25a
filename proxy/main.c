/*
 * From argv to a subcommand. What each does is in cli/, one file a subcommand.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proxy/cli/cli.h"

static int unknown(const char *given)
{
	const char *words[32];
	const char *near;
	size_t n = 0;
	struct strbuf safe;

	for (const struct cli_command *c = cli_commands; c->name && n < ARRAY_LEN(words) - 1; c++)
		words[n++] = c->name;
	words[n] = NULL;
	near = cli_nearest(given, words);
	strbuf_init(&safe, 1024);
	strbuf_add_printable(&safe, str_from_c(given));
	(void)fprintf(stderr, "stile: no such command: %s", strbuf_cstr(&safe));
	if (near)
		(void)fprintf(stderr, " (did you mean `stile %s`?)\n", near);
	else
		(void)fprintf(stderr, " (see `stile --help`)\n");
	strbuf_clear(&safe);
	return EXIT_USAGE;
}

static bool wants_help(int argc, char **argv)
{
	return argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0);
}

static int help_on(char *command)
{
	char name[] = "help";
	char *help[] = {name, command, NULL};

	return cmd_help(2, help);
}

int main(int argc, char **argv)
{
	char name[] = "help";
	char *help[] = {name, NULL};

	/* A closed pipe or peer is an error code where it happens, not the end of the process. */
	(void)signal(SIGPIPE, SIG_IGN);
	if (argc < 2) {
		(void)cmd_help(1, help);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		(void)printf("stile %s\n", STILE_VERSION);
		return 0;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return cmd_help(1, help);
	for (const struct cli_command *c = cli_commands; c->name; c++)
		if (strcmp(argv[1], c->name) == 0)
			return wants_help(argc, argv) ? help_on(argv[1])
						      : c->run(argc - 1, argv + 1);
	return unknown(argv[1]);
}
