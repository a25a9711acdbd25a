/*
 * `stile test`: the `tests:` of each policy, decided as `serve` would and compared.
 */
#include <getopt.h>
#include <stdio.h>
#include <unistd.h>

#include "proxy/cli/cli.h"

static bool decide_connect(const struct config *c, const struct policy *p,
			   const struct config_test *t, enum reason *ret_why)
{
	struct host host;
	uint16_t port;
	struct policy_connect m;
	struct err e = ERR_INIT;

	if (url_parse_authority(str_from_c(t->url), &host, &port, &e) < 0) {
		*ret_why = e.reason;
		return false;
	}
	policy_decide_connect(p, &host, port, &m);
	config_check_connect(c, &host, &m, &e);
	*ret_why = m.reason;
	return m.allow;
}

/* The decision on one test's request. An URL that cannot be read is a denial, as it would be. */
static bool decide(const struct config *c, const struct policy *p, const struct config_test *t,
		   enum reason *ret_why)
{
	struct url u;
	struct err e = ERR_INIT;
	struct policy_request q = {.method = str_from_c(t->method)};
	struct policy_decision d = {0};

	if (!cli_is_method(t->method)) {
		*ret_why = REASON_MALFORMED_REQUEST;
		return false;
	}
	if (str_eq(q.method, STR("CONNECT")))
		return decide_connect(c, p, t, ret_why);
	if (url_parse_asked(str_from_c(t->url), &u, &e) < 0) {
		*ret_why = e.reason;
		url_clear(&u);
		return false;
	}
	q = policy_request_for(&u, q.method);
	policy_decide(p, &q, &d);
	*ret_why = d.reason;
	if (d.allow && config_check_known(c, d.rule, &u.host, &e) < 0) {
		d.allow = false;
		*ret_why = e.reason;
	}
	url_clear(&u);
	return d.allow;
}

static size_t run_tests(const struct config *c)
{
	struct strbuf safe;
	size_t failed = 0;

	for (size_t i = 0; i < c->tests_n; i++) {
		const struct config_test *t = &c->tests[i];
		const struct policy *p = config_policy(c, t->policy);
		enum reason why = REASON_NONE;
		bool allowed = p && decide(c, p, t, &why);

		if (allowed == (t->expect == RULE_ALLOW))
			continue;
		failed++;
		strbuf_init(&safe, 65536);
		strbuf_add_printable(&safe, str_from_c(t->method));
		strbuf_addc(&safe, ' ');
		strbuf_add_printable(&safe, str_from_c(t->url));
		cli_put_printable(stdout, str_from_c(c->file));
		(void)printf(":%u:%u: %s is %s%s%s%s, not %s\n", t->line, t->col,
			     strbuf_cstr(&safe), allowed ? "allowed" : "denied",
			     allowed ? "" : " (", allowed ? "" : reason_word(why),
			     allowed ? "" : ")", allowed ? "denied" : "allowed");
		strbuf_clear(&safe);
	}
	return failed;
}

int cmd_test(int argc, char **argv)
{
	static const struct option longs[] = {{0}};
	const char *file = NULL;
	struct config *c;
	size_t failed;
	int opt;

	while ((opt = cli_getopt(argc, argv, "+:c:", longs, NULL)) != -1) {
		if (opt != 'c')
			return cli_bad_flag("test", opt, argv);
		file = optarg;
	}
	if (optind < argc)
		return cli_usage("test", "what is `%s`? (a file goes behind -c)", argv[optind]);
	c = cli_load_config(file);
	if (!c)
		return EXIT_USAGE;
	failed = run_tests(c);
	(void)printf("%zu test%s, %zu failed%s\n", c->tests_n, c->tests_n == 1 ? "" : "s", failed,
		     c->tests_n == 0 ? " (no policy has `tests:`)" : "");
	config_unref(c);
	return failed ? 1 : 0;
}
