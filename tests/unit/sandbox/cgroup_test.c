/*
 * Where a control group may be made, over a tree of ordinary files that looks like the kernel's.
 * What the kernel then does is tested on a real one (tests/kernel).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proxy/sandbox/cgroup.h"

#define ALL "cpuset cpu io memory pids\n"
#define PID 4711

static char top[64];
static struct cgroup_place place;
static struct err e;

static void put(const char *group, const char *name, const char *text)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s%s", top, group);
	(void)mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s%s/%s", top, group, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void group(const char *name, const char *controllers, const char *below, const char *procs)
{
	put(name, "cgroup.controllers", controllers);
	put(name, "cgroup.subtree_control", below);
	put(name, "cgroup.procs", procs);
	if (name[0])
		put(name, "cgroup.type", "domain\n");
}

/* A desktop's terminal: /app/term, with a shell and others in it. */
static int setup(void **state)
{
	(void)state;
	snprintf(top, sizeof(top), "/tmp/stile-cgroup-XXXXXX");
	if (!mkdtemp(top))
		return -1;
	group("", ALL, ALL, "1\n2\n");
	group("/app", ALL, ALL, "");
	group("/app/term", ALL, "\n", "100\n4711\n");
	e = ERR_INIT;
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command);
}

static int choose(const char *own, struct sandbox_limits l)
{
	memset(&place, 0, sizeof(place));
	return cgroup_choose(top, own, PID, &l, &place, &e);
}

static const struct sandbox_limits memory = {.memory = 64 << 20};

static void is_at(const char *group_name, bool moves)
{
	char want[512];

	snprintf(want, sizeof(want), "%s%s", top, group_name);
	assert_string_equal(place.parent, want);
	assert_int_equal(place.moves_self, moves);
}

static void beside_the_own(void **state)
{
	(void)state;
	assert_int_equal(choose("/app/term", memory), 0);
	is_at("/app", false);
}

static void within_the_own_when_alone(void **state)
{
	(void)state;
	put("/app/term", "cgroup.procs", "4711\n");
	put("/app/term", "memory.max", "1000000\n");
	assert_int_equal(choose("/app/term", memory), 0);
	is_at("/app/term", true);
	/* Another pid that begins or ends alike is another. */
	put("/app/term", "cgroup.procs", "471\n");
	put("/app/term", "memory.max", "max\n");
	assert_int_equal(choose("/app/term", memory), 0);
	is_at("/app", false);
}

static void the_root(void **state)
{
	(void)state;
	assert_int_equal(choose("/", memory), 0);
	is_at("", false);
	/* With a type it is the root of a namespace alone, with processes. */
	put("", "cgroup.type", "domain\n");
	assert_int_equal(choose("/", memory), -1);
	assert_non_null(strstr(e.text, "other processes"));
	put("", "cgroup.procs", "4711\n");
	assert_int_equal(choose("/", memory), 0);
	is_at("", true);
}

static void no_limit_is_left(void **state)
{
	static const struct {
		const char *file, *text;
		int rc;
	} all[] = {
		{"memory.max", "67108863\n", -1},  {"memory.max", "67108864\n", 0},
		{"memory.high", "1000\n", -1},	   {"memory.high", "max\n", 0},
		{"memory.swap.max", "0\n", -1},	   {"memory.swap.max", "4096\n", 0},
		{"pids.max", "4096\n", -1},	   {"pids.max", "4097\n", 0},
		{"cpu.max", "50000 100000\n", -1}, {"cpu.max", "max 100000\n", 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		put("/app/term", all[i].file, all[i].text);
		assert_int_equal(choose("/app/term", memory), all[i].rc);
		if (all[i].rc != 0)
			assert_non_null(strstr(e.text, "would leave"));
		put("/app/term", all[i].file, "max\n");
	}
	/* Its own bound on memory, and none of ours. */
	put("/app/term", "memory.max", "1099511627776\n");
	assert_int_equal(choose("/app/term", (struct sandbox_limits){.pids = 10}), -1);
}

static void controllers(void **state)
{
	(void)state;
	/* Version 1 has it. */
	put("", "cgroup.controllers", "cpu pids\n");
	assert_int_equal(choose("/app/term", memory), -1);
	assert_non_null(strstr(e.text, "`memory`"));
	assert_int_equal(choose("/app/term", (struct sandbox_limits){.pids = 10}), 0);
	put("", "cgroup.controllers", ALL);
	/* Words, not parts of words. */
	put("/app", "cgroup.subtree_control", "memory pids cpuset\n");
	assert_int_equal(choose("/app/term", (struct sandbox_limits){.millicpus = 10}), -1);
	assert_non_null(strstr(e.text, "`cpu`"));
	assert_int_equal(choose("/app/term", memory), 0);
}

static void names_that_lead_elsewhere(void **state)
{
	(void)state;
	assert_int_equal(choose("/../app/term", memory), -1);
	assert_int_equal(choose("/..", memory), -1);
	assert_int_equal(choose("app", memory), -1);
	assert_int_equal(choose("", memory), -1);
	assert_int_equal(choose("/not/there", memory), -1);
	assert_true(e.text[0]);
}

/* Somebody else's: root may write everywhere, so this is another user's process. */
static void what_may_not_be_written(void **state)
{
	char path[512];

	(void)state;
	if (geteuid() == 0)
		skip();
	snprintf(path, sizeof(path), "%s/app/cgroup.procs", top);
	assert_int_equal(chmod(path, 0444), 0);
	assert_int_equal(choose("/app/term", memory), -1);
	assert_non_null(strstr(e.text, "may not be written"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(beside_the_own, setup, teardown),
		cmocka_unit_test_setup_teardown(within_the_own_when_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(the_root, setup, teardown),
		cmocka_unit_test_setup_teardown(no_limit_is_left, setup, teardown),
		cmocka_unit_test_setup_teardown(controllers, setup, teardown),
		cmocka_unit_test_setup_teardown(names_that_lead_elsewhere, setup, teardown),
		cmocka_unit_test_setup_teardown(what_may_not_be_written, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
