/*
 * `stile ca`: what the interception CA is, and a new one; the flags of all four. What clients are
 * given is in ca_bundle.c and ca_env.c.
 */
#include <getopt.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "certs/ca.h"
#include "proxy/cli/ca.h"
#include "proxy/cli/cli.h"

static void print_time(const char *what, const ASN1_TIME *t)
{
	struct tm tm;

	if (ASN1_TIME_to_tm(t, &tm) == 1)
		(void)printf("%-12s %04d-%02d-%02dT%02d:%02d:%02dZ\n", what, tm.tm_year + 1900,
			     tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

static int show(const struct config *c, struct err *e)
{
	struct ca *ca = NULL;
	unsigned char hash[EVP_MAX_MD_SIZE];
	unsigned n = 0;
	char subject[256];

	if (ca_load(cli_ca_dir(c), &ca, e) < 0)
		return -1;
	X509_NAME_oneline(X509_get_subject_name(ca_cert(ca)), subject, (int)sizeof(subject));
	(void)printf("%-12s %s\n", "subject", subject);
	if (X509_digest(ca_cert(ca), EVP_sha256(), hash, &n) == 1) {
		(void)printf("%-12s ", "sha256");
		for (unsigned i = 0; i < n; i++)
			(void)printf("%s%02X", i ? ":" : "", hash[i]);
		(void)printf("\n");
	}
	print_time("not before", X509_get0_notBefore(ca_cert(ca)));
	print_time("not after", X509_get0_notAfter(ca_cert(ca)));
	(void)printf("%-12s %s/ca.pem\n", "file", cli_ca_dir(c));
	ca_unref(ca);
	return 0;
}

static int rotate(const struct config *c, struct err *e)
{
	struct ca *ca = NULL;

	if (ca_rotate(cli_ca_dir(c), &ca, e) < 0)
		return -1;
	ca_unref(ca);
	(void)printf("a new CA is in %s/ca.pem (the old one: ca.pem.old); restart `stile serve`, "
		     "and give\n"
		     "clients the new bundle: stile ca bundle\n",
		     cli_ca_dir(c));
	return 0;
}

enum what { SHOW, BUNDLE, ENV, ROTATE };

/* Which flags go with which. NULL: all do. */
static const char *misplaced(enum what what, const struct ca_flags *f)
{
	if (what != BUNDLE && f->to)
		return "-o goes with bundle";
	if (what != BUNDLE && f->java)
		return "--java goes with bundle";
	if (what != BUNDLE && what != ENV && f->dir)
		return "--dir goes with bundle and env";
	if (what != ENV && (f->proxy || f->export))
		return "--proxy and --export go with env";
	if (f->dir && (f->to || f->java))
		return "--dir makes a folder of all forms: neither -o nor --java goes with it";
	if (f->java && !f->to && isatty(STDOUT_FILENO))
		return "a trust store is no text: say -o FILE";
	if (what == ENV && (!f->dir || f->dir[0] != '/'))
		return "say with --dir where the client finds the files of `ca bundle --dir`, as a "
		       "whole path";
	return NULL;
}

static int carry_out(enum what what, const struct ca_flags *f)
{
	struct config *c;
	struct err e = ERR_INIT;
	int r = -1;

	/* A client's machine has none. */
	if (what == ENV && f->proxy)
		return ca_env(NULL, f);
	c = cli_load_config(f->file);
	if (!c)
		return EXIT_USAGE;
	switch (what) {
	case SHOW: r = show(c, &e); break;
	case BUNDLE: r = ca_bundle(c, f, &e); break;
	case ROTATE: r = rotate(c, &e); break;
	case ENV:
		r = ca_env(c, f);
		config_unref(c);
		return r;
	}
	config_unref(c);
	return r < 0 ? cli_fail(&e) : 0;
}

int cmd_ca(int argc, char **argv)
{
	enum { OPT_JAVA = 256, OPT_DIR, OPT_PROXY, OPT_EXPORT };
	static const struct option longs[] = {
		{"java", no_argument, NULL, OPT_JAVA},
		{"dir", required_argument, NULL, OPT_DIR},
		{"proxy", required_argument, NULL, OPT_PROXY},
		{"export", no_argument, NULL, OPT_EXPORT},
		{0},
	};
	static const char *const words[] = {
		[SHOW] = "show", [BUNDLE] = "bundle", [ENV] = "env", [ROTATE] = "rotate"};
	struct ca_flags f = {0};
	const char *wrong;
	size_t what = 0;
	int opt;

	while (what < ARRAY_LEN(words) && (argc < 2 || strcmp(argv[1], words[what]) != 0))
		what++;
	if (what == ARRAY_LEN(words))
		return cli_usage("ca", "say show, bundle, env or rotate");
	while ((opt = cli_getopt(argc - 1, argv + 1, "+:c:o:", longs, NULL)) != -1) {
		switch (opt) {
		case 'c': f.file = optarg; break;
		case 'o': f.to = optarg; break;
		case OPT_JAVA: f.java = true; break;
		case OPT_DIR: f.dir = optarg; break;
		case OPT_PROXY: f.proxy = optarg; break;
		case OPT_EXPORT: f.export = true; break;
		default: return cli_bad_flag("ca", opt, argv + 1);
		}
	}
	if (optind < argc - 1)
		return cli_usage("ca", "what is `%s`?", argv[optind + 1]);
	wrong = misplaced((enum what)what, &f);
	return wrong ? cli_usage("ca", "%s", wrong) : carry_out((enum what)what, &f);
}
