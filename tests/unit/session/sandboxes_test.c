/*
 * The table of sandboxes: a token is found by nothing but itself, ends when it is to, and what has
 * ended is told from what never was for as long as there is room.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <pthread.h>

#include "logging/limits.h"
#include "logging/strbuf.h"
#include "proxy/session/sandboxes.h"

static struct sandboxes *all;
static char token[SANDBOX_TOKEN_LEN + 1];

static int setup(void **state)
{
	(void)state;
	return sandboxes_new(&all, NULL);
}

static int teardown(void **state)
{
	(void)state;
	sandboxes_free(all);
	return 0;
}

static struct sandbox_options options(const char *name, uint64_t ttl_ms)
{
	return (struct sandbox_options){.name = str_from_c(name),
					.policy = "p",
					.listener = "l",
					.ttl_ms = ttl_ms};
}

static struct sandbox *add(const char *name, uint64_t ttl_ms)
{
	struct sandbox_options o = options(name, ttl_ms);
	struct sandbox *s = NULL;
	struct err e = ERR_INIT;

	if (sandboxes_add(all, &o, token, &s, &e) != 0)
		fail_msg("%s", e.text);
	return s;
}

static void refused(const char *name, uint64_t ttl_ms, const char *why)
{
	struct sandbox_options o = options(name, ttl_ms);
	struct sandbox *s = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(sandboxes_add(all, &o, token, &s, &e), -1);
	assert_null(s);
	assert_non_null(strstr(e.text, why));
}

static void test_found_by_its_token_alone(void **state)
{
	struct sandbox *a = add("a", 60000), *b, *found;
	char first[sizeof(token)];

	(void)state;
	memcpy(first, token, sizeof(token));
	b = add("", 60000);
	assert_string_not_equal(first, token);
	assert_int_equal(strlen(token), SANDBOX_TOKEN_LEN);
	assert_int_equal(strncmp(token, SANDBOX_TOKEN_PREFIX, 6), 0);
	assert_int_equal(strspn(token,
				"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"),
			 SANDBOX_TOKEN_LEN);
	assert_string_equal(sandbox_name(a), "a");
	assert_int_equal(strncmp(sandbox_name(b), "sandbox-", 8), 0);
	assert_string_not_equal(sandbox_id(a), sandbox_id(b));
	found = sandboxes_find(all, str_from_c(first));
	assert_ptr_equal(found, a);
	sandbox_unref(found);
	/* Each character counts, and nothing may follow. */
	for (size_t i = 0; i < SANDBOX_TOKEN_LEN; i++) {
		char other[sizeof(token)];

		memcpy(other, token, sizeof(token));
		other[i] = other[i] == 'A' ? 'B' : 'A';
		assert_null(sandboxes_find(all, str_from_c(other)));
		assert_null(sandboxes_find(all, str_from(token, i)));
	}
	assert_null(sandboxes_find(all, STR_NONE));
	assert_null(sandboxes_find(all, str_from_c(sandbox_id(a))));
	sandbox_unref(a);
	sandbox_unref(b);
}

static void test_what_is_not_made(void **state)
{
	char name[SANDBOX_NAME_MAX + 1];
	struct sandbox *s = add("one", 60000);

	(void)state;
	memset(name, 'x', sizeof(name));
	name[SANDBOX_NAME_MAX] = '\0';
	refused("one", 60000, "lives");
	refused(name, 60000, "a name has");
	refused("a b", 60000, "a name has");
	refused("a\x1b", 60000, "a name has");
	refused("@a", 60000, "a name has");
	refused("b", 0, "a token lives");
	refused("b", LIMIT_MS_SANDBOX_LEAST - 1, "a token lives");
	refused("b", LIMIT_MS_SANDBOX_MOST + 1, "a token lives");
	refused("b", UINT64_MAX, "a token lives");
	sandbox_unref(s);
	sandbox_unref(add("b", LIMIT_MS_SANDBOX_MOST));
}

static void test_revoked(void **state)
{
	struct sandbox *a = add("a", 60000), *again, *found, *which = NULL;

	(void)state;
	assert_int_equal(sandboxes_revoke(all, STR("b"), &which, NULL), -1);
	assert_int_equal(sandboxes_revoke(all, STR(""), &which, NULL), -1);
	assert_int_equal(sandbox_end(a), REASON_NONE);
	assert_int_equal(sandboxes_revoke(all, STR("a"), &which, NULL), 0);
	assert_ptr_equal(which, a);
	sandbox_unref(which);
	assert_int_equal(sandbox_end(a), REASON_TOKEN_REVOKED);
	/* Still told from a wrong one; not listed, not revoked twice. */
	found = sandboxes_find(all, str_from_c(token));
	assert_ptr_equal(found, a);
	sandbox_unref(found);
	assert_int_equal(sandboxes_n(all), 0);
	assert_int_equal(sandboxes_revoke(all, STR("a"), &which, NULL), -1);
	/* The name is free again, and what is found under it is another one's. */
	again = add("a", 60000);
	assert_string_not_equal(sandbox_key(again), sandbox_key(a));
	assert_int_equal(sandboxes_revoke(all, str_from_c(sandbox_id(again)), &which, NULL), 0);
	assert_ptr_equal(which, again);
	sandbox_unref(which);
	sandbox_unref(again);
	sandbox_unref(a);
}

static void test_ends_by_itself(void **state)
{
	struct sandbox *s = add("short", LIMIT_MS_SANDBOX_LEAST);
	struct timespec pause = {.tv_nsec = 5000000};
	int64_t left = sandbox_left_us(s);

	(void)state;
	assert_true(left > 0 && left <= LIMIT_MS_SANDBOX_LEAST * 1000);
	assert_int_equal(sandbox_end(s), REASON_NONE);
	while (sandbox_left_us(s) > 0)
		nanosleep(&pause, NULL);
	assert_int_equal(sandbox_end(s), REASON_TOKEN_EXPIRED);
	assert_int_equal(sandboxes_n(all), 0);
	sandbox_unref(add("short", 60000));
	sandbox_unref(s);
}

static void note(void *arg, const struct sandbox *s)
{
	char **at = arg;

	*(*at)++ = sandbox_name(s)[0];
}

static void test_listed(void **state)
{
	struct sandbox *a = add("a", 60000), *b = add("b", 60000), *c = add("c", 60000), *which;
	char seen[8] = "", *at = seen;
	struct sandbox_times t;

	(void)state;
	assert_int_equal(sandboxes_revoke(all, STR("b"), &which, NULL), 0);
	sandbox_unref(which);
	sandboxes_each(all, note, &at);
	assert_string_equal(seen, "ac");
	t = sandbox_times(c);
	assert_int_equal(t.ends_us - t.created_us, 60000000);
	assert_int_equal(t.seen_us, 0);
	sandbox_enter(c);
	sandbox_enter(c);
	sandbox_leave(c);
	sandbox_seen(c);
	t = sandbox_times(c);
	assert_int_equal(t.connections, 1);
	assert_true(t.seen_us > 0);
	sandbox_unref(a);
	sandbox_unref(b);
	sandbox_unref(c);
}

static void note_ended(void *arg, const struct sandbox *s)
{
	struct strbuf *b = arg;

	strbuf_addf(b, "%s %s\n", sandbox_name(s), reason_word(sandbox_end(s)));
}

static void told(const char *want)
{
	struct strbuf b;

	strbuf_init(&b, 4096);
	sandboxes_each_ended(all, note_ended, &b);
	assert_string_equal(strbuf_cstr(&b), want);
	strbuf_clear(&b);
}

/* Each end is told of once; one that somebody asked for, by whoever asked. */
static void test_ends_are_told_of(void **state)
{
	struct sandbox *which = NULL, *last = add("last", 2000);

	(void)state;
	sandbox_unref(add("first", 1000));
	sandbox_unref(add("mine", 1000));
	sandbox_unref(add("long", 60000));
	assert_int_equal(sandboxes_revoke(all, STR("mine"), &which, NULL), 0);
	sandbox_unref(which);
	told("");
	usleep(1010000);
	told("first token_expired\n");
	told("");
	while (sandbox_end(last) == REASON_NONE)
		usleep(10000);
	told("last token_expired\n");
	told("");
	sandbox_unref(last);
}

/* ---- as a mirror ---- */

static struct state_record draft(const char *name, uint64_t ttl_ms)
{
	struct sandbox_options o = options(name, ttl_ms);
	struct state_record r;

	assert_int_equal(sandboxes_draft(all, &o, token, &r, NULL), 0);
	return r;
}

static bool put(const struct state_record *r)
{
	bool ended = false;

	assert_int_equal(sandboxes_put(all, r, &ended, NULL), 0);
	return ended;
}

static enum reason end_of(const struct state_record *r)
{
	struct sandbox *s = sandboxes_by_digest(all, r->digest, false);
	enum reason why;

	assert_non_null(s);
	why = sandbox_end(s);
	sandbox_unref(s);
	return why;
}

static void test_a_mirror_is_good_for_a_while(void **state)
{
	struct timespec t;

	(void)state;
	assert_true(sandboxes_are_current(all));
	sandboxes_share(all);
	assert_false(sandboxes_are_current(all));
	clock_gettime(CLOCK_BOOTTIME, &t);
	sandboxes_hold(all, (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000 + 300000);
	assert_true(sandboxes_are_current(all));
	usleep(310000);
	assert_false(sandboxes_are_current(all));
}

static void test_a_mirror(void **state)
{
	struct state_record a, b, c, again;
	struct sandbox *s;

	(void)state;
	sandboxes_share(all);
	a = draft("a", 60000);
	assert_null(sandboxes_find(all, str_from_c(token)));
	assert_false(put(&a));
	s = sandboxes_find(all, str_from_c(token));
	assert_non_null(s);
	assert_string_equal(sandbox_name(s), "a");
	b = draft("b", 60000);
	c = draft("c", 60000);
	assert_false(put(&b));
	assert_false(put(&c));
	/* As it is kept. */
	assert_int_equal(sandboxes_record(all, str_from_c(sandbox_id(s)), &again, NULL), 0);
	assert_memory_equal(&again, &a, sizeof(a));
	assert_int_equal(sandboxes_record(all, STR("d"), &again, NULL), -1);
	sandbox_unref(s);

	/* What a whole reading did not have has ended, and one that was put twice has not. */
	sandboxes_begin(all);
	assert_false(put(&a));
	assert_false(put(&c));
	assert_true(sandboxes_whole(all));
	assert_int_equal(end_of(&a), REASON_NONE);
	assert_int_equal(end_of(&b), REASON_TOKEN_REVOKED);
	told("b token_revoked\n");
	/* It never lives again. */
	assert_false(put(&b));
	assert_int_equal(end_of(&b), REASON_TOKEN_REVOKED);

	/* One that is not what it was. */
	(void)snprintf(c.policy, sizeof(c.policy), "other");
	assert_true(put(&c));
	assert_int_equal(end_of(&c), REASON_TOKEN_REVOKED);
	told("c token_revoked\n");
	a.revoked = true;
	assert_true(put(&a));
	assert_false(put(&a));
	told("a token_revoked\n");
	assert_int_equal(sandboxes_n(all), 0);
}

static void test_what_has_ended_elsewhere(void **state)
{
	struct state_record r = draft("r", 60000), past = draft("past", 60000),
			    gone = draft("gone", 60000);

	(void)state;
	r.revoked = true;
	assert_false(put(&r));
	assert_int_equal(end_of(&r), REASON_TOKEN_REVOKED);
	past.created_us -= 120000000;
	past.ends_us -= 120000000;
	assert_false(put(&past));
	assert_int_equal(end_of(&past), REASON_TOKEN_EXPIRED);
	/* It was no sandbox of this process, so that its end is no news. */
	told("");
	assert_false(put(&gone));
	assert_true(sandboxes_gone(all, gone.digest));
	assert_false(sandboxes_gone(all, gone.digest));
	told("gone token_revoked\n");
}

static void test_room_of_a_mirror(void **state)
{
	struct state_record r = draft("r", 60000);
	bool ended;

	(void)state;
	for (unsigned i = 0; i < 2 * LIMIT_SANDBOXES; i++) {
		memcpy(r.digest, &i, sizeof(i));
		assert_false(put(&r));
	}
	r.digest[9] ^= 1;
	assert_int_equal(sandboxes_put(all, &r, &ended, NULL), -1);
	r.digest[9] ^= 1;
	r.revoked = true;
	assert_true(put(&r));
	told("r token_revoked\n");
	r.revoked = false;
	r.digest[9] ^= 1;
	assert_false(put(&r));
}

static void test_room(void **state)
{
	struct sandbox *which = NULL, *last = NULL;
	char first[sizeof(token)];

	(void)state;
	sandbox_unref(add("first", 60000));
	memcpy(first, token, sizeof(token));
	for (int i = 1; i < LIMIT_SANDBOXES; i++)
		sandbox_unref(add(NULL, 60000));
	refused("more", 60000, "the limit");
	/* One that has ended makes room. */
	assert_int_equal(sandboxes_revoke(all, STR("first"), &which, NULL), 0);
	sandbox_unref(which);
	last = add("more", 60000);
	assert_null(sandboxes_find(all, str_from_c(first)));
	refused("too many", 60000, "a name has");
	refused("too-many", 60000, "the limit");
	assert_int_equal(sandboxes_n(all), LIMIT_SANDBOXES);
	sandbox_unref(last);
}

static void *look(void *arg)
{
	char mine[sizeof(token)];
	int found = 0;

	memcpy(mine, arg, sizeof(mine));
	for (int i = 0; i < 20000; i++) {
		struct sandbox *s = sandboxes_find(all, str_from_c(mine));

		if (s && sandbox_end(s) == REASON_NONE)
			found++;
		sandbox_unref(s);
	}
	return found > 0 ? arg : NULL;
}

static void test_looked_up_while_it_ends(void **state)
{
	pthread_t threads[3];
	void *ret;

	(void)state;
	sandbox_unref(add("a", 60000));
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, look, token), 0);
	for (int i = 0; i < 2000; i++) {
		struct sandbox_options o = options("x", 60000);
		char other[sizeof(token)];
		struct sandbox *s = NULL, *which = NULL;

		assert_int_equal(sandboxes_add(all, &o, other, &s, NULL), 0);
		assert_int_equal(sandboxes_revoke(all, STR("x"), &which, NULL), 0);
		sandbox_unref(s);
		sandbox_unref(which);
	}
	for (size_t i = 0; i < 3; i++) {
		pthread_join(threads[i], &ret);
		assert_non_null(ret);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_found_by_its_token_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_not_made, setup, teardown),
		cmocka_unit_test_setup_teardown(test_revoked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ends_by_itself, setup, teardown),
		cmocka_unit_test_setup_teardown(test_listed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ends_are_told_of, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_mirror_is_good_for_a_while, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_mirror, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_has_ended_elsewhere, setup, teardown),
		cmocka_unit_test_setup_teardown(test_room_of_a_mirror, setup, teardown),
		cmocka_unit_test_setup_teardown(test_room, setup, teardown),
		cmocka_unit_test_setup_teardown(test_looked_up_while_it_ends, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
