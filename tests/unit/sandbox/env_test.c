/*
 * The environment of a sandboxed command: what passes, what does not, what is set, what --env may.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proxy/sandbox/env.h"

static char source[] = "GITHUB_TOKEN", shell_source[] = "EDITOR";
static struct config_credential creds[] = {
	{.from = source, .source = CREDENTIAL_FROM_ENV},
	{.from = shell_source, .source = CREDENTIAL_FROM_ENV},
};
static const struct config config = {.credentials = creds, .credentials_n = 2};

static char *outer[] = {
	(char[]){"PATH=/bin"},
	(char[]){"HOME=/home/me"},
	(char[]){"LC_ALL=C"},
	(char[]){"LC_"},
	(char[]){"AWS_SECRET_ACCESS_KEY=CANARY"},
	(char[]){"GITHUB_TOKEN=CANARY"},
	(char[]){"EDITOR=CANARY"},
	(char[]){"SSH_AUTH_SOCK=/tmp/agent"},
	(char[]){"LD_PRELOAD=/x.so"},
	(char[]){"HTTPS_PROXY=http://elsewhere:1"},
	(char[]){"TMPDIR=/run/user/1000/t"},
	(char[]){"MINE=1"},
	(char[]){"PWD=/somewhere"},
	NULL,
};

static const char *value(const struct env *v, const char *name)
{
	const char *found = NULL;
	size_t n = strlen(name);

	for (size_t i = 0; i < v->n; i++) {
		if (strncmp(v->v[i], name, n) != 0 || v->v[i][n] != '=')
			continue;
		assert_null(found); /* each once */
		found = v->v[i] + n + 1;
	}
	return found;
}

static void build(struct env *v, const char *const *wanted, size_t n)
{
	struct env_options o = {
		.outer = outer,
		.wanted = wanted,
		.wanted_n = n,
		.config = &config,
		.workspace = "/work",
		.proxy_port = 3128,
	};
	struct err e = ERR_INIT;

	if (env_build(&o, v, &e) != 0)
		fail_msg("%s", e.text);
	assert_null(v->v[v->n]);
}

static void test_what_passes(void **state)
{
	static const char *const gone[] = {
		"AWS_SECRET_ACCESS_KEY",
		"GITHUB_TOKEN",
		"EDITOR",
		"SSH_AUTH_SOCK",
		"LD_PRELOAD",
		"TMPDIR",
		"MINE",
		"LC_",
	};
	struct env v;

	(void)state;
	build(&v, NULL, 0);
	assert_string_equal(value(&v, "PATH"), "/bin");
	assert_string_equal(value(&v, "HOME"), "/home/me");
	assert_string_equal(value(&v, "LC_ALL"), "C");
	assert_string_equal(value(&v, "PWD"), "/work");
	for (size_t i = 0; i < ARRAY_LEN(gone); i++) {
		if (value(&v, gone[i]))
			fail_msg("%s passes", gone[i]);
	}
	for (size_t i = 0; i < v.n; i++)
		assert_null(strstr(v.v[i], "CANARY"));
	env_clear(&v);
}

static void test_what_is_set(void **state)
{
	static const char *const proxies[] = {"HTTP_PROXY",  "http_proxy", "HTTPS_PROXY",
					      "https_proxy", "ALL_PROXY",  "all_proxy"};
	static const char *const bundles[] = {
		"SSL_CERT_FILE",	   "NODE_EXTRA_CA_CERTS",
		"REQUESTS_CA_BUNDLE",	   "CURL_CA_BUNDLE",
		"GIT_SSL_CAINFO",	   "PIP_CERT",
		"CARGO_HTTP_CAINFO",	   "DENO_CERT",
		"AWS_CA_BUNDLE",	   "npm_config_cafile",
		"YARN_HTTPS_CA_FILE_PATH", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	};
	struct env v;

	(void)state;
	build(&v, NULL, 0);
	for (size_t i = 0; i < ARRAY_LEN(proxies); i++)
		assert_string_equal(value(&v, proxies[i]), "http://127.0.0.1:3128");
	for (size_t i = 0; i < ARRAY_LEN(bundles); i++)
		assert_string_equal(value(&v, bundles[i]), SANDBOX_BUNDLE);
	assert_string_equal(value(&v, "SSL_CERT_DIR"), SANDBOX_DIR);
	assert_string_equal(value(&v, "NO_PROXY"), "localhost,127.0.0.1,::1");
	assert_string_equal(value(&v, "no_proxy"), "localhost,127.0.0.1,::1");
	assert_string_equal(value(&v, "NODE_USE_ENV_PROXY"), "1");
	assert_string_equal(value(&v, "JAVA_TOOL_OPTIONS"),
			    "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 "
			    "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128 "
			    "-Djavax.net.ssl.trustStore=" SANDBOX_TRUSTSTORE
			    " -Djavax.net.ssl.trustStoreType=PKCS12");
	env_clear(&v);
}

static void test_wanted(void **state)
{
	static const char *const wanted[] = {"MINE",	  "NOT_THERE", "A=1=2",
					     "PATH=/own", "EMPTY=",    "MINE=2"};
	struct env v;

	(void)state;
	build(&v, wanted, ARRAY_LEN(wanted));
	assert_string_equal(value(&v, "MINE"), "2");
	assert_null(value(&v, "NOT_THERE"));
	assert_string_equal(value(&v, "A"), "1=2");
	assert_string_equal(value(&v, "PATH"), "/own");
	assert_string_equal(value(&v, "EMPTY"), "");
	env_clear(&v);
}

static void test_wanted_that_is_refused(void **state)
{
	static const char *const bad[] = {
		"", "=x", "A B", "1A", "A-B=x", "GITHUB_TOKEN", "GITHUB_TOKEN=placeholder"};
	static const char *const good[] = {"A", "_a1=x", "GITHUB_TOKEN2", "GITHUB=GITHUB_TOKEN"};
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (env_check(&bad[i], 1, &config, &e) == 0)
			fail_msg("\"%s\" is taken", bad[i]);
	}
	assert_non_null(strstr(e.text, "GITHUB_TOKEN"));
	assert_null(strstr(e.text, "placeholder"));
	if (env_check(good, ARRAY_LEN(good), &config, &e) != 0)
		fail_msg("%s", e.text);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_passes),
		cmocka_unit_test(test_what_is_set),
		cmocka_unit_test(test_wanted),
		cmocka_unit_test(test_wanted_that_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
