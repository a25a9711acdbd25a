/*
 * The process that starts helpers, as whoever has taken the keeper over would see it: it runs what
 * the configuration names and nothing else, tells what became of it, and leaves nothing behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "logging/limits.h"
#include "proxy/credentials/helpers_internal.h"
#include "proxy/net/pass_fd.h"

#define PATIENCE_MS 30000

static struct {
	char dir[64], file[96];
	struct config *config;
	struct helpers *helpers;
} fx;

static void write_config(const char *credentials)
{
	FILE *f = fopen(fx.file, "w");

	assert_non_null(f);
	assert_true(fprintf(f,
			    "version: 1\ncredentials:\n%s"
			    "policies: {default: {rules: [{allow: a.test, credential: tok}]}}\n",
			    credentials) > 0);
	assert_int_equal(fclose(f), 0);
}

static struct config *load(const char *credentials)
{
	struct config *c = NULL;
	struct faults f;

	write_config(credentials);
	faults_init(&f, fx.file);
	if (config_load_file(fx.file, &c, &f) < 0)
		fail_msg("%s", f.n > 0 ? f.v[0].text : "?");
	faults_clear(&f);
	return c;
}

#define HELPER(name, argv, timeout)                                                                \
	"  " name ": {from: {exec: " argv ", timeout: " timeout "}, ttl: 1h, as: bearer}\n"

static const char plain[] = HELPER("tok", "[printf, a-token]",
				   "20s") HELPER("status", "[sh, -c, exit 7]", "20s")
	HELPER("signal", "[sh, -c, kill -9 $$]", "20s") HELPER("slow", "[sleep, '300']", "20s")
		HELPER("late", "[sleep, '300']", "100ms") HELPER("absent", "[/nonexistent/helper]",
								 "20s")
			HELPER("env", "[sh, -c, 'printf %s \"$STILE_TEST_TAKEN|$HOME\"']",
			       "20s") "  var: {from: {env: STILE_TEST_TAKEN}, as: bearer}\n";

static void begin(const char *credentials)
{
	const struct helpers_options o = {.config = load(credentials)};
	struct err e = ERR_INIT;

	fx.config = o.config;
	assert_int_equal(helpers_start(&o, &fx.helpers, &e), 0);
}

static void end(void)
{
	helpers_stop(fx.helpers);
	config_unref(fx.config);
	fx.helpers = NULL;
}

static int ask_for(const struct config *c, const char *name)
{
	const struct config_credential *cred = config_credential(c, name);
	struct err e = ERR_INIT;
	int fd = -1;

	assert_non_null(cred);
	if (helpers_run(fx.helpers, cred, &fd, &e) < 0)
		fail_msg("%s", e.text);
	return fd;
}

static void await_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
}

/* The next message; *ret_fd as helpers_hear. */
static struct helper_message hear(int fd, int *ret_fd)
{
	struct helper_message m;

	await_readable(fd);
	assert_int_equal(helpers_hear(fd, &m, ret_fd), 1);
	return m;
}

static bool is_over(int fd)
{
	struct helper_message m;
	int got = -1;

	await_readable(fd);
	return helpers_hear(fd, &m, &got) == 0;
}

/* What it printed, once it has ended so. */
static void check_run(const char *name, enum helper_said said, int value, const char *printed)
{
	int fd = ask_for(fx.config, name), out = -1, none = -1;
	struct helper_message m = hear(fd, &out);
	char text[256];
	ssize_t n;

	assert_int_equal(m.said, HELPER_STARTED);
	assert_true(out >= 0);
	m = hear(fd, &none);
	assert_int_equal(m.said, said);
	assert_int_equal(m.value, value);
	assert_int_equal(none, -1);
	n = read(out, text, sizeof(text) - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	assert_string_equal(text, printed);
	assert_true(is_over(fd));
	close(out);
	close(fd);
}

static void test_what_becomes_of_a_helper(void **state)
{
	char wanted[256];
	const char *home = getenv("HOME");
	int fd, none = -1;
	struct helper_message m;

	(void)state;
	begin(plain);
	check_run("tok", HELPER_EXITED, 0, "a-token");
	check_run("status", HELPER_EXITED, 7, "");
	check_run("signal", HELPER_SIGNALED, 9, "");
	check_run("late", HELPER_LATE, 0, "");
	/* What another credential is read from is not in its environment. */
	(void)snprintf(wanted, sizeof(wanted), "|%s", home ? home : "");
	check_run("env", HELPER_EXITED, 0, wanted);
	fd = ask_for(fx.config, "absent");
	m = hear(fd, &none);
	assert_int_equal(m.said, HELPER_FAILED);
	assert_int_equal(m.value, ENOENT);
	assert_true(is_over(fd));
	close(fd);
	end();
}

static void test_only_what_is_configured_runs(void **state)
{
	static const char other[] = HELPER("tok", "[printf, another]", "20s")
		HELPER("new", "[printf, a-token]", "20s") HELPER("late", "[sleep, '300']", "200ms");
	static const char *const names[] = {"tok", "new", "late"};
	struct config *c;

	(void)state;
	begin(plain);
	/* Other arguments, another name, another time: none of its own. */
	c = load(other);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		int fd = ask_for(c, names[i]), none = -1;

		assert_int_equal(hear(fd, &none).said, HELPER_UNKNOWN);
		assert_true(is_over(fd));
		close(fd);
	}
	config_unref(c);
	end();
}

static void test_a_reload_is_read_there(void **state)
{
	static const char other[] = HELPER("tok", "[printf, another]", "20s");
	struct config *c;
	struct err e = ERR_INIT;
	int fd, none = -1;

	(void)state;
	begin(plain);
	c = load(other);
	/* What this process says that it read is not what that one reads. */
	assert_int_equal(helpers_read(fx.helpers, "0123456789abcdef", &e), -1);
	helpers_abort(fx.helpers);
	fd = ask_for(c, "tok");
	assert_int_equal(hear(fd, &none).said, HELPER_UNKNOWN);
	close(fd);
	/* Until it is committed both count, and then the new one alone. */
	assert_int_equal(helpers_read(fx.helpers, c->version_hash, &e), 0);
	check_run("tok", HELPER_EXITED, 0, "a-token");
	helpers_commit(fx.helpers);
	fd = ask_for(fx.config, "tok");
	assert_int_equal(hear(fd, &none).said, HELPER_UNKNOWN);
	close(fd);
	config_unref(fx.config);
	fx.config = c;
	check_run("tok", HELPER_EXITED, 0, "another");
	/* One that cannot be read changes nothing. */
	write_config("  tok: {from: 5}\n");
	assert_int_equal(helpers_read(fx.helpers, c->version_hash, &e), -1);
	helpers_abort(fx.helpers);
	check_run("tok", HELPER_EXITED, 0, "another");
	end();
}

/* The other end of what a helper prints is closed when it is gone. */
static void await_end(int out)
{
	char byte;

	await_readable(out);
	assert_int_equal(read(out, &byte, 1), 0);
}

static void test_who_goes_away_takes_the_helper_along(void **state)
{
	int fd, out = -1, fd2, out2 = -1;

	(void)state;
	begin(plain);
	fd = ask_for(fx.config, "slow");
	assert_int_equal(hear(fd, &out).said, HELPER_STARTED);
	fd2 = ask_for(fx.config, "slow");
	assert_int_equal(hear(fd2, &out2).said, HELPER_STARTED);
	close(fd);
	await_end(out);
	/* And its maker all of them. */
	end();
	await_end(out2);
	close(out);
	close(out2);
	close(fd2);
}

static void test_it_is_gone(void **state)
{
	struct err e = ERR_INIT;
	int fd, out = -1, other = -1;

	(void)state;
	begin(plain);
	fd = ask_for(fx.config, "slow");
	assert_int_equal(hear(fd, &out).said, HELPER_STARTED);
	assert_int_equal(kill(helpers_pid(fx.helpers), SIGKILL), 0);
	assert_true(is_over(fd));
	await_readable(helpers_fd(fx.helpers));
	helpers_look(fx.helpers);
	assert_int_equal(helpers_fd(fx.helpers), -1);
	assert_int_equal(helpers_run(fx.helpers, config_credential(fx.config, "tok"), &other, &e),
			 -1);
	assert_int_equal(e.reason, REASON_CREDENTIAL_UNAVAILABLE);
	assert_non_null(strstr(e.text, "restart stile"));
	/* It is no reason against a reload. */
	assert_int_equal(helpers_read(fx.helpers, fx.config->version_hash, &e), 0);
	assert_int_equal(helpers_run(NULL, config_credential(fx.config, "tok"), &other, &e), -1);
	close(fd);
	close(out);
	end();
}

static void test_there_are_not_too_many(void **state)
{
	int fds[LIMIT_HELPERS], out = -1, fd;

	(void)state;
	begin(plain);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		fds[i] = ask_for(fx.config, "slow");
		assert_int_equal(hear(fds[i], &out).said, HELPER_STARTED);
		close(out);
	}
	fd = ask_for(fx.config, "slow");
	assert_int_equal(hear(fd, &out).said, HELPER_TOO_MANY);
	close(fd);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close(fds[i]);
	end();
}

/* Each ends it: no keeper of ours says that. */
static void check_hostile(const void *bytes, size_t n, bool with_fd)
{
	struct iovec v = {(void *)(uintptr_t)bytes, n};
	int status;

	begin(plain);
	assert_true(pass_fd_send(helpers_fd(fx.helpers), &v, 1, with_fd ? STDIN_FILENO : -1) ==
		    (ssize_t)n);
	assert_int_equal(waitpid(helpers_pid(fx.helpers), &status, 0), helpers_pid(fx.helpers));
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	await_readable(helpers_fd(fx.helpers));
	helpers_look(fx.helpers);
	assert_int_equal(helpers_fd(fx.helpers), -1);
	end();
}

static void test_a_hostile_keeper(void **state)
{
	struct helpers_ask a = {.kind = HELPERS_RUN};
	char long_one[sizeof(a) + 1] = {0};

	(void)state;
	check_hostile(&a, sizeof(a), false); /* nobody to tell */
	check_hostile(&a, sizeof(a) - 1, true);
	check_hostile(long_one, sizeof(long_one), false);
	a.kind = HELPERS_COMMIT; /* of nothing */
	check_hostile(&a, sizeof(a), false);
	a.kind = HELPERS_READ;
	check_hostile(&a, sizeof(a), true);
	a.kind = 0;
	check_hostile(&a, sizeof(a), false);
	a.kind = 77;
	check_hostile(&a, sizeof(a), false);
}

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(fx.dir, sizeof(fx.dir), "/tmp/stile-helpers-XXXXXX");
	if (!mkdtemp(fx.dir))
		return -1;
	(void)snprintf(fx.file, sizeof(fx.file), "%s/stile.yaml", fx.dir);
	return setenv("STILE_TEST_TAKEN", "a-value-of-another", 1);
}

static int tear_down(void **state)
{
	(void)state;
	(void)unlink(fx.file);
	return rmdir(fx.dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_becomes_of_a_helper),
		cmocka_unit_test(test_only_what_is_configured_runs),
		cmocka_unit_test(test_a_reload_is_read_there),
		cmocka_unit_test(test_who_goes_away_takes_the_helper_along),
		cmocka_unit_test(test_it_is_gone),
		cmocka_unit_test(test_there_are_not_too_many),
		cmocka_unit_test(test_a_hostile_keeper),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
