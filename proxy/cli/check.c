/*
 * `stile check`: reads configurations as `serve` would and prints every fault.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "certs/trust.h"
#include "proxy/cli/cli.h"

/* The files of upstream.trust: without them `serve` would not start. */
static int check_trust(const struct config *c, struct faults *f)
{
	int r = 0;

	for (size_t i = 0; i < c->trust_n; i++) {
		struct trust *t = NULL;
		struct err e = ERR_INIT;

		if (strcmp(c->trust[i], "system") == 0)
			continue;
		if (trust_new(&c->trust[i], 1, &t, &e) < 0) {
			fault_add(f, c->trust_places[i].line, c->trust_places[i].col, "%s", e.text);
			r = -1;
		}
		trust_unref(t);
	}
	return r;
}

static int check_one(const char *file)
{
	struct config *c = NULL;
	struct faults f;
	size_t rules = 0;
	int r;

	faults_init(&f, file);
	r = config_load_file(file, &c, &f);
	if (r == 0)
		r = check_trust(c, &f);
	cli_print_faults(&f);
	if (r == 0) {
		for (size_t i = 0; i < c->policies_n; i++)
			rules += policy_rules_n(c->policies[i]);
		cli_put_printable(stdout, str_from_c(file));
		(void)printf(": ok (%zu polic%s, %zu rule%s, %zu warning%s)\n", c->policies_n,
			     c->policies_n == 1 ? "y" : "ies", rules, rules == 1 ? "" : "s",
			     f.warnings, f.warnings == 1 ? "" : "s");
	}
	config_unref(c);
	faults_clear(&f);
	return r;
}

int cmd_check(int argc, char **argv)
{
	static const struct option longs[] = {{0}};
	const char *file = NULL;
	int opt, code = 0;

	while ((opt = cli_getopt(argc, argv, "+:c:", longs, NULL)) != -1) {
		if (opt != 'c')
			return cli_bad_flag("check", opt, argv);
		file = optarg;
		if (check_one(file) < 0)
			code = EXIT_USAGE;
	}
	for (int i = optind; i < argc; i++) {
		file = argv[i];
		if (check_one(file) < 0)
			code = EXIT_USAGE;
	}
	if (!file) {
		file = cli_find_config(NULL);
		if (!file)
			return cli_usage("check", "no configuration here; name a file");
		if (check_one(file) < 0)
			code = EXIT_USAGE;
	}
	return code;
}
