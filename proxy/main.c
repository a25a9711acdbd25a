/*
 * From argv to a subcommand. What each does is in cli/, one file a subcommand.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "certs/tls_mem.h"
#include "proxy/cli/cli.h"
#include "proxy/sandbox/run.h"

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

/* Should one of the three be closed, a socket of ours could get its number: then records and
 * messages would go to the keeper or a peer, and the socket to the command of `run`. What is
 * written to a closed standard output must fail all the same: it may be the audit log. */
static bool open_std_fds(bool discard)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		int how = fd == STDOUT_FILENO && !discard ? O_RDONLY : O_RDWR;

		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", how) != fd)
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	bool is_run = argc > 1 && strcmp(argv[1], "run") == 0;
	char name[] = "help";
	char *help[] = {name, NULL};

	if (!open_std_fds(is_run))
		return is_run ? SANDBOX_STATUS_NO_SANDBOX : EXIT_FAILURE;

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
	/* OpenSSL makes its global state at the first call that needs it, and where memory for it
	 * is out most such calls crash later rather than fail. */
	tls_mem_install();
	if (OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL) != 1 ||
	    !OSSL_LIB_CTX_get0_global_default()) {
		(void)fputs("stile: out of memory\n", stderr);
		return EXIT_FAILURE;
	}
	for (const struct cli_command *c = cli_commands; c->name; c++)
		if (strcmp(argv[1], c->name) == 0)
			return wants_help(argc, argv) ? help_on(argv[1])
						      : c->run(argc - 1, argv + 1);
	return cli_unknown_command(argv[1]);
}
