/*
 * AWS Signature Version 4: the published vectors, where they were fetched (STILE_SIGV4_VECTORS, or
 * build/clients/aws), and facts of our own: paths of S3 and of others, queries, fields, the cache
 * of keys, what is refused, and what one signature costs.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "logging/limits.h"
#include "proxy/credentials/profile.h"
#include "proxy/credentials/sigv4.h"
#include "proxy/credentials/signing.h"
#include "proxy/credentials/sts.h"

#define VECTOR_TIME 1440938160 /* 2015-08-30T12:36:00Z */
#define VECTOR_KEY  "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"

struct asked {
	struct url url;
	struct fields fields;
	struct sigv4_request r;
	struct strbuf mem;
	struct fields extra;
};

static struct sigv4 *signer;

static int setup(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(sigv4_new(&signer, &e), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sigv4_free(signer);
	signer = NULL;
	return 0;
}

static void ask_init(struct asked *a, const char *service, const char *target)
{
	struct err e = ERR_INIT;
	struct host host;
	uint16_t port;

	*a = (struct asked){0};
	assert_int_equal(url_parse_host_field(STR("example.amazonaws.com"), 443, &host, &port, &e),
			 0);
	if (url_parse_origin_form(SCHEME_HTTPS, &host, port, str_from_c(target), &a->url, &e) < 0)
		a->url.path = STR_NONE;
	strbuf_init(&a->mem, SIGV4_MAX_TEXT);
	a->r = (struct sigv4_request){
		.method = STR("GET"),
		.url = &a->url,
		.fields = &a->fields,
		.payload = STR(SIGV4_EMPTY_HASH),
		.who = {STR("AKIDEXAMPLE"), STR(VECTOR_KEY), STR_NONE},
		.region = STR("us-east-1"),
		.service = str_from_c(service),
		.now = VECTOR_TIME,
		.keep_canonical = true,
	};
}

static void ask_clear(struct asked *a)
{
	url_clear(&a->url);
	fields_clear(&a->fields);
	fields_clear(&a->extra);
	strbuf_wipe(&a->mem);
}

static const char *value_of(const struct asked *a, const char *name)
{
	static char text[4096];
	const struct field *f = fields_get(&a->extra, str_from_c(name));

	if (!f)
		return NULL;
	assert_true(f->value.n < sizeof(text));
	memcpy(text, f->value.p, f->value.n);
	text[f->value.n] = '\0';
	return text;
}

static void sign(struct asked *a)
{
	struct err e = ERR_INIT;

	fields_clear(&a->extra);
	strbuf_wipe(&a->mem);
	if (sigv4_sign(signer, &a->r, &a->mem, &a->extra, &e) < 0)
		fail_msg("%s", e.text);
}

/* The n-th line of the canonical request, from 0. */
static struct str line(size_t n)
{
	struct str rest = sigv4_last_canonical(signer), one = STR_NONE;

	for (size_t i = 0; i <= n; i++)
		one = str_split(&rest, '\n');
	return one;
}

#define assert_line(n, text)                                                                       \
	do {                                                                                       \
		struct str got_ = line(n);                                                         \
		if (!str_eq(got_, str_from_c(text)))                                               \
			fail_msg("line %zu: %.*s, not %s", (size_t)(n), STR_FMT(got_), text);      \
	} while (0)

/* ---- the published vectors ---- */

static char *slurp(const char *dir, const char *name, const char *ext)
{
	char path[1024];
	char *text;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "%s/%s/%s.%s", dir, name, name, ext);
	f = fopen(path, "r");
	if (!f)
		return NULL;
	text = calloc(1, 65536);
	assert_non_null(text);
	n = fread(text, 1, 65535, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

static void add_header(struct asked *a, struct str one)
{
	struct str value = one, name = str_split(&value, ':');

	value = str_trim_ows(value);
	if (!str_eq_nocase(name, STR("host")) && !str_eq_nocase(name, STR("x-amz-date")) &&
	    !str_eq_nocase(name, STR("x-amz-security-token")))
		assert_int_equal(fields_add(&a->fields, name, value), 0);
}

/* Bytes that stile writes otherwise, or not at all, sign otherwise: raw UTF-8 and blanks in a
 * target, dot segments, folded fields. */
static bool is_ours(const char *req, const struct asked *a)
{
	for (const char *p = req; *p; p++)
		if ((unsigned char)*p > 0x7e)
			return false;
	return a->url.path.n > 0 && !strstr(req, "\n ");
}

/* -1: not for us. */
static int try_vector(const char *dir, const char *name)
{
	char *req = slurp(dir, name, "req"), *creq = slurp(dir, name, "creq");
	char *authz = slurp(dir, name, "authz");
	char hash[SIGV4_HASH_HEX], target[1024];
	struct str rest, first;
	struct sigv4_hash *h;
	struct asked a;
	const char *space, *token;
	int rc = -1;

	if (!req || !creq || !authz)
		goto out;
	rest = str_from_c(req);
	first = str_split(&rest, '\n');
	space = memchr(first.p, ' ', first.n);
	assert_non_null(space);
	snprintf(target, sizeof(target), "%.*s",
		 (int)(first.p + first.n - space - 1 - strlen(" HTTP/1.1")), space + 1);
	ask_init(&a, "service", target);
	a.r.method = str_from(first.p, (size_t)(space - first.p));
	a.r.every_field = a.r.no_payload_field = true;
	token = strstr(creq, "\nx-amz-security-token:");
	if (token)
		a.r.who.token = str_head(str_from_c(token + strlen("\nx-amz-security-token:")),
					 strcspn(token + strlen("\nx-amz-security-token:"), "\n"));
	if (is_ours(req, &a)) {
		while (rest.p) {
			struct str one = str_split(&rest, '\n');

			if (one.n == 0)
				break;
			add_header(&a, one);
		}
		assert_int_equal(sigv4_hash_new(&h), 0);
		assert_int_equal(sigv4_hash_add(h, rest), 0);
		assert_int_equal(sigv4_hash_end(h, hash), 0);
		sigv4_hash_free(h);
		a.r.payload = str_from(hash, sizeof(hash));
		sign(&a);
		if (!str_eq(sigv4_last_canonical(signer), str_from_c(creq)))
			fail_msg("%s:\n%.*s\nnot\n%s", name, STR_FMT(sigv4_last_canonical(signer)),
				 creq);
		assert_string_equal(value_of(&a, "Authorization"), authz);
		rc = 0;
	}
	ask_clear(&a);
out:
	free(req);
	free(creq);
	free(authz);
	return rc;
}

static size_t try_folder(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *one;
	size_t n = 0;

	if (!d)
		return 0;
	while ((one = readdir(d))) {
		char sub[1024];

		if (one->d_name[0] == '.')
			continue;
		if (try_vector(dir, one->d_name) == 0)
			n++;
		/* post-sts-token and normalize-path hold vectors of their own. */
		snprintf(sub, sizeof(sub), "%s/%s", dir, one->d_name);
		n += strlen(dir) < 900 && strchr(one->d_name, '.') == NULL ? try_folder(sub) : 0;
	}
	closedir(d);
	return n;
}

static void published_vectors(void **state)
{
	const char *dir = getenv("STILE_SIGV4_VECTORS");
	struct stat st;

	(void)state;
	if (!dir)
		dir = "build/clients/aws/vectors";
	if (stat(dir, &st) != 0) {
		print_message("skipped: the published vectors were not fetched\n");
		skip();
	}
	assert_true(try_folder(dir) >= 25);
}

/* ---- facts ---- */

static void facts_of_paths(void **state)
{
	static const struct {
		const char *service, *target, *path;
	} facts[] = {
		{"s3", "/a/b", "/a/b"},
		{"s3", "/a//b/", "/a//b/"},
		{"s3", "/a=b+c:d@e!$&'()*,;", "/a%3Db%2Bc%3Ad%40e%21%24%26%27%28%29%2A%2C%3B"},
		{"s3", "/a%20b%2525", "/a%20b%2525"},
		{"s3", "/%E2%82%AC~-._", "/%E2%82%AC~-._"},
		{"dynamodb", "/a//b/", "/a/b/"},
		{"dynamodb", "///", "/"},
		{"lambda", "/2015/functions/arn%3Aaws%3Ax/a b", NULL},
		{"lambda", "/2015/functions/arn%3Aaws%3Ax", "/2015/functions/arn%253Aaws%253Ax"},
		{"lambda", "/f:x=1", "/f%3Ax%3D1"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(facts); i++) {
		struct asked a;

		ask_init(&a, facts[i].service, facts[i].target);
		if (facts[i].path) {
			sign(&a);
			assert_line(1, facts[i].path);
		} else {
			assert_int_equal(a.url.path.n, 0);
		}
		ask_clear(&a);
	}
}

static void facts_of_queries(void **state)
{
	static const struct {
		const char *target, *query;
	} facts[] = {
		{"/", ""},
		{"/?", ""},
		{"/?acl", "acl="},
		{"/?b=2&a=1&B=3", "B=3&a=1&b=2"},
		{"/?a=2&a=1&a", "a=&a=1&a=2"},
		{"/?a=b=c", "a=b%3Dc"},
		{"/?a=%7E%2f%c3", "a=~%2F%C3"},
		{"/?a=x+y&b=x%2By", "a=x%20y&b=x%2By"},
		{"/?a=[1]&c=\"{}\"", "a=%5B1%5D&c=%22%7B%7D%22"},
		{"/?&&a=1&", "a=1"},
		{"/?a-b=1&a=2", "a=2&a-b=1"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(facts); i++) {
		struct asked a;

		ask_init(&a, "s3", facts[i].target);
		sign(&a);
		assert_line(2, facts[i].query);
		ask_clear(&a);
	}
}

static void fields_that_matter_are_signed(void **state)
{
	struct asked a;

	(void)state;
	ask_init(&a, "s3", "/");
	assert_int_equal(fields_add(&a.fields, STR("X-Amz-Meta-B"), STR(" a   b  c ")), 0);
	assert_int_equal(fields_add(&a.fields, STR("User-Agent"), STR("x")), 0);
	assert_int_equal(fields_add(&a.fields, STR("Content-Type"), STR("text/plain")), 0);
	assert_int_equal(fields_add(&a.fields, STR("X-Amzn-Trace-Id"), STR("x")), 0);
	assert_int_equal(fields_add(&a.fields, STR("x-amz-acl"), STR("private")), 0);
	a.r.who.token = STR("TOKEN");
	sign(&a);
	assert_line(3, "content-type:text/plain");
	assert_line(4, "host:example.amazonaws.com");
	assert_line(5, "x-amz-acl:private");
	assert_line(6, "x-amz-content-sha256:" SIGV4_EMPTY_HASH);
	assert_line(7, "x-amz-date:20150830T123600Z");
	assert_line(8, "x-amz-meta-b:a b c");
	assert_line(9, "x-amz-security-token:TOKEN");
	assert_line(11, "content-type;host;x-amz-acl;x-amz-content-sha256;x-amz-date;x-amz-meta-b;"
			"x-amz-security-token");
	assert_string_equal(value_of(&a, "X-Amz-Security-Token"), "TOKEN");
	assert_string_equal(value_of(&a, "X-Amz-Date"), "20150830T123600Z");
	assert_non_null(strstr(value_of(&a, "Authorization"), "Credential=AKIDEXAMPLE/20150830/us-"
							      "east-1/s3/aws4_request, Signed"));
	ask_clear(&a);
}

/* The same request gives the same signature from a cache that has seen other keys, days and
 * services, many more than it keeps, as from a fresh one. */
static void the_cache_never_answers_for_another(void **state)
{
	struct sigv4 *kept = signer;
	struct asked a;

	(void)state;
	ask_init(&a, "s3", "/");
	for (unsigned i = 0; i < 400; i++) {
		char key[41], region[24], first[1024];

		snprintf(key, sizeof(key), "%040u", i % 7);
		snprintf(region, sizeof(region), "region-%u", i % 5);
		a.r.who.key = str_from_c(key);
		a.r.region = str_from_c(region);
		a.r.service = i % 3 ? STR("s3") : STR("sqs");
		a.r.now = VECTOR_TIME + (time_t)(i / 100) * 86400;
		signer = kept;
		sign(&a);
		snprintf(first, sizeof(first), "%s", value_of(&a, "Authorization"));
		assert_int_equal(sigv4_new(&signer, NULL), 0);
		sign(&a);
		assert_string_equal(value_of(&a, "Authorization"), first);
		sigv4_free(signer);
	}
	signer = kept;
	ask_clear(&a);
}

static void too_many_parts_of_a_query(void **state)
{
	char target[LIMIT_TARGET_BYTES];
	struct err e = ERR_INIT;
	struct asked a;
	size_t n = 2;

	(void)state;
	memcpy(target, "/?", 3);
	for (size_t i = 0; i < LIMIT_SIGV4_QUERY_PAIRS + 1; i++, n += 2)
		memcpy(target + n, "a&", 3);
	ask_init(&a, "s3", target);
	assert_int_equal(sigv4_sign(signer, &a.r, &a.mem, &a.extra, &e), -1);
	assert_int_equal(e.reason, REASON_UNSIGNABLE);
	assert_int_equal(a.extra.n, 0);
	ask_clear(&a);
}

static void parts_of_a_secret(void **state)
{
	static const char *const bad[] = {"",	     "AKID",	    "AKID ",	    " key",
					  "AKID  t", "AKID key ",   "AKID key a b", "A/K key",
					  "A,K key", "AKID k\xc3y", "A=K key t"};
	struct sigv4_parts p;
	struct secret *s;

	(void)state;
	assert_int_equal(sigv4_read_parts(STR("AKID ab/+="), &p, NULL), 0);
	assert_true(str_eq(p.key, STR("ab/+=")) && p.token.n == 0);
	assert_int_equal(sigv4_read_parts(STR("AKID key tok/en=="), &p, NULL), 0);
	assert_true(str_eq(p.token, STR("tok/en==")));
	assert_int_equal(sigv4_join_parts(&p, &s, NULL), 0);
	assert_true(str_eq(secret_value(s), STR("AKID key tok/en==")));
	secret_unref(s);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (sigv4_read_parts(str_from_c(bad[i]), &p, NULL) == 0)
			fail_msg("`%s` was read", bad[i]);
}

/* ---- what a client's request may be ---- */

struct made {
	struct request r;
	struct config_credential c;
	struct secret *s;
};

static void make(struct made *m, const char *service, const char *target, bool unsign)
{
	struct sigv4_parts who = {STR("AKID"), STR("key"), STR_NONE};
	struct host host;
	uint16_t port;

	*m = (struct made){0};
	request_init(&m->r);
	assert_int_equal(url_parse_host_field(STR("s3.test"), 443, &host, &port, NULL), 0);
	assert_int_equal(url_parse_origin_form(SCHEME_HTTPS, &host, port, str_from_c(target),
					       &m->r.url, NULL),
			 0);
	m->r.method = STR("PUT");
	m->r.body = BODY_LENGTH;
	m->r.length = 5;
	m->c = (struct config_credential){.name = (char *)(uintptr_t) "c",
					  .service = (char *)(uintptr_t)service,
					  .region = (char *)(uintptr_t) "r",
					  .as = CREDENTIAL_AS_SIGV4,
					  .payload_unsigned = unsign};
	assert_int_equal(sigv4_join_parts(&who, &m->s, NULL), 0);
}

static void made_clear(struct made *m)
{
	request_clear(&m->r);
	secret_unref(m->s);
}

#define HELLO_HASH "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

static void what_stands_for_the_body(void **state)
{
	static const struct {
		const char *said;
		bool unsign;
		enum reason refused;
		bool held;
		const char *sent; /* NULL: that of the body */
	} facts[] = {
		{NULL, false, 0, true, NULL},
		{NULL, true, 0, false, "UNSIGNED-PAYLOAD"},
		{"UNSIGNED-PAYLOAD", false, 0, true, NULL},
		{HELLO_HASH, false, 0, false, HELLO_HASH},
		{"2CF24DBA5FB0A30E26E83B2AC5B9E29E1B161E5C1FA7425E73043362938B9824", false, 0,
		 false, HELLO_HASH},
		{HELLO_HASH, true, 0, false, "UNSIGNED-PAYLOAD"},
		{"STREAMING-UNSIGNED-PAYLOAD-TRAILER", true, 0, false,
		 "STREAMING-UNSIGNED-PAYLOAD-TRAILER"},
		{"STREAMING-UNSIGNED-PAYLOAD-TRAILER", false, REASON_UNSIGNABLE, false, NULL},
		{"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", true, REASON_UNSIGNABLE, false, NULL},
		{"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", true, REASON_UNSIGNABLE, false,
		 NULL},
		{"streaming-aws4-ecdsa-p256-sha256-payload", false, REASON_UNSIGNABLE, false, NULL},
		{"0", true, REASON_UNSIGNABLE, false, NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(facts); i++) {
		struct signing *g = NULL;
		struct err e = ERR_INIT;
		struct injection inj;
		struct made m;

		make(&m, "s3", "/b/k", facts[i].unsign);
		if (facts[i].said)
			assert_int_equal(fields_add(&m.r.fields, STR("X-Amz-Content-SHA256"),
						    str_from_c(facts[i].said)),
					 0);
		if (facts[i].refused) {
			assert_int_equal(signing_new(&m.c, m.s, &m.r, &g, &e), -1);
			assert_int_equal(e.reason, facts[i].refused);
			made_clear(&m);
			continue;
		}
		assert_int_equal(signing_new(&m.c, m.s, &m.r, &g, &e), 0);
		fields_clear(&m.r.fields);
		assert_int_equal(signing_holds_body(g), facts[i].held);
		if (facts[i].held) {
			assert_int_equal(signing_hold(g, STR("hel"), &e), 0);
			assert_int_equal(signing_hold(g, STR("lo"), &e), 0);
			assert_int_equal(signing_hold_end(g, &e), 0);
			assert_true(str_eq(signing_held(g), STR("hello")));
		}
		injection_init(&inj);
		assert_int_equal(signing_sign(g, signer, &m.r, VECTOR_TIME, &inj, &e), 0);
		assert_true(str_eq(fields_get(&inj.extra, STR("X-Amz-Content-Sha256"))->value,
				   str_from_c(facts[i].sent ? facts[i].sent : HELLO_HASH)));
		injection_clear(&inj);
		signing_free(g);
		made_clear(&m);
	}
}

static void a_body_that_is_not_what_was_declared(void **state)
{
	static const struct {
		const char *parts[3];
		bool chunked;
		int at; /* of the part that must not go; -1: none */
	} facts[] = {
		{{"hel", "lo", NULL}, false, -1},   {{"hel", "lo", NULL}, true, -1},
		{{"hello", NULL, NULL}, false, -1}, {{"hel", "la", NULL}, false, 1},
		{{"hella", NULL, NULL}, false, 0},  {{"hel", "la", NULL}, true, 2},
		{{"hel", NULL, NULL}, true, 1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(facts); i++) {
		struct signing *g = NULL;
		struct err e = ERR_INIT;
		struct made m;
		size_t n = 0;
		int at = -1, k;

		make(&m, "s3", "/b/k", false);
		assert_int_equal(fields_add(&m.r.fields, STR("x-amz-content-sha256"),
					    STR(HELLO_HASH)),
				 0);
		assert_int_equal(signing_new(&m.c, m.s, &m.r, &g, &e), 0);
		for (k = 0; facts[i].parts[k] && at < 0; k++) {
			n += strlen(facts[i].parts[k]);
			if (signing_check(g, str_from_c(facts[i].parts[k]),
					  !facts[i].chunked && n == 5, &e) < 0)
				at = k;
		}
		if (at < 0 && signing_check(g, STR_NONE, true, &e) < 0)
			at = k;
		assert_int_equal(at, facts[i].at);
		if (at >= 0)
			assert_int_equal(e.reason, REASON_MALFORMED_REQUEST);
		signing_free(g);
		made_clear(&m);
	}
}

static void requests_that_are_not_signed(void **state)
{
	static const struct {
		const char *service, *target, *name, *value, *again;
		enum reason why;
	} facts[] = {
		{"s3", "/b/a%2Fb", NULL, NULL, NULL, REASON_UNSIGNABLE},
		{"lambda", "/b/a%2Fb", NULL, NULL, NULL, REASON_NONE},
		{"s3", "/b/a%252Fb", NULL, NULL, NULL, REASON_NONE},
		{"s3", "/b", "X-Amz-Acl", "private", "x-amz-acl", REASON_UNSIGNABLE},
		{"s3", "/b", "Content-Type", "a/b", "content-type", REASON_UNSIGNABLE},
		{"s3", "/b", "X-Amz-Content-Sha256", HELLO_HASH, "x-amz-content-sha256",
		 REASON_UNSIGNABLE},
		{"s3", "/b", "X-Other", "a", "x-other", REASON_NONE},
		{"s3", "/b", "X_Amz-Acl", "private", NULL, REASON_UNSIGNABLE},
		{"s3", "/b", "x_amz_target", "t", NULL, REASON_UNSIGNABLE},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(facts); i++) {
		struct signing *g = NULL;
		struct err e = ERR_INIT;
		struct made m;

		make(&m, facts[i].service, facts[i].target, true);
		if (facts[i].name)
			assert_int_equal(fields_add(&m.r.fields, str_from_c(facts[i].name),
						    str_from_c(facts[i].value)),
					 0);
		if (facts[i].again)
			assert_int_equal(fields_add(&m.r.fields, str_from_c(facts[i].again),
						    str_from_c(facts[i].value)),
					 0);
		(void)!signing_new(&m.c, m.s, &m.r, &g, &e);
		assert_int_equal(e.reason, facts[i].why);
		signing_free(g);
		made_clear(&m);
	}
}

static void bodies_that_are_too_large(void **state)
{
	struct signing *g = NULL;
	struct err e = ERR_INIT;
	struct made m;
	char *block = calloc(1, LIMIT_SIGV4_BODY);

	(void)state;
	assert_non_null(block);
	make(&m, "dynamodb", "/", false);
	m.r.length = LIMIT_SIGV4_BODY + 1;
	assert_int_equal(signing_new(&m.c, m.s, &m.r, &g, &e), -1);
	assert_int_equal(e.reason, REASON_BODY_TOO_LARGE);
	e = ERR_INIT;
	m.r.body = BODY_CHUNKED;
	assert_int_equal(signing_new(&m.c, m.s, &m.r, &g, &e), 0);
	assert_int_equal(signing_hold(g, str_from(block, LIMIT_SIGV4_BODY), &e), 0);
	assert_int_equal(signing_hold(g, STR("x"), &e), -1);
	assert_int_equal(e.reason, REASON_BODY_TOO_LARGE);
	signing_free(g);
	made_clear(&m);
	free(block);
}

/* ---- where keys are read from ---- */

static void profiles(void **state)
{
	static const char text[] =
		"# comment\r\n[default]\naws_access_key_id = AKIDA\naws_secret_access_key=a/b+c=\n"
		"region = x\n\n[ two ]\n; comment\nAWS_ACCESS_KEY_ID=AKIDB\n"
		"aws_secret_access_key = two\ns3 =\n  max_concurrent_requests = 20\n"
		"aws_session_token = tok==\n[twice]\naws_access_key_id=a\naws_access_key_id=b\n"
		"[half]\naws_access_key_id=a\n[last]\naws_access_key_id=L\naws_secret_access_key=k";
	struct err e = ERR_INIT;
	struct sigv4_parts p;

	(void)state;
	assert_int_equal(profile_read(STR(text), STR("default"), &p, &e), 0);
	assert_true(str_eq(p.key, STR("a/b+c=")) && p.token.n == 0);
	assert_int_equal(profile_read(STR(text), STR("two"), &p, &e), 0);
	assert_true(str_eq(p.id, STR("AKIDB")) && str_eq(p.token, STR("tok==")));
	assert_int_equal(profile_read(STR(text), STR("last"), &p, &e), 0);
	assert_true(str_eq(p.key, STR("k")));
	assert_int_equal(profile_read(STR(text), STR("twice"), &p, &e), -1);
	assert_int_equal(profile_read(STR(text), STR("half"), &p, &e), -1);
	assert_int_equal(profile_read(STR(text), STR("none"), &p, &e), -1);
	assert_int_equal(profile_read(STR("[a\nx=1"), STR("a"), &p, &e), -1);
	assert_int_equal(profile_read(STR("[a]\nx"), STR("a"), &p, &e), -1);
	assert_int_equal(profile_read(STR("[a]\nx=1\n[a]"), STR("a"), &p, &e), -1);
	assert_int_equal(profile_read(STR("["), STR("a"), &p, &e), -1);
	assert_int_equal(profile_read(STR(""), STR("a"), &p, &e), -1);
}

#define STS_OPEN "<R xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Result><Credentials>"
#define STS_KEYS                                                                                   \
	"<AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>a/b&#43;</SecretAccessKey>"              \
	"<SessionToken>t&amp;==</SessionToken>"
#define STS_CLOSE "</Credentials></Result></R>"

static void answers_of_the_token_service(void **state)
{
	static const char *const bad[] = {
		"",
		"x",
		"<a/>",
		STS_OPEN STS_CLOSE,
		STS_OPEN STS_KEYS,
		STS_OPEN STS_KEYS STS_KEYS STS_CLOSE,
		STS_OPEN STS_KEYS "<Expiration>soon</Expiration>" STS_CLOSE,
		"<!DOCTYPE R>" STS_OPEN STS_KEYS STS_CLOSE,
		"<!DOCTYPE R [<!ENTITY a \"b\">]>" STS_OPEN STS_KEYS STS_CLOSE,
		STS_OPEN "<AccessKeyId><x/>ASIA1</AccessKeyId>" STS_CLOSE,
		"<R>" STS_KEYS "</R>",
		"<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>",
	};
	struct secret *s = NULL;
	struct err e = ERR_INIT;
	char many[16384];
	int64_t life = 0;
	size_t n;

	(void)state;
	assert_int_equal(sts_read(STR(STS_OPEN STS_KEYS
				      "<Expiration>2099-01-01T00:00:00Z</Expiration>" STS_CLOSE),
				  &s, &life, &e),
			 0);
	assert_true(str_eq(secret_value(s), STR("ASIA1 a/b+ t&==")) && life > 0);
	secret_unref(s);
	assert_int_equal(sts_read(STR(STS_OPEN STS_KEYS
				      "<Expiration>2001-01-01T00:00:00Z</Expiration>" STS_CLOSE),
				  &s, &life, &e),
			 0);
	assert_true(life < 0);
	secret_unref(s);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (sts_read(str_from_c(bad[i]), &s, &life, &e) == 0)
			fail_msg("read: %s", bad[i]);
	n = (size_t)snprintf(many, sizeof(many), "<a>");
	for (size_t i = 0; i < LIMIT_XML_ELEMENTS + 1; i++)
		n += (size_t)snprintf(many + n, sizeof(many) - n, "<b/>");
	n += (size_t)snprintf(many + n, sizeof(many) - n, "</a>");
	assert_int_equal(sts_read(str_from(many, n), &s, &life, &e), -1);
	(void)sts_read_error(STR("<E><Error><Code>AccessDenied</Code></Error></E>"), 403, &e);
	assert_string_equal(e.text, "its endpoint answers 403 AccessDenied");
	(void)sts_read_error(STR("<E><Error><Code>a b</Code></Error></E>"), 403, &e);
	assert_string_equal(e.text, "its endpoint answers 403");
}

/* ---- what it costs ---- */

static void what_a_signature_costs(void **state)
{
	const unsigned rounds = 20000;
	struct timespec a_t, b_t;
	struct asked a;

	(void)state;
	ask_init(&a, "s3", "/bucket/some/key/of/usual/length.parquet?partNumber=3&uploadId=abcdef");
	a.r.who.token = STR("IQoJb3JpZ2luX2VjEHAaDGV1LWNlbnRyYWwtMSJHMEUCIQDtoken0123456789abcdef");
	assert_int_equal(fields_add(&a.fields, STR("Content-Type"), STR("binary/octet-stream")), 0);
	assert_int_equal(fields_add(&a.fields, STR("x-amz-sdk-checksum-algorithm"), STR("CRC32")),
			 0);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a_t);
	for (unsigned i = 0; i < rounds; i++)
		sign(&a);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b_t);
	print_message("one signature: %ld ns\n",
		      ((b_t.tv_sec - a_t.tv_sec) * 1000000000L + b_t.tv_nsec - a_t.tv_nsec) /
			      (long)rounds);
	ask_clear(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_vectors),
		cmocka_unit_test(facts_of_paths),
		cmocka_unit_test(facts_of_queries),
		cmocka_unit_test(fields_that_matter_are_signed),
		cmocka_unit_test(the_cache_never_answers_for_another),
		cmocka_unit_test(too_many_parts_of_a_query),
		cmocka_unit_test(parts_of_a_secret),
		cmocka_unit_test(what_stands_for_the_body),
		cmocka_unit_test(a_body_that_is_not_what_was_declared),
		cmocka_unit_test(requests_that_are_not_signed),
		cmocka_unit_test(bodies_that_are_too_large),
		cmocka_unit_test(profiles),
		cmocka_unit_test(answers_of_the_token_service),
		cmocka_unit_test(what_a_signature_costs),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
