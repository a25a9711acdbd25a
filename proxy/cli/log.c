/*
 * `stile log`: reads the audit log, filters it, and prints a line a record for people. Whatever a
 * record holds is escaped before it reaches the terminal.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "logging/limits.h"
#include "logging/record.h"
#include "logging/utf8.h"
#include "policy/hostname.h"
#include "policy/load_keys.h"
#include "proxy/cli/cli.h"
#include "proxy/net/poll_again.h"

#define FOLLOW_MS 200

#define READ_BYTES 65536

struct filter {
	const char *event, *host, *reason, *decision;
	struct str since;
	struct host canonical; /* what `host` points to, where it is one */
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
	if (f->host && !str_eq(whole(o, "host"), str_from_c(f->host)))
		return false;
	/* What failed after it was allowed has its word in `error`. */
	if (f->reason && strcmp(f->reason, text(o, "reason")) != 0 &&
	    strcmp(f->reason, text(o, "error")) != 0)
		return false;
	if (f->decision && strcmp(f->decision, text(o, "decision")) != 0)
		return false;
	return strncmp(text(o, "time"), f->since.p ? f->since.p : "", f->since.n) >= 0;
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

/* The line, with what a terminal would act on as \uXXXX: the same JSON. All of it that is no blank
 * stands within texts, or it would not have been read. */
static void print_line(struct str line)
{
	while (line.n > 0) {
		size_t n = utf8_clean(line);
		uint32_t cp;

		(void)fwrite(line.p, 1, n, stdout);
		line = str_skip(line, n);
		if (line.n == 0)
			break;
		line = str_skip(line, utf8_decode(line, &cp));
		if (cp == '\t' || cp == '\r')
			(void)putchar(' ');
		else
			(void)printf("\\u%04x", (unsigned)cp);
	}
	(void)putchar('\n');
}

/* False: not a record. */
static bool one_line(const struct filter *f, struct str line)
{
	json_error_t why;
	json_t *o = json_loadb(line.p, line.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
	/* A NUL is nothing that we write, and jansson reads over it. */
	bool ok = line.p && json_is_object(o) && !memchr(line.p, '\0', line.n);

	if (ok && passes(f, o)) {
		if (f->json)
			print_line(line);
		else
			print_record(o);
	}
	json_decref(o);
	return ok;
}

/* A file that is read, and the line that has not ended yet. */
struct reader {
	/* owned */
	int fd;
	struct strbuf part; /* bounded: what is longer is no record of ours */
	/* borrowed */
	const char *path;
	/* plain */
	size_t broken; /* lines that are no records */
	off_t at;
	bool has_part; /* also of a line that is too long */
};

/* True: the path leads to another file than is open, or the file was cut. */
static bool was_rotated(const struct reader *r)
{
	struct stat a, b;

	if (stat(r->path, &a) < 0 || fstat(r->fd, &b) < 0)
		return false;
	return a.st_ino != b.st_ino || a.st_dev != b.st_dev || a.st_size < r->at;
}

/* False: nobody reads what is printed any more. Asked of the socket or pipe itself, or it would
 * come out only at the next record. */
static bool wait_for_more(void)
{
	struct pollfd p = {.fd = STDOUT_FILENO};

	return fflush(stdout) == 0 && !ferror(stdout) &&
	       (poll_calmly(&p, 1, FOLLOW_MS) <= 0 || !(p.revents & (POLLERR | POLLHUP)));
}

static void end_line(const struct filter *f, struct reader *r)
{
	if (r->part.overflowed || !one_line(f, strbuf_str(&r->part)))
		r->broken++;
	strbuf_reset(&r->part);
	r->has_part = false;
}

/* Reads to the end; a line without its end is kept for the next time. -1: the file cannot be read.
 */
static int drain(const struct filter *f, struct reader *r)
{
	static char block[READ_BYTES];

	for (;;) {
		ssize_t got = read(r->fd, block, sizeof(block));
		struct str s;

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -1 : 0;
		r->at += got;
		for (s = str_from(block, (size_t)got); s.n > 0;) {
			ptrdiff_t end = str_find(s, '\n');

			strbuf_add(&r->part, end < 0 ? s : str_head(s, (size_t)end));
			r->has_part = true;
			if (end < 0)
				break;
			end_line(f, r);
			s = str_skip(s, (size_t)end + 1);
		}
	}
}

/* Goes on in the new file of the path, if there is one by now. */
static bool open_anew(struct reader *r)
{
	int fresh = open(r->path, O_RDONLY | O_CLOEXEC);

	if (fresh < 0)
		return false;
	(void)close(r->fd);
	r->fd = fresh;
	r->at = 0;
	strbuf_reset(&r->part);
	r->has_part = false;
	return true;
}

static int fail(const char *path)
{
	struct err e = ERR_INIT;

	err_sys(&e, errno, "%s", path);
	return cli_fail(&e);
}

static int read_all(const struct filter *f, struct reader *r)
{
	bool follow = f->follow && r->fd != STDIN_FILENO;

	for (;;) {
		bool rotated = follow && was_rotated(r);

		if (drain(f, r) < 0)
			return fail(r->path);
		if (!follow)
			break;
		if (rotated && open_anew(r))
			continue;
		if (!wait_for_more())
			break;
	}
	if (r->has_part)
		end_line(f, r);
	return 0;
}

static int read_log(const struct filter *f, const char *path)
{
	bool standard = strcmp(path, "-") == 0;
	struct reader r = {.path = path,
			   .fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)};
	int code;

	if (r.fd < 0)
		return fail(path);
	strbuf_init(&r.part, (size_t)LIMIT_RECORD_BYTES * 4);
	code = read_all(f, &r);
	if (r.broken > 0) {
		struct err e = ERR_INIT;

		err_set(&e, "%s: %zu line%s not a record", path, r.broken,
			r.broken == 1 ? " is" : "s are");
		code = cli_fail(&e);
	}
	if (!standard)
		(void)close(r.fd);
	strbuf_clear(&r.part);
	return code || fflush(stdout) != 0 || ferror(stdout) ? 1 : 0;
}

static bool is_event(const char *word)
{
	for (enum record_event e = RECORD_REQUEST_START; e < RECORD_EVENTS; e++)
		if (strcmp(word, record_event_word(e)) == 0)
			return true;
	return false;
}

static const char *near_event(const char *given)
{
	const char *words[RECORD_EVENTS];
	size_t n = 0;

	for (enum record_event e = RECORD_REQUEST_START; e < RECORD_EVENTS; e++)
		words[n++] = record_event_word(e);
	return nearest_word(str_from_c(given), words, n);
}

static const char *near_reason(const char *given)
{
	const char *words[REASON_COUNT];
	size_t n = 0;

	for (enum reason r = REASON_NONE + 1; r < REASON_COUNT; r++)
		words[n++] = reason_word(r);
	return nearest_word(str_from_c(given), words, n);
}

static int refuse_word(const char *flag, const char *what, const char *given, const char *near)
{
	return cli_usage("log", "--%s: there is no %s `%s`%s%s%s", flag, what, given,
			 near ? " (did you mean `" : "", near ? near : "", near ? "`?)" : "");
}

/* RFC 3339 in UTC, or a part of it from the left: times are compared as they are written, so
 * another shape, or another zone, would let the wrong ones through. A Z at its end is dropped: the
 * record's own stands behind the fraction. */
static bool read_since(struct str s, struct str *ret)
{
	static const char shape[] = "dddd-dd-ddTdd:dd:dd.dddddd";

	if (s.n > 19 && s.p[s.n - 1] == 'Z')
		s.n--;
	if (s.n == 0 || s.n >= sizeof(shape))
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (shape[i] == 'd' ? s.p[i] < '0' || s.p[i] > '9' : s.p[i] != shape[i])
			return false;
	*ret = s;
	return true;
}

/* As a record has it: in lower case, an address in its one spelling and without brackets. What is
 * no host is sought as it is: that is how a refusal has it. */
static void read_host(struct filter *f, const char *given)
{
	char bracketed[LIMIT_HOST_BYTES + 3];
	struct str s = str_from_c(given);

	if (str_find(s, ':') >= 0 && s.n > 0 && s.p[0] != '[' && s.n <= LIMIT_HOST_BYTES) {
		(void)snprintf(bracketed, sizeof(bracketed), "[%s]", given);
		s = str_from_c(bracketed);
	}
	f->host = host_parse(s, &f->canonical, NULL) == 0 ? f->canonical.text : given;
}

/* A misspelt word would find nothing, which reads as "it never happened". */
static int check_filter(const struct filter *f)
{
	if (f->event && !is_event(f->event))
		return refuse_word("event", "event", f->event, near_event(f->event));
	if (f->reason && reason_from_word(str_from_c(f->reason)) == REASON_NONE)
		return refuse_word("reason", "reason", f->reason, near_reason(f->reason));
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

	while ((opt = cli_getopt(argc, argv, ":f", longs, NULL)) != -1) {
		switch (opt) {
		case 'f': f.follow = true; break;
		case OPT_EVENT: f.event = optarg; break;
		case OPT_HOST:
			if (!*optarg)
				return cli_usage("log", "--host needs a value");
			read_host(&f, optarg);
			break;
		case OPT_REASON: f.reason = optarg; break;
		case OPT_DECISION: f.decision = optarg; break;
		case OPT_SINCE:
			if (!read_since(str_from_c(optarg), &f.since))
				return cli_usage("log",
						 "--since is a time in UTC, such as 2026-11-29 or "
						 "2026-11-29T14:30:00Z, not `%s`",
						 optarg);
			break;
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
