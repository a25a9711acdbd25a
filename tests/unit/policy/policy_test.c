/*
 * Decisions: which rule admits or refuses a request, what may go through a CONNECT, which names may
 * be looked up, which rule is the nearest one, all against rules read from YAML; the index against
 * a walk over all rules; and what a decision costs in a long list.
 */
#include <stdio.h>
#include <time.h>

#include "tests/unit/policy/faults_check.h"

/* Rules without the head of the file; the first one stands in line 6. */
#define HEAD                                                                                       \
	"version: 1\ncredentials: {A: {from: {env: A}, as: bearer}, B: {from: {env: B}, as: "      \
	"bearer}}\npolicies:\n  p:\n    rules:\n"

static struct config *load(const char *rules)
{
	struct config *c = NULL;
	struct strbuf text, out;
	struct faults f;

	strbuf_init(&text, 32 << 20);
	strbuf_adds(&text, HEAD);
	strbuf_adds(&text, rules);
	faults_init(&f, "f.yaml");
	if (config_load_text("f.yaml", strbuf_str(&text), &c, &f) < 0) {
		strbuf_init(&out, 100000);
		faults_print(&f, &out);
		fail_msg("%s\n%s", rules, strbuf_cstr(&out));
	}
	faults_clear(&f);
	strbuf_clear(&text);
	return c;
}

static struct policy_decision decide(const struct config *c, const char *method, const char *url)
{
	struct policy_decision d;
	struct err e = ERR_INIT;
	struct url u;

	if (url_parse_absolute(str_from_c(url), &u, &e) < 0)
		fail_msg("%s: %s", url, e.text);
	policy_decide(c->policies[0],
		      &(struct policy_request){u.scheme, &u.host, u.port, str_from_c(method),
					       u.path},
		      &d);
	url_clear(&u);
	return d;
}

struct decide_row {
	const char *method, *url;
	unsigned line; /* of the rule that decides; 0: none */
	enum reason reason;
};

#define ALLOWED REASON_NONE

static void check_decisions(const char *rules, const struct decide_row *rows, size_t n)
{
	struct config *c = load(rules);

	for (size_t i = 0; i < n; i++) {
		struct policy_decision d = decide(c, rows[i].method, rows[i].url);
		unsigned line = d.rule ? d.rule->line : 0;

		if (line != rows[i].line || d.reason != rows[i].reason ||
		    d.allow != (rows[i].reason == ALLOWED))
			fail_msg("%s%s %s: %s by line %u", rules, rows[i].method, rows[i].url,
				 d.allow ? "allowed" : reason_word(d.reason), line);
	}
	config_unref(c);
}

#define CHECK(rules, ...)                                                                          \
	do {                                                                                       \
		static const struct decide_row rows_[] = {__VA_ARGS__};                            \
		check_decisions(rules, rows_, ARRAY_LEN(rows_));                                   \
	} while (0)

static void test_hosts(void **state)
{
	(void)state;
	CHECK("      - allow: good.test\n"
	      "      - allow: '*.wild.test'\n"
	      "      - allow: 192.0.2.1\n"
	      "      - allow: https://[2001:db8::1]\n",
	      {"GET", "https://good.test/", 6, ALLOWED},
	      {"GET", "https://GOOD.test./x", 6, ALLOWED},
	      {"GET", "https://evilgood.test/", 0, REASON_NO_RULE},
	      {"GET", "https://good.test.evil.test/", 0, REASON_NO_RULE},
	      {"GET", "https://a.good.test/", 0, REASON_NO_RULE},
	      {"GET", "https://a.wild.test/", 7, ALLOWED},
	      {"GET", "https://a.b.wild.test/", 7, ALLOWED},
	      {"GET", "https://_dmarc.wild.test/", 7, ALLOWED},
	      {"GET", "https://wild.test/", 0, REASON_NO_RULE},
	      {"GET", "https://xwild.test/", 0, REASON_NO_RULE},
	      {"GET", "https://test/", 0, REASON_NO_RULE},
	      {"GET", "https://192.0.2.1/", 8, ALLOWED},
	      {"GET", "https://192.0.2.10/", 0, REASON_NO_RULE},
	      {"GET", "https://[2001:DB8:0::1]/", 9, ALLOWED},
	      {"GET", "https://[2001:db8::2]/", 0, REASON_NO_RULE},
	      {"GET", "https://[::ffff:192.0.2.1]/", 0, REASON_NO_RULE});
	CHECK("      - allow: '*'\n", {"GET", "https://any.test/", 6, ALLOWED},
	      {"GET", "https://192.0.2.1/", 6, ALLOWED}, {"GET", "https://[::1]/", 6, ALLOWED},
	      {"GET", "http://any.test/", 0, REASON_NO_RULE},
	      {"GET", "https://any.test:8443/", 0, REASON_NO_RULE});
	/* a name is not the wildcard of the same suffix, though they share a table */
	CHECK("      - allow: '*.a.test'\n      - allow: a.test\n",
	      {"GET", "https://a.test/", 7, ALLOWED}, {"GET", "https://b.a.test/", 6, ALLOWED});
}

static void test_scheme_and_port(void **state)
{
	(void)state;
	CHECK("      - allow: a.test\n"
	      "      - allow: http://b.test\n"
	      "      - allow: c.test:8000-8999\n"
	      "      - allow: http://d.test:*\n"
	      "      - allow: tcp://e.test:443\n",
	      {"GET", "https://a.test/", 6, ALLOWED}, {"GET", "https://a.test:443/", 6, ALLOWED},
	      {"GET", "http://a.test/", 0, REASON_NO_RULE},
	      {"GET", "http://a.test:443/", 0, REASON_NO_RULE},
	      {"GET", "https://a.test:444/", 0, REASON_NO_RULE},
	      {"GET", "http://b.test/", 7, ALLOWED}, {"GET", "https://b.test/", 0, REASON_NO_RULE},
	      {"GET", "https://b.test:80/", 0, REASON_NO_RULE},
	      {"GET", "https://c.test:7999/", 0, REASON_NO_RULE},
	      {"GET", "https://c.test:8000/", 8, ALLOWED},
	      {"GET", "https://c.test:8999/", 8, ALLOWED},
	      {"GET", "https://c.test:9000/", 0, REASON_NO_RULE},
	      {"GET", "http://d.test:1/", 9, ALLOWED}, {"GET", "http://d.test:65535/", 9, ALLOWED},
	      /* a tunnel's rule admits no request that is read */
	      {"GET", "https://e.test/", 0, REASON_NO_RULE});
}

static void test_methods(void **state)
{
	(void)state;
	CHECK("      - {allow: a.test, methods: [GET]}\n"
	      "      - {allow: b.test, methods: [HEAD, POST]}\n"
	      "      - allow: c.test\n"
	      "      - {deny: c.test, methods: [GET]}\n"
	      "      - allow: d.test\n"
	      "      - {deny: d.test, methods: [HEAD]}\n",
	      {"GET", "https://a.test/", 6, ALLOWED}, {"HEAD", "https://a.test/", 6, ALLOWED},
	      {"get", "https://a.test/", 0, REASON_NO_RULE},
	      {"POST", "https://a.test/", 0, REASON_NO_RULE},
	      {"HEAD", "https://b.test/", 7, ALLOWED},
	      {"GET", "https://b.test/", 0, REASON_NO_RULE},
	      {"GET", "https://c.test/", 9, REASON_DENIED_BY_RULE},
	      {"HEAD", "https://c.test/", 9, REASON_DENIED_BY_RULE},
	      {"PUT", "https://c.test/", 8, ALLOWED}, {"GET", "https://d.test/", 10, ALLOWED},
	      {"HEAD", "https://d.test/", 11, REASON_DENIED_BY_RULE},
	      {"TRACE", "https://c.test/", 0, REASON_METHOD_REFUSED},
	      {"TRACE", "https://none.test/", 0, REASON_METHOD_REFUSED},
	      {"trace", "https://c.test/", 8, ALLOWED}, {"TRACK", "https://c.test/", 8, ALLOWED});
}

/* What hands back the request gets no credential, whatever its spelling. */
static void test_echoing_methods(void **state)
{
	(void)state;
	CHECK("      - {allow: a.test, credential: A}\n",
	      {"trace", "https://a.test/", 6, REASON_METHOD_REFUSED},
	      {"TRACK", "https://a.test/", 6, REASON_METHOD_REFUSED},
	      {"Track", "https://a.test/", 6, REASON_METHOD_REFUSED},
	      {"TRACER", "https://a.test/", 6, ALLOWED}, {"TRAC", "https://a.test/", 6, ALLOWED},
	      {"GET", "https://a.test/", 6, ALLOWED});
}

static void test_paths(void **state)
{
	(void)state;
	CHECK("      - allow: a.test/ok/**\n"
	      "      - deny: a.test/ok/secret/**\n"
	      "      - allow: b.test/\n"
	      "      - allow: c.test/ok/*\n",
	      {"GET", "https://a.test/ok/x", 6, ALLOWED}, {"GET", "https://a.test/ok", 6, ALLOWED},
	      {"GET", "https://a.test/okay", 0, REASON_NO_RULE},
	      {"GET", "https://a.test/OK/a", 0, REASON_NO_RULE},
	      {"GET", "https://a.test/ok/secret/x", 7, REASON_DENIED_BY_RULE},
	      {"GET", "https://a.test/ok/secret", 7, REASON_DENIED_BY_RULE},
	      {"GET", "https://a.test/ok/%73ecret/x", 7, REASON_DENIED_BY_RULE},
	      {"GET", "https://a.test/ok//secret/x", 7, REASON_DENIED_BY_RULE},
	      {"GET", "https://a.test/ok/secret%2Fx", 7, REASON_DENIED_BY_RULE},
	      {"GET", "https://a.test/ok/Secret/x", 7, REASON_DENIED_BY_RULE},
	      {"GET", "https://a.test/ok/secret;v=1/x", 7, REASON_DENIED_BY_RULE},
	      {"GET", "https://a.test/ok/secret2", 6, ALLOWED},
	      {"GET", "https://b.test/", 8, ALLOWED},
	      {"GET", "https://b.test/x", 0, REASON_NO_RULE},
	      {"GET", "https://c.test/ok/@scope%2fname", 9, ALLOWED},
	      {"GET", "https://c.test/ok/@scope/name", 0, REASON_NO_RULE});
}

/* Deny wins wherever it stands; of the allows the first decides, whatever list it is found in. */
static void test_order(void **state)
{
	(void)state;
	CHECK("      - {allow: a.test/cred/**, credential: A}\n"
	      "      - allow: a.test/cred/x/**\n"
	      "      - {allow: a.test/cred/**, credential: B}\n"
	      "      - deny: a.test/cred/x/no/**\n",
	      {"GET", "https://a.test/cred/x/1", 6, ALLOWED},
	      {"GET", "https://a.test/cred/x/no/1", 9, REASON_DENIED_BY_RULE},
	      {"GET", "https://a.test/cred/%78/1", 6, ALLOWED});
	CHECK("      - deny: a.test/cred/x/no/**\n"
	      "      - allow: a.test/cred/x/**\n"
	      "      - {allow: a.test/cred/**, credential: B}\n"
	      "      - {allow: a.test/cred/**, credential: A}\n",
	      {"GET", "https://a.test/cred/x/1", 7, ALLOWED},
	      {"GET", "https://a.test/cred/1", 8, ALLOWED},
	      {"GET", "https://a.test/cred/x/no/1", 6, REASON_DENIED_BY_RULE});
	CHECK("      - allow: '*.x.test'\n"
	      "      - allow: '*'\n"
	      "      - allow: a.x.test\n"
	      "      - allow: '*.b.x.test'\n"
	      "      - deny: '*.c.x.test'\n",
	      {"GET", "https://a.x.test/", 6, ALLOWED}, {"GET", "https://q.b.x.test/", 6, ALLOWED},
	      {"GET", "https://x.test/", 7, ALLOWED},
	      {"GET", "https://q.c.x.test/", 10, REASON_DENIED_BY_RULE},
	      {"GET", "https://c.x.test/", 6, ALLOWED});
	CHECK("      - allow: '*'\n      - deny: '*'\n",
	      {"GET", "https://a.test/", 7, REASON_DENIED_BY_RULE});
	/* one rule, several targets */
	CHECK("      - allow: [a.test, b.test/x]\n      - deny: [c.test, a.test/no]\n",
	      {"GET", "https://a.test/", 6, ALLOWED}, {"GET", "https://b.test/x", 6, ALLOWED},
	      {"GET", "https://b.test/", 0, REASON_NO_RULE},
	      {"GET", "https://a.test/no", 7, REASON_DENIED_BY_RULE},
	      {"GET", "https://c.test/", 7, REASON_DENIED_BY_RULE});
}

static void test_tunnels_and_requests(void **state)
{
	(void)state;
	/* what is only passed through admits no request that is read */
	CHECK("      - {allow: a.test, tls: passthrough}\n",
	      {"GET", "https://a.test/", 0, REASON_NO_RULE});
	/* a deny of tcp:// is of all that the connection may carry */
	CHECK("      - allow: [a.test, http://a.test, a.test:8443]\n      - deny: "
	      "tcp://a.test:443\n",
	      {"GET", "https://a.test/", 7, REASON_DENIED_BY_RULE},
	      {"GET", "https://a.test:8443/", 6, ALLOWED}, {"GET", "http://a.test/", 6, ALLOWED});
	/* one of https is not one of http */
	CHECK("      - allow: [a.test, http://a.test]\n      - deny: a.test\n",
	      {"GET", "https://a.test/", 7, REASON_DENIED_BY_RULE},
	      {"GET", "http://a.test/", 6, ALLOWED});
}

/* A host that could not be read matches nothing, not even `*`. */
static void test_no_host(void **state)
{
	struct config *c = load("      - allow: '*'\n      - allow: tcp://*:*\n");
	struct host none = {0};
	struct policy_request q = {SCHEME_HTTPS, &none, 443, STR("GET"), STR("/")};
	struct policy_decision d;
	struct policy_connect m;

	(void)state;
	policy_decide(c->policies[0], &q, &d);
	assert_false(d.allow);
	assert_int_equal(d.reason, REASON_NO_RULE);
	policy_decide_connect(c->policies[0], &none, 443, &m);
	assert_false(m.allow);
	assert_false(policy_admits_name(c->policies[0], &none));
	config_unref(c);
}

static void test_empty_policy(void **state)
{
	struct policy *p = NULL;
	struct host h;
	struct policy_request q = {SCHEME_HTTPS, &h, 443, STR("GET"), STR("/")};
	struct policy_decision d;
	struct strbuf why;

	(void)state;
	assert_int_equal(host_parse(STR("a.test"), &h, NULL), 0);
	assert_int_equal(policy_new("p", "f", "v", NULL, 0, &p, NULL), 0);
	policy_decide(p, &q, &d);
	assert_false(d.allow);
	assert_int_equal(d.reason, REASON_NO_RULE);
	strbuf_init(&why, 1000);
	assert_null(policy_nearest(p, &q, &why));
	assert_ptr_equal(policy_ref(p), p);
	policy_unref(p);
	assert_string_equal(policy_name(p), "p");
	policy_unref(p);
	policy_unref(NULL);
}

/* ---- CONNECT ---- */

struct connect_row {
	const char *host;
	uint16_t port;
	unsigned inspect, passthrough, http, tcp, deny; /* lines; 0: NULL */
	enum reason reason;
};

static unsigned line_of(const struct rule *r)
{
	return r ? r->line : 0;
}

static void check_connects(const char *rules, const struct connect_row *rows, size_t n)
{
	struct config *c = load(rules);

	for (size_t i = 0; i < n; i++) {
		const struct connect_row *w = &rows[i];
		struct policy_connect m;
		struct host h;

		assert_int_equal(host_parse(str_from_c(w->host), &h, NULL), 0);
		policy_decide_connect(c->policies[0], &h, w->port, &m);
		if (line_of(m.inspect) != w->inspect || line_of(m.passthrough) != w->passthrough ||
		    line_of(m.http) != w->http || line_of(m.tcp) != w->tcp ||
		    line_of(m.deny) != w->deny || m.reason != w->reason ||
		    m.allow != (w->reason == ALLOWED))
			fail_msg("%s%s:%u: %u %u %u %u, deny %u, %s", rules, w->host, w->port,
				 line_of(m.inspect), line_of(m.passthrough), line_of(m.http),
				 line_of(m.tcp), line_of(m.deny), reason_word(m.reason));
	}
	config_unref(c);
}

#define CHECK_CONNECT(rules, ...)                                                                  \
	do {                                                                                       \
		static const struct connect_row rows_[] = {__VA_ARGS__};                           \
		check_connects(rules, rows_, ARRAY_LEN(rows_));                                    \
	} while (0)

static void test_connect(void **state)
{
	(void)state;
	CHECK_CONNECT("      - {allow: a.test/x, methods: [POST]}\n"
		      "      - {allow: b.test, tls: passthrough}\n"
		      "      - allow: http://c.test\n"
		      "      - allow: tcp://d.test:22-23\n"
		      "      - allow: [a.test, http://a.test:443, tcp://a.test:443]\n",
		      {"a.test", 443, 6, 0, 10, 10, 0, ALLOWED},
		      {"a.test", 80, 0, 0, 0, 0, 0, REASON_NO_RULE},
		      {"b.test", 443, 0, 7, 0, 0, 0, ALLOWED},
		      {"b.test", 444, 0, 0, 0, 0, 0, REASON_NO_RULE},
		      {"c.test", 80, 0, 0, 8, 0, 0, ALLOWED},
		      {"c.test", 443, 0, 0, 0, 0, 0, REASON_NO_RULE},
		      {"d.test", 22, 0, 0, 0, 9, 0, ALLOWED},
		      {"d.test", 24, 0, 0, 0, 0, 0, REASON_NO_RULE},
		      {"127.0.0.1", 443, 0, 0, 0, 0, 0, REASON_NO_RULE});
	/* inspect and passthrough: the first in file order */
	CHECK_CONNECT("      - allow: a.test/x\n"
		      "      - {allow: [a.test, b.test], tls: passthrough}\n"
		      "      - allow: b.test\n",
		      {"a.test", 443, 6, 0, 0, 0, 0, ALLOWED},
		      {"b.test", 443, 0, 7, 0, 0, 0, ALLOWED});
}

static void test_connect_denied(void **state)
{
	(void)state;
	CHECK_CONNECT("      - allow: a.test\n      - deny: a.test\n      - deny: c.test\n",
		      {"a.test", 443, 0, 0, 0, 0, 7, REASON_DENIED_BY_RULE},
		      /* denied as a whole, and never allowed */
		      {"c.test", 443, 0, 0, 0, 0, 8, REASON_DENIED_BY_RULE},
		      {"c.test", 444, 0, 0, 0, 0, 0, REASON_NO_RULE});
	/* a deny with a path or methods leaves what is read to the requests */
	CHECK_CONNECT("      - allow: [a.test, '*.w.test']\n"
		      "      - deny: a.test/x\n"
		      "      - {deny: a.test, methods: [POST]}\n"
		      "      - {allow: [p.test, m.test], tls: passthrough}\n"
		      "      - deny: p.test/x\n"
		      "      - {deny: m.test, methods: [POST]}\n"
		      "      - allow: [tcp://t.test:443, tcp://u.test:80, tcp://v.test:9]\n"
		      "      - deny: [t.test/x, http://u.test/x]\n"
		      "      - deny: '*.no.w.test'\n",
		      {"a.test", 443, 6, 0, 0, 0, 0, ALLOWED},
		      {"p.test", 443, 0, 0, 0, 0, 10, REASON_DENIED_BY_RULE},
		      {"m.test", 443, 0, 0, 0, 0, 11, REASON_DENIED_BY_RULE},
		      {"t.test", 443, 0, 0, 0, 0, 13, REASON_DENIED_BY_RULE},
		      {"u.test", 80, 0, 0, 0, 0, 13, REASON_DENIED_BY_RULE},
		      {"v.test", 9, 0, 0, 0, 12, 0, ALLOWED},
		      {"a.w.test", 443, 6, 0, 0, 0, 0, ALLOWED},
		      {"a.no.w.test", 443, 0, 0, 0, 0, 14, REASON_DENIED_BY_RULE});
	/* one kind is beaten, another is not */
	CHECK_CONNECT("      - allow: [a.test, http://a.test:443]\n      - deny: a.test\n",
		      {"a.test", 443, 0, 0, 6, 0, 7, ALLOWED});
	/* tcp:// stands for all of them */
	CHECK_CONNECT("      - allow: [a.test, http://a.test:443, tcp://a.test:443]\n"
		      "      - {allow: b.test, tls: passthrough}\n"
		      "      - deny: [tcp://a.test:*, tcp://b.test:443]\n",
		      {"a.test", 443, 0, 0, 0, 0, 8, REASON_DENIED_BY_RULE},
		      {"b.test", 443, 0, 0, 0, 0, 8, REASON_DENIED_BY_RULE});
	/* the first https rule decides, also when a deny then takes it away */
	CHECK_CONNECT("      - {allow: a.test, tls: passthrough}\n      - allow: a.test\n"
		      "      - deny: a.test/x\n",
		      {"a.test", 443, 0, 0, 0, 0, 8, REASON_DENIED_BY_RULE});
}

/* ---- names ---- */

static void test_names(void **state)
{
	static const struct {
		const char *name;
		bool admitted, spelt; /* whatever a deny says of it */
	} rows[] = {
		{"a.test", true, true},	      {"b.test", true, true},
		{"x.w.test", true, false},    {"w.test", false, false},
		{"evil.test", false, false},  {"no.w.test", false, false},
		{"part.w.test", true, false}, {"tcp.w.test", false, false},
		{"only.test", false, false},  {"203.0.113.1", false, false},
		{"both.w.test", true, true},
	};
	struct config *c = load("      - allow: http://a.test:8080/x\n"
				"      - allow: tcp://b.test:22\n"
				"      - allow: ['*.w.test', both.w.test]\n"
				"      - deny: [no.w.test, part.w.test/x, tcp://tcp.w.test:*]\n"
				"      - deny: only.test\n");

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct host h;

		assert_int_equal(host_parse(str_from_c(rows[i].name), &h, NULL), 0);
		if (policy_admits_name(c->policies[0], &h) != rows[i].admitted)
			fail_msg("%s", rows[i].name);
		if (policy_spells_name(c->policies[0], &h) != rows[i].spelt)
			fail_msg("%s", rows[i].name);
	}
	config_unref(c);
}

static void test_addresses(void **state)
{
	struct config *c =
		load("      - allow: a.test\n      - {allow: b.test, addresses: [10.0.0.0/8]}\n");
	const struct rule *plain = policy_rule(c->policies[0], 0);
	const struct rule *ranged = policy_rule(c->policies[0], 1);
	struct ipaddr inside, outside;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(ipaddr_parse(STR("10.1.2.3"), &inside), 0);
	assert_int_equal(ipaddr_parse(STR("192.168.1.1"), &outside), 0);
	assert_int_equal(policy_check_addr(plain, &inside, NULL, 0, &e), -1);
	assert_int_equal(e.reason, REASON_ADDRESS_DENIED);
	assert_int_equal(policy_check_addr(ranged, &inside, NULL, 0, NULL), 0);
	assert_int_equal(policy_check_addr(ranged, &outside, NULL, 0, NULL), -1);
	config_unref(c);
}

/* ---- explain ---- */

static void test_nearest(void **state)
{
	static const struct {
		const char *method, *url;
		unsigned line;
		const char *why;
	} rows[] = {
		{"GET", "https://wild.test/", 6,
		 "`*.wild.test` covers the names below wild.test, not wild.test itself"},
		{"GET", "http://a.test/", 7, "it admits https://, not http://"},
		{"GET", "https://a.test:8443/", 7, "it covers port 443, not 8443"},
		{"GET", "https://r.test/", 8, "it covers ports 8000 to 8999, not 443"},
		{"GET", "https://a.test/y", 7, "the path /y does not match /x/**"},
		{"PUT", "https://a.test/x/1", 7, "its methods are GET, POST, not PUT"},
		{"GET", "https://t.test/", 9, "it passes TLS through"},
		{"GET", "https://www.a.test/", 7, "it names the host a.test, not www.a.test"},
		{"GET", "https://d.test/no", 10,
		 "it would admit the request, but a deny stands against it"},
		{"GET", "https://other.example/", 0, ""},
	};
	struct config *c = load("      - allow: '*.wild.test'\n"
				"      - {allow: a.test/x/**, methods: [GET, POST]}\n"
				"      - allow: r.test:8000-8999\n"
				"      - {allow: t.test, tls: passthrough}\n"
				"      - allow: d.test\n"
				"      - deny: d.test/no\n");

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct rule *r;
		struct strbuf why;
		struct url u;

		assert_int_equal(url_parse_absolute(str_from_c(rows[i].url), &u, NULL), 0);
		strbuf_init(&why, 10000);
		r = policy_nearest(c->policies[0],
				   &(struct policy_request){u.scheme, &u.host, u.port,
							    str_from_c(rows[i].method), u.path},
				   &why);
		if (line_of(r) != rows[i].line ||
		    !str_starts(strbuf_str(&why), str_from_c(rows[i].why)))
			fail_msg("%s %s: line %u: %s", rows[i].method, rows[i].url, line_of(r),
				 strbuf_cstr(&why));
		strbuf_clear(&why);
		url_clear(&u);
	}
	config_unref(c);
}

/* ---- the index against a walk ---- */

static uint32_t random_state = 12345;

static unsigned any_of(unsigned n)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % n;
}

static const char *const hosts[] = {"a.test",	"b.a.test",   "c.b.a.test", "test",	"*.test",
				    "*.a.test", "*.b.a.test", "*",	    "192.0.2.1"};
static const char *const paths[] = {"",	     "/",	"/**",	 "/*",	   "/a",
				    "/a/",   "/a/**",	"/a/*",	 "/a/b",   "/a/b/**",
				    "/**/b", "/a/**/c", "/a/b*", "/*/b/c", "/a/b/c/d"};
static const char *const urls[] = {"/",	 "/a",	  "/a/", "/a/b", "/a/b/", "/a/b/c", "/a/b/c/d",
				   "/b", "/a/bb", "//",	 "//a",	 "/a//b", "/x/b/c", "/a/b/c/d/e"};

static bool walk_host(const struct target *t, const struct host *h)
{
	struct str text = host_str(h), suffix = host_str(&t->host);

	if (t->host_kind == TARGET_HOST_ANY)
		return true;
	if (t->host_kind == TARGET_HOST_EXACT)
		return host_eq(&t->host, h);
	return h->kind == HOST_NAME && text.n > suffix.n + 1 && str_ends(text, suffix) &&
	       text.p[text.n - suffix.n - 1] == '.';
}

/* What policy_decide must say, by looking at every rule. */
static struct policy_decision walk(const struct policy *p, const struct policy_request *q)
{
	struct policy_decision d = {.reason = REASON_NO_RULE};

	for (unsigned deny = 1; deny < 2; deny--)
		for (size_t i = 0; i < policy_rules_n(p) && !d.rule; i++) {
			const struct rule *r = policy_rule(p, i);

			for (size_t j = 0; j < r->targets_n && !d.rule; j++) {
				const struct target *t = &r->targets[j];
				bool fits = (r->effect == RULE_DENY) == (deny == 1) &&
					    t->scheme == q->scheme && t->port_first <= q->port &&
					    t->port_last >= q->port && walk_host(t, q->host);

				if (fits && t->path)
					fits = deny ? pattern_match_broad(t->path, q->path)
						    : pattern_match(t->path, q->path);
				if (fits)
					d.rule = r;
			}
		}
	if (d.rule) {
		d.allow = d.rule->effect == RULE_ALLOW;
		d.reason = d.allow ? REASON_NONE : REASON_DENIED_BY_RULE;
	}
	return d;
}

static void compare_all(const struct policy *p)
{
	static const char *const names[] = {"a.test",	 "b.a.test", "c.b.a.test", "x.c.b.a.test",
					    "test",	 "z.test",   "a.testx",	   "xa.test",
					    "192.0.2.1", "[::1]"};
	struct host h;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		for (size_t j = 0; j < ARRAY_LEN(urls); j++) {
			struct policy_request q = {SCHEME_HTTPS, &h, 443, STR("GET"),
						   str_from_c(urls[j])};
			struct policy_decision d, w;

			assert_int_equal(host_parse(str_from_c(names[i]), &h, NULL), 0);
			policy_decide(p, &q, &d);
			w = walk(p, &q);
			if (d.allow != w.allow || d.rule != w.rule || d.reason != w.reason)
				fail_msg("%s%s: line %u, not %u", names[i], urls[j],
					 line_of(d.rule), line_of(w.rule));
		}
}

static void test_index(void **state)
{
	(void)state;
	for (int round = 0; round < 60; round++) {
		/* Few rules are walked, many are found by the beginning of their path. */
		unsigned n = 1 + any_of(round % 2 ? 12 : 400);
		struct strbuf b;
		struct config *c;

		strbuf_init(&b, 1 << 20);
		for (unsigned i = 0; i < n; i++) {
			bool deny = any_of(40) == 0;

			strbuf_addf(&b, "      - %s: \"https://%s%s\"\n", deny ? "deny" : "allow",
				    hosts[any_of(round % 3 ? ARRAY_LEN(hosts) : 2)],
				    paths[any_of(ARRAY_LEN(paths))]);
		}
		c = load(strbuf_cstr(&b));
		compare_all(c->policies[0]);
		config_unref(c);
		strbuf_clear(&b);
	}
}

/* The deepest name and path there are, and beginnings beyond what is told apart. */
static void test_deep(void **state)
{
	char name[LIMIT_HOST_BYTES + 1], url[4096];
	struct strbuf b;
	struct config *c;

	(void)state;
	for (size_t i = 0; i < 253; i++)
		name[i] = i % 2 ? '.' : 'a';
	name[253] = '\0';
	strbuf_init(&b, 1 << 20);
	strbuf_adds(&b, "      - allow: '*.a.a'\n");
	for (int i = 0; i < 30; i++) {
		strbuf_adds(&b, "      - allow: deep.test");
		for (int j = 0; j < 50; j++)
			strbuf_addf(&b, "/s%d", j == 49 ? i : j);
		strbuf_addc(&b, '\n');
	}
	c = load(strbuf_cstr(&b));
	snprintf(url, sizeof(url), "https://%s/", name);
	assert_true(decide(c, "GET", url).allow);
	strbuf_reset(&b);
	strbuf_adds(&b, "https://deep.test");
	for (int j = 0; j < 50; j++)
		strbuf_addf(&b, "/s%d", j == 49 ? 29 : j);
	assert_int_equal(decide(c, "GET", strbuf_cstr(&b)).rule->line, 36);
	strbuf_addc(&b, 'x');
	assert_false(decide(c, "GET", strbuf_cstr(&b)).allow);
	config_unref(c);
	strbuf_clear(&b);
}

/* ---- cost ---- */

static double cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define MEASURED 200000

static void measure(const char *what, const char *rule, const char *host, const char *path,
		    int rules)
{
	static struct host h[1000];
	static char p[1000][64];
	struct strbuf b;
	struct config *c;
	double start, took;
	size_t allowed = 0;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
	strbuf_init(&b, 32 << 20);
	for (int i = 0; i < rules; i++)
		strbuf_addf(&b, rule, i);
	for (int i = 0; i < 1000; i++) {
		char name[64];

		snprintf(name, sizeof(name), host, (int)((long)i * 97 % rules));
		assert_int_equal(host_parse(str_from_c(name), &h[i], NULL), 0);
		snprintf(p[i], sizeof(p[i]), path, (int)((long)i * 97 % rules));
	}
#pragma GCC diagnostic pop
	c = load(strbuf_cstr(&b));
	strbuf_clear(&b);
	start = cpu_ns();
	for (int i = 0; i < MEASURED; i++) {
		struct policy_request q = {SCHEME_HTTPS, &h[i % 1000], 443, STR("GET"),
					   str_from_c(p[i % 1000])};
		struct policy_decision d;

		policy_decide(c->policies[0], &q, &d);
		allowed += d.allow;
	}
	took = (cpu_ns() - start) / MEASURED;
	print_message("%d rules, %s: %.0f ns a decision\n", rules, what, took);
	assert_int_equal(allowed, MEASURED);
	config_unref(c);
}

static void test_cost(void **state)
{
	static const int sizes[] = {100, 100000};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		measure("hosts", "      - allow: h%06d.example.com\n", "h%06d.example.com",
			"/a/b?%d", sizes[i]);
		measure("wildcards", "      - allow: '*.h%06d.example.com'\n",
			"a.b.h%06d.example.com", "/a/b", sizes[i]);
		measure("paths of one host", "      - allow: h.example.com/repos/r%06d/**\n",
			"h.example.com", "/repos/r%06d/issues/1", sizes[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_scheme_and_port),
		cmocka_unit_test(test_methods),
		cmocka_unit_test(test_echoing_methods),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_tunnels_and_requests),
		cmocka_unit_test(test_no_host),
		cmocka_unit_test(test_empty_policy),
		cmocka_unit_test(test_connect),
		cmocka_unit_test(test_connect_denied),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_nearest),
		cmocka_unit_test(test_index),
		cmocka_unit_test(test_deep),
		cmocka_unit_test(test_cost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
