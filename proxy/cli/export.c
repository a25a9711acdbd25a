/*
 * `stile export`, and the same at the end of `stile run --export`.
 */
#include <getopt.h>
#include <stdio.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/cli/cli.h"
#include "proxy/cli/export.h"

/* A number, or one with K, M or G behind it (of 1024). */
static int read_size(struct str s, uint64_t *ret)
{
	static const char units[] = "KMG";
	uint64_t n;
	unsigned shift = 0;

	if (s.n > 0)
		for (unsigned i = 0; units[i]; i++)
			if (s.p[s.n - 1] == units[i])
				shift = 10 * (i + 1);
	if (str_to_u64(str_head(s, s.n - (shift ? 1 : 0)), &n) != 0 || n == 0 ||
	    n > UINT64_MAX >> shift)
		return -1;
	*ret = n << shift;
	return 0;
}

int cli_export(const struct export_options *o, FILE *to)
{
	struct export_result r;
	struct export_faults f;
	struct err e = ERR_INIT;
	int status = 0;

	export_faults_init(&f);
	if (export_run(o, &r, &f, &e) == 0) {
		(void)fprintf(to, "exported %zu file%s, %ju bytes, to %s\n", r.files,
			      r.files == 1 ? "" : "s", (uintmax_t)r.bytes, o->to);
	} else {
		status = 1;
		for (struct str rest = strbuf_str(&f.lines); rest.n > 0;) {
			struct str line = str_split(&rest, '\n');

			log_error("%.*s", STR_FMT(line));
		}
		if (f.n > LIMIT_EXPORT_FAULTS)
			log_error("and %zu more", f.n - LIMIT_EXPORT_FAULTS);
		if (f.n == 0)
			log_error("%s", e.text);
		log_error("nothing was exported");
	}
	export_faults_clear(&f);
	return status;
}

int cmd_export(int argc, char **argv)
{
	enum { OPT_FROM = 256, OPT_TO, OPT_FILES, OPT_BYTES };
	static const struct option known[] = {
		{"from", required_argument, NULL, OPT_FROM},
		{"to", required_argument, NULL, OPT_TO},
		{"max-files", required_argument, NULL, OPT_FILES},
		{"max-bytes", required_argument, NULL, OPT_BYTES},
		{NULL, 0, NULL, 0},
	};
	struct export_options o = {.from = "."};
	uint64_t files = 0;
	int c;

	optind = 0;
	while ((c = cli_getopt(argc, argv, ":", known, NULL)) != -1) {
		switch (c) {
		case OPT_FROM: o.from = optarg; break;
		case OPT_TO: o.to = optarg; break;
		case OPT_FILES:
			if (str_to_u64(str_from_c(optarg), &files) != 0 || files == 0 ||
			    files > LIMIT_EXPORT_SEEN)
				return cli_usage("export", "--max-files takes 1 to %d",
						 LIMIT_EXPORT_SEEN);
			o.files_max = files;
			break;
		case OPT_BYTES:
			if (read_size(str_from_c(optarg), &o.bytes_max) != 0)
				return cli_usage("export",
						 "--max-bytes takes a number, or one like 20M");
			break;
		default: return cli_bad_flag("export", c, argv);
		}
	}
	if (!o.to)
		return cli_usage("export", "--to DIR: where to?");
	if (optind == argc)
		return cli_usage("export",
				 "which files? (patterns, like 'out/*.txt' or 'dist/**')");
	o.patterns = (const char *const *)argv + optind;
	o.patterns_n = (size_t)(argc - optind);
	return cli_export(&o, stdout);
}
