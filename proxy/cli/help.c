/*
 * `stile help`, and the table of subcommands that help, main.c and the completions' test share.
 */
#include <stdio.h>
#include <string.h>

#include "proxy/cli/cli.h"

#define USAGE_COLUMNS 96

const struct cli_command cli_commands[] = {
	{"run", cmd_run,
	 "run [-c FILE] [--allow TARGET]... [--workspace DIR] [--hide PATH]... [--show PATH]... "
	 "[--timeout TIME] [--memory SIZE] [--cpus N] [--pids N] [--file-size SIZE] "
	 "[--env NAME[=VALUE]]... [--log FILE] [--policy NAME] "
	 "[--export PATTERN]... [--to DIR] [--] CMD [ARG]...",
	 "run a command whose only way out is the allowlist",
	 "  -c FILE            the configuration; none is needed beside --allow\n"
	 "  --allow TARGET     one more allow rule; may be repeated\n"
	 "  --workspace DIR    where the command starts, and the only place that it may write to;\n"
	 "                     `none`: an empty one in memory (default: the current folder)\n"
	 "  --hide PATH        not to be seen inside; may be repeated\n"
	 "  --show PATH        to be seen inside, read-only, though it lies in your home or in "
	 "/tmp\n"
	 "  --timeout TIME     ends the command after so many seconds, or 30m, 2h (exit 124)\n"
	 "  --memory SIZE      what all of it may use together (512M, 2G); more ends it (exit "
	 "137)\n"
	 "  --cpus N           how many processors it may use (2, 0.5)\n"
	 "  --pids N           how many processes and threads it may have (default: 4096)\n"
	 "  --file-size SIZE   what a file may grow to\n"
	 "  --env NAME[=VALUE] passes a variable on, or sets it\n"
	 "  --log FILE         where the audit log goes\n"
	 "  --policy NAME      which policy, when there are several\n"
	 "  --export PATTERN   what to copy out of the workspace when the command ends with 0; may "
	 "be repeated\n"
	 "  --to DIR           where to: a folder that is not there yet (see `stile help export`)\n"
	 "Exits with the command's status (128 and the signal's number when one ended it), 125 "
	 "when the\n"
	 "sandbox could not be made or nothing could be exported, 126 or 127 when the command "
	 "could not be started.\n"},
	{"serve", cmd_serve, "serve [-c FILE]", "the daemon",
	 "  -c FILE            the configuration\n"
	 "SIGHUP reads the configuration again and opens the log anew (so does a change of it, "
	 "with\n"
	 "`reload: watch` in it); SIGUSR1 opens the log anew;\n"
	 "SIGTERM lets requests in flight end, then stops.\n"},
	{"check", cmd_check, "check [-c] [FILE]...", "every fault of a configuration",
	 "Prints each fault as FILE:LINE:COL; exit 2 if there is any.\n"},
	{"explain", cmd_explain, "explain [-c FILE] [--policy NAME] METHOD URL",
	 "what would be decided, and why",
	 "  -c FILE            the configuration\n"
	 "  --policy NAME      which policy, when there are several\n"
	 "Prints the decision, the rule and where it stands, and what would be injected; for a "
	 "denial the\n"
	 "nearest rule, what differs, and a rule that would do. `explain CONNECT HOST:PORT` shows "
	 "what\na tunnel may carry. "
	 "Nothing is looked up or sent. Exit 0 when allowed, 1 when denied.\n"},
	{"test", cmd_test, "test [-c FILE]", "run the policies' own tests",
	 "  -c FILE            the configuration\n"
	 "Decides each request of `tests:` and compares; exit 1 if any differs.\n"},
	{"log", cmd_log,
	 "log [-f] [--event E] [--host H] [--reason R] [--decision D] [--since T] [--json] FILE",
	 "read and filter the audit log",
	 "  -f                 go on as the file grows, across rotation\n"
	 "  --event E          only this event, e.g. request.deny\n"
	 "  --host H           only this host\n"
	 "  --reason R         only this reason\n"
	 "  --decision D       allow or deny\n"
	 "  --since T          only records from this time on (RFC 3339, or a part of it from the "
	 "left)\n"
	 "  --json             the lines themselves\n"
	 "FILE may be - for standard input.\n"},
	{"ca", cmd_ca,
	 "ca show|bundle|env|rotate [-c FILE] [-o FILE] [--java] [--dir DIR] [--proxy URL] "
	 "[--export]",
	 "the interception CA",
	 "  show               subject, fingerprint, validity, place\n"
	 "  bundle             what a client must trust: the system's roots and the CA, as PEM\n"
	 "  env                the variables that lead clients to the proxy and to those files\n"
	 "  rotate             a new CA; the old one is kept as ca.pem.old\n"
	 "  -c FILE            the configuration\n"
	 "  -o FILE            bundle: where it goes (default: standard output)\n"
	 "  --java             bundle: a trust store for Java (PKCS#12) instead of PEM\n"
	 "  --dir DIR          bundle: ca-bundle.pem, truststore.p12 and ca.pem into this folder; "
	 "env:\n"
	 "                     where the client finds them\n"
	 "  --proxy URL        env: where the client finds the proxy (default: the first "
	 "listener)\n"
	 "  --export           env: for a shell, instead of NAME=VALUE\n"},
	{"doctor", cmd_doctor,
	 "doctor [-c FILE] [--allowed URL] [--denied URL] [--client NAME]... | --escape "
	 "[--reach ADDR:PORT]... [--resolve NAME] [--workspace DIR] [--way WAY]... "
	 "[--but WAY]... [--json]",
	 "try each client that is installed, or each way out, from inside",
	 "  -c FILE            the configuration, for an allowed URL\n"
	 "  --allowed URL      what must be answered (default: the first https URL that is "
	 "allowed)\n"
	 "  --denied URL       what must be refused (default: https://doctor.invalid/)\n"
	 "  --client NAME      only this one; may be repeated\n"
	 "  --escape           try the ways out of a sandbox instead\n"
	 "  --reach ADDR:PORT  escape: where somebody listens outside; may be repeated\n"
	 "  --resolve NAME     escape: a name that is known outside (default: example.com)\n"
	 "  --workspace DIR    escape: where the sandbox may write (default: the current folder)\n"
	 "  --way WAY          escape: only this one; may be repeated\n"
	 "  --but WAY          escape: may be open here; may be repeated\n"
	 "  --json             escape: an object a line\n"
	 "Run it where the clients run: `stile run -- stile doctor`, or in the container. Exit 1 "
	 "if "
	 "one of\n"
	 "them is not answered, or not refused.\n"},
	{"export", cmd_export,
	 "export [--from DIR] [--max-files N] [--max-bytes SIZE] --to DIR PATTERN...",
	 "copy what is named out of a workspace, or nothing",
	 "  --from DIR         the workspace (default: the current folder)\n"
	 "  --to DIR           a folder that is not there yet, outside of the workspace\n"
	 "  --max-files N      more is a fault (default: 10000)\n"
	 "  --max-bytes SIZE   of all files; like 20M (default: 1G)\n"
	 "A PATTERN is relative: *, ? and [...] within a name, ** for any folders. A name with a "
	 "leading dot\n"
	 "is matched only by a pattern that spells the dot. Plain files alone, with plain names; "
	 "no links,\n"
	 "holes or devices; each fault is printed and nothing is copied. DIR/SHA256SUMS lists the "
	 "hashes.\n"},
	{"sandbox", cmd_sandbox,
	 "sandbox new|list|revoke [-c FILE] [--socket PATH] [--policy NAME] [--ttl TIME] "
	 "[--name NAME] [--listener NAME] [--proxy URL] [--json] [NAME|ID]",
	 "tokens by which a running stile tells sandboxes apart",
	 "  new                makes a token and prints the proxy URL that brings it\n"
	 "  list               those that live; never a token\n"
	 "  revoke NAME|ID     ends one: its connections are closed when this returns\n"
	 "  -c FILE            the configuration, whose `admin` is asked\n"
	 "  --socket PATH      the admin socket itself\n"
	 "  --policy NAME      new: what is allowed\n"
	 "  --ttl TIME         new: how long it lives, such as 30m (default: 1h; 30 days at "
	 "most)\n"
	 "  --name NAME        new: what the log calls it (default: made up)\n"
	 "  --listener NAME    new: where it is good, when several listeners take tokens\n"
	 "  --proxy URL        new: where the sandbox finds that listener (default: its own "
	 "address)\n"
	 "  --json             the answer itself\n"
	 "For root and the user that stile runs as.\n"},
	{"credentials", cmd_credentials, "credentials [-c FILE] [--socket PATH] [--json]",
	 "the credentials of a running stile, without their values",
	 "  -c FILE            the configuration, whose `admin` is asked\n"
	 "  --socket PATH      the admin socket itself\n"
	 "  --json             the answer itself\n"
	 "Name, source, way, state, age, end, next renewal, last error, and how often each was "
	 "used.\n"},
	{"status", cmd_status, "status [-c FILE] [--socket PATH] [--json]",
	 "how a running stile is",
	 "  -c FILE            the configuration, whose `admin` is asked\n"
	 "  --socket PATH      the admin socket itself\n"
	 "  --json             the answer itself\n"
	 "Exit 0 when it is healthy: it answers, takes requests, and its log can be written.\n"},
	{"help", cmd_help, "help [CMD|yaml]", "help on a command, or every key of the YAML", ""},
	{NULL, NULL, NULL, NULL, NULL},
};

static int help_all(void)
{
	(void)printf("stile: the only way out of a sandbox, by an allowlist, with every request "
		     "logged\n\n");
	for (const struct cli_command *c = cli_commands; c->name; c++)
		(void)printf("  stile %-11s %s\n", c->name, c->summary);
	(void)printf(
		"\n`stile help CMD` says more; `stile --version` prints the version. Without -c "
		"the configuration\nis ./stile.yaml, or else /etc/stile/stile.yaml.\n");
	return 0;
}

static int help_yaml(void)
{
	for (const char *const *k = config_keys(); *k; k++)
		(void)printf("%s\n", *k);
	return 0;
}

int cli_unknown_command(const char *given)
{
	const char *words[32];
	const char *near;
	size_t n = 0;
	struct strbuf safe;

	for (const struct cli_command *c = cli_commands; c->name && n < ARRAY_LEN(words) - 3; c++)
		words[n++] = c->name;
	words[n++] = "--version";
	words[n++] = "--help";
	words[n] = NULL;
	near = cli_nearest(given, words);
	strbuf_init(&safe, 1024);
	strbuf_add_printable(&safe, str_from_c(given));
	(void)fprintf(stderr, "stile: no such command: %s", strbuf_cstr(&safe));
	if (given[0] == '-' && (!near || near[0] != '-'))
		(void)fprintf(stderr, " (flags stand behind the command; see `stile --help`)\n");
	else if (near)
		(void)fprintf(stderr, " (did you mean `stile %s`?)\n", near);
	else
		(void)fprintf(stderr, " (see `stile --help`)\n");
	strbuf_clear(&safe);
	return EXIT_USAGE;
}

/* Cut between what belongs together: a flag and its value, or a word. */
static void print_usage(const char *usage)
{
	size_t at = 12; /* of "usage: stile" */

	(void)printf("usage: stile");
	while (*usage) {
		size_t n = *usage == '[' ? 0 : strcspn(usage, " ");

		/* A bracket may hold another one. */
		for (int depth = 0; *usage == '[' && usage[n] && (depth || usage[n] != ' '); n++)
			depth += (usage[n] == '[') - (usage[n] == ']');
		if (at + 1 + n > USAGE_COLUMNS) {
			(void)printf("\n            ");
			at = 12;
		}
		(void)printf(" %.*s", (int)n, usage);
		at += 1 + n;
		usage += n + (usage[n] == ' ');
	}
	(void)printf("\n");
}

int cmd_help(int argc, char **argv)
{
	if (argc < 2)
		return help_all();
	if (strcmp(argv[1], "yaml") == 0)
		return help_yaml();
	for (const struct cli_command *c = cli_commands; c->name; c++)
		if (strcmp(argv[1], c->name) == 0) {
			print_usage(c->usage);
			(void)printf("\n%s\n", c->text);
			return 0;
		}
	/* What `help` alone has an article on. */
	if (cli_nearest(argv[1], (const char *const[]){"yaml", NULL}))
		return cli_usage("help", "no such article: %s (did you mean `stile help yaml`?)",
				 argv[1]);
	return cli_unknown_command(argv[1]);
}
