/*
 * The writer when all is well: several threads with rotation in between, the bound of the queue,
 * what a flush does. Each line that was taken must be found once, whole, in the files that were
 * written.
 */
#include "writer_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "logging/opener.h"

static void test_simple(void **state)
{
	struct log_writer *w = new_writer(path, LOG_WAIT_WRITTEN);
	struct log_port *p = new_port(w);
	struct stat st;
	size_t n;
	char *text;

	(void)state;
	assert_true(log_port_available(p));
	assert_int_equal(log_port_written(p), 0);
	log_port_flush(p);
	assert_int_equal(add(p, 1, 0, false), 1);
	assert_int_equal(add(p, 1, 1, false), 2);
	sleep_ms(20);
	/* Nothing is handed over before the flush. */
	assert_int_equal(log_port_written(p), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(st.st_mode & 07777 & ~0640U, 0);
	log_port_flush(p);
	assert_true(wait_written(p, 2, 2000));
	/* What is said to be written is in the file now, while the writer lives. */
	text = read_file(path, &n);
	lines_read = 0;
	memset(seen, 0, sizeof(seen));
	read_text(str_from(text, n));
	assert_int_equal(lines_read, 2);
	assert_seen_once(1, 2);
	free(text);
	log_port_free(p);
	log_port_free(NULL);
	log_writer_free(w, 1000);
	log_writer_free(NULL, 1000);
}

static void test_bad_targets(void **state)
{
	struct log_writer *w = NULL;
	struct err e = ERR_INIT;
	char missing[160];

	(void)state;
	snprintf(missing, sizeof(missing), "%s/no/log", dir);
	assert_int_equal(log_writer_new(missing, LOG_WAIT_WRITTEN, &w, &e), -1);
	assert_int_equal(e.sys_errno, ENOENT);
	assert_int_equal(log_writer_new(dir, LOG_WAIT_WRITTEN, &w, &e), -1);
	assert_int_equal(e.sys_errno, EISDIR);
	assert_int_equal(log_writer_new("", LOG_WAIT_WRITTEN, &w, &e), -1);
	assert_int_equal(log_writer_new("syslog:nosuch", LOG_WAIT_WRITTEN, &w, &e), -1);
	assert_non_null(strstr(e.text, "nosuch"));
	assert_null(w);
}

struct sender {
	struct log_writer *w;
	unsigned number;
	size_t lines;
	pthread_t thread;
};

/* Batches of all sizes, waiting now and then until a batch is written. */
static void *send_lines(void *arg)
{
	struct sender *s = arg;
	struct log_port *p = new_port(s->w);
	uint64_t ticket = 0;

	for (size_t i = 0; i < s->lines; i++) {
		/* A full queue is waited for, as a worker refuses requests meanwhile. */
		while (!(ticket = add(p, s->number, i, false))) {
			log_port_flush(p);
			sleep_ms(1);
		}
		if (i % 3 == 0 && log_port_write(p))
			assert_true(log_port_written(p) >= ticket);
		if (i % (1 + i % 97) == 0)
			log_port_flush(p);
		if (i % 5000 == 4999) {
			log_port_flush(p);
			assert_true(wait_written(p, ticket, 20000));
		}
	}
	log_port_flush(p);
	assert_true(wait_written(p, ticket, 20000));
	log_port_free(p);
	return NULL;
}

static void run_senders(struct log_writer *w, size_t lines, void (*meanwhile)(struct log_writer *))
{
	struct sender senders[SENDERS];

	for (unsigned i = 0; i < SENDERS; i++) {
		senders[i] = (struct sender){.w = w, .number = i, .lines = lines};
		assert_int_equal(pthread_create(&senders[i].thread, NULL, send_lines, &senders[i]),
				 0);
	}
	if (meanwhile)
		meanwhile(w);
	for (unsigned i = 0; i < SENDERS; i++)
		pthread_join(senders[i].thread, NULL);
}

static void rotate_often(struct log_writer *w)
{
	for (int i = 0; i < 30; i++) {
		char old[192];

		sleep_ms(5);
		snprintf(old, sizeof(old), "%s.%d", path, i);
		rename(path, old);
		log_writer_reopen(w);
	}
}

static size_t open_files(void)
{
	glob_t found;
	size_t n;

	assert_int_equal(glob("/proc/self/fd/*", 0, NULL, &found), 0);
	n = found.gl_pathc;
	globfree(&found);
	return n;
}

static void test_rotation(void **state)
{
	size_t files_before = open_files();
	struct log_writer *w = new_writer(path, LOG_WAIT_WRITTEN);
	int64_t began = now_ms();

	(void)state;
	run_senders(w, LINES_MAX, rotate_often);
	print_message("%d lines of %d threads with rotation: %d ms\n", SENDERS * LINES_MAX, SENDERS,
		      (int)(now_ms() - began));
	log_writer_free(w, 1000);
	assert_int_equal(open_files(), files_before);
	read_all();
	assert_true(files_read > 2);
	assert_int_equal(lines_read, SENDERS * LINES_MAX);
	for (unsigned i = 0; i < SENDERS; i++)
		assert_seen_once(i, LINES_MAX);
}

static void test_synced(void **state)
{
	struct log_writer *w = new_writer(path, LOG_WAIT_SYNCED);

	(void)state;
	run_senders(w, 2000, NULL);
	log_writer_free(w, 1000);
	read_all();
	assert_int_equal(lines_read, SENDERS * 2000);
}

static void test_no_wait(void **state)
{
	struct log_writer *w = new_writer(path, LOG_WAIT_NONE);
	struct log_port *p = new_port(w);
	uint64_t ticket = add(p, 0, 0, false);

	(void)state;
	assert_int_equal(log_port_written(p), ticket);
	log_port_free(p);
	log_writer_free(w, 1000);
	read_all();
	assert_int_equal(lines_read, 1);
}

static void test_queue_bound(void **state)
{
	struct log_writer *w = new_writer("/dev/full", LOG_WAIT_WRITTEN);
	struct log_port *p = new_port(w), *other = new_port(w);
	uint64_t count = 0, ticket = 0;
	char said[4096] = "";
	FILE *f = tmpfile();
	int was = dup(STDERR_FILENO);

	(void)state;
	assert_true(f && was >= 0 && dup2(fileno(f), STDERR_FILENO) >= 0);
	while (count < LINES_MAX) {
		uint64_t t = add(p, 0, count, false);

		if (!t)
			break;
		ticket = t;
		count++;
		log_port_flush(p);
	}
	assert_true(count > 10000 && count < LINES_MAX);
	assert_false(log_port_available(p));
	/* The bound is common to all ports, and lines that must go in are taken past it. */
	assert_int_equal(add(other, 1, 0, false), 0);
	assert_int_equal(add(p, 0, count, false), 0);
	assert_int_equal(add(other, 1, 0, true), 1);
	assert_int_equal(add(p, 0, count, true), ticket + 1);
	count++;
	log_port_flush(p);
	log_port_flush(other);
	assert_int_equal(log_writer_retarget(w, path, LOG_WAIT_WRITTEN, NULL), 0);
	assert_true(wait_written(p, ticket + 1, 10000));
	assert_true(wait_written(other, 1, 10000));
	assert_true(wait_available(p, true, 2000));
	log_port_free(p);
	log_port_free(other);
	log_writer_free(w, 1000);
	dup2(was, STDERR_FILENO);
	close(was);
	/* What was not taken is told once the log is written again: three, with the one at the
	 * bound. */
	rewind(f);
	assert_true(fread(said, 1, sizeof(said) - 1, f) > 0);
	fclose(f);
	if (!strstr(said, "is written again\n") ||
	    !strstr(said, ": 3 line(s) found no room to wait"))
		fail_msg("%s", said);
	read_all();
	assert_int_equal(lines_read, count + 1);
	assert_seen_once(0, count);
	assert_seen_once(1, 1);
}

/* One chunk takes no more than the queue; a batch that outgrows it goes on in the next. */
static void test_huge_batch(void **state)
{
	struct log_writer *w = new_writer(path, LOG_WAIT_WRITTEN);
	struct log_port *p = new_port(w);
	uint64_t ticket = 0;

	(void)state;
	for (uint64_t i = 0; i < 80000; i++) {
		ticket = add(p, 0, i, true);
		assert_int_equal(ticket, i + 1);
	}
	log_port_flush(p);
	assert_true(wait_written(p, ticket, 10000));
	log_port_free(p);
	log_writer_free(w, 1000);
	read_all();
	assert_int_equal(lines_read, 80000);
	assert_seen_once(0, 80000);
}

static void test_stdout(void **state)
{
	int saved = dup(STDOUT_FILENO);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	struct log_writer *w;
	struct log_port *p;

	(void)state;
	fflush(stdout);
	dup2(fd, STDOUT_FILENO);
	close(fd);
	w = new_writer("stdout", LOG_WAIT_WRITTEN);
	p = new_port(w);
	add(p, 0, 0, false);
	log_port_flush(p);
	log_writer_reopen(w);
	add(p, 0, 1, false);
	log_port_free(p);
	log_writer_free(w, 1000);
	/* It is not ours to close. */
	assert_true(fcntl(STDOUT_FILENO, F_GETFD) >= 0);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	read_all();
	assert_int_equal(lines_read, 2);
	assert_seen_once(0, 2);
}

static atomic_int opened;

static int open_slowly(void *arg, const char *name, int flags)
{
	(void)arg;
	sleep_ms(30);
	atomic_fetch_add(&opened, 1);
	return open(name, flags, 0640);
}

/* Once the file is open anew, the first lines for it open nothing more: who opens may be busy by
 * then. */
static void test_an_awaited_reopen(void **state)
{
	static const int lines[] = {0, 1, 1}; /* written before each reopening */
	struct log_writer *w = new_writer(path, LOG_WAIT_WRITTEN);
	struct log_port *p = new_port(w);
	int before, done = 0;
	unsigned n = 0;
	char old[192];

	(void)state;
	opener_set(open_slowly, NULL);
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		for (int j = 0; j < lines[i]; j++)
			add(p, 0, n++, false);
		log_port_flush(p);
		if (i == 1) { /* the last time it is the same file */
			snprintf(old, sizeof(old), "%s.%zu", path, i);
			rename(path, old);
		}
		before = atomic_load(&opened);
		log_writer_reopen(w);
		log_writer_await_reopen(w);
		done = atomic_load(&opened);
		assert_true(done > before);
		assert_int_equal(access(path, F_OK), 0);
		add(p, 0, n++, false);
		log_port_flush(p);
		while (log_port_written(p) < n)
			sleep_ms(1);
		assert_int_equal(atomic_load(&opened), done);
	}
	log_port_free(p);
	log_writer_free(w, 1000);
	opener_set(NULL, NULL);
	read_all();
	assert_int_equal(lines_read, n);
	assert_seen_once(0, n);
}

/* Signals are the main thread's. */
static void test_signals(void **state)
{
	struct log_writer *w = new_writer(path, LOG_WAIT_WRITTEN);
	char name[64], line[256];
	unsigned long long blocked = 0;
	glob_t found;

	(void)state;
	sleep_ms(50);
	assert_int_equal(glob("/proc/self/task/*/status", 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		FILE *f = fopen(found.gl_pathv[i], "r");

		name[0] = '\0';
		while (f && fgets(line, sizeof(line), f)) {
			if (strncmp(line, "Name:\t", 6) == 0)
				snprintf(name, sizeof(name), "%.60s", line + 6);
			if (strncmp(line, "SigBlk:\t", 8) == 0 && strcmp(name, "stile-log\n") == 0)
				blocked = strtoull(line + 8, NULL, 16);
		}
		if (f)
			fclose(f);
	}
	globfree(&found);
	assert_true(blocked >> (SIGTERM - 1) & blocked >> (SIGHUP - 1) & blocked >> (SIGPIPE - 1) &
		    1);
	log_writer_free(w, 0);
}

/* Prints the time from flush to the notification, asserts nothing about it. */
static void test_latency(void **state)
{
	struct log_writer *w = new_writer(path, LOG_WAIT_WRITTEN);
	struct log_port *p = new_port(w);
	struct timespec a, b;

	(void)state;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (uint64_t i = 0; i < 5000; i++) {
		uint64_t ticket = add(p, 0, i, false);

		log_port_flush(p);
		assert_true(wait_written(p, ticket, 2000));
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	print_message("line to notification: %.1f us\n", ((double)(b.tv_sec - a.tv_sec) * 1e6 +
							  (double)(b.tv_nsec - a.tv_nsec) / 1e3) /
								 5000);
	log_port_free(p);
	log_writer_free(w, 1000);
	read_all();
	assert_seen_once(0, 5000);
}

/* Where the thread sleeps the port writes itself, behind what the thread wrote, into the file that
 * is in use; and the thread still sees what is asked of it. */
static void test_written_at_once(void **state)
{
	struct log_writer *w;
	struct log_port *p;
	uint64_t ticket;
	char old[192];
	size_t at_once = 0;
	bool is_heard = false; /* what the thread said */

	(void)state;
	/* In memory: what stands behind /tmp may be of the kind that is left to the thread. */
	assert_int_equal(rmdir(dir), 0);
	snprintf(dir, sizeof(dir), "/dev/shm/stile-writer-XXXXXX");
	if (!mkdtemp(dir)) {
		assert_int_equal(set_up(state), 0);
		print_message("no /dev/shm\n");
		skip();
	}
	snprintf(path, sizeof(path), "%s/log", dir);
	w = new_writer(path, LOG_WAIT_WRITTEN);
	p = new_port(w);
	ticket = add(p, 0, 0, false);
	/* The thread has just begun: it may sleep by now, or not yet. */
	if (!log_port_write(p))
		assert_true(wait_written(p, ticket, 2000));
	for (uint64_t i = 1; i < 2000; i++) {
		struct pollfd fd = {.fd = log_port_fd(p), .events = POLLIN};

		if (i == 1000) {
			snprintf(old, sizeof(old), "%s.1", path);
			assert_int_equal(rename(path, old), 0);
			log_writer_reopen(w);
		}
		ticket = add(p, 0, i, false);
		assert_false(log_port_await(p, ticket));
		if (!log_port_write(p)) {
			assert_true(wait_written(p, ticket, 2000));
			is_heard = false;
			continue;
		}
		at_once++;
		assert_true(log_port_written(p) == ticket);
		/* Nobody is woken to hear what the caller knows. */
		if (is_heard)
			assert_int_equal(poll(&fd, 1, 0), 0);
		else
			log_port_drain(p);
		is_heard = true;
	}
	assert_true(at_once > 0);
	log_port_free(p);
	log_writer_free(w, 1000);
	read_all();
	assert_seen_once(0, 2000);
	assert_int_equal(files_read, 2);
}

/* A pipe may be full at any time, and a disk takes its time to sync: that is the thread's. */
static void test_not_at_once(void **state)
{
	struct log_writer *w = new_writer(path, LOG_WAIT_SYNCED);
	struct log_port *p = new_port(w);

	(void)state;
	for (uint64_t i = 0; i < 50; i++) {
		uint64_t ticket = add(p, 0, i, false);

		assert_false(log_port_write(p));
		assert_true(wait_written(p, ticket, 5000));
	}
	log_port_free(p);
	log_writer_free(w, 1000);
	read_all();
	assert_seen_once(0, 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_simple),	TEST(test_bad_targets),
		TEST(test_rotation),	TEST(test_an_awaited_reopen),
		TEST(test_synced),	TEST(test_no_wait),
		TEST(test_queue_bound), TEST(test_huge_batch),
		TEST(test_stdout),	TEST(test_signals),
		TEST(test_latency),	TEST(test_written_at_once),
		TEST(test_not_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
