/*
 * The scenarios of leaks.c, a layer after the other. Fail closed is no success: what a decision
 * refuses that it would allow counts as told, what it allows that it would refuse is another
 * result.
 */
#include "tests/torture/leaks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "certs/leaf_cache.h"
#include "certs/root_lookup.h"
#include "certs/roots.h"
#include "certs/session_cache.h"
#include "certs/signer.h"
#include "certs/trust.h"
#include "certs/truststore.h"
#include "logging/writer.h"
#include "policy/config.h"
#include "policy/pattern.h"
#include "policy/policy.h"
#include "policy/url.h"
#include "proxy/credentials/inject.h"
#include "proxy/credentials/store.h"

/* ---- files ---- */

static char folder[64];

static const char *in_folder(char *buf, size_t n, const char *name)
{
	snprintf(buf, n, "%s/%s", folder, name);
	return buf;
}

static void put(const char *name, const char *text, mode_t mode)
{
	char path[256];
	int fd = open(in_folder(path, sizeof(path), name), O_WRONLY | O_CREAT | O_TRUNC, mode);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		abort();
	close(fd);
}

static void empty(const char *name)
{
	char path[512];
	DIR *d = opendir(in_folder(path, sizeof(path), name));
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			(void)unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	(void)rmdir(path);
}

static void clean_up(void)
{
	static const char *const names[] = {"roots.pem", "secret", "log", "log.1", "log.2"};
	char path[256];

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		(void)unlink(in_folder(path, sizeof(path), names[i]));
	empty("ca");
	(void)rmdir(folder);
}

static pid_t owner;

static void at_exit(void)
{
	if (getpid() == owner)
		clean_up();
}

/* Before anything fails: the folder, and in it what the scenarios read. */
__attribute__((constructor)) static void prepare(void)
{
	struct strbuf pem;
	struct ca *ca;
	struct err e = ERR_INIT;

	owner = getpid();
	strcpy(folder, "/tmp/stile-leaks-XXXXXX");
	if (!mkdtemp(folder) || setenv("STILE_LEAKS_SECRET", "from-the-environment", 1) < 0)
		abort();
	atexit(at_exit);
	put("secret", "s3cret-of-a-file\n", 0600);
	strbuf_init(&pem, 1 << 20);
	for (int i = 0; i < 3; i++) {
		if (ca_new_memory(30, &ca, &e) < 0 || ca_add_pem(ca, &pem, &e) < 0)
			abort();
		ca_unref(ca);
	}
	put("roots.pem", strbuf_cstr(&pem), 0600);
	strbuf_clear(&pem);
}

/* ---- policy ---- */

static const char *const asked[] = {
	"https://api.github.com/repos/acme/site/issues",
	"https://docs.example.com/",
	"https://docs.example.com/simple/x",
	"https://evil.example/x%2fy",
	"http://mirror.example.com/pool/a",
	"https://api.anthropic.com/v1/messages",
};

/* -1: something is refused that would be allowed. */
static int decide(const struct policy *p, const char *text, FILE *out)
{
	struct url u;
	struct err e = ERR_INIT;
	struct policy_request q;
	struct policy_decision d;
	struct policy_connect m;
	bool was;

	if (url_parse_asked(str_from_c(text), &u, &e) < 0) {
		url_clear(&u);
		return -1;
	}
	q = policy_request_for(&u, STR("GET"));
	policy_decide(p, &q, &d);
	policy_decide_connect(p, &u.host, u.port, &m);
	was = leaks_pause();
	fprintf(out, "%s %s: %d %d %d\n", policy_name(p), text, d.allow, m.allow,
		policy_admits_name(p, &u.host));
	leaks_resume(was);
	url_clear(&u);
	/* A refusal for want of memory has the reason of a deny. */
	return d.reason == REASON_DENIED_BY_RULE ? -1 : 0;
}

static int decide_all(const struct config *c, FILE *out)
{
	int rc = 0;

	for (size_t i = 0; i < c->policies_n; i++)
		for (size_t k = 0; k < ARRAY_LEN(asked); k++)
			if (decide(c->policies[i], asked[k], out) < 0)
				rc = -1;
	return rc;
}

/* What the caller hears of a configuration that could not be read. */
static int load(const char *path, struct config **ret, struct faults *f)
{
	int rc;

	faults_init(f, path);
	rc = config_load_file(path, ret, f);
	if (rc < 0 && f->errors == 0) {
		fprintf(stderr, "it is refused, and no fault says why\n");
		abort();
	}
	return rc;
}

/* A load, and a reload while the first one's policies are still held. */
static int load_twice(const char *path, FILE *out)
{
	struct config *a = NULL, *b = NULL;
	struct policy *held = NULL;
	struct faults f, g;
	int rc = load(path, &a, &f);

	faults_clear(&f);
	if (rc < 0)
		return -1;
	held = policy_ref(a->policies[0]);
	rc = load(path, &b, &g);
	faults_clear(&g);
	if (rc == 0)
		rc = decide_all(b, out);
	config_unref(a);
	if (rc == 0)
		rc = decide(held, asked[0], out);
	policy_unref(held);
	config_unref(b);
	return rc;
}

#define EXAMPLE(id, name)                                                                          \
	static int example_##id(FILE *out)                                                         \
	{                                                                                          \
		return load_twice("proxy/examples/" name, out);                                    \
	}
EXAMPLE(agent, "agent.yaml")
EXAMPLE(behind_a_proxy, "behind-a-proxy.yaml")
EXAMPLE(ci, "ci.yaml")
EXAMPLE(database, "database.yaml")
EXAMPLE(passthrough, "passthrough.yaml")

/* Everything wrong at once: all faults are told, or that memory is out. */
static int broken(FILE *out)
{
	static const char text[] = "version: 2\nlisten: [{prxy: 1}]\nlog: &a {to: *a}\nuser: yes\n"
				   "policies:\n  default:\n    rules:\n      - allow: https://*.x\n"
				   "      - allow: .example.com\n        metods: [GET]\n";
	struct config *c = NULL;
	struct faults f;
	struct strbuf said;
	int rc;

	faults_init(&f, "x.yaml");
	rc = config_load_text("x.yaml", str_from_c(text), &c, &f);
	if (rc == 0 || f.errors == 0)
		abort();
	strbuf_init(&said, 65536);
	faults_print(&f, &said);
	rc = strstr(strbuf_cstr(&said), "memory") || strstr(strbuf_cstr(&said), "not to be had") ||
			     said.overflowed || !f.file
		     ? -1
		     : 0;
	fwrite(strbuf_cstr(&said), 1, said.len, out);
	strbuf_clear(&said);
	faults_clear(&f);
	return rc;
}

static int with_allows(FILE *out)
{
	static const char *const targets[] = {"docs.example.com",
					      "http://mirror.example.com/pool/**"};
	struct config *c = NULL, *more = NULL;
	struct faults f, g;
	int rc = load("proxy/examples/agent.yaml", &c, &f);

	faults_clear(&f);
	if (rc < 0)
		return -1;
	faults_init(&g, "--allow");
	rc = config_with_allows(c, NULL, targets, ARRAY_LEN(targets), &more, &g);
	if (rc < 0 && g.errors == 0)
		abort();
	faults_clear(&g);
	if (rc == 0)
		rc = decide_all(more, out);
	config_unref(more);
	config_unref(c);
	return rc;
}

static int urls(FILE *out)
{
	static const char *const texts[] = {
		"http://Example.com:80/a%7eb/../c?x=%41",
		"http://example.com/%7Euser/x?token=1",
		"http://[2001:DB8::1]:8080/x%2fy",
		"http://a.b/very/long/path/with/many/segments/in/it/that/goes/on?and=a&query=too",
	};
	struct strbuf b;
	int rc = 0;

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct url u;
		struct err e = ERR_INIT;

		if (url_parse_absolute(str_from_c(texts[i]), &u, &e) < 0) {
			rc = e.reason == REASON_AMBIGUOUS_URL ? rc : -1;
			fprintf(out, "%s\n", e.reason == REASON_AMBIGUOUS_URL ? "ambiguous" : "-");
		} else {
			strbuf_init(&b, 4096);
			url_add(&u, &b);
			rc = b.overflowed ? -1 : rc;
			fprintf(out, "%s\n", strbuf_cstr(&b));
			strbuf_clear(&b);
		}
		url_clear(&u);
	}
	return rc;
}

static int patterns(FILE *out)
{
	static const char *const texts[] = {"/a/**", "/a/*/c", "/**/x*y/**", "/"};
	static const char *const paths[] = {"/a/b/c", "/q/xay/z", "/A//b%2Fc;x=1", "/"};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct pattern *p = NULL;
		struct err e = ERR_INIT;

		if (pattern_compile(str_from_c(texts[i]), &p, &e) < 0)
			return -1;
		for (size_t k = 0; k < ARRAY_LEN(paths); k++) {
			struct pattern_forms *f = pattern_forms_new(str_from_c(paths[k]));

			/* Without its forms a deny matches: closed. */
			rc = f ? rc : -1;
			if (!f && !pattern_match_forms(p, f))
				abort();
			if (f && pattern_match_forms(p, f) !=
					 pattern_match_broad(p, str_from_c(paths[k])))
				rc = -1;
			fprintf(out, "%d", pattern_match(p, str_from_c(paths[k])));
			pattern_forms_free(f);
		}
		pattern_free(p);
	}
	return rc;
}

/* ---- certificates ---- */

struct made {
	struct leaf *leaf;
	bool called;
};

static void on_leaf(void *arg, struct leaf *leaf, const struct err *e)
{
	struct made *m = arg;

	if (m->called || (!leaf && e->reason == REASON_NONE && e->text[0] == '\0'))
		abort();
	m->called = true;
	m->leaf = leaf;
}

static int one_leaf(struct signer *s, const char *host, FILE *out)
{
	struct leaf_name name = {.text = str_from_c(host)};
	struct made m = {0};
	SSL *ssl = NULL;
	struct err e = ERR_INIT;
	int rc;
	bool was;

	signer_get(s, &name, on_leaf, &m);
	if (!m.called)
		abort();
	if (!m.leaf)
		return -1;
	was = leaks_pause();
	fprintf(out, "%s %d %d\n", host, X509_check_host(leaf_cert(m.leaf), host, 0, 0, NULL),
		X509_get_ext_count(leaf_cert(m.leaf)));
	leaks_resume(was);
	rc = signer_server_new(s, m.leaf, STR("\2h2\10http/1.1"), &ssl, &e);
	if (rc == 0)
		SSL_free(ssl);
	leaf_unref(m.leaf);
	return rc;
}

static int leaves(FILE *out)
{
	struct ca *ca = NULL;
	struct signer *s = NULL;
	struct err e = ERR_INIT;
	int rc = ca_new_memory(30, &ca, &e);

	if (rc == 0)
		rc = signer_new(ca, 2, &s, &e);
	for (int i = 0; rc == 0 && i < 4; i++)
		rc = one_leaf(s,
			      i == 0   ? "a.test"
			      : i == 1 ? "b.test"
			      : i == 2 ? "a.test"
				       : "c.test",
			      out);
	signer_free(s);
	ca_unref(ca);
	return rc;
}

/* Whatever failed, what is left in the folder can be used, or is said to be of no use. */
static int ca_on_disk(FILE *out)
{
	struct ca *ca = NULL;
	struct err e = ERR_INIT;
	char path[256];
	bool was = leaks_pause();
	int rc;

	in_folder(path, sizeof(path), "ca");
	empty("ca");
	leaks_resume(was);
	rc = ca_load_or_create(path, &ca, &e);
	ca_unref(ca);
	ca = NULL;
	if (rc == 0) {
		rc = ca_load(path, &ca, &e);
		ca_unref(ca);
		ca = NULL;
	}
	if (rc == 0) {
		rc = ca_rotate(path, &ca, &e);
		ca_unref(ca);
		ca = NULL;
	}
	was = leaks_pause();
	if (ca_load_or_create(path, &ca, &e) < 0) {
		fprintf(stderr, "afterwards: %s\n", e.text);
		abort();
	}
	fprintf(out, "%d", ca_cert(ca) != NULL);
	ca_unref(ca);
	leaks_resume(was);
	return rc;
}

/* How many roots are trusted: fewer than the file has would refuse origins for no reason told. */
static int trusts(FILE *out)
{
	char path[256];
	char *sources[] = {path};
	struct trust *t = NULL;
	SSL *ssl = NULL;
	struct err e = ERR_INIT;
	int rc;
	bool was;

	in_folder(path, sizeof(path), "roots.pem");
	rc = trust_new(sources, 1, &t, &e);
	if (rc == 0)
		rc = trust_client_new(t, "a.test", NULL, 0, STR("\2h2\10http/1.1"), STR("key"),
				      &ssl, &e);
	if (rc == 0) {
		was = leaks_pause();
		fprintf(out, "%d",
			sk_X509_OBJECT_num(X509_STORE_get0_objects(
				SSL_CTX_get_cert_store(SSL_get_SSL_CTX(ssl)))));
		SSL_free(ssl);
		leaks_resume(was);
	}
	trust_unref(t);
	return rc;
}

static int count_found(struct str der, void *arg, struct err *e)
{
	const unsigned char *at = (const unsigned char *)der.p;
	X509 *x = d2i_X509(NULL, &at, (long)der.n);
	X509_STORE_CTX *ctx = arg;
	X509_OBJECT *found = X509_OBJECT_new();
	int rc = X509_STORE_CTX_get_by_subject(ctx, X509_LU_X509, X509_get_subject_name(x), found);

	X509_OBJECT_free(found);
	X509_free(x);
	return rc == 1 ? 0 : err_set(e, "a root is missing");
}

/* The same of roots that are looked up by name: all, or it is told. */
static int looks_up(FILE *out)
{
	char path[256];
	bool was = leaks_pause();
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	struct strbuf pem;
	struct err e = ERR_INIT;
	int rc;

	strbuf_init(&pem, 1 << 20);
	if (roots_add_file(in_folder(path, sizeof(path), "roots.pem"), &pem, &e) < 0 ||
	    X509_STORE_CTX_init(ctx, store, NULL, NULL) != 1)
		abort();
	leaks_resume(was);
	rc = root_lookup_add(store, strbuf_str(&pem), &e);
	was = leaks_pause();
	if (rc == 0)
		fprintf(out, "%d", roots_each(strbuf_str(&pem), count_found, ctx, &e));
	X509_STORE_CTX_free(ctx);
	X509_STORE_free(store);
	strbuf_clear(&pem);
	leaks_resume(was);
	return rc;
}

static int bundles(FILE *out)
{
	char path[256];
	struct strbuf pem, store;
	struct err e = ERR_INIT;
	int rc;
	size_t n = 0;

	strbuf_init(&pem, 1 << 20);
	strbuf_init(&store, 1 << 20);
	rc = roots_add_file(in_folder(path, sizeof(path), "roots.pem"), &pem, &e);
	if (rc == 0)
		rc = truststore_add(strbuf_str(&pem), STR_NONE, &store, &e);
	if (rc == 0) {
		for (const char *p = strbuf_cstr(&pem); (p = strstr(p, "BEGIN CERT")); p++)
			n++;
		/* Signatures differ by a byte or two from run to run. */
		fprintf(out, "%zu %zu", n, (store.len + 255) / 512);
	}
	strbuf_clear(&pem);
	strbuf_clear(&store);
	return rc;
}

static int sessions(FILE *out)
{
	struct session_cache *c = NULL;
	struct err e = ERR_INIT;
	bool was;
	size_t n;

	if (session_cache_new(2, &c, &e) < 0)
		return -1;
	for (int i = 0; i < 4; i++) {
		char key[2] = {(char)('a' + i), 0};
		SSL_SESSION *s;

		was = leaks_pause();
		s = SSL_SESSION_new();
		leaks_resume(was);
		session_cache_put(c, str_from_c(key), s);
	}
	SSL_SESSION_free(session_cache_take(c, STR("d")));
	n = session_cache_count(c);
	session_cache_free(c);
	fprintf(out, "%zu", n);
	return n == 1 ? 0 : -1; /* one that is not kept costs a handshake */
}

/* ---- credentials ---- */

static int one_credential(struct credential_store *s, const struct config_credential *cred,
			  FILE *out)
{
	struct secret *v = NULL;
	struct strbuf b;
	struct err e = ERR_INIT;
	int rc = credential_get(s, cred->name, STR_NONE, &v, &e);

	if (rc < 0)
		return e.reason == REASON_CREDENTIAL_UNAVAILABLE ? -1 : (abort(), -1);
	strbuf_init(&b, 4096);
	rc = credential_add_value(cred, v, &b, &e);
	if (rc == 0)
		fprintf(out, "%s\n", strbuf_cstr(&b));
	strbuf_clear(&b);
	secret_unref(v);
	return rc;
}

static int credentials(FILE *out)
{
	static struct config_credential creds[2];
	static struct config c;
	static char file_name[] = "file", env_name[] = "env", env[] = "STILE_LEAKS_SECRET",
		    user[] = "u";
	static char path[256];
	static bool captured;
	struct credential_store *s = NULL;
	struct err e = ERR_INIT;
	bool was;
	int rc;

	in_folder(path, sizeof(path), "secret");
	creds[0] = (struct config_credential){.name = file_name,
					      .from = path,
					      .source = CREDENTIAL_FROM_FILE,
					      .as = CREDENTIAL_AS_BEARER};
	creds[1] = (struct config_credential){.name = env_name,
					      .from = env,
					      .source = CREDENTIAL_FROM_ENV,
					      .as = CREDENTIAL_AS_BASIC,
					      .username = user};
	c = (struct config){.credentials = creds, .credentials_n = 2, .refs = 1000};
	if (!captured) {
		was = leaks_pause();
		captured = credential_env_capture(&c, &e) == 0;
		leaks_resume(was);
	}
	rc = credential_store_new(&c, NULL, NULL, &s, &e);
	if (rc < 0)
		return -1;
	for (size_t i = 0; i < 2; i++)
		if (one_credential(s, &creds[i], out) < 0)
			rc = -1;
	credential_store_poll(s);
	credential_store_unref(s);
	return rc;
}

/* ---- the log ---- */

static struct record some_record(void)
{
	return (struct record){
		.time = {.tv_sec = 1700000000, .tv_nsec = 5000},
		.event = RECORD_REQUEST_START,
		.id = STR("01m8m26hxzjgzxypny7f"),
		.client = STR("127.0.0.1:1"),
		.method = STR("GET"),
		.scheme = STR("https"),
		.host = STR("a.test"),
		.port = 443,
		.path = STR("/\x01\xff<long path>"),
		.query = STR("a=1&token=secret"),
		.has_query = true,
		.has_decision = true,
		.allow = true,
	};
}

static int records(FILE *out)
{
	struct record r = some_record();
	struct record_same same;
	struct strbuf b;
	int rc;

	strbuf_init(&b, 1 << 16);
	r.keep = &same;
	rc = record_format(&r, &b);
	r.keep = NULL;
	r.same = &same;
	if (rc == 0 && same.n == 0)
		abort(); /* it is short enough */
	if (rc == 0)
		rc = record_format(&r, &b);
	if (rc < 0 && b.len > 0)
		abort(); /* half a line */
	fwrite(strbuf_cstr(&b), 1, b.len, out);
	strbuf_clear(&b);
	return rc;
}

static size_t lines_of(const char *name)
{
	char path[256];
	FILE *f = fopen(in_folder(path, sizeof(path), name), "r");
	size_t n = 0;
	int c, last = '\n';

	while (f && (c = fgetc(f)) != EOF) {
		n += c == '\n';
		last = c;
	}
	if (f)
		fclose(f);
	if (last != '\n')
		abort(); /* a line that is cut */
	return n;
}

/* Open, write, rotate, retarget, close: each line that was taken is in a file, once. */
static int write_some(const char *path, const char *moved, const char *other, size_t *ret_taken)
{
	struct log_writer *w = NULL;
	struct log_port *p = NULL;
	struct record r = some_record();
	struct err e = ERR_INIT;
	int rc = log_writer_new(path, LOG_WAIT_WRITTEN, &w, &e);

	if (rc == 0)
		rc = log_port_new(w, &p, &e);
	for (int i = 0; rc == 0 && i < 30; i++) {
		uint64_t ticket = log_port_add(p, &r, i % 2);

		*ret_taken += ticket != 0;
		log_port_flush(p);
		for (int k = 0; ticket && !log_port_await(p, ticket) && k < 2000; k++) {
			(void)usleep(200);
			log_port_drain(p);
		}
		if (i == 10) {
			(void)rename(path, moved);
			log_writer_reopen(w);
		}
		if (i == 20)
			(void)log_writer_retarget(w, other, LOG_WAIT_WRITTEN, &e);
	}
	log_port_free(p);
	log_writer_free(w, 1000);
	return rc;
}

static int writing(FILE *out)
{
	char path[256], moved[256], other[256];
	size_t taken = 0, there;
	bool was = leaks_pause();
	int rc;

	(void)unlink(in_folder(path, sizeof(path), "log"));
	(void)unlink(in_folder(moved, sizeof(moved), "log.1"));
	(void)unlink(in_folder(other, sizeof(other), "log.2"));
	leaks_resume(was);
	rc = write_some(path, moved, other, &taken);
	was = leaks_pause();
	there = lines_of("log") + lines_of("log.1") + lines_of("log.2");
	if (there != taken) {
		fprintf(stderr, "%zu lines were taken, %zu are there\n", taken, there);
		abort();
	}
	fprintf(out, "%zu", there);
	leaks_resume(was);
	return taken < 30 ? -1 : rc;
}

const struct leak_scenario leak_scenarios[] = {
	{"agent.yaml", example_agent},
	{"behind-a-proxy.yaml", example_behind_a_proxy},
	{"ci.yaml", example_ci},
	{"database.yaml", example_database},
	{"passthrough.yaml", example_passthrough},
	{"broken", broken},
	{"with-allows", with_allows},
	{"urls", urls},
	{"patterns", patterns},
	{"leaves", leaves},
	{"ca", ca_on_disk},
	{"trust", trusts},
	{"lookup", looks_up},
	{"bundle", bundles},
	{"sessions", sessions},
	{"credentials", credentials},
	{"records", records},
	{"writer", writing},
	{"heads", leaks_heads},
	{"graves", leaks_graves},
	{"dial", leaks_dial},
	{"names", leaks_names},
	{"sandboxes", leaks_sandboxes},
	{"plan", leaks_plan},
	{NULL, NULL},
};
