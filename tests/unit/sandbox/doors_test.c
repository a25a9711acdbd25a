/*
 * Where stile listens in a run, by the rules: which ports at every address, which at those of names
 * alone, and that no list of rules makes it too many.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy/config.h"
#include "proxy/sandbox/doors.h"

/* The policy of these rules, in YAML. */
static struct config *config_of(const char *rules)
{
	struct strbuf text;
	struct faults f;
	struct config *c = NULL;

	strbuf_init(&text, 1 << 20);
	strbuf_addf(&text, "version: 1\npolicies: {default: {rules: [%s]}}\n", rules);
	faults_init(&f, "t.yaml");
	assert_int_equal(config_load_text("t.yaml", strbuf_str(&text), &c, &f), 0);
	faults_clear(&f);
	strbuf_clear(&text);
	return c;
}

/* "443 80 198.18.0.1:5432" */
static void check(const char *rules, const char *wanted)
{
	struct config *c = config_of(rules);
	struct name_map *names;
	struct doors d;
	struct strbuf got;

	assert_int_equal(name_map_new(&names, NULL), 0);
	doors_plan(config_policy(c, "default"), names, &d);
	strbuf_init(&got, 1 << 16);
	for (size_t i = 0; i < d.n; i++) {
		char text[IPADDR_TEXT_MAX] = "";

		if (d.v[i].v4.family)
			ipaddr_format(&d.v[i].v4, text);
		assert_int_equal(d.v[i].v4.family != 0, d.v[i].v6.family != 0);
		strbuf_addf(&got, "%s%s%s%u", i ? " " : "", text, text[0] ? ":" : "", d.v[i].port);
	}
	assert_string_equal(strbuf_cstr(&got), wanted);
	strbuf_clear(&got);
	name_map_unref(names);
	config_unref(c);
}

static void test_ports(void **state)
{
	(void)state;
	check("{deny: a.test}", "443 80");
	check("{allow: [a.test, 'http://b.test', '*.c.test']}", "443 80");
	/* Below 1024 everywhere, from there on of the name alone, and each once. */
	check("{allow: ['tcp://a.test:22', 'a.test:8443', 'a.test:8443/x', 'tcp://b.test:8443']}",
	      "443 80 22 198.18.0.1:8443 198.18.0.2:8443");
	check("{allow: ['http://a.test:8080', 'wss://a.test:8081', 'tcp://a.test:8082']}",
	      "443 80 198.18.0.1:8080 198.18.0.1:8081 198.18.0.1:8082");
	/* A pattern takes the port, and then no name needs a door there. */
	check("{allow: ['a.test:8443', '*.p.test:8443']}", "443 80 8443");
	check("{allow: '*:8443'}", "443 80 8443");
	check("{allow: 'a.test:1022-1025'}", "443 80 1022 1023 198.18.0.1:1024 198.18.0.1:1025");
}

static void test_what_has_no_door(void **state)
{
	(void)state;
	check("{deny: 'a.test:8443'}", "443 80");
	check("{allow: 'a.test:8000-8016'}", "443 80");
	check("{allow: 'a.test:*'}", "443 80");
	check("{allow: ['tcp://10.0.0.7:5432', 'https://[fd00::1]:8443']}", "443 80");
	/* These two are taken at 127.0.0.1, by the stub and the proxy. */
	check("{allow: ['tcp://*.a.test:53', '*.a.test:3128']}", "443 80");
	check("{allow: ['tcp://a.test:53', 'a.test:3128']}",
	      "443 80 198.18.0.1:53 198.18.0.1:3128");
}

static void test_there_are_never_too_many(void **state)
{
	struct name_map *names;
	struct strbuf rules;
	struct config *c;
	struct doors d;

	(void)state;
	strbuf_init(&rules, 1 << 20);
	for (int i = 0; i < LIMIT_RUN_DOORS; i++)
		strbuf_addf(&rules, "{allow: ['tcp://n%d.test:%d', '*.n%d.test:%d']}, ", i,
			    2000 + i, i, 4000 + i);
	c = config_of(strbuf_cstr(&rules));
	assert_int_equal(name_map_new(&names, NULL), 0);
	doors_plan(config_policy(c, "default"), names, &d);
	assert_int_equal(d.n, LIMIT_RUN_DOORS);
	name_map_unref(names);
	config_unref(c);
	strbuf_clear(&rules);
	doors_plan(NULL, NULL, &d);
	assert_int_equal(d.n, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_what_has_no_door),
		cmocka_unit_test(test_there_are_never_too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
