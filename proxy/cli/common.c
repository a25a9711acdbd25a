/*
 * What the subcommands share; see cli.h.
 */
#include "proxy/cli/cli.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "logging/limits.h"
#include "logging/utf8.h"
#include "policy/load_keys.h"

static const char *const DEFAULTS[] = {"./stile.yaml", "/etc/stile/stile.yaml"};

const char *cli_find_config(const char *from_flag)
{
	if (from_flag)
		return from_flag;
	for (size_t i = 0; i < ARRAY_LEN(DEFAULTS); i++)
		if (access(DEFAULTS[i], F_OK) == 0)
			return DEFAULTS[i];
	return NULL;
}

void cli_print_faults(struct faults *f)
{
	struct strbuf b;
	struct str rest;

	strbuf_init(&b, 1 << 20);
	faults_print(f, &b);
	rest = strbuf_str(&b);
	while (rest.n > 0) {
		struct str line = str_split(&rest, '\n');

		if (line.n > 0)
			(void)fprintf(stderr, "stile: %.*s\n", (int)line.n, line.p);
	}
	if (b.len == 0 && f->errors > 0)
		(void)fputs("stile: out of memory\n", stderr);
	strbuf_clear(&b);
}

struct config *cli_load_config(const char *from_flag)
{
	const char *file = cli_find_config(from_flag);
	struct config *c = NULL;
	struct faults f;

	if (!file) {
		(void)fprintf(stderr,
			      "stile: no configuration: neither %s nor %s exists (name one with -c "
			      "FILE)\n",
			      DEFAULTS[0], DEFAULTS[1]);
		return NULL;
	}
	faults_init(&f, file);
	if (config_load_file(file, &c, &f) < 0)
		c = NULL;
	cli_print_faults(&f);
	faults_clear(&f);
	return c;
}

int cli_usage(const char *cmd, const char *fmt, ...)
{
	struct strbuf text, safe;
	va_list ap;

	strbuf_init(&text, 4096);
	strbuf_init(&safe, 16384);
	va_start(ap, fmt);
	strbuf_vaddf(&text, fmt, ap);
	va_end(ap);
	strbuf_add_printable(&safe, strbuf_str(&text));
	(void)fprintf(stderr, "stile %s: %s (see `stile help %s`)\n", cmd, strbuf_cstr(&safe), cmd);
	strbuf_clear(&text);
	strbuf_clear(&safe);
	return EXIT_USAGE;
}

static struct str word_until(struct str s, const char *stops)
{
	size_t n = 0;

	while (n < s.n && !strchr(stops, s.p[n]))
		n++;
	return str_head(s, n);
}

/* The long flag of a command that is nearest to what was given, in buf with its dashes: the lines
 * of its help begin with them. "": none is near. */
static void nearest_flag(const char *cmd, const char *given, char *buf, size_t size)
{
	char words[16][32];
	const char *list[ARRAY_LEN(words)], *near;
	struct str text = STR_NONE, name = str_from_c(given);
	size_t n = 0;

	*buf = '\0';
	for (const struct cli_command *c = cli_commands; c->name; c++)
		if (strcmp(c->name, cmd) == 0)
			text = str_from_c(c->text);
	while (text.p && n < ARRAY_LEN(words)) {
		struct str line = str_split(&text, '\n');

		if (!str_starts(line, STR("  --")))
			continue;
		line = str_skip(line, 4);
		line = word_until(line, " ,[=");
		(void)snprintf(words[n], sizeof(words[n]), "%.*s", STR_FMT(line));
		list[n] = words[n];
		n++;
	}
	if (!str_starts(name, STR("--")))
		return;
	name = str_skip(name, 2);
	name = word_until(name, "=");
	near = nearest_word(name, list, n);
	if (near)
		(void)snprintf(buf, size, "--%s", near);
}

int cli_getopt(int argc, char **argv, const char *shorts, const struct option *longs, int *ret_at)
{
	int opt = getopt_long(argc, argv, shorts, longs, ret_at);

	/* Of one word with its flag (-cFILE, --flag=VALUE) the value is not a word of its own. */
	if (opt == -1 || opt == '?' || opt == ':' || !optarg || optind < 2 ||
	    optarg != argv[optind - 1] || strncmp(optarg, "--", 2) != 0)
		return opt;
	optopt = opt < 256 ? opt : 0;
	optind--; /* cli_bad_flag finds the flag before it */
	return ':';
}

int cli_bad_flag(const char *cmd, int opt, char **argv)
{
	char letter[] = {'-', (char)optopt, '\0'};
	/* For a long flag getopt has moved on, and optopt is 0 or the flag's value. */
	const char *flag = optopt != 0 && optopt < 256 ? letter : argv[optind - 1];
	char near[40];

	nearest_flag(cmd, flag, near, sizeof(near));
	if (opt != ':' && *near)
		return cli_usage(cmd, "unknown flag %s (did you mean %s?)", flag, near);
	return cli_usage(cmd, "%s%s%s", opt == ':' ? "" : "unknown flag ", flag,
			 opt == ':' ? " needs a value" : "");
}

bool cli_is_method(const char *word)
{
	size_t n = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
				"!#$%&'*+-.^_`|~");

	return n > 0 && word[n] == '\0' && n <= LIMIT_METHOD_BYTES;
}

void cli_put_printable(FILE *to, struct str s)
{
	char one[UTF8_ESCAPE_MAX];
	size_t n;

	for (; s.n > 0; s = str_skip(s, n)) {
		size_t len;

		n = utf8_escape_one(s, one, &len);
		(void)fwrite(one, 1, len, to);
	}
}

int cli_fail(const struct err *e)
{
	(void)fputs("stile: ", stderr);
	cli_put_printable(stderr, str_from_c(e->text));
	(void)fputc('\n', stderr);
	return 1;
}

/* Edit distance, for words of a command line's length. */
static size_t distance(const char *a, const char *b)
{
	size_t row[64];
	size_t n = strlen(b);

	if (n >= ARRAY_LEN(row))
		return n;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t up = row[j], cost = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = up;
			if (up + 1 < cost)
				cost = up + 1;
			if (row[j - 1] + 1 < cost)
				cost = row[j - 1] + 1;
			row[j] = cost;
		}
	}
	return row[n];
}

const char *cli_nearest(const char *given, const char *const *words)
{
	const char *best = NULL;
	size_t best_d = 3;

	for (size_t i = 0; words[i]; i++) {
		size_t d = distance(given, words[i]);

		if (d < best_d) {
			best = words[i];
			best_d = d;
		}
	}
	return best;
}

void cli_add_policies(const struct config *c, struct strbuf *out)
{
	for (size_t i = 0; i < c->policies_n; i++)
		strbuf_addf(out, "%s%s", i ? ", " : "", policy_name(c->policies[i]));
}

const char *cli_ca_dir(const struct config *c)
{
	return c->ca_dir ? c->ca_dir : "/var/lib/stile/ca";
}
