/*
 * What the tests of the writer share: a directory of their own, lines with a number, and the count
 * of how often each was found in the files that were written.
 */
#ifndef STILE_TESTS_UNIT_LOGGING_WRITER_FIXTURE_H
#define STILE_TESTS_UNIT_LOGGING_WRITER_FIXTURE_H

#include "unit.h"

#include <glob.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "logging/limits.h"
#include "logging/writer.h"

static char dir[64];
static char path[100];

static inline int set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/stile-writer-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/log", dir);
	return 0;
}

static inline int tear_down(void **state)
{
	char pattern[128];
	glob_t found;

	(void)state;
	snprintf(pattern, sizeof(pattern), "%s/*", dir);
	if (glob(pattern, 0, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc; i++)
			unlink(found.gl_pathv[i]);
		globfree(&found);
	}
	return rmdir(dir);
}

static inline int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void sleep_ms(int ms)
{
	poll(NULL, 0, ms);
}

/* Adds a line whose `status` is the sender, counted from 1, and whose `bytes_in` is its number. */
static inline uint64_t add(struct log_port *p, unsigned sender, uint64_t number, bool must)
{
	struct record r = {
		.event = RECORD_REQUEST_END,
		.status = sender + 1,
		.host = STR("api.example.com"),
		.path = STR("/repos/acme/widget"),
		.has_bytes = true,
		.bytes_in = number,
	};

	return log_port_add(p, &r, must);
}

/* Waits by the eventfd alone, as a worker does; so a missing notification is a failure. */
static inline bool wait_written(struct log_port *p, uint64_t ticket, int timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;

	while (!log_port_await(p, ticket)) {
		struct pollfd fd = {.fd = log_port_fd(p), .events = POLLIN};
		int64_t left = end - now_ms();

		if (left <= 0 || poll(&fd, 1, (int)left) <= 0)
			return false;
		log_port_drain(p);
	}
	return true;
}

static inline bool wait_available(struct log_port *p, bool wanted, int timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;

	while (log_port_available(p) != wanted) {
		struct pollfd fd = {.fd = log_port_fd(p), .events = POLLIN};
		int64_t left = end - now_ms();

		if (left <= 0 || poll(&fd, 1, (int)left) <= 0)
			return false;
		log_port_drain(p);
	}
	return true;
}

#define SENDERS	  4
#define LINES_MAX 100000

/* How often each line was found, by sender and number. */
static unsigned char seen[SENDERS][LINES_MAX];
static size_t files_read, lines_read;

static inline void read_line(struct str line)
{
	static const char start[] = "{\"time\":\"";
	char copy[1024];
	unsigned sender;
	unsigned long long number;
	const char *at;

	assert_true(line.n < sizeof(copy));
	assert_true(str_starts(line, str_from(start, sizeof(start) - 1)));
	assert_true(str_ends(line, STR("}")));
	memcpy(copy, line.p, line.n);
	copy[line.n] = '\0';
	/* A line that another one had broken into would have two beginnings. */
	assert_null(strstr(copy + 1, start));
	at = strstr(copy, "\"status\":");
	assert_non_null(at);
	sender = (unsigned)strtoul(at + strlen("\"status\":"), NULL, 10) - 1;
	at = strstr(copy, "\"bytes_in\":");
	assert_non_null(at);
	number = strtoull(at + strlen("\"bytes_in\":"), NULL, 10);
	assert_true(sender < SENDERS && number < LINES_MAX);
	seen[sender][number]++;
	lines_read++;
}

static inline void read_text(struct str text)
{
	while (text.n) {
		assert_true(str_find(text, '\n') >= 0);
		read_line(str_split(&text, '\n'));
	}
}

static inline char *read_file(const char *name, size_t *ret_size)
{
	FILE *f = fopen(name, "r");
	struct stat st;
	char *text;

	assert_non_null(f);
	assert_int_equal(fstat(fileno(f), &st), 0);
	text = malloc((size_t)st.st_size + 1);
	assert_non_null(text);
	*ret_size = fread(text, 1, (size_t)st.st_size, f);
	fclose(f);
	return text;
}

/* Reads all files of the directory into `seen`. */
static inline void read_all(void)
{
	char pattern[128];
	glob_t found;

	memset(seen, 0, sizeof(seen));
	files_read = lines_read = 0;
	snprintf(pattern, sizeof(pattern), "%s/*", dir);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		size_t n;
		char *text = read_file(found.gl_pathv[i], &n);

		read_text(str_from(text, n));
		free(text);
		files_read++;
	}
	globfree(&found);
}

static inline void assert_seen_once(unsigned sender, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (seen[sender][i] != 1)
			fail_msg("line %zu of %u was found %d times", i, sender, seen[sender][i]);
}

static inline struct log_writer *new_writer(const char *to, enum log_wait wait)
{
	struct log_writer *w = NULL;
	struct err e = ERR_INIT;

	if (log_writer_new(to, wait, &w, &e) < 0)
		fail_msg("%s", e.text);
	return w;
}

static inline struct log_port *new_port(struct log_writer *w)
{
	struct log_port *p = NULL;

	assert_int_equal(log_port_new(w, &p, NULL), 0);
	return p;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif
