/*
 * The keeper's side alone, with this test as a proxy that has been taken over: every message that
 * one could send, and what it gets.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/x509v3.h>

#include "certs/signer.h"
#include "logging/log.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/slot.h"
#include "proxy/keeper/core.h"

static struct {
	char dir[64], secret[96], other[96], key[96], log[96], config_file[96];
	char value[48];
	struct config *config;
	struct ca *ca;
	struct keeper_core *core;
	struct strbuf body;
	int64_t now_us;
} fx;

static int64_t fake_now(void)
{
	return fx.now_us;
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* deny: what `deny:` says; rules beside the fixed ones. */
static void write_config(const char *deny, const char *more)
{
	char text[4096];

	(void)snprintf(text, sizeof(text),
		       "version: 1\n"
		       "deny: %s\n"
		       "listen: [{proxy: '127.0.0.1:0', policy: used}]\n"
		       "log: {to: %s}\n"
		       "credentials:\n"
		       "  named: {from: {file: %s}, as: bearer}\n"
		       "  unnamed: {from: {file: %s}, as: bearer}\n"
		       "policies:\n"
		       "  used:\n"
		       "    rules:\n"
		       "      - {allow: 'https://a.test/**', credential: named}\n"
		       "      - allow: '*.wild.test'\n"
		       "      - allow: 'https://port.test:8443'\n"
		       "      - allow: 'https://192.0.2.7'\n"
		       "      - allow: 'https://[2001:db8::7]'\n"
		       "      - {allow: pass.test, tls: passthrough}\n"
		       "      - allow: 'http://plain.test'\n"
		       "      - allow: 'tcp://raw.test:443'\n"
		       "      - allow: 'closed.wild.test'\n"
		       "      - deny: 'closed.wild.test'\n"
		       "%s"
		       "  idle:\n"
		       "    rules: [{allow: idle.test, credential: unnamed}]\n",
		       deny, fx.log, fx.secret, fx.other, more);
	write_file(fx.config_file, text);
}

static struct config *load(void)
{
	struct config *c = NULL;
	struct faults f;

	faults_init(&f, fx.config_file);
	if (config_load_file(fx.config_file, &c, &f) < 0)
		fail_msg("%s", f.v[0].text);
	faults_clear(&f);
	return c;
}

static void start(const char *deny)
{
	struct core_options o = {.reloads = true, .now_us = fake_now};
	struct err e = ERR_INIT;

	write_config(deny, "");
	fx.config = load();
	assert_int_equal(ca_new_memory(30, &fx.ca, &e), 0);
	o.config = fx.config;
	o.ca = fx.ca;
	fx.now_us = 1000000;
	assert_int_equal(core_new(&o, &fx.core, &e), 0);
	assert_int_equal(core_open(fx.core, &e), 0);
	strbuf_init(&fx.body, LIMIT_KEEPER_MESSAGE + 1);
}

static void end(void)
{
	core_free(fx.core);
	config_unref(fx.config);
	ca_unref(fx.ca);
	strbuf_clear(&fx.body);
	fx.core = NULL;
}

/* -1: the keeper would end. */
static int say(enum core_channel ch, enum wire_kind kind, uint32_t id, const void *body, size_t n,
	       struct core_reply *ret)
{
	struct wire_head h = {.version = WIRE_VERSION, .kind = kind, .id = id, .n = (uint32_t)n};
	struct err e = ERR_INIT;

	strbuf_reset(&fx.body);
	*ret = (struct core_reply){.body = fx.body, .fd = -1};
	if (core_handle(fx.core, ch, &h, body, ret, &e) < 0) {
		fx.body = ret->body;
		assert_true(e.text[0] != '\0');
		return -1;
	}
	fx.body = ret->body;
	return 0;
}

static void give_key(void)
{
	unsigned char point[SIGNER_POINT_LEN];
	struct signer *s = NULL;
	struct core_reply r;
	struct err e = ERR_INIT;

	assert_int_equal(signer_new_remote(fx.ca, 8, &s, &e), 0);
	assert_int_equal(signer_public_key(s, point, &e), 0);
	assert_int_equal(say(CORE_MAIN, WIRE_KEY, 0, point, sizeof(point), &r), 0);
	signer_free(s);
}

/* The kind of the answer; -1: the keeper would end. */
static int ask_leaf(const char *host, unsigned port, struct core_reply *r)
{
	struct wire_leaf q = {.port = port};
	char body[sizeof(q) + 512];

	memcpy(body, &q, sizeof(q));
	memcpy(body + sizeof(q), host, strlen(host));
	if (say(CORE_LEAVES, WIRE_LEAF, 7, body, sizeof(q) + strlen(host), r) < 0)
		return -1;
	assert_int_equal(r->id, 7);
	return (int)r->kind;
}

static X509 *leaf_of(const struct core_reply *r)
{
	const unsigned char *p = (const unsigned char *)r->body.data;

	return d2i_X509(NULL, &p, (long)r->body.len);
}

/* ---- leaves ---- */

static void test_a_leaf_for_what_a_rule_admits(void **state)
{
	static const struct {
		const char *host;
		unsigned port;
	} yes[] = {{"a.test", 443},	{"x.wild.test", 443}, {"x.y.wild.test", 443},
		   {"port.test", 8443}, {"192.0.2.7", 443},   {"[2001:db8::7]", 443}};
	struct core_reply r;

	(void)state;
	start("refuse");
	give_key();
	for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
		X509 *x;

		assert_int_equal(ask_leaf(yes[i].host, yes[i].port, &r), WIRE_LEAF_IS);
		x = leaf_of(&r);
		assert_non_null(x);
		assert_int_equal(X509_verify(x, X509_get0_pubkey(ca_cert(fx.ca))), 1);
		assert_int_equal(X509_check_ca(x), 0);
		X509_free(x);
	}
	end();
}

static void test_none_for_what_no_rule_admits(void **state)
{
	static const struct {
		const char *host;
		unsigned port;
	} no[] = {{"b.test", 443},	{"wild.test", 443},	   {"a.test", 444},
		  {"port.test", 443},	{"192.0.2.8", 443},	   {"[2001:db8::8]", 443},
		  {"pass.test", 443},	{"plain.test", 443},	   {"plain.test", 80},
		  {"raw.test", 443},	{"closed.wild.test", 443}, {"idle.test", 443},
		  {"*.wild.test", 443}, {"a.test\n", 443},	   {"a.test,DNS:b.test", 443},
		  {"A.TEST.", 444},	{"0x7f.1", 443},	   {"a.test/", 443}};
	struct core_reply r;

	(void)state;
	start("refuse");
	give_key();
	for (size_t i = 0; i < ARRAY_LEN(no); i++) {
		if (ask_leaf(no[i].host, no[i].port, &r) != WIRE_FAILED)
			fail_msg("%s:%u", no[i].host, no[i].port);
		assert_true(r.body.len > 1);
	}
	end();
}

static void test_few_and_short_ones_where_refusals_are_explained(void **state)
{
	struct core_reply r;
	int day = 0, sec = 0;
	unsigned n = 0;
	X509 *x;

	(void)state;
	start("explain");
	give_key();
	assert_int_equal(ask_leaf("b.test", 443, &r), WIRE_LEAF_IS);
	x = leaf_of(&r);
	assert_int_equal(ASN1_TIME_diff(&day, &sec, X509_get0_notBefore(x), X509_get0_notAfter(x)),
			 1);
	assert_true(day == 0 && sec < LIMIT_LEAF_EXPLAINED_SECS);
	X509_free(x);
	while (n < 2 * LIMIT_LEAVES_EXPLAINED && ask_leaf("b.test", 443, &r) == WIRE_LEAF_IS)
		n++;
	assert_int_equal(n, LIMIT_LEAVES_EXPLAINED - 1);
	/* What rules admit is not held up by that; and it comes back with time. */
	assert_int_equal(ask_leaf("a.test", 443, &r), WIRE_LEAF_IS);
	fx.now_us += 1000000;
	assert_int_equal(ask_leaf("b.test", 443, &r), WIRE_LEAF_IS);
	end();
}

static void test_leaves_are_counted(void **state)
{
	struct core_reply r;
	unsigned n = 0;

	(void)state;
	start("refuse");
	give_key();
	while (n < 2 * LIMIT_LEAVES && ask_leaf("a.test", 443, &r) == WIRE_LEAF_IS)
		n++;
	assert_int_equal(n, LIMIT_LEAVES);
	assert_int_equal((unsigned char)r.body.data[0], REASON_OVERLOADED);
	end();
}

static void test_what_no_proxy_sends(void **state)
{
	static const char big[LIMIT_HOST_BYTES + 64] = "x";
	unsigned char point[SIGNER_POINT_LEN] = {4};
	struct core_reply r;

	(void)state;
	start("refuse");
	/* No key was given; not a point; too short; a second one. */
	assert_int_equal(ask_leaf("a.test", 443, &r), -1);
	assert_int_equal(say(CORE_MAIN, WIRE_KEY, 0, point, sizeof(point), &r), -1);
	assert_int_equal(say(CORE_MAIN, WIRE_KEY, 0, point, sizeof(point) - 1, &r), -1);
	give_key();
	assert_int_equal(say(CORE_MAIN, WIRE_KEY, 0, point, sizeof(point), &r), -1);
	/* Shapes that cannot be meant. */
	assert_int_equal(ask_leaf("a.test", 65536, &r), -1);
	assert_int_equal(ask_leaf("", 443, &r), -1);
	assert_int_equal(say(CORE_LEAVES, WIRE_LEAF, 1, big, sizeof(big), &r), -1);
	assert_int_equal(say(CORE_LEAVES, WIRE_LEAF, 1, NULL, 0, &r), -1);
	assert_int_equal(say(CORE_MAIN, WIRE_NUDGE, 1, big, 3, &r), -1);
	assert_int_equal(say(CORE_FILES, WIRE_OPEN, 1, big, 4, &r), -1);
	assert_int_equal(say(CORE_FILES, WIRE_MINT, 1, big, 3, &r), -1);
	assert_int_equal(say(CORE_MAIN, WIRE_PLACEHOLDER, 1, NULL, 0, &r), -1);
	/* Each socket has its own questions. */
	for (unsigned kind = 0; kind < 80; kind++) {
		if (kind != WIRE_LEAF)
			assert_int_equal(say(CORE_LEAVES, kind, 1, big, 8, &r), -1);
		if (kind != WIRE_OPEN && kind != WIRE_MINT)
			assert_int_equal(say(CORE_FILES, kind, 1, big, 8, &r), -1);
	}
	assert_int_equal(say(CORE_MAIN, WIRE_LEAF, 1, big, 8, &r), -1);
	assert_int_equal(say(CORE_MAIN, WIRE_OPEN, 1, big, 8, &r), -1);
	assert_int_equal(say(CORE_MAIN, WIRE_CREDENTIAL, 1, big, 8, &r), -1);
	assert_int_equal(say(CORE_MAIN, 0xffffffffU, 1, big, 8, &r), -1);
	/* A reload that did not begin; a store twice, or without a number. */
	assert_int_equal(say(CORE_MAIN, WIRE_COMMIT, 0, NULL, 0, &r), -1);
	assert_int_equal(say(CORE_MAIN, WIRE_STORE, 0, NULL, 0, &r), -1);
	assert_int_equal(say(CORE_MAIN, WIRE_STORE, 1, NULL, 0, &r), 0);
	assert_int_equal(say(CORE_MAIN, WIRE_STORE, 2, NULL, 0, &r), -1);
	end();
}

/* ---- credentials ---- */

struct seen {
	char values[8][64];
	char whys[8][ERR_TEXT_MAX];
	uint32_t store[8];
	size_t index[8];
	size_t n;
	size_t room;
};

static int on_push(void *arg, uint32_t store, size_t i, const struct slot_state *s)
{
	struct seen *seen = arg;

	if (seen->n >= seen->room)
		return -1;
	seen->store[seen->n] = store;
	seen->index[seen->n] = i;
	if (s->value)
		(void)snprintf(seen->values[seen->n], 64, "%.*s", STR_FMT(secret_value(s->value)));
	(void)snprintf(seen->whys[seen->n], ERR_TEXT_MAX, "%s", s->why);
	seen->n++;
	return 0;
}

static void test_a_credential_that_a_rule_names_and_no_other(void **state)
{
	struct seen seen = {.room = 8};
	struct wire_nudge nudge = {.index = 1};
	struct wire_mint mint = {.store = 1, .index = 1};
	struct core_reply r;

	(void)state;
	start("refuse");
	assert_int_equal(core_push(fx.core, on_push, &seen), 0);
	assert_int_equal(seen.n, 0); /* not before it is asked */
	assert_int_equal(say(CORE_MAIN, WIRE_STORE, 1, NULL, 0, &r), 0);
	assert_int_equal(core_push(fx.core, on_push, &seen), 0);
	assert_int_equal(seen.n, 1);
	assert_string_equal(seen.values[0], fx.value);
	assert_string_equal(fx.config->credentials[seen.index[0]].name, "named");
	/* No other way leads to the other one. */
	assert_int_equal(say(CORE_MAIN, WIRE_NUDGE, 1, &nudge, sizeof(nudge), &r), 0);
	nudge.index = 0xffffffffU;
	assert_int_equal(say(CORE_MAIN, WIRE_NUDGE, 1, &nudge, sizeof(nudge), &r), 0);
	for (mint.index = 0; mint.index < 3; mint.index++) {
		assert_int_equal(say(CORE_FILES, WIRE_MINT, 1, &mint, sizeof(mint), &r), 0);
		assert_int_equal(r.kind, WIRE_FAILED);
	}
	mint = (struct wire_mint){.store = 9, .index = 0};
	assert_int_equal(say(CORE_FILES, WIRE_MINT, 1, &mint, sizeof(mint), &r), 0);
	assert_int_equal(r.kind, WIRE_FAILED);
	assert_int_equal(say(CORE_MAIN, WIRE_PLACEHOLDER, 1, "unnamed", 7, &r), 0);
	assert_int_equal(r.kind, WIRE_FAILED);
	assert_int_equal(core_push(fx.core, on_push, &seen), 0);
	assert_int_equal(seen.n, 1);
	end();
}

static void test_what_does_not_fit_is_sent_again(void **state)
{
	struct seen none = {.room = 0}, seen = {.room = 8};
	struct core_reply r;

	(void)state;
	start("refuse");
	assert_int_equal(say(CORE_MAIN, WIRE_STORE, 1, NULL, 0, &r), 0);
	assert_int_equal(core_push(fx.core, on_push, &none), -1);
	assert_int_equal(core_push(fx.core, on_push, &seen), 0);
	assert_int_equal(seen.n, 1);
	end();
}

/* ---- files ---- */

static int ask_file(const char *path, bool to_write, int *ret_errno)
{
	struct wire_open q = {.how = to_write ? WIRE_TO_APPEND : WIRE_TO_READ};
	char body[sizeof(q) + 256];
	struct core_reply r;
	uint32_t theirs;

	memcpy(body, &q, sizeof(q));
	memcpy(body + sizeof(q), path, strlen(path));
	assert_int_equal(say(CORE_FILES, WIRE_OPEN, 1, body, sizeof(q) + strlen(path), &r), 0);
	assert_int_equal(r.body.len, sizeof(theirs));
	memcpy(&theirs, r.body.data, sizeof(theirs));
	*ret_errno = (int)theirs;
	return r.fd;
}

static void test_files_out_of_a_short_list(void **state)
{
	char link[128];
	int e = 0, fd;

	(void)state;
	start("refuse");
	fd = ask_file("/etc/hosts", false, &e);
	assert_true(fd >= 0);
	close(fd);
	fd = ask_file(fx.log, true, &e);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(ask_file("/etc/hosts", true, &e), -1);
	assert_int_equal(ask_file(fx.secret, false, &e), -1);
	assert_int_equal(ask_file(fx.other, false, &e), -1);
	assert_int_equal(ask_file(fx.key, false, &e), -1);
	assert_int_equal(ask_file(fx.config_file, false, &e), -1);
	assert_int_equal(ask_file("/etc/passwd", false, &e), -1);
	assert_int_equal(ask_file("/proc/self/environ", false, &e), -1);
	(void)snprintf(link, sizeof(link), "%s/../%s", fx.dir, "etc/hosts");
	assert_int_equal(ask_file(link, false, &e), -1);
	assert_int_equal(e, EACCES);
	/* Not even where the log has become a way to a secret. */
	assert_int_equal(unlink(fx.log), 0);
	assert_int_equal(symlink(fx.secret, fx.log), 0);
	assert_int_equal(ask_file(fx.log, false, &e), -1);
	assert_int_equal(ask_file(fx.log, true, &e), -1);
	assert_int_equal(unlink(fx.log), 0);
	end();
}

/* ---- reload ---- */

static int reload(void)
{
	struct wire_reloaded said;
	struct core_reply r;

	assert_int_equal(say(CORE_MAIN, WIRE_RELOAD, 0, NULL, 0, &r), 0);
	if (r.kind == WIRE_FAILED)
		return -1;
	assert_int_equal(r.kind, WIRE_RELOADED);
	assert_true(r.fd >= 0);
	close(r.fd);
	memcpy(&said, r.body.data, sizeof(said));
	return (int)said.ok;
}

static void test_a_reload_counts_when_it_is_committed(void **state)
{
	struct core_reply r;

	(void)state;
	start("refuse");
	give_key();
	assert_int_equal(say(CORE_MAIN, WIRE_STORE, 1, NULL, 0, &r), 0);
	write_config("refuse", "      - allow: new.test\n");
	assert_int_equal(reload(), 1);
	assert_int_equal(ask_leaf("new.test", 443, &r), WIRE_FAILED);
	/* A store is asked for before; without one there is nothing to commit. */
	assert_int_equal(say(CORE_MAIN, WIRE_COMMIT, 0, NULL, 0, &r), -1);
	assert_int_equal(say(CORE_MAIN, WIRE_STORE, 2, NULL, 0, &r), 0);
	assert_int_equal(say(CORE_MAIN, WIRE_ABORT, 0, NULL, 0, &r), 0);
	assert_int_equal(ask_leaf("new.test", 443, &r), WIRE_FAILED);
	assert_int_equal(reload(), 1);
	assert_int_equal(say(CORE_MAIN, WIRE_STORE, 3, NULL, 0, &r), 0);
	assert_int_equal(say(CORE_MAIN, WIRE_COMMIT, 0, NULL, 0, &r), 0);
	assert_int_equal(ask_leaf("new.test", 443, &r), WIRE_LEAF_IS);
	/* A broken file changes nothing; one that is gone neither. */
	write_file(fx.config_file, "version: 1\npolicies: {a: {rules: [{alow: x}]}}\n");
	assert_int_equal(reload(), 0);
	assert_int_equal(say(CORE_MAIN, WIRE_COMMIT, 0, NULL, 0, &r), -1);
	assert_int_equal(unlink(fx.config_file), 0);
	assert_int_equal(reload(), -1);
	assert_int_equal(ask_leaf("new.test", 443, &r), WIRE_LEAF_IS);
	end();
}

static int set_up(void **state)
{
	(void)state;
	log_set_level(LOG_LEVEL_ERROR);
	(void)snprintf(fx.dir, sizeof(fx.dir), "/tmp/stile-core-XXXXXX");
	if (!mkdtemp(fx.dir))
		return -1;
	(void)snprintf(fx.secret, sizeof(fx.secret), "%s/secret", fx.dir);
	(void)snprintf(fx.other, sizeof(fx.other), "%s/other", fx.dir);
	(void)snprintf(fx.key, sizeof(fx.key), "%s/ca.key", fx.dir);
	(void)snprintf(fx.log, sizeof(fx.log), "%s/log", fx.dir);
	(void)snprintf(fx.config_file, sizeof(fx.config_file), "%s/stile.yaml", fx.dir);
	(void)snprintf(fx.value, sizeof(fx.value), "value-%ld-%ld", (long)getpid(), random());
	write_file(fx.secret, fx.value);
	write_file(fx.other, "another");
	write_file(fx.key, "a key");
	return 0;
}

static int tear_down(void **state)
{
	const char *all[] = {fx.secret, fx.other, fx.key, fx.log, fx.config_file};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		(void)unlink(all[i]);
	return rmdir(fx.dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_leaf_for_what_a_rule_admits),
		cmocka_unit_test(test_none_for_what_no_rule_admits),
		cmocka_unit_test(test_few_and_short_ones_where_refusals_are_explained),
		cmocka_unit_test(test_leaves_are_counted),
		cmocka_unit_test(test_what_no_proxy_sends),
		cmocka_unit_test(test_a_credential_that_a_rule_names_and_no_other),
		cmocka_unit_test(test_what_does_not_fit_is_sent_again),
		cmocka_unit_test(test_files_out_of_a_short_list),
		cmocka_unit_test(test_a_reload_counts_when_it_is_committed),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
