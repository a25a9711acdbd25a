/*
 * `stile log`: reads the audit log, filters it, and prints a line a record for people. Whatever a
 * record holds is escaped before it reaches the terminal.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "logging/limits.h"
#include "logging/record.h"
#include "proxy/cli/cli.h"
#include "proxy/net/poll_again.h"

#define FOLLOW_MS 200

struct filter {
	const char *event, *host, *reason, *decision, *since;
	bool json, follow;
};

static const char *text(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_string(v) ? json_string_value(v) : "";
}

/* The whole of it: a NUL in the middle must not hide the rest. */
static struct str whole(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_string(v) ? str_from(json_string_value(v), json_string_length(v)) : STR_NONE;
}

static bool passes(const struct filter *f, const json_t *o)
{
	if (f->event && strcmp(f->event, text(o, "event")) != 0)
		return false;
	if (f->host && strcmp(f->host, text(o, "host")) != 0)
		return false;
	/* What failed after it was allowed has its word in `error`. */
	if (f->reason && strcmp(f->reason, text(o, "reason")) != 0 &&
	    strcmp(f->reason, text(o, "error")) != 0)
		return false;
	if (f->decision && strcmp(f->decision, text(o, "decision")) != 0)
		return false;
	return !f->since || strncmp(text(o, "time"), f->since, strlen(f->since)) >= 0;
}

static void add(struct strbuf *b, const char *before, struct str s, const char *after)
{
	if (s.n == 0)
		return;
	strbuf_adds(b, before);
	strbuf_add_printable(b, s);
	strbuf_adds(b, after);
}

static void add_number(struct strbuf *b, const char *before, const json_t *v, const char *after)
{
	if (json_is_integer(v))
		strbuf_addf(b, "%s%lld%s", before, (long long)json_integer_value(v), after);
	else if (json_is_real(v))
		strbuf_addf(b, "%s%.3f%s", before, json_real_value(v), after);
}

static void add_target(struct strbuf *b, const json_t *o)
{
	struct str host = whole(o, "host");
	bool v6 = str_find(host, ':') >= 0;

	add(b, " ", whole(o, "method"), "");
	add(b, " ", whole(o, "scheme"), "://");
	if (whole(o, "scheme").n == 0 && host.n > 0)
		strbuf_addc(b, ' ');
	add(b, v6 ? "[" : "", host, v6 ? "]" : "");
	add_number(b, ":", json_object_get(o, "port"), "");
	add(b, "", whole(o, "path"), "");
	if (json_is_string(json_object_get(o, "query")))
		strbuf_addc(b, '?');
	add(b, "", whole(o, "query"), "");
}

static void print_record(const json_t *o)
{
	struct strbuf b;
	struct str rule_at = whole(o, "rule_at");

	strbuf_init(&b, (size_t)LIMIT_RECORD_BYTES * 8);
	add(&b, "", whole(o, "time"), " ");
	add(&b, "", whole(o, "event"), "");
	for (size_t n = whole(o, "event").n; n < 13; n++)
		strbuf_addc(&b, ' ');
	add(&b, " [", whole(o, "sandbox"), "]");
	add_target(&b, o);
	add_number(&b, " ", json_object_get(o, "status"), "");
	add(&b, " ", whole(o, "reason"), "");
	add(&b, " error=", whole(o, "error"), "");
	add(&b, " rule=", rule_at, "");
	add(&b, " policy=", rule_at.n > 0 ? STR_NONE : whole(o, "policy"), "");
	add(&b, " credential=", whole(o, "credential"), "");
	if (json_is_true(json_object_get(o, "credential_stripped")))
		strbuf_adds(&b, " (the client's own removed)");
	add(&b, " upstream=", whole(o, "upstream"), "");
	add_number(&b, " out=", json_object_get(o, "bytes_out"), "");
	add_number(&b, " in=", json_object_get(o, "bytes_in"), "");
	add_number(&b, " redacted=", json_object_get(o, "redacted"), "");
	add_number(&b, " ", json_object_get(json_object_get(o, "ms"), "total"), "ms");
	add(&b, " (", whole(o, "error_detail"), ")");
	(void)puts(strbuf_cstr(&b));
	strbuf_clear(&b);
}

/* False: not a record. */
static bool one_line(const struct filter *f, const char *line, size_t n)
{
	json_error_t why;
	json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
	/* A NUL is nothing that we write, and jansson reads over it. */
	bool ok = json_is_object(o) && !memchr(line, '\0', n);

	if (ok && passes(f, o)) {
		if (f->json)
			(void)printf("%.*s\n", (int)n, line);
		else
			print_record(o);
	}
	json_decref(o);
	return ok;
}

/* True: the path leads to another file than `in`, or the file was cut. */
static bool was_rotated(FILE *in, const char *path)
{
	struct stat a, b;

	if (stat(path, &a) < 0 || fstat(fileno(in), &b) < 0)
		return false;
	return a.st_ino != b.st_ino || a.st_dev != b.st_dev || a.st_size < ftello(in);
}

/* False: nobody reads what is printed any more. Asked of the socket or pipe itself, or it would
 * come out only at the next record. */
static bool wait_for_more(void)
{
	struct pollfd p = {.fd = STDOUT_FILENO};

	return fflush(stdout) == 0 && !ferror(stdout) &&
	       (poll_calmly(&p, 1, FOLLOW_MS) <= 0 || !(p.revents & (POLLERR | POLLHUP)));
}

/* Reads to the end; a line without its end is kept for the next time. The number of broken lines.
 */
static size_t drain(const struct filter *f, FILE *in, char **line, size_t *cap, struct strbuf *part)
{
	ssize_t n;
	size_t broken = 0;

	while ((n = getline(line, cap, in)) > 0) {
		strbuf_add(part, str_from(*line, (size_t)n));
		if ((*line)[n - 1] != '\n')
			break;
		if (!one_line(f, strbuf_cstr(part), part->len - 1))
			broken++;
		strbuf_reset(part);
	}
	clearerr(in);
	return broken;
}

static int read_log(const struct filter *f, const char *path)
{
	FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	char *line = NULL;
	size_t cap = 0, broken = 0;
	struct strbuf part;

	if (!in) {
		(void)fprintf(stderr, "stile: %s: %s\n", path, strerror(errno));
		return 1;
	}
	strbuf_init(&part, (size_t)LIMIT_RECORD_BYTES * 4);
	for (;;) {
		bool rotated = f->follow && was_rotated(in, path);

		broken += drain(f, in, &line, &cap, &part);
		if (!f->follow || in == stdin)
			break;
		if (rotated) {
			FILE *fresh = fopen(path, "re");

			if (fresh) {
				(void)fclose(in);
				in = fresh;
				strbuf_reset(&part);
				continue;
			}
		}
		if (!wait_for_more())
			break;
	}
	if (part.len > 0 && !one_line(f, strbuf_cstr(&part), part.len))
		broken++;
	if (broken > 0)
		(void)fprintf(stderr, "stile: %s: %zu line%s not a record\n", path, broken,
			      broken == 1 ? " is" : "s are");
	if (in != stdin)
		(void)fclose(in);
	free(line);
	strbuf_clear(&part);
	return broken || fflush(stdout) != 0 || ferror(stdout) ? 1 : 0;
}

static bool is_event(const char *word)
{
	for (enum record_event e = RECORD_REQUEST_START; e < RECORD_EVENTS; e++)
		if (strcmp(word, record_event_word(e)) == 0)
			return true;
	return false;
}

/* A misspelt word would find nothing, which reads as "it never happened". */
static int check_filter(const struct filter *f)
{
	if (f->event && !is_event(f->event))
		return cli_usage("log", "--event: there is no event `%s`", f->event);
	if (f->reason && reason_from_word(str_from_c(f->reason)) == REASON_NONE)
		return cli_usage("log", "--reason: there is no reason `%s`", f->reason);
	if (f->decision && strcmp(f->decision, "allow") != 0 && strcmp(f->decision, "deny") != 0)
		return cli_usage("log", "--decision is allow or deny, not `%s`", f->decision);
	return 0;
}

int cmd_log(int argc, char **argv)
{
	enum { OPT_EVENT = 256, OPT_HOST, OPT_REASON, OPT_DECISION, OPT_SINCE, OPT_JSON };
	static const struct option longs[] = {
		{"event", required_argument, NULL, OPT_EVENT},
		{"host", required_argument, NULL, OPT_HOST},
		{"reason", required_argument, NULL, OPT_REASON},
		{"decision", required_argument, NULL, OPT_DECISION},
		{"since", required_argument, NULL, OPT_SINCE},
		{"json", no_argument, NULL, OPT_JSON},
		{0},
	};
	struct filter f = {0};
	int opt;

	while ((opt = getopt_long(argc, argv, ":f", longs, NULL)) != -1) {
		switch (opt) {
		case 'f': f.follow = true; break;
		case OPT_EVENT: f.event = optarg; break;
		case OPT_HOST: f.host = optarg; break;
		case OPT_REASON: f.reason = optarg; break;
		case OPT_DECISION: f.decision = optarg; break;
		case OPT_SINCE: f.since = optarg; break;
		case OPT_JSON: f.json = true; break;
		default: return cli_bad_flag("log", opt, argv);
		}
	}
	if (argc - optind != 1)
		return cli_usage("log", "name one FILE, or - for standard input");
	if (check_filter(&f) != 0)
		return EXIT_USAGE;
	return read_log(&f, argv[optind]);
}
