/*
 * What is remembered of a connection's last request: whatever changes, its key and its identity are
 * those that a connection without a memory would have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config_of.h"
#include "proxy/session/caller_memo.h"

static const char CONFIG[] = "version: 1\n"
			     "policies:\n"
			     "  one:\n"
			     "    rules:\n"
			     "      - allow: [\"http://*\", \"https://*\"]\n"
			     "      - allow: \"http://*.test:*\"\n"
			     "  two:\n"
			     "    rules:\n"
			     "      - allow: [\"http://*\", \"https://*\"]\n"
			     "      - allow: \"http://*.test:*\"\n";

#define SNAPSHOTS 3
#define SANDBOXES 3

static struct {
	struct loop *loop;
	struct pool *pool;
	struct snapshot snapshots[SNAPSHOTS]; /* the last two are alike but for their number */
	struct sandboxes *all;
	struct sandbox *sandboxes[SANDBOXES]; /* [0]: none */
	struct entrance entrance;
} room;

static struct sandbox *make_sandbox(const char *name, const char *policy)
{
	struct sandbox_options o = {.name = str_from_c(name),
				    .policy = policy,
				    .listener = "in",
				    .ttl_ms = LIMIT_MS_SANDBOX_LEAST};
	char token[SANDBOX_TOKEN_LEN + 1];
	struct sandbox *s;

	assert_int_equal(sandboxes_add(room.all, &o, token, &s, NULL), 0);
	return s;
}

static int setup(void **state)
{
	static char in[] = "in", two[] = "two";

	(void)state;
	assert_int_equal(loop_new(&room.loop, NULL), 0);
	assert_int_equal(pool_new(room.loop, 4, 4, 1000, &room.pool, NULL), 0);
	for (size_t i = 0; i < SNAPSHOTS; i++) {
		room.snapshots[i].number = i + 1;
		if (i == 2)
			room.snapshots[i].config = config_ref(room.snapshots[1].config);
		else
			room.snapshots[i].config = config_of(CONFIG);
		assert_non_null(room.snapshots[i].config);
	}
	assert_int_equal(sandboxes_new(&room.all, NULL), 0);
	room.sandboxes[1] = make_sandbox("a", "one");
	room.sandboxes[2] = make_sandbox("b", "two");
	room.entrance = (struct entrance){.name = in, .policy_name = two};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (size_t i = 1; i < SANDBOXES; i++)
		sandbox_unref(room.sandboxes[i]);
	sandboxes_free(room.all);
	for (size_t i = 0; i < SNAPSHOTS; i++)
		config_unref(room.snapshots[i].config);
	pool_free(room.pool);
	loop_free(room.loop);
	return 0;
}

/* One request of c's, and the same of a connection that has no memory yet. */
static void compare(struct caller *c, const struct snapshot *s, const struct url *u, size_t rule)
{
	struct caller fresh = {.entrance = c->entrance, .sandbox = c->sandbox};
	struct identity got = caller_identity(c, s), want = identity_of(c, s);
	struct pool_key *a, *b;

	assert_ptr_equal(got.policy, want.policy);
	assert_true(str_eq(got.key, want.key) && str_eq(got.sandbox, want.sandbox));
	a = caller_pool_key(c, s, room.pool, u, policy_rule(got.policy, rule), NULL);
	b = caller_pool_key(&fresh, s, room.pool, u, policy_rule(got.policy, rule), NULL);
	assert_true(pool_key_eq(a, b));
	assert_string_equal(a->text, b->text);
	pool_key_unref(a);
	pool_key_unref(b);
	caller_memo_free(fresh.memo);
}

static void any_order(void **state)
{
	static const char *const hosts[] = {"a.test", "aa.test", "a.test.test", "10.0.0.1"};
	struct caller c = {.entrance = &room.entrance};
	unsigned r = 1;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct url u = {.port = 80};

		/* Few values of each, so that often one alone is another than before. */
		r = r * 1103515245 + 12345;
		if (r >> 16 & 1)
			c.sandbox = room.sandboxes[(r >> 17) % SANDBOXES];
		u.scheme = r >> 20 & 1 ? SCHEME_HTTP : SCHEME_HTTPS;
		u.port = r >> 21 & 1 ? 80 : 8080;
		assert_int_equal(host_parse(str_from_c(hosts[(r >> 22) % ARRAY_LEN(hosts)]),
					    &u.host, NULL),
				 0);
		compare(&c, &room.snapshots[(r >> 25) % SNAPSHOTS], &u, r >> 28 & 1);
	}
	caller_memo_free(c.memo);
}

/* Asked for again it is the same one, not another one that says the same. */
static void made_once(void **state)
{
	struct caller c = {.entrance = &room.entrance};
	const struct snapshot *s = &room.snapshots[0];
	struct url u = {.scheme = SCHEME_HTTP, .port = 80};
	const struct rule *rule;
	struct pool_key *a, *b;

	(void)state;
	assert_int_equal(host_parse(STR("a.test"), &u.host, NULL), 0);
	rule = policy_rule(caller_identity(&c, s).policy, 0);
	a = caller_pool_key(&c, s, room.pool, &u, rule, NULL);
	b = caller_pool_key(&c, s, room.pool, &u, rule, NULL);
	assert_ptr_equal(a, b);
	/* It is the holder's, too. */
	caller_memo_free(c.memo);
	pool_key_unref(a);
	assert_non_null(strstr(b->text, "|a.test|80|two|"));
	pool_key_unref(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_order),
		cmocka_unit_test(made_once),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
