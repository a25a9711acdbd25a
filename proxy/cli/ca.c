/*
 * `stile ca`: what the interception CA is, what a client must trust, and a new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "certs/ca.h"
#include "certs/trust.h"
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

static int write_out(const char *path, struct str text, struct err *e)
{
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : STDOUT_FILENO;
	int r = 0;

	if (fd < 0)
		return err_sys(e, errno, "%s", path);
	while (text.n > 0) {
		ssize_t n = write(fd, text.p, text.n);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			r = err_sys(e, errno, "%s", path ? path : "standard output");
			break;
		}
		text = str_skip(text, (size_t)n);
	}
	if (path)
		close(fd);
	return r;
}

static int bundle(const struct config *c, const char *to, struct err *e)
{
	struct ca *ca = NULL;
	struct strbuf pem, all;
	int r = -1;

	strbuf_init(&pem, 65536);
	strbuf_init(&all, 16 << 20);
	if (ca_load_or_create(cli_ca_dir(c), &ca, e) == 0 && ca_add_pem(ca, &pem, e) == 0 &&
	    bundle_add(strbuf_str(&pem), &all, e) == 0)
		r = write_out(to, strbuf_str(&all), e);
	strbuf_clear(&pem);
	strbuf_clear(&all);
	ca_unref(ca);
	return r;
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

int cmd_ca(int argc, char **argv)
{
	static const struct option longs[] = {{0}};
	const char *what = argc > 1 ? argv[1] : NULL, *file = NULL, *to = NULL;
	struct config *c;
	struct err e = ERR_INIT;
	int opt, r;

	if (!what || (strcmp(what, "show") != 0 && strcmp(what, "bundle") != 0 &&
		      strcmp(what, "rotate") != 0))
		return cli_usage("ca", "say show, bundle or rotate");
	while ((opt = getopt_long(argc - 1, argv + 1, "+:c:o:", longs, NULL)) != -1) {
		switch (opt) {
		case 'c': file = optarg; break;
		case 'o': to = optarg; break;
		default: return cli_bad_flag("ca", opt, argv + 1);
		}
	}
	if (optind < argc - 1)
		return cli_usage("ca", "what is `%s`?", argv[optind + 1]);
	if (to && strcmp(what, "bundle") != 0)
		return cli_usage("ca", "-o goes with bundle");
	c = cli_load_config(file);
	if (!c)
		return EXIT_USAGE;
	if (strcmp(what, "show") == 0)
		r = show(c, &e);
	else if (strcmp(what, "bundle") == 0)
		r = bundle(c, to, &e);
	else
		r = rotate(c, &e);
	config_unref(c);
	return r < 0 ? cli_fail(&e) : 0;
}
