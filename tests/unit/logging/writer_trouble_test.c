/*
 * The writer in trouble: a full device, a deleted and a moved file, a write that is cut, a pipe
 * that nobody reads. What was taken waits and is written once, whole, when it can be; requests are
 * refused meanwhile.
 */
#include "writer_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

static void test_full_device(void **state)
{
	struct log_writer *w = new_writer("/dev/full", LOG_WAIT_WRITTEN);
	struct log_port *p = new_port(w), *other = new_port(w);
	struct err e = ERR_INIT;
	uint64_t ticket = 0;

	(void)state;
	assert_true(log_port_available(p));
	for (uint64_t i = 0; i < 10; i++) {
		ticket = add(p, 0, i, false);
		log_port_flush(p);
	}
	assert_true(wait_available(p, false, 2000));
	/* A port without lines is told too. */
	assert_true(wait_available(other, false, 2000));
	assert_int_equal(log_port_written(p), 0);
	/* A bad target changes nothing. */
	assert_int_equal(log_writer_retarget(w, dir, LOG_WAIT_WRITTEN, &e), -1);
	sleep_ms(2 * LIMIT_MS_LOG_RETRY);
	assert_false(log_port_available(p));
	for (uint64_t i = 10; i < 20; i++)
		ticket = add(p, 0, i, false);
	log_port_flush(p);
	assert_int_equal(log_writer_retarget(w, path, LOG_WAIT_WRITTEN, &e), 0);
	assert_true(wait_written(p, ticket, 2000));
	assert_true(wait_available(p, true, 2000));
	assert_true(wait_available(other, true, 2000));
	log_port_free(p);
	log_port_free(other);
	log_writer_free(w, 1000);
	read_all();
	assert_int_equal(lines_read, 20);
	assert_seen_once(0, 20);
}

static void test_deleted(void **state)
{
	struct log_writer *w = new_writer(path, LOG_WAIT_WRITTEN);
	struct log_port *p = new_port(w);
	struct stat st;
	uint64_t ticket;

	(void)state;
	ticket = add(p, 0, 0, false);
	log_port_flush(p);
	assert_true(wait_written(p, ticket, 2000));
	assert_int_equal(unlink(path), 0);
	/* Noticed while idle, and a new file made. */
	for (int i = 0; i < 100 && stat(path, &st) < 0; i++)
		sleep_ms(20);
	assert_int_equal(stat(path, &st), 0);
	assert_true(log_port_available(p));
	ticket = add(p, 0, 1, false);
	log_port_flush(p);
	assert_true(wait_written(p, ticket, 2000));
	log_port_free(p);
	log_writer_free(w, 1000);
	read_all();
	assert_int_equal(lines_read, 1);
	assert_int_equal(seen[0][1], 1);
}

/* Deleted with its directory: no new file can be made, so requests must be refused until it can. */
static void test_vanished(void **state)
{
	char sub[160], file[192];
	struct log_writer *w;
	struct log_port *p;
	uint64_t ticket;
	size_t n;
	char *text;

	(void)state;
	snprintf(sub, sizeof(sub), "%s/sub", dir);
	snprintf(file, sizeof(file), "%s/log", sub);
	assert_int_equal(mkdir(sub, 0700), 0);
	w = new_writer(file, LOG_WAIT_WRITTEN);
	p = new_port(w);
	assert_int_equal(unlink(file), 0);
	assert_int_equal(rmdir(sub), 0);
	assert_true(wait_available(p, false, 2000));
	ticket = add(p, 0, 0, false);
	log_port_flush(p);
	assert_false(wait_written(p, ticket, 3 * LIMIT_MS_LOG_RETRY));
	assert_int_equal(mkdir(sub, 0700), 0);
	assert_true(wait_available(p, true, 2000));
	assert_true(wait_written(p, ticket, 2000));
	log_port_free(p);
	log_writer_free(w, 1000);
	memset(seen, 0, sizeof(seen));
	text = read_file(file, &n);
	read_text(str_from(text, n));
	free(text);
	assert_seen_once(0, 1);
	unlink(file);
	rmdir(sub);
}

/* Moved, and no new one can be made: what is written is kept, so the old file stays in use. */
static void test_moved(void **state)
{
	char sub[160], moved[160], file[192];
	struct log_writer *w;
	struct log_port *p;
	uint64_t ticket;
	size_t n;
	char *text;

	(void)state;
	snprintf(sub, sizeof(sub), "%s/sub", dir);
	snprintf(moved, sizeof(moved), "%s/moved", dir);
	snprintf(file, sizeof(file), "%s/log", sub);
	assert_int_equal(mkdir(sub, 0700), 0);
	w = new_writer(file, LOG_WAIT_WRITTEN);
	p = new_port(w);
	assert_int_equal(rename(sub, moved), 0);
	log_writer_reopen(w);
	sleep_ms(700);
	assert_true(log_port_available(p));
	ticket = add(p, 0, 0, false);
	log_port_flush(p);
	assert_true(wait_written(p, ticket, 2000));
	/* As soon as a new one can be made it is. */
	assert_int_equal(mkdir(sub, 0700), 0);
	sleep_ms(700);
	ticket = add(p, 0, 1, false);
	log_port_flush(p);
	assert_true(wait_written(p, ticket, 2000));
	log_port_free(p);
	log_writer_free(w, 1000);
	memset(seen, 0, sizeof(seen));
	text = read_file(file, &n);
	lines_read = 0;
	read_text(str_from(text, n));
	free(text);
	assert_int_equal(lines_read, 1);
	assert_int_equal(seen[0][1], 1);
	unlink(file);
	rmdir(sub);
	snprintf(file, sizeof(file), "%s/log", moved);
	text = read_file(file, &n);
	read_text(str_from(text, n));
	free(text);
	assert_seen_once(0, 2);
	unlink(file);
	rmdir(moved);
}

/* A limit on the file's size cuts a write in the middle of a line, as a full disk does. The rest
 * must follow at that byte, once there is room. */
static void test_partial(void **state)
{
	struct log_writer *w = new_writer(path, LOG_WAIT_WRITTEN);
	struct log_port *p = new_port(w);
	struct rlimit old, small;
	uint64_t ticket = 0;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	for (rlim_t limit = 1000; limit < 5000; limit += 777) {
		small.rlim_cur = limit;
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		for (int i = 0; i < 10; i++) {
			ticket = add(p, 0, ticket, true);
			log_port_flush(p);
		}
		assert_true(wait_available(p, false, 2000));
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
		assert_true(wait_available(p, true, 2000));
		assert_true(wait_written(p, ticket, 2000));
	}
	log_port_free(p);
	log_writer_free(w, 1000);
	read_all();
	assert_int_equal(lines_read, ticket);
	assert_seen_once(0, ticket);
}

/* What a port wrote itself and the disk took in part, the thread ends. */
static void test_partial_at_once(void **state)
{
	struct log_writer *w = new_writer(path, LOG_WAIT_WRITTEN);
	struct log_port *p = new_port(w);
	struct rlimit old, small;
	uint64_t ticket;

	(void)state;
	signal(SIGXFSZ, SIG_IGN); /* as a worker's thread has it blocked */
	ticket = add(p, 0, 0, false);
	log_port_flush(p);
	assert_true(wait_written(p, ticket, 2000));
	sleep_ms(20); /* the thread sleeps */
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 1000;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 10; i++)
		ticket = add(p, 0, ticket, true);
	assert_false(log_port_write(p));
	assert_true(wait_available(p, false, 2000));
	ticket = add(p, 0, ticket, true);
	assert_false(log_port_write(p));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_true(wait_available(p, true, 2000));
	assert_true(wait_written(p, ticket, 2000));
	signal(SIGXFSZ, SIG_DFL);
	log_port_free(p);
	log_writer_free(w, 1000);
	read_all();
	assert_int_equal(lines_read, ticket);
	assert_seen_once(0, ticket);
}

/* The same, but the file is left in that state: the half line is taken back from the old file and
 * whole in the new one. */
static void test_partial_then_retarget(void **state)
{
	struct log_writer *w = new_writer(path, LOG_WAIT_WRITTEN);
	struct log_port *p = new_port(w);
	struct rlimit old, small;
	struct stat st;
	uint64_t ticket = 0;
	char other[192];

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 1000;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 10; i++)
		ticket = add(p, 0, ticket, false);
	log_port_flush(p);
	assert_true(wait_available(p, false, 2000));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 1000);
	snprintf(other, sizeof(other), "%s.other", path);
	assert_int_equal(log_writer_retarget(w, other, LOG_WAIT_WRITTEN, NULL), 0);
	/* The rest is longer than the limit too; lift it when the change has been made. */
	sleep_ms(100);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_true(wait_written(p, ticket, 2000));
	assert_true(wait_available(p, true, 2000));
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size > 0 && st.st_size < 1000);
	log_port_free(p);
	log_writer_free(w, 1000);
	read_all();
	assert_int_equal(files_read, 2);
	assert_int_equal(lines_read, 10);
	assert_seen_once(0, 10);
}

/* Half a line that a killed program left behind does not spoil the first new one. */
static void test_unfinished_file(void **state)
{
	FILE *f = fopen(path, "w");
	struct log_writer *w;
	struct log_port *p;
	size_t n;
	char *text;

	(void)state;
	assert_non_null(f);
	fputs("{\"time\":\"half", f);
	fclose(f);
	w = new_writer(path, LOG_WAIT_WRITTEN);
	p = new_port(w);
	add(p, 0, 0, false);
	log_port_free(p);
	log_writer_free(w, 1000);
	text = read_file(path, &n);
	assert_int_equal(strncmp(text, "{\"time\":\"half\n{\"time\":\"", 23), 0);
	free(text);
}

/* copytruncate is not recommended, but it leaves no hole. */
static void test_truncated(void **state)
{
	struct log_writer *w = new_writer(path, LOG_WAIT_WRITTEN);
	struct log_port *p = new_port(w);

	(void)state;
	for (uint64_t i = 0; i < 2; i++) {
		uint64_t ticket = add(p, 0, i, false);

		log_port_flush(p);
		assert_true(wait_written(p, ticket, 2000));
		if (i == 0)
			assert_int_equal(truncate(path, 0), 0);
	}
	log_port_free(p);
	log_writer_free(w, 1000);
	read_all();
	assert_int_equal(lines_read, 1);
	assert_int_equal(seen[0][1], 1);
}

/* A named pipe that is read slowly: no line cut; then one without a reader: unavailable. */
static void test_pipe(void **state)
{
	static char text[1 << 20];
	struct log_writer *w;
	struct log_port *p;
	uint64_t ticket = 0;
	size_t n = 0;
	int reader;

	(void)state;
	assert_int_equal(mkfifo(path, 0600), 0);
	reader = open(path, O_RDONLY | O_NONBLOCK);
	w = new_writer(path, LOG_WAIT_WRITTEN);
	p = new_port(w);
	for (uint64_t i = 0; i < 2000; i++)
		ticket = add(p, 0, i, false);
	log_port_flush(p);
	/* A pipe holds 64 KiB, and all of that batch is more. */
	assert_false(wait_written(p, ticket, 500));
	assert_true(log_port_available(p));
	while (log_port_written(p) < ticket || n % 4096) {
		ssize_t got = read(reader, text + n, n + 1000 < sizeof(text) ? 1000 : 0);

		if (got <= 0 && log_port_written(p) == ticket)
			break;
		n += got > 0 ? (size_t)got : 0;
	}
	for (ssize_t got; (got = read(reader, text + n, sizeof(text) - n)) > 0;)
		n += (size_t)got;
	memset(seen, 0, sizeof(seen));
	lines_read = 0;
	read_text(str_from(text, n));
	assert_int_equal(lines_read, 2000);
	assert_seen_once(0, 2000);
	close(reader);
	add(p, 0, 0, false);
	log_port_flush(p);
	assert_true(wait_available(p, false, 2000));
	log_port_free(p);
	/* The end waits for a broken pipe only as long as it is told to. */
	int64_t began = now_ms();
	log_writer_free(w, 300);
	assert_true(now_ms() - began >= 250 && now_ms() - began < 3000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_full_device),	    TEST(test_deleted),	  TEST(test_vanished),
		TEST(test_moved),	    TEST(test_partial),	  TEST(test_partial_then_retarget),
		TEST(test_unfinished_file), TEST(test_truncated), TEST(test_pipe),
		TEST(test_partial_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
