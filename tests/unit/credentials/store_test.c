/*
 * The store over real files and this process's own environment: what is cut, what is refused, what
 * a change does, and that no trace of a captured variable is left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/slot.h"
#include "proxy/credentials/store.h"

static char dir[] = "/tmp/stile-store-XXXXXX";
static char path[sizeof(dir) + 8];

/* One credential over `from`. The references never run out, so nothing here is freed by others. */
static struct config *config_of(enum credential_source source, char *from)
{
	static struct config_credential cred;
	static struct config config;
	static char name[] = "tok";

	cred = (struct config_credential){.name = name, .from = from, .source = source};
	config = (struct config){.credentials = &cred, .credentials_n = 1, .refs = 1000};
	return &config;
}

static void put(const char *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), (ssize_t)n);
	close(fd);
}

static struct credential_store *store_of(enum credential_source source, char *from)
{
	struct credential_store *s;
	struct err e = ERR_INIT;

	assert_int_equal(credential_store_new(config_of(source, from), NULL, NULL, &s, &e), 0);
	return s;
}

static void assert_value(struct credential_store *s, const char *want)
{
	struct secret *v = NULL;
	struct err e = ERR_INIT;

	if (credential_get(s, "tok", STR_NONE, &v, &e) != 0)
		fail_msg("%s", e.text);
	assert_true(str_eq(secret_value(v), str_from_c(want)));
	secret_unref(v);
}

static void assert_unavailable(struct credential_store *s, const char *why)
{
	struct secret *v = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(credential_get(s, "tok", STR_NONE, &v, &e), -1);
	assert_int_equal(e.reason, REASON_CREDENTIAL_UNAVAILABLE);
	if (!strstr(e.text, why))
		fail_msg("%s does not say %s", e.text, why);
	/* Where the secret lies is not the client's business. */
	assert_null(strstr(e.text, dir));
}

static void test_what_is_cut(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{"abc", "abc"},	    {"abc\n", "abc"},		{"abc\r\n", "abc"},
		{" a b ", " a b "}, {"\xc3\xa4\n", "\xc3\xa4"}, {"x", "x"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct credential_store *s;

		put(cases[i].in, strlen(cases[i].in));
		s = store_of(CREDENTIAL_FROM_FILE, path);
		assert_value(s, cases[i].out);
		credential_store_unref(s);
	}
}

static void test_what_is_refused(void **state)
{
	static const struct {
		struct str in;
		const char *why;
	} cases[] = {
		{{"", 0}, "it is empty"},
		{{"\n", 1}, "it is empty"},
		{{"\r\n", 2}, "it is empty"},
		{{"a\n\n", 3}, "control character"},
		{{"a\r", 2}, "control character"},
		{{"a\r\nX: y", 7}, "control character"},
		{{"a\nb", 3}, "control character"},
		{{"a\0b", 3}, "control character"},
		{{"a\tb", 3}, "control character"},
		{{"a\x7f", 2}, "control character"},
		{{"\x1b[0m", 4}, "control character"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct credential_store *s;

		put(cases[i].in.p, cases[i].in.n);
		s = store_of(CREDENTIAL_FROM_FILE, path);
		assert_unavailable(s, cases[i].why);
		credential_store_unref(s);
	}
}

static void test_sizes(void **state)
{
	static char big[LIMIT_SECRET_BYTES + 3];
	struct credential_store *s;
	struct secret *v;
	struct err e = ERR_INIT;

	(void)state;
	memset(big, 'a', sizeof(big));
	put(big, LIMIT_SECRET_BYTES + 1);
	s = store_of(CREDENTIAL_FROM_FILE, path);
	assert_unavailable(s, "larger than 65536 bytes");
	put(big, sizeof(big));
	credential_store_poll(s);
	assert_unavailable(s, "larger than 65536 bytes");
	big[LIMIT_SECRET_BYTES] = '\r';
	big[LIMIT_SECRET_BYTES + 1] = '\n';
	put(big, LIMIT_SECRET_BYTES + 2);
	credential_store_poll(s);
	assert_int_equal(credential_get(s, "tok", STR_NONE, &v, &e), 0);
	assert_int_equal(secret_value(v).n, LIMIT_SECRET_BYTES);
	secret_unref(v);
	credential_store_unref(s);
}

static void test_kinds_of_file(void **state)
{
	struct credential_store *s;

	(void)state;
	unlink(path);
	s = store_of(CREDENTIAL_FROM_FILE, path);
	assert_unavailable(s, "cannot be opened: No such file");
	assert_int_equal(mkfifo(path, 0600), 0);
	credential_store_poll(s);
	assert_unavailable(s, "not a regular file");
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	credential_store_poll(s);
	assert_unavailable(s, "not a regular file");
	rmdir(path);
	assert_int_equal(symlink("/dev/zero", path), 0);
	credential_store_poll(s);
	assert_unavailable(s, "not a regular file");
	unlink(path);
	put("there", 5);
	credential_store_poll(s);
	assert_value(s, "there");
	credential_store_unref(s);
}

static void test_changes(void **state)
{
	char other[sizeof(path) + 4];
	struct credential_store *s;
	struct secret *old;
	struct err e = ERR_INIT;

	(void)state;
	snprintf(other, sizeof(other), "%s.n", path);
	put("one", 3);
	s = store_of(CREDENTIAL_FROM_FILE, path);
	assert_int_equal(credential_get(s, "tok", STR_NONE, &old, &e), 0);
	/* In place, of the same size, within the same tick of the clock. */
	put("two", 3);
	credential_store_poll(s);
	assert_value(s, "two");
	/* Who holds the old value goes on with it. */
	assert_true(str_eq(secret_value(old), STR("one")));
	secret_unref(old);
	/* A new file renamed over. */
	assert_int_equal(rename(path, other), 0);
	put("six", 3);
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(symlink(other, path), 0);
	credential_store_poll(s);
	assert_value(s, "six");
	/* Half-written, then whole. */
	unlink(path);
	put("", 0);
	credential_store_poll(s);
	assert_unavailable(s, "it is empty");
	put("whole", 5);
	credential_store_poll(s);
	assert_value(s, "whole");
	unlink(path);
	credential_store_poll(s);
	assert_unavailable(s, "cannot be opened");
	unlink(other);
	credential_store_unref(s);
}

static int in_environment(const char *needle)
{
	char buf[65536];
	size_t n;
	FILE *f = fopen("/proc/self/environ", "r");
	int found;

	assert_non_null(f);
	n = fread(buf, 1, sizeof(buf), f);
	fclose(f);
	found = memmem(buf, n, needle, strlen(needle)) != NULL;
	return found;
}

static void test_environment(void **state)
{
	static char name[] = "STILE_TEST_TOKEN", absent[] = "STILE_TEST_NOPE";
	struct credential_store *s, *later;
	struct err e = ERR_INIT;

	(void)state;
	assert_true(in_environment("CANARY-7f3a"));
	assert_int_equal(credential_env_capture(config_of(CREDENTIAL_FROM_ENV, name), &e), 0);
	assert_null(getenv(name));
	assert_false(in_environment("CANARY-7f3a"));
	assert_true(in_environment("STILE_TEST_OTHER=kept"));
	assert_string_equal(getenv("STILE_TEST_OTHER"), "kept");
	s = store_of(CREDENTIAL_FROM_ENV, name);
	assert_value(s, "CANARY-7f3a");
	/* A reload. */
	assert_int_equal(credential_env_capture(config_of(CREDENTIAL_FROM_ENV, name), &e), 0);
	later = store_of(CREDENTIAL_FROM_ENV, name);
	credential_store_unref(s);
	credential_store_poll(later);
	assert_value(later, "CANARY-7f3a");
	credential_store_unref(later);

	assert_int_equal(credential_env_capture(config_of(CREDENTIAL_FROM_ENV, absent), &e), 0);
	s = store_of(CREDENTIAL_FROM_ENV, absent);
	assert_unavailable(s, "was not in the environment");
	credential_store_unref(s);
}

static void test_unknown_name(void **state)
{
	struct credential_store *s;
	struct secret *v;
	struct err e = ERR_INIT;

	(void)state;
	put("x", 1);
	s = store_of(CREDENTIAL_FROM_FILE, path);
	assert_int_equal(credential_get(s, "other", STR_NONE, &v, &e), -1);
	assert_int_equal(e.reason, REASON_CREDENTIAL_UNAVAILABLE);
	credential_store_unref(s);
}

static void *take_often(void *arg)
{
	struct credential_store *s = arg;

	for (int i = 0; i < 20000; i++) {
		struct secret *v;
		struct str value;

		if (credential_get(s, "tok", STR_NONE, &v, NULL) != 0)
			continue;
		value = secret_value(v);
		/* Always one value whole, never a mixture. */
		for (size_t j = 1; j < value.n; j++) {
			if (value.p[j] != value.p[0])
				abort();
		}
		secret_unref(v);
	}
	return NULL;
}

static void test_swap_under_readers(void **state)
{
	struct credential_store *s;
	pthread_t threads[4];

	(void)state;
	put("aaaaaaaa", 8);
	s = store_of(CREDENTIAL_FROM_FILE, path);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_often, s), 0);
	for (int i = 0; i < 200; i++) {
		char text[9];

		memset(text, 'a' + i % 26, 8);
		put(text, 8);
		credential_store_poll(s);
	}
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	credential_store_unref(s);
}

static void take(void *arg, const struct config_credential *c, const struct slot_status *st)
{
	assert_string_equal(c->name, "tok");
	*(struct slot_status *)arg = *st;
}

static void test_how_it_is(void **state)
{
	struct credential_store *s, *next;
	struct slot_status st;

	(void)state;
	put("value", 5);
	s = store_of(CREDENTIAL_FROM_FILE, path);
	credential_store_each(s, take, &st);
	assert_true(st.holds && st.tried && st.age_us >= 0 && st.left_us == -1);
	assert_true(st.next_us == -1 && st.uses == 0 && st.unused_us == -1);
	assert_string_equal(st.why, "");
	assert_value(s, "value");
	assert_value(s, "value");
	credential_store_each(s, take, &st);
	assert_true(st.uses == 2 && st.unused_us >= 0);
	/* Another store goes on counting. */
	next = store_of(CREDENTIAL_FROM_FILE, path);
	credential_store_carry(next, s);
	credential_store_unref(s);
	assert_value(next, "value");
	put("", 0);
	credential_store_poll(next);
	credential_store_each(next, take, &st);
	assert_true(!st.holds && st.tried && st.age_us == -1 && st.uses == 3);
	assert_string_not_equal(st.why, "");
	credential_store_unref(next);
}

static void test_how_a_slot_is(void **state)
{
	struct slot *s = slot_new(config_of(CREDENTIAL_FROM_EXEC, path)->credentials);
	struct secret *value = secret_new(1);
	struct slot_status st;
	struct err why = ERR_INIT;

	(void)state;
	assert_non_null(s);
	assert_non_null(value);
	*secret_room(value) = 'v';
	slot_status(s, &st);
	assert_true(!st.holds && !st.tried);
	slot_put(s, value, 3600000000LL, true, NULL);
	slot_expect(s, 1800000000LL);
	slot_status(s, &st);
	assert_true(st.holds && st.left_us > 3500000000LL && st.left_us <= 3600000000LL);
	assert_true(st.next_us > 1700000000LL && st.next_us <= 1800000000LL);
	(void)err_reason(&why, REASON_CREDENTIAL_UNAVAILABLE, "it is away");
	slot_put(s, NULL, 0, true, &why);
	slot_status(s, &st);
	assert_true(st.holds && st.age_us >= 0);
	assert_string_equal(st.why, "it is away");
	assert_true(slot_unref(s));
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_cut),  cmocka_unit_test(test_what_is_refused),
		cmocka_unit_test(test_sizes),	     cmocka_unit_test(test_kinds_of_file),
		cmocka_unit_test(test_changes),	     cmocka_unit_test(test_environment),
		cmocka_unit_test(test_unknown_name), cmocka_unit_test(test_swap_under_readers),
		cmocka_unit_test(test_how_it_is),    cmocka_unit_test(test_how_a_slot_is),
	};
	int rc;

	(void)argc;
	/* The variable must stand in the block that the kernel made, as it does for a real start.
	 */
	if (!getenv("STILE_TEST_TOKEN")) {
		setenv("STILE_TEST_TOKEN", "CANARY-7f3a", 1);
		setenv("STILE_TEST_OTHER", "kept", 1);
		execv("/proc/self/exe", argv);
		return 1;
	}
	log_set_level(LOG_LEVEL_ERROR);
	if (!mkdtemp(dir))
		return 1;
	snprintf(path, sizeof(path), "%s/tok", dir);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	rmdir(dir);
	return rc;
}
