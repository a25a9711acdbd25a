/*
 * Limits as they are written, and what bounds the number of processes on which kernel. That the
 * kernel keeps to them is tested with real sandboxes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "logging/limits.h"
#include "proxy/sandbox/limits.h"

static void sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t n;
	} good[] = {
		{"1", 1},
		{"4096", 4096},
		{"1K", 1024},
		{"512M", 536870912},
		{"2G", 2147483648},
		{"3T", 3298534883328},
		{"9223372036854775807", INT64_MAX},
	};
	static const char *const bad[] = {"",
					  "0",
					  "0G",
					  "G",
					  "-1",
					  "+1",
					  "1.5G",
					  "1 G",
					  " 1",
					  "1g",
					  "1GB",
					  "1KiB",
					  "1P",
					  "1e3",
					  "0x10",
					  "1GG",
					  "9223372036854775808",
					  "8388608T",
					  "99999999999999999999",
					  "max",
					  "unlimited",
					  "٣M"};
	uint64_t n;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		assert_int_equal(limits_read_size(str_from_c(good[i].text), &n), 0);
		assert_true(n == good[i].n);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		n = 7;
		assert_int_equal(limits_read_size(str_from_c(bad[i]), &n), -1);
		assert_true(n == 7);
	}
}

static void processors(void **state)
{
	static const struct {
		const char *text;
		uint32_t n; /* 0: refused */
	} all[] = {
		{"1", 1000},	 {"1.5", 1500}, {"0.5", 500},	   {"0.25", 250}, {"0.01", 10},
		{"2.125", 2125}, {"64", 64000}, {"8192", 8192000}, {"0", 0},	  {"0.0", 0},
		{"0.009", 0},	 {"1.", 0},	{".5", 0},	   {"1.2345", 0}, {"-1", 0},
		{"1,5", 0},	 {"1.5.1", 0},	{"", 0},	   {"1e1", 0},	  {"8193", 0},
		{"50%", 0},	 {" 1", 0},	{"1.-5", 0},
	};
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		struct sandbox_limits l = {0};

		assert_int_equal(limits_read(&l, "--cpus", all[i].text, &e), all[i].n ? 0 : -1);
		assert_int_equal(l.millicpus, all[i].n);
		if (!all[i].n)
			assert_non_null(strstr(e.text, "--cpus takes"));
	}
}

static void flags(void **state)
{
	struct sandbox_limits l = {0};
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(limits_pids_of(&l), LIMIT_RUN_PIDS);
	assert_int_equal(limits_read(&l, "--memory", "2G", &e), 0);
	assert_int_equal(limits_read(&l, "--file-size", "10K", &e), 0);
	assert_int_equal(limits_read(&l, "--pids", "512", &e), 0);
	assert_true(l.memory == 2147483648 && l.file_size == 10240 && l.pids == 512);
	assert_string_equal(l.memory_text, "2G");
	assert_int_equal(limits_pids_of(&l), 512);
	assert_int_equal(limits_read(&l, "--memory", "15M", &e), -1);
	assert_non_null(strstr(e.text, "--memory takes"));
	assert_int_equal(limits_read(&l, "--file-size", "0", &e), -1);
	assert_non_null(strstr(e.text, "--file-size takes"));
	assert_int_equal(limits_read(&l, "--pids", "0", &e), -1);
	assert_int_equal(limits_read(&l, "--pids", "1K", &e), -1);
	assert_int_equal(limits_read(&l, "--pids", "4194001", &e), -1);
	assert_non_null(strstr(e.text, "--pids takes"));
	/* What is refused changes nothing. */
	assert_true(l.memory == 2147483648 && l.file_size == 10240 && l.pids == 512);
}

static void kernels(void **state)
{
	static const struct {
		const char *release;
		enum limits_pids user, root;
	} all[] = {
		{"4.19.0-27-amd64", LIMITS_PIDS_NOT, LIMITS_PIDS_NOT},
		{"5.10.0", LIMITS_PIDS_NOT, LIMITS_PIDS_NOT},
		{"5.14.0-427.el9", LIMITS_PIDS_RLIMIT, LIMITS_PIDS_NOT},
		{"6.1.0-57-cloud-amd64", LIMITS_PIDS_RLIMIT, LIMITS_PIDS_NOT},
		{"6.13.12", LIMITS_PIDS_RLIMIT, LIMITS_PIDS_NOT},
		{"6.14.0-rc1", LIMITS_PIDS_RLIMIT, LIMITS_PIDS_NUMBERS},
		{"7.0", LIMITS_PIDS_RLIMIT, LIMITS_PIDS_NUMBERS},
		{"", LIMITS_PIDS_NOT, LIMITS_PIDS_NOT},
		{"6", LIMITS_PIDS_NOT, LIMITS_PIDS_NOT},
		{"other", LIMITS_PIDS_NOT, LIMITS_PIDS_NOT},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		assert_int_equal(limits_pids_by(all[i].release, false), all[i].user);
		assert_int_equal(limits_pids_by(all[i].release, true), all[i].root);
	}
}

/* In a process of its own: what it does to itself cannot be taken back. */
static int in_child(int (*f)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(f());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int command_is_bounded(void)
{
	const struct sandbox_limits l = {.file_size = 4096};
	struct rlimit r, low = {64, 64};
	struct err e = ERR_INIT;

	if (setrlimit(RLIMIT_NOFILE, &low) != 0 || limits_bound_command(&l, &e) != 0)
		return 1;
	if (getrlimit(RLIMIT_FSIZE, &r) != 0 || r.rlim_cur != 4096 || r.rlim_max != 4096)
		return 2;
	if (getrlimit(RLIMIT_CORE, &r) != 0 || r.rlim_cur != 0 || r.rlim_max != 0)
		return 3;
	/* Who had less keeps it. */
	if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur != 64 || r.rlim_max != 64)
		return 4;
	return 0;
}

static int nothing_to_count_by(void)
{
	struct err e = ERR_INIT;

	return limits_bound_pids(LIMITS_PIDS_NOT, 10, &e) == -1 && e.text[0] ? 0 : 1;
}

static void bounds(void **state)
{
	(void)state;
	assert_int_equal(in_child(command_is_bounded), 0);
	assert_int_equal(in_child(nothing_to_count_by), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),   cmocka_unit_test(processors), cmocka_unit_test(flags),
		cmocka_unit_test(kernels), cmocka_unit_test(bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
