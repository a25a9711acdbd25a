/*
 * What a configuration without faults becomes; where relative paths lead; what --allow adds; files
 * that are not there; that a file cut at any byte, or with any byte changed, does no harm; and what
 * loading a long list costs.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "logging/limits.h"
#include "tests/unit/policy/faults_check.h"

static const char full[] =
	"version: 1\n"
	"listen:\n"
	"  - proxy: localhost:3128\n"
	"    policy: main\n"
	"  - {proxy: \"[::1]:0\", name: six, policy: other}\n"
	"  - {proxy: 'unix:run/s.sock', policy: main, mode: 0600}\n"
	"ca: {dir: ca}\n"
	"upstream:\n"
	"  trust: [system, roots.pem, /etc/x.pem]\n"
	"  hosts:\n"
	"    Origin.TEST.: 127.0.0.1\n"
	"    two.test: [192.0.2.1, '2001:DB8::1']\n"
	"  dns: [192.0.2.53, '127.0.0.1:5353', '2001:db8::53', '[::1]:53']\n"
	"  proxy: {url: 'http://Proxy.Test:3128', credential: pair, no_proxy: [a.test, '*.b.test', "
	"10.0.0.0/8, '2001:db8::7']}\n"
	"log: {to: 'syslog:local3', wait: synced}\n"
	"user: stile\n"
	"credentials:\n"
	"  zed: {from: {file: secrets/zed}, as: bearer}\n"
	"  bas: {from: {env: BAS}, as: {basic: me}}\n"
	"  pair: {from: {file: /run/p}, as: basic}\n"
	"  hdr: {from: {env: HDR}, as: {header: X-Api-Key}}\n"
	"  qry: {from: {env: QRY}, as: {query: api_key}}\n"
	"policies:\n"
	"  other:\n"
	"    rules: [{allow: o.test, credential: bas}]\n"
	"  main:\n"
	"    rules:\n"
	"      - allow: https://api.github.com/repos/acme/**\n"
	"        name: acme\n"
	"        methods: [GET, PUT]\n"
	"        credential: zed\n"
	"      - allow: [HTTPS://Docs.Example.COM., \"*.cdn.example.com\", h.test:8000-8999]\n"
	"        credential: pair\n"
	"      - allow: http://mirror.example.com:*/pool/**\n"
	"        addresses: [10.0.0.0/8, 'fd00::/8', 192.0.2.7]\n"
	"      - {allow: db.example.com, tls: passthrough, ech: refuse}\n"
	"      - allow: tcp://git.example.com:22\n"
	"      - {allow: \"https://[2001:DB8::1]:8443/x\", credential: hdr, "
	"addresses: ['2001:db8::/32']}\n"
	"      - {allow: github.com/org, credential: qry}\n"
	"      - {deny: https://api.github.com/repos/acme/secret/**, methods: [GET]}\n"
	"    tests:\n"
	"      - {expect: allow, request: GET https://docs.example.com/}\n"
	"      - {expect: deny, request: CONNECT db.example.com:22}\n"
	"limits:\n"
	"  connections: 100\n"
	"  connections_per_address: 50\n"
	"  head_bytes: 16KiB\n"
	"  head: 500ms\n"
	"  idle: 2m\n"
	"  peek: 2500ms\n"
	"  dns: 3s\n"
	"  dial: 4s\n"
	"  tls: 5s\n"
	"  first_byte: 1h\n"
	"  body_idle: 7s\n"
	"  tunnel_idle: 8s\n"
	"  tunnel_life: 9h\n"
	"  drain: 0s\n"
	"  workers: 3\n";

static struct config *loaded(const char *file, struct str text)
{
	struct config *c = NULL;
	struct strbuf out;
	struct faults f;

	faults_init(&f, file);
	if (config_load_text(file, text, &c, &f) < 0) {
		strbuf_init(&out, 100000);
		faults_print(&f, &out);
		fail_msg("%s", strbuf_cstr(&out));
	}
	assert_int_equal(f.n, 0);
	faults_clear(&f);
	return c;
}

static void assert_target(const struct rule *r, size_t i, const char *want)
{
	char mem[400];
	struct strbuf b;

	strbuf_init_fixed(&b, mem, sizeof(mem));
	assert_true(i < r->targets_n);
	target_add(&r->targets[i], &b);
	assert_string_equal(strbuf_cstr(&b), want);
}

static void test_tokens(void **state)
{
	struct config *c =
		loaded("conf/stile.yaml", STR("version: 1\n"
					      "admin: unix:run/admin.sock\n"
					      "listen:\n"
					      "  - {proxy: '127.0.0.1:1', tokens: required}\n"
					      "  - {proxy: '127.0.0.1:2', tokens: optional}\n"
					      "  - {proxy: '127.0.0.1:3'}\n"
					      "policies: {p: {rules: [{allow: a.test}]}}\n"));
	const struct config_listener *l = c->listeners;

	(void)state;
	assert_string_equal(c->admin_path, "conf/run/admin.sock");
	assert_int_equal(l[0].tokens, CONFIG_TOKENS_REQUIRED);
	assert_null(l[0].policy_name);
	assert_null(l[0].policy);
	assert_int_equal(l[1].tokens, CONFIG_TOKENS_OPTIONAL);
	assert_string_equal(l[1].policy_name, "p");
	assert_ptr_equal(l[1].policy, config_policy(c, "p"));
	assert_int_equal(l[2].tokens, CONFIG_TOKENS_NONE);
	config_unref(c);
}

static void test_metrics(void **state)
{
	struct config *c = loaded("stile.yaml", STR("version: 1\n"
						    "metrics: '[::1]:9464'\n"
						    "policies: {p: {rules: [{allow: a.test}]}}\n"));

	(void)state;
	assert_non_null(c->metrics);
	assert_int_equal(c->metrics->addr.family, 6);
	assert_int_equal(c->metrics->port, 9464);
	config_unref(c);
}

static void test_reload(void **state)
{
	static const struct {
		const char *line;
		enum config_reload want;
	} cases[] = {
		{"", CONFIG_RELOAD_SIGNAL},
		{"reload: signal\n", CONFIG_RELOAD_SIGNAL},
		{"reload: watch\n", CONFIG_RELOAD_WATCH},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char text[200];
		struct config *c;

		(void)snprintf(text, sizeof(text),
			       "version: 1\n%spolicies: {p: {rules: [{allow: a.test}]}}\n",
			       cases[i].line);
		c = loaded("stile.yaml", str_from_c(text));
		assert_int_equal(c->reload, cases[i].want);
		config_unref(c);
	}
}

static void test_listeners(void **state)
{
	struct config *c = loaded("conf/stile.yaml", STR(full));
	const struct config_listener *l = c->listeners;

	(void)state;
	assert_int_equal(c->listeners_n, 3);
	assert_string_equal(l[0].name, "proxy-0");
	assert_int_equal(l[0].port, 3128);
	assert_int_equal(l[0].addr.family, 4);
	assert_int_equal(l[0].addr.b[0], 127);
	assert_string_equal(l[0].policy_name, "main");
	assert_ptr_equal(l[0].policy, config_policy(c, "main"));
	assert_string_equal(l[1].name, "six");
	assert_int_equal(l[1].port, 0);
	assert_int_equal(l[1].addr.family, 6);
	assert_ptr_equal(l[1].policy, config_policy(c, "other"));
	assert_string_equal(l[2].name, "proxy-2");
	assert_string_equal(l[2].unix_path, "conf/run/s.sock");
	assert_int_equal(l[2].unix_mode, 0600);
	config_unref(c);
}

static void test_transparent(void **state)
{
	struct config *c = loaded("conf/stile.yaml",
				  STR("version: 1\n"
				      "listen:\n"
				      "  - {proxy: '127.0.0.1:1'}\n"
				      "  - {transparent: {netns: a, address: '127.0.0.1:1'}}\n"
				      "  - {transparent: {netns: /b, address: '0.0.0.0:1'}}\n"
				      "  - {dns: {netns: /b, address: '127.0.0.1:53'}}\n"
				      "policies: {p: {rules: [{allow: a.test}]}}\n"));
	const struct config_listener *l = c->listeners;

	(void)state;
	assert_int_equal(l[0].kind, CONFIG_LISTEN_PROXY);
	assert_null(l[0].netns);
	assert_int_equal(l[1].kind, CONFIG_LISTEN_TRANSPARENT);
	assert_string_equal(l[1].name, "transparent-1");
	assert_string_equal(l[1].netns, "conf/a");
	assert_int_equal(l[1].at.line, 4);
	assert_int_equal(l[1].at.col, 27);
	assert_int_equal(l[1].port, 1);
	assert_string_equal(l[2].netns, "/b");
	assert_int_equal(l[3].kind, CONFIG_LISTEN_DNS);
	assert_string_equal(l[3].name, "dns-3");
	assert_ptr_equal(l[2].policy, config_policy(c, "p"));
	config_unref(c);
}

static void test_sections(void **state)
{
	struct config *c = loaded("conf/stile.yaml", STR(full));

	(void)state;
	assert_string_equal(c->file, "conf/stile.yaml");
	assert_int_equal(strlen(c->version_hash), 16);
	assert_string_equal(c->ca_dir, "conf/ca");
	assert_int_equal(c->trust_n, 3);
	assert_string_equal(c->trust[0], "system");
	assert_string_equal(c->trust[1], "conf/roots.pem");
	assert_string_equal(c->trust[2], "/etc/x.pem");
	assert_int_equal(c->hosts_n, 2);
	assert_string_equal(c->hosts[0].name.text, "origin.test");
	assert_int_equal(c->hosts[0].addrs_n, 1);
	assert_int_equal(c->hosts[1].addrs_n, 2);
	assert_int_equal(c->hosts[1].addrs[1].family, 6);
	assert_int_equal(c->dns_servers_n, 4);
	assert_string_equal(c->dns_servers[3], "[::1]:53");
	assert_string_equal(c->log_to, "syslog:local3");
	assert_int_equal(c->log_wait, CONFIG_WAIT_SYNCED);
	assert_string_equal(c->user, "stile");
	config_unref(c);
}

static bool goes_through(const struct config *c, const char *name)
{
	struct host h;

	assert_int_equal(host_parse(str_from_c(name), &h, NULL), 0);
	return config_parent_for(c, &h) != NULL;
}

static void test_parent(void **state)
{
	static const char *const through[] = {"c.test",	  "x.a.test",	   "b.test",  "xb.test",
					      "11.0.0.1", "[2001:db8::8]", "a.test.x"};
	static const char *const direct[] = {"a.test", "x.b.test", "y.x.b.test", "10.9.8.7",
					     "[2001:db8::7]"};
	struct config *c = loaded("stile.yaml", STR(full));
	struct ipaddr in, out;
	struct host h;

	(void)state;
	assert_string_equal(c->parent->text, "proxy.test:3128");
	assert_string_equal(c->parent->credential, "pair");
	assert_false(c->parent->tls || c->parent->by_name);
	for (size_t i = 0; i < ARRAY_LEN(through); i++)
		if (!goes_through(c, through[i]))
			fail_msg("%s is dialled", through[i]);
	for (size_t i = 0; i < ARRAY_LEN(direct); i++)
		if (goes_through(c, direct[i]))
			fail_msg("%s goes through the proxy", direct[i]);
	assert_int_equal(ipaddr_parse(STR("10.1.1.1"), &in), 0);
	assert_int_equal(ipaddr_parse(STR("192.0.2.1"), &out), 0);
	assert_true(config_parent_spares(c->parent, &in));
	assert_false(config_parent_spares(c->parent, &out));
	assert_int_equal(host_parse(STR("c.test"), &h, NULL), 0);
	assert_false(config_sends_name(c, &h));
	config_unref(c);
}

/* `send: name`: all but what is dialled, what is an address, and what has a fixed one. */
static void test_parent_by_name(void **state)
{
	static const char text[] =
		"version: 1\n"
		"upstream:\n"
		"  hosts: {fixed.test: 192.0.2.1}\n"
		"  proxy: {url: 'https://p.test:443', send: name, no_proxy: [a.test]}\n"
		"policies: {p: {rules: [{allow: a.test}]}}\n";
	struct config *c = NULL;
	struct faults f;
	struct host h;

	(void)state;
	faults_init(&f, "f");
	assert_int_equal(config_load_text("f", STR(text), &c, &f), 0);
	assert_true(c->parent->tls && c->parent->by_name);
	assert_int_equal(host_parse(STR("c.test"), &h, NULL), 0);
	assert_true(config_sends_name(c, &h));
	assert_int_equal(host_parse(STR("a.test"), &h, NULL), 0);
	assert_false(config_sends_name(c, &h));
	assert_int_equal(host_parse(STR("fixed.test"), &h, NULL), 0);
	assert_false(config_sends_name(c, &h));
	assert_non_null(config_parent_for(c, &h));
	assert_int_equal(host_parse(STR("192.0.2.9"), &h, NULL), 0);
	assert_false(config_sends_name(c, &h));
	config_unref(c);
	faults_clear(&f);
}

static void test_limits(void **state)
{
	static const char bare[] = "version: 1\npolicies: {p: {rules: [{allow: a.test}]}}\n";
	struct config *c = loaded("f", STR(full));
	const struct config_limits *l = &c->limits;

	(void)state;
	assert_int_equal(l->connections, 100);
	assert_int_equal(l->connections_per_address, 50);
	assert_int_equal(l->head_bytes, 16384);
	assert_int_equal(l->head_ms, 500);
	assert_int_equal(l->client_idle_ms, 120000);
	assert_int_equal(l->peek_ms, 2500);
	assert_int_equal(l->dns_ms, 3000);
	assert_int_equal(l->dial_ms, 4000);
	assert_int_equal(l->tls_ms, 5000);
	assert_int_equal(l->first_byte_ms, 3600000);
	assert_int_equal(l->body_idle_ms, 7000);
	assert_int_equal(l->tunnel_idle_ms, 8000);
	assert_int_equal(l->tunnel_life_ms, 9 * 3600000);
	assert_int_equal(l->drain_ms, 0);
	assert_int_equal(l->workers, 3);
	config_unref(c);
	c = loaded("f", STR(bare));
	l = &c->limits;
	assert_int_equal(l->connections, LIMIT_CONNECTIONS);
	assert_int_equal(l->connections_per_address, LIMIT_CONNECTIONS_PER_ADDR);
	assert_int_equal(l->head_bytes, LIMIT_HEAD_BYTES);
	assert_int_equal(l->first_byte_ms, LIMIT_MS_FIRST_BYTE);
	assert_int_equal(l->peek_ms, LIMIT_MS_PEEK);
	assert_int_equal(l->drain_ms, LIMIT_MS_DRAIN);
	assert_int_equal(l->workers, 0);
	assert_null(c->log_to);
	assert_null(c->ca_dir);
	assert_null(c->user);
	assert_int_equal(c->log_wait, CONFIG_WAIT_WRITTEN);
	assert_int_equal(c->listeners_n, 0);
	config_unref(c);
}

static void test_credentials(void **state)
{
	struct config *c = loaded("conf/stile.yaml", STR(full));
	const struct config_credential *x;

	(void)state;
	assert_int_equal(c->credentials_n, 5);
	x = config_credential(c, "zed");
	assert_string_equal(x->from, "conf/secrets/zed");
	assert_int_equal(x->source, CREDENTIAL_FROM_FILE);
	assert_int_equal(x->as, CREDENTIAL_AS_BEARER);
	assert_int_equal(x->line, 18);
	assert_int_equal(x->col, 3);
	x = config_credential(c, "bas");
	assert_int_equal(x->source, CREDENTIAL_FROM_ENV);
	assert_string_equal(x->from, "BAS");
	assert_int_equal(x->as, CREDENTIAL_AS_BASIC);
	assert_string_equal(x->username, "me");
	x = config_credential(c, "pair");
	assert_string_equal(x->from, "/run/p");
	assert_int_equal(x->as, CREDENTIAL_AS_BASIC);
	assert_null(x->username);
	x = config_credential(c, "hdr");
	assert_int_equal(x->as, CREDENTIAL_AS_HEADER);
	assert_string_equal(x->as_name, "X-Api-Key");
	x = config_credential(c, "qry");
	assert_int_equal(x->as, CREDENTIAL_AS_QUERY);
	assert_string_equal(x->as_name, "api_key");
	assert_null(config_credential(c, "none"));
	assert_null(config_credential(c, NULL));
	config_unref(c);
}

static void test_rules(void **state)
{
	struct config *c = loaded("conf/stile.yaml", STR(full));
	const struct policy *p = config_policy(c, "main");
	const struct rule *r = policy_rule(p, 0);
	char mem[100];
	struct strbuf at;

	(void)state;
	assert_int_equal(c->policies_n, 2);
	assert_null(config_policy(c, "none"));
	assert_int_equal(policy_rules_n(p), 8);
	assert_string_equal(policy_name(p), "main");
	assert_string_equal(policy_version(p), c->version_hash);
	assert_string_equal(r->name, "acme");
	assert_string_equal(r->credential, "zed");
	assert_int_equal(r->methods_n, 2);
	assert_string_equal(r->methods[1], "PUT");
	assert_int_equal(r->order, 0);
	assert_target(r, 0, "https://api.github.com/repos/acme/**");
	strbuf_init_fixed(&at, mem, sizeof(mem));
	rule_add_at(r, &at);
	assert_string_equal(strbuf_cstr(&at), "conf/stile.yaml:28");
	r = policy_rule(p, 1);
	assert_int_equal(r->targets_n, 3);
	assert_target(r, 0, "https://docs.example.com");
	assert_target(r, 1, "https://*.cdn.example.com");
	assert_target(r, 2, "https://h.test:8000-8999");
	assert_int_equal(r->targets[1].line, 32);
	assert_int_equal(r->targets[1].col, 44);
	r = policy_rule(p, 2);
	assert_target(r, 0, "http://mirror.example.com:*/pool/**");
	assert_int_equal(r->ranges_n, 3);
	assert_int_equal(r->ranges[2].bits, 32);
	r = policy_rule(p, 3);
	assert_int_equal(r->tls, RULE_TLS_PASSTHROUGH);
	assert_true(r->ech_refuse);
	assert_target(policy_rule(p, 4), 0, "tcp://git.example.com:22");
	assert_target(policy_rule(p, 5), 0, "https://[2001:db8::1]:8443/x");
	assert_target(policy_rule(p, 6), 0, "https://github.com/org");
	r = policy_rule(p, 7);
	assert_int_equal(r->effect, RULE_DENY);
	assert_int_equal(r->order, 7);
	assert_null(policy_rule(p, 8));
	assert_int_equal(c->tests_n, 2);
	assert_string_equal(c->tests[0].policy, "main");
	assert_string_equal(c->tests[0].method, "GET");
	assert_string_equal(c->tests[0].url, "https://docs.example.com/");
	assert_int_equal(c->tests[0].expect, RULE_ALLOW);
	assert_string_equal(c->tests[1].method, "CONNECT");
	assert_int_equal(c->tests[1].expect, RULE_DENY);
	config_unref(c);
}

/* A BOM, CR LF, aliases and quoted keys mean what they meant without. */
static void test_spellings(void **state)
{
	static const char *const rows[] = {
		"\xef\xbb\xbfversion: 1\r\npolicies:\r\n  p:\r\n    rules:\r\n      - allow: "
		"a.test\r\n",
		"{\"version\": 1, 'policies': {\"p\": {\"rules\": [{\"allow\": \"a.test\"}]}}}",
		"version: \"1\"\npolicies:\n  p: &p\n    rules: [{allow: &h a.test}]\n",
		"%YAML 1.1\n---\nversion: 1\npolicies: {p: {rules: [{allow: A.TEST.}]}}\n...\n",
		"version: 1\npolicies: {p: {rules: [{allow: [a.test:443]}]}} # end\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct config *c = loaded("f", str_from_c(rows[i]));

		assert_target(policy_rule(config_policy(c, "p"), 0), 0, "https://a.test");
		config_unref(c);
	}
}

static void test_shared_rules(void **state)
{
	static const char text[] = "version: 1\n"
				   "policies:\n"
				   "  a: {rules: &common [{allow: a.test}, {allow: b.test}]}\n"
				   "  b: {rules: *common}\n";
	struct config *c = loaded("f", STR(text));

	(void)state;
	assert_int_equal(policy_rules_n(config_policy(c, "a")), 2);
	assert_int_equal(policy_rules_n(config_policy(c, "b")), 2);
	config_unref(c);
}

static void test_version(void **state)
{
	static const char a[] = "version: 1\npolicies: {p: {rules: [{allow: a.test}]}}\n";
	static const char b[] = "version: 1\npolicies: {p: {rules: [{allow: b.test}]}}\n";
	struct config *x = loaded("f", STR(a)), *y = loaded("g", STR(a)), *z = loaded("f", STR(b));

	(void)state;
	assert_string_equal(x->version_hash, y->version_hash);
	assert_string_not_equal(x->version_hash, z->version_hash);
	/* sha256sum of text a */
	assert_string_equal(x->version_hash, "07ff4f876cbb91a5");
	config_unref(x);
	config_unref(y);
	config_unref(z);
	config_unref(NULL);
}

/* ---- the table of keys ---- */

static void test_key_table(void **state)
{
	const char *const *keys = config_keys();
	size_t n = 0;
	bool has_rule_key = false;

	(void)state;
	for (; keys[n]; n++) {
		for (size_t i = 0; i < n; i++)
			assert_string_not_equal(keys[i], keys[n]);
		has_rule_key |= strcmp(keys[n], "policies.<name>.rules[].methods") == 0;
	}
	assert_true(n > 40);
	assert_true(has_rule_key);
	assert_string_equal(keys[0], "version");
}

/* ---- files ---- */

static void check_file_fault(const char *path, const char *want)
{
	struct config *c = NULL;
	struct strbuf out;
	struct faults f;

	faults_init(&f, path);
	assert_int_equal(config_load_file(path, &c, &f), -1);
	assert_null(c);
	assert_int_equal(f.errors, 1);
	assert_int_equal(f.v[0].line, 0);
	strbuf_init(&out, 10000);
	faults_print(&f, &out);
	if (!strstr(strbuf_cstr(&out), want))
		fail_msg("wanted %s, got %s", want, strbuf_cstr(&out));
	strbuf_clear(&out);
	faults_clear(&f);
}

static void write_file(const char *path, const char *text)
{
	FILE *to = fopen(path, "w");

	assert_non_null(to);
	assert_true(fputs(text, to) >= 0);
	assert_int_equal(fclose(to), 0);
}

static void test_files(void **state)
{
	char dir[] = "/tmp/stile-load-XXXXXX", path[64];
	struct config *c = NULL;
	struct faults f;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/stile.yaml", dir);
	check_file_fault(path, "stile.yaml: cannot be read: No such file or directory\n");
	check_file_fault(dir, ": is a directory (name the file in it)\n");
	write_file(path,
		   "version: 1\nca: {dir: here}\npolicies: {p: {rules: [{allow: a.test}]}}\n");
	faults_init(&f, path);
	assert_int_equal(config_load_file(path, &c, &f), 0);
	assert_true(str_starts(str_from_c(c->ca_dir), str_from_c(dir)));
	assert_true(str_ends(str_from_c(c->ca_dir), STR("/here")));
	config_unref(c);
	faults_clear(&f);
	/* larger than the limit: said without reading it */
	assert_int_equal(truncate(path, (off_t)LIMIT_CONFIG_BYTES + 1), 0);
	check_file_fault(path, "the file is larger than 32 MiB (the limit)\n");
	if (geteuid() != 0) {
		assert_int_equal(chmod(path, 0), 0);
		check_file_fault(path, "cannot be read: Permission denied\n");
	}
	unlink(path);
	rmdir(dir);
}

/* ---- --allow ---- */

static struct config *with(struct config *c, const char *const *targets, size_t n, struct faults *f)
{
	struct config *ret = NULL;
	int rc;

	faults_init(f, c ? c->file : NULL);
	rc = config_with_allows(c, NULL, targets, n, &ret, f);
	assert_int_equal(rc, f->errors > 0 ? -1 : 0);
	return ret;
}

static void test_allows(void **state)
{
	static const char text[] = "version: 1\npolicies: {p: {rules: [{allow: a.test}]}}\n";
	static const char *const targets[] = {"b.test", "tcp://c.test:22"};
	struct config *base = loaded("f.yaml", STR(text)), *c;
	const struct policy *p;
	struct faults f;
	struct strbuf at;
	char mem[64];

	(void)state;
	c = with(base, targets, 2, &f);
	assert_int_equal(f.n, 0);
	p = config_policy(c, "p");
	assert_int_equal(policy_rules_n(p), 3);
	assert_target(policy_rule(p, 1), 0, "https://b.test");
	assert_int_equal(policy_rule(p, 2)->order, 2);
	strbuf_init_fixed(&at, mem, sizeof(mem));
	rule_add_at(policy_rule(p, 2), &at);
	assert_string_equal(strbuf_cstr(&at), "--allow:2");
	strbuf_reset(&at);
	rule_add_at(policy_rule(p, 0), &at);
	assert_string_equal(strbuf_cstr(&at), "f.yaml:2");
	assert_string_not_equal(c->version_hash, base->version_hash);
	/* the one it was made from is as it was */
	assert_int_equal(policy_rules_n(config_policy(base, "p")), 1);
	config_unref(base);
	config_unref(c);
	faults_clear(&f);

	c = with(NULL, targets, 2, &f);
	assert_int_equal(policy_rules_n(config_policy(c, "default")), 2);
	config_unref(c);
	faults_clear(&f);
	/* nothing listed is nothing allowed */
	c = with(NULL, NULL, 0, &f);
	assert_int_equal(policy_rules_n(config_policy(c, "default")), 0);
	config_unref(c);
	faults_clear(&f);
}

static void test_allows_of_a_named_policy(void **state)
{
	static const char two[] =
		"version: 1\npolicies: {p: {rules: [{allow: a.test}]}, q: {rules: "
		"[{allow: a.test}]}}\n";
	static const char *const targets[] = {"b.test"};
	struct config *base = loaded("f.yaml", STR(two)), *c = NULL;
	struct faults f;

	(void)state;
	faults_init(&f, "f.yaml");
	assert_int_equal(config_with_allows(base, "q", targets, 1, &c, &f), 0);
	assert_int_equal(policy_rules_n(config_policy(c, "p")), 1);
	assert_int_equal(policy_rules_n(config_policy(c, "q")), 2);
	config_unref(c);
	assert_int_equal(config_with_allows(base, "r", targets, 1, &c, &f), -1);
	config_unref(base);
	faults_clear(&f);
}

static void test_allow_faults(void **state)
{
	static const char two[] =
		"version: 1\npolicies: {p: {rules: [{allow: a.test}]}, q: {rules: "
		"[{allow: a.test}]}}\n";
	static const char *const bad[] = {"*x.test", "ok.test", "tcp://h"}, *const wide[] = {"*"};
	struct config *base = loaded("f.yaml", STR(two)), *c;
	struct strbuf out;
	struct faults f;

	(void)state;
	strbuf_init(&out, 10000);
	assert_null(with(NULL, bad, 3, &f));
	faults_print(&f, &out);
	assert_string_equal(
		strbuf_cstr(&out),
		"--allow *x.test: the host `*x.test`: a wildcard is one whole label (write "
		"*.x.test)\n"
		"--allow tcp://h: tcp:// needs a port (write tcp://h:22, or :* for any)\n");
	faults_clear(&f);
	strbuf_reset(&out);
	assert_null(with(base, bad + 1, 1, &f));
	faults_print(&f, &out);
	assert_string_equal(strbuf_cstr(&out),
			    "f.yaml:2:11: --allow: which of the 2 policies? (say --policy NAME: "
			    "p, q)\n");
	faults_clear(&f);
	strbuf_reset(&out);
	c = with(NULL, wide, 1, &f);
	faults_print(&f, &out);
	assert_string_equal(strbuf_cstr(&out),
			    "warning: --allow *: `*` stands for every host there is\n");
	config_unref(c);
	config_unref(base);
	faults_clear(&f);
	strbuf_clear(&out);
}

/* An error that the list held before is not one of this file. */
static void test_older_errors(void **state)
{
	static const char text[] = "version: 1\npolicies: {p: {rules: [{allow: a.test}]}}\n";
	struct config *c = NULL;
	struct faults f;

	(void)state;
	faults_init(&f, "f");
	fault_add(&f, 1, 1, "of another file");
	assert_int_equal(config_load_text("f", STR(text), &c, &f), 0);
	assert_int_equal(policy_rules_n(config_policy(c, "p")), 1);
	config_unref(c);
	faults_clear(&f);
}

/* ---- damaged files ---- */

/* Loads and forgets; what comes out only has to be sound: a config, or an error. */
static void try_text(const char *text, size_t n)
{
	/* Its own allocation, so that a byte read past the end is seen. */
	char *copy = malloc(n ? n : 1);
	struct config *c = NULL;
	struct faults f;
	struct strbuf out;
	int rc;

	assert_non_null(copy);
	memcpy(copy, text, n);
	faults_init(&f, "f");
	rc = config_load_text("f", str_from(copy, n), &c, &f);
	assert_int_equal(rc, f.errors > 0 ? -1 : 0);
	assert_true((c != NULL) == (rc == 0));
	strbuf_init(&out, 100000);
	faults_print(&f, &out);
	strbuf_clear(&out);
	config_unref(c);
	faults_clear(&f);
	free(copy);
}

static void test_cut(void **state)
{
	(void)state;
	for (size_t n = 0; n < sizeof(full); n++)
		try_text(full, n);
}

static void test_changed(void **state)
{
	static const char with_what[] = {'\0', '\t', '\n', ' ', '"', '\'', '*', '&', '[', ']',
					 '{',  '}',  ':',  '-', '#', '!',  '|', '?', ',', '\xff'};
	char text[sizeof(full)];

	(void)state;
	memcpy(text, full, sizeof(full));
	for (size_t i = 0; i + 1 < sizeof(full); i++) {
		text[i] = with_what[i % sizeof(with_what)];
		try_text(text, sizeof(full) - 1);
		text[i] = full[i];
	}
	for (size_t i = 0; i + 1 < sizeof(full); i++) {
		/* without the byte */
		memmove(text + i, full + i + 1, sizeof(full) - i - 2);
		try_text(text, sizeof(full) - 2);
		memcpy(text, full, sizeof(full));
	}
}

/* What a cut file still lists must never be more than what the whole one lists. */
static void test_cut_never_admits(void **state)
{
	static const char text[] =
		"version: 1\npolicies:\n  p:\n    rules:\n      - allow: a.test\n"
		"      - {deny: a.test/secret/**}\n      - allow: b.test:8443\n";

	(void)state;
	for (size_t n = 0; n < sizeof(text); n++) {
		struct config *c = NULL;
		struct faults f;
		struct host evil, part;
		struct policy_decision d;
		struct policy_request q = {SCHEME_HTTPS, &evil, 443, STR("GET"), STR("/")};

		assert_int_equal(host_parse(STR("evil.test"), &evil, NULL), 0);
		assert_int_equal(host_parse(STR("b.test"), &part, NULL), 0);
		faults_init(&f, "f");
		if (config_load_text("f", str_from(text, n), &c, &f) == 0) {
			assert_int_equal(c->policies_n, 1);
			policy_decide(c->policies[0], &q, &d);
			assert_false(d.allow);
		}
		config_unref(c);
		faults_clear(&f);
	}
}

/* ---- long lists ---- */

static double cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static long peak_kib(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

static void measure_load(const char *what, int rules, const char *fmt)
{
	struct config *c;
	struct strbuf b;
	double start;

	strbuf_init(&b, LIMIT_CONFIG_BYTES);
	strbuf_adds(&b, "version: 1\npolicies:\n  default:\n    rules:\n");
	for (int i = 0; i < rules; i++) {
		char line[128];

		/* fmt is one of the literals below */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(line, sizeof(line), fmt, i);
#pragma GCC diagnostic pop
		strbuf_adds(&b, line);
	}
	assert_false(b.overflowed);
	start = cpu_ms();
	c = loaded("f", strbuf_str(&b));
	print_message("%d rules (%s, %zu KiB): %.0f ms, peak %ld MiB\n", rules, what, b.len >> 10,
		      cpu_ms() - start, peak_kib() >> 10);
	assert_int_equal(policy_rules_n(c->policies[0]), rules);
	config_unref(c);
	strbuf_clear(&b);
}

static void test_long_lists(void **state)
{
	(void)state;
	measure_load("bare hosts", 100000, "      - allow: h%06d.example.com\n");
	measure_load("paths and methods", 100000,
		     "      - {allow: h%06d.example.com/a/**, methods: [GET, POST]}\n");
	measure_load("paths of one host", 100000, "      - allow: h.example.com/repos/r%06d/**\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_listeners),
		cmocka_unit_test(test_reload),
		cmocka_unit_test(test_metrics),
		cmocka_unit_test(test_transparent),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_sections),
		cmocka_unit_test(test_parent),
		cmocka_unit_test(test_parent_by_name),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_credentials),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_spellings),
		cmocka_unit_test(test_shared_rules),
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_key_table),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_allows),
		cmocka_unit_test(test_allows_of_a_named_policy),
		cmocka_unit_test(test_allow_faults),
		cmocka_unit_test(test_older_errors),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_changed),
		cmocka_unit_test(test_cut_never_admits),
		cmocka_unit_test(test_long_lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
