/*
 * Names against a server of the test's own: what is found, what a failure is called, how long it
 * takes, what is kept, and above all what is asked and what is not.
 */
#include "dns_server.h"

#include <sys/stat.h>

#include "proxy/net/dns_cache.h"
#include "proxy/net/hosts_file.h"
#include "proxy/net/resolve_internal.h"

struct fix {
	struct dns_server server;
	struct loop *loop;
	struct resolver *resolver;
	char *servers[1];
	struct config config;
};

struct answer {
	struct fix *fix;
	bool inside; /* within resolve_start */
	int calls;
	enum resolve_status status;
	bool found;
	struct resolved r;
	struct err e;
	struct resolve *question;
	int64_t took_ms;
};

static int setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));

	dns_server_start(&f->server);
	f->loop = new_loop();
	f->servers[0] = f->server.addr;
	f->config.dns_servers = f->servers;
	f->config.dns_servers_n = 1;
	assert_int_equal(resolver_new(f->loop, &f->config, &f->resolver, NULL), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fix *f = *state;

	resolver_free(f->resolver);
	loop_free(f->loop);
	dns_server_stop(&f->server);
	free(f);
	return 0;
}

static void on_done(void *arg, const struct resolved *found, const struct err *e)
{
	struct answer *a = arg;

	assert_false(a->inside);
	a->calls++;
	a->found = found != NULL;
	if (found)
		a->r = *found;
	else
		a->e = *e;
	loop_stop(a->fix->loop);
}

static void start(struct fix *f, struct answer *a, const char *name, uint64_t timeout_ms)
{
	struct host host;

	*a = (struct answer){.fix = f, .inside = true};
	assert_int_equal(host_parse(str_from_c(name), &host, NULL), 0);
	loop_clock_us(f->loop);
	a->status = resolve_start(f->resolver, &host, timeout_ms, on_done, a, &a->r, &a->question,
				  &a->e);
	a->inside = false;
	a->found = a->status == RESOLVE_DONE;
}

static void ask_for(struct fix *f, struct answer *a, const char *name, uint64_t timeout_ms)
{
	int64_t from = clock_ms();

	start(f, a, name, timeout_ms);
	if (a->status == RESOLVE_PENDING)
		run_loop(f->loop, 3000);
	a->took_ms = clock_ms() - from;
	assert_int_equal(a->calls, a->status == RESOLVE_PENDING ? 1 : 0);
}

/* The addresses of an answer, separated by spaces. */
static const char *text_of(const struct answer *a)
{
	static char text[LIMIT_DNS_ADDRESSES * IPADDR_TEXT_MAX];
	char one[IPADDR_TEXT_MAX];

	text[0] = '\0';
	for (size_t i = 0; a->found && i < a->r.n; i++) {
		size_t n = strlen(text);

		ipaddr_format(&a->r.addrs[i], one);
		snprintf(text + n, sizeof(text) - n, "%s%s", n ? " " : "", one);
	}
	return text;
}

/* ---- without DNS ---- */

static void test_nothing_to_ask(void **state)
{
	struct fix *f = *state;
	static const char *const rows[][2] = {
		{"192.0.2.7", "192.0.2.7"},	    {"[2001:db8::7]", "2001:db8::7"},
		{"localhost", "::1 127.0.0.1"},	    {"LOCALHOST.", "::1 127.0.0.1"},
		{"a.b.localhost", "::1 127.0.0.1"},
	};
	struct answer a;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		ask_for(f, &a, rows[i][0], 1000);
		assert_int_equal(a.status, RESOLVE_DONE);
		assert_string_equal(text_of(&a), rows[i][1]);
	}
	assert_int_equal(dns_server_questions(&f->server), 0);
	/* But not a name that only ends in the same letters. */
	ask_for(f, &a, "nolocalhost", 1000);
	assert_string_equal(text_of(&a), "2001:db8::1 192.0.2.1");
}

static void test_fixed_names_come_first(void **state)
{
	struct fix *f = *state;
	struct ipaddr addrs[] = {ip("10.0.0.1"), ip("10.0.0.2"), ip("fd00::1")};
	struct config_host hosts[] = {{.addrs = addrs, .addrs_n = 3},
				      {.addrs = addrs, .addrs_n = 1}};
	struct answer a;

	assert_int_equal(host_parse(STR("good.test"), &hosts[0].name, NULL), 0);
	assert_int_equal(host_parse(STR("localhost"), &hosts[1].name, NULL), 0);
	resolver_free(f->resolver);
	f->config.hosts = hosts;
	f->config.hosts_n = 2;
	assert_int_equal(resolver_new(f->loop, &f->config, &f->resolver, NULL), 0);
	memset(hosts, 0, sizeof(hosts)); /* they are copies */
	memset(addrs, 0, sizeof(addrs));
	ask_for(f, &a, "good.test", 1000);
	assert_int_equal(a.status, RESOLVE_DONE);
	assert_string_equal(text_of(&a), "fd00::1 10.0.0.1 10.0.0.2");
	ask_for(f, &a, "localhost", 1000);
	assert_string_equal(text_of(&a), "10.0.0.1");
	ask_for(f, &a, "x.good.test", 1000);
	assert_string_equal(text_of(&a), "2001:db8::1 192.0.2.1");
	assert_int_equal(dns_server_count(&f->server, ":good.test/"), 0);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void test_hosts_file(void **state)
{
	char path[] = "/tmp/stile-hosts-test-XXXXXX";
	struct ipaddr a[4], want = ip("10.1.1.1");
	struct hosts_file *h;
	int fd = mkstemp(path);

	(void)state;
	close(fd);
	write_file(path, "# 10.9.9.9 commented.test\n"
			 "10.1.1.1\ttwo.test  Alias.TEST dotted.test. # not.test\r\n"
			 "not-an-address bad.test\n"
			 "fe80::1%lo zone.test\n"
			 "\n   \n"
			 "fd00::1 two.test\n"
			 "10.1.1.2 last.test");
	assert_int_equal(hosts_file_new(path, &h, NULL), 0);
	assert_true(hosts_file_look(h, 0));
	assert_int_equal(hosts_file_find(h, STR("two.test"), a, 4), 2);
	assert_true(ipaddr_eq(&a[0], &want));
	assert_int_equal(a[1].family, 6);
	assert_int_equal(hosts_file_find(h, STR("two.test"), a, 1), 1);
	assert_int_equal(hosts_file_find(h, STR("alias.test"), a, 4), 1);
	assert_int_equal(hosts_file_find(h, STR("dotted.test"), a, 4), 1);
	assert_int_equal(hosts_file_find(h, STR("last.test"), a, 4), 1);
	static const char *const none[] = {"commented.test", "not.test", "bad.test",
					   "zone.test",	     "two",	 "wo.test",
					   "10.1.1.1",	     "#",	 "x.two.test"};
	for (size_t i = 0; i < ARRAY_LEN(none); i++)
		assert_int_equal(hosts_file_find(h, str_from_c(none[i]), a, 4), 0);

	/* Looked at again after five seconds, not before; gone means empty. */
	write_file(path, "10.1.1.3 other.test\n");
	assert_false(hosts_file_look(h, 4999999));
	assert_int_equal(hosts_file_find(h, STR("other.test"), a, 4), 0);
	assert_true(hosts_file_look(h, 5000000));
	assert_int_equal(hosts_file_find(h, STR("other.test"), a, 4), 1);
	assert_int_equal(hosts_file_find(h, STR("two.test"), a, 4), 0);
	assert_false(hosts_file_look(h, 10000000));
	unlink(path);
	assert_true(hosts_file_look(h, 15000000));
	assert_int_equal(hosts_file_find(h, STR("other.test"), a, 4), 0);
	assert_false(hosts_file_look(h, 20000000));
	hosts_file_free(h);
}

/* ---- answers ---- */

static void test_both_families(void **state)
{
	struct fix *f = *state;
	struct answer a;

	ask_for(f, &a, "Good.TEST.", 1000);
	assert_int_equal(a.status, RESOLVE_PENDING);
	assert_string_equal(text_of(&a), "2001:db8::1 192.0.2.1");
	assert_false(a.r.from_cache);
	/* One question for each family of exactly that name, and nothing else. */
	assert_int_equal(dns_server_questions(&f->server), 2);
	assert_int_equal(dns_server_count(&f->server, " A:good.test/udp"), 1);
	assert_int_equal(dns_server_count(&f->server, " AAAA:good.test/udp"), 1);
	ask_for(f, &a, "good.test", 1000);
	assert_int_equal(a.status, RESOLVE_DONE);
	assert_true(a.r.from_cache);
	assert_string_equal(text_of(&a), "2001:db8::1 192.0.2.1");
	assert_int_equal(dns_server_questions(&f->server), 2);
}

static void test_aaaa_servfail(void **state)
{
	struct fix *f = *state;
	struct answer a;

	ask_for(f, &a, "v6fail.test", 2000);
	assert_true(a.took_ms < 500);
	assert_string_equal(text_of(&a), "192.0.2.1");
	/* The failure is remembered beside the good answer: no second wait. */
	ask_for(f, &a, "v6fail.test", 2000);
	assert_int_equal(a.status, RESOLVE_DONE);
}

static void test_aaaa_never_answered(void **state)
{
	struct fix *f = *state;
	struct answer a;

	ask_for(f, &a, "v6silent.test", 2000);
	assert_true(a.took_ms < 300);
	assert_string_equal(text_of(&a), "192.0.2.1");
	/* The A is cached, the AAAA still under way: joined, not asked again. */
	ask_for(f, &a, "v6silent.test", 2000);
	assert_true(a.took_ms < 300);
	assert_string_equal(text_of(&a), "192.0.2.1");
	assert_int_equal(dns_server_count(&f->server, " A:v6silent.test/"), 1);
	assert_int_equal(dns_server_count(&f->server, " AAAA:v6silent.test/"), 1);
}

/* Later than the wait: it is not in the answer, but in the cache for the next one. */
static void test_aaaa_late(void **state)
{
	struct fix *f = *state;
	struct answer a;

	/* The server is one thread, so the A is let through first by an answer from the cache. */
	ask_for(f, &a, "v4only.test", 1000);
	assert_string_equal(text_of(&a), "192.0.2.1");
	ask_for(f, &a, "v6late.test", 1000);
	assert_string_equal(text_of(&a), "2001:db8::1 192.0.2.1");
}

static void test_a_slow_or_never(void **state)
{
	struct fix *f = *state;
	struct answer a;

	ask_for(f, &a, "v4slow.test", 2000);
	assert_true(a.took_ms >= 150 && a.took_ms < 500);
	assert_string_equal(text_of(&a), "2001:db8::1 192.0.2.1");
	ask_for(f, &a, "v4silent.test", 2000);
	assert_true(a.took_ms < 900);
	assert_string_equal(text_of(&a), "2001:db8::1");
}

static void test_failures(void **state)
{
	static const struct {
		const char *name;
		const char *text;
		bool is_kept;
	} rows[] = {
		{"none.test", "no such name", true},
		{"nodata.test", "has no address", true},
		{"servfail.test", "only with an error", false},
	};
	struct fix *f = *state;
	struct answer a;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		ask_for(f, &a, rows[i].name, 2000);
		assert_int_equal(a.status, RESOLVE_PENDING);
		assert_false(a.found);
		assert_int_equal(a.e.reason, REASON_DNS_FAILED);
		assert_non_null(strstr(a.e.text, "DNS"));
		assert_non_null(strstr(a.e.text, rows[i].name));
		if (!strstr(a.e.text, rows[i].text))
			fail_msg("%s", a.e.text);
		assert_true(a.took_ms < 1000);
		ask_for(f, &a, rows[i].name, 2000);
		assert_int_equal(a.status, rows[i].is_kept ? RESOLVE_FAILED : RESOLVE_PENDING);
		assert_int_equal(a.e.reason, REASON_DNS_FAILED);
	}
}

static void test_never_answered(void **state)
{
	struct fix *f = *state;
	struct answer a;

	ask_for(f, &a, "silent.test", 250);
	assert_true(a.took_ms >= 230 && a.took_ms < 450);
	assert_int_equal(a.e.reason, REASON_DNS_TIMEOUT);
	assert_non_null(strstr(a.e.text, "DNS"));
	assert_non_null(strstr(a.e.text, "silent.test"));
}

/* c-ares gives up by itself within the configured time. */
static void test_tries_fit_the_time(void **state)
{
	struct fix *f = *state;
	struct answer a;

	resolver_free(f->resolver);
	f->config.limits.dns_ms = 500;
	assert_int_equal(resolver_new(f->loop, &f->config, &f->resolver, NULL), 0);
	ask_for(f, &a, "silent.test", 2500);
	assert_true(a.took_ms < 900);
	assert_int_equal(a.e.reason, REASON_DNS_TIMEOUT);
	assert_int_equal(dns_server_count(&f->server, " A:silent.test/udp"), 3);
}

static void test_truncated_goes_to_tcp(void **state)
{
	struct fix *f = *state;
	struct answer a;

	ask_for(f, &a, "big.test", 2000);
	assert_string_equal(text_of(&a), "2001:db8::1 192.0.2.1");
	assert_int_equal(dns_server_count(&f->server, " A:big.test/tcp"), 1);
	assert_int_equal(dns_server_count(&f->server, " AAAA:big.test/tcp"), 1);
}

static void test_hundred_addresses(void **state)
{
	struct ipaddr v6 = ip("2001:db8::10"), v4 = ip("192.0.2.16");
	struct fix *f = *state;
	struct answer a;

	ask_for(f, &a, "hundred.test", 2000);
	assert_int_equal(a.r.n, LIMIT_DNS_ADDRESSES);
	assert_true(ipaddr_eq(&a.r.addrs[LIMIT_DNS_ADDRESSES - 2], &v6));
	assert_true(ipaddr_eq(&a.r.addrs[LIMIT_DNS_ADDRESSES - 1], &v4));
}

static void test_order_stays_and_repeats_go(void **state)
{
	struct fix *f = *state;
	struct answer a;

	ask_for(f, &a, "order.test", 2000);
	assert_string_equal(text_of(&a),
			    "2001:db8::1 192.0.2.9 192.0.2.3 192.0.2.7 192.0.2.1 192.0.2.5");
}

static void test_ttl(void **state)
{
	struct fix *f = *state;
	struct answer a;

	ask_for(f, &a, "ttl0.test", 2000);
	assert_string_equal(text_of(&a), "192.0.2.1");
	ask_for(f, &a, "ttl0.test", 2000);
	assert_int_equal(a.status, RESOLVE_PENDING);
	assert_string_equal(text_of(&a), "192.0.2.2");
	ask_for(f, &a, "ttl60.test", 2000);
	assert_string_equal(text_of(&a), "192.0.2.1");
	ask_for(f, &a, "ttl60.test", 2000);
	assert_int_equal(a.status, RESOLVE_DONE);
	assert_string_equal(text_of(&a), "192.0.2.1");
}

/* The chain is in the answer; nobody asks for its names. The shortest time to live rules. */
static void test_cname(void **state)
{
	struct fix *f = *state;
	struct answer a;

	ask_for(f, &a, "cname.test", 2000);
	assert_string_equal(text_of(&a), "192.0.2.1");
	ask_for(f, &a, "cname.test", 2000);
	assert_int_equal(a.status, RESOLVE_DONE);
	ask_for(f, &a, "cname0.test", 2000);
	assert_string_equal(text_of(&a), "192.0.2.1");
	ask_for(f, &a, "cname0.test", 2000);
	assert_string_equal(text_of(&a), "192.0.2.2");
	assert_int_equal(dns_server_count(&f->server, "elsewhere"), 0);
}

static void test_environment_is_not_read(void **state)
{
	struct fix *f = *state;
	char aliases[] = "/tmp/stile-aliases-test-XXXXXX";
	struct answer a;

	close(mkstemp(aliases));
	write_file(aliases, "none evil.test\nnone.test evil.test\n");
	setenv("LOCALDOMAIN", "search.evil.test", 1);
	setenv("RES_OPTIONS", "ndots:5 attempts:9 rotate", 1);
	setenv("HOSTALIASES", aliases, 1);
	setenv("CARES_HOSTS", aliases, 1);
	resolver_free(f->resolver);
	assert_int_equal(resolver_new(f->loop, &f->config, &f->resolver, NULL), 0);
	ask_for(f, &a, "none.test", 2000);
	assert_false(a.found);
	/* A name without a dot is asked for as it is. */
	ask_for(f, &a, "single", 2000);
	assert_true(a.found);
	unsetenv("LOCALDOMAIN");
	unsetenv("RES_OPTIONS");
	unsetenv("HOSTALIASES");
	unsetenv("CARES_HOSTS");
	unlink(aliases);
	assert_int_equal(dns_server_count(&f->server, "evil"), 0);
	assert_int_equal(dns_server_questions(&f->server), 4);
	assert_int_equal(dns_server_count(&f->server, ":single/"), 2);
}

/* ---- many at once ---- */

static void test_one_question_for_many(void **state)
{
	struct fix *f = *state;
	struct answer a[5];

	for (size_t i = 0; i < 5; i++)
		start(f, &a[i], "v4slow.test", i == 1 ? 50 : 2000);
	resolve_cancel(a[2].question);
	run_for(f->loop, 0); /* nothing yet */
	while (a[0].calls + a[1].calls + a[3].calls + a[4].calls < 4)
		run_loop(f->loop, 2000);
	assert_int_equal(dns_server_count(&f->server, " A:v4slow.test/"), 1);
	assert_int_equal(dns_server_count(&f->server, " AAAA:v4slow.test/"), 1);
	assert_int_equal(a[2].calls, 0);
	/* The short one had to do with what there was. */
	assert_string_equal(text_of(&a[1]), "2001:db8::1");
	assert_string_equal(text_of(&a[0]), "2001:db8::1 192.0.2.1");
	assert_string_equal(text_of(&a[4]), "2001:db8::1 192.0.2.1");
}

static void test_each_has_its_own_time(void **state)
{
	struct fix *f = *state;
	struct answer a, b;
	int64_t from = clock_ms();

	start(f, &a, "silent.test", 300);
	start(f, &b, "silent.test", 100);
	run_loop(f->loop, 1000);
	assert_int_equal(b.calls, 1);
	assert_int_equal(a.calls, 0);
	assert_true(clock_ms() - from < 250);
	run_loop(f->loop, 1000);
	assert_int_equal(a.calls, 1);
	assert_true(clock_ms() - from >= 280);
}

static struct answer inner, victim;

static void on_done_do_more(void *arg, const struct resolved *found, const struct err *e)
{
	struct answer *a = arg;

	(void)found;
	(void)e;
	a->calls++;
	if (victim.question)
		resolve_cancel(victim.question);
	victim.question = NULL;
	start(a->fix, &inner, "other.test", 1000);
	assert_int_equal(inner.status, RESOLVE_PENDING);
}

static void test_callback_asks_and_cancels(void **state)
{
	struct fix *f = *state;
	struct answer a = {.fix = f};
	struct host host;

	assert_int_equal(host_parse(STR("good.test"), &host, NULL), 0);
	assert_int_equal(resolve_start(f->resolver, &host, 1000, on_done_do_more, &a, &a.r,
				       &a.question, &a.e),
			 RESOLVE_PENDING);
	start(f, &victim, "good.test", 1000); /* ready in the same moment */
	run_loop(f->loop, 1000);
	assert_int_equal(a.calls, 1);
	assert_int_equal(victim.calls, 0);
	assert_int_equal(inner.calls, 1);
	assert_true(inner.found);
}

static void on_done_free(void *arg, const struct resolved *found, const struct err *e)
{
	struct answer *a = arg;

	(void)found;
	(void)e;
	a->calls++;
	resolver_free(a->fix->resolver);
	a->fix->resolver = NULL;
	loop_stop(a->fix->loop);
}

static void test_callback_frees_the_resolver(void **state)
{
	struct fix *f = *state;
	struct answer a = {.fix = f}, b, c;
	struct host host;

	assert_int_equal(host_parse(STR("good.test"), &host, NULL), 0);
	resolve_start(f->resolver, &host, 1000, on_done_free, &a, &a.r, &a.question, &a.e);
	start(f, &b, "good.test", 1000);
	start(f, &c, "silent.test", 1000);
	run_loop(f->loop, 1000);
	assert_int_equal(a.calls, 1);
	assert_int_equal(b.calls, 1);
	assert_int_equal(c.calls, 1);
	assert_false(c.found);
}

static void test_free_answers_what_is_open(void **state)
{
	struct fix *f = *state;
	struct answer a, b;

	start(f, &a, "silent.test", 1000);
	start(f, &b, "good.test", 1000);
	resolver_free(f->resolver);
	f->resolver = NULL;
	assert_int_equal(a.calls, 1);
	assert_int_equal(b.calls, 1);
	assert_false(a.found);
	assert_int_equal(a.e.reason, REASON_DNS_FAILED);
}

/* A flood of names that are never answered ends at a bound, and leaves nothing behind. */
static void test_flood(void **state)
{
	enum { FLOOD = 2100 };
	struct fix *f = *state;
	struct answer *a = calloc(FLOOD, sizeof(*a));
	char name[64];
	size_t n = 0;

	assert_non_null(a);
	for (; n < FLOOD; n++) {
		snprintf(name, sizeof(name), "silent.%zu.test", n);
		start(f, &a[n], name, 1000);
		if (a[n].status != RESOLVE_PENDING)
			break;
	}
	assert_int_equal(n, 2048);
	assert_int_equal(a[n].status, RESOLVE_FAILED);
	assert_int_equal(a[n].e.reason, REASON_OVERLOADED);
	for (size_t i = 0; i < n; i++)
		resolve_cancel(a[i].question);
	run_for(f->loop, 10);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(a[i].calls, 0);
	free(a);
}

/* ---- servers ---- */

static void test_no_server(void **state)
{
	struct fix *f = *state;
	int fd = bound_at("127.0.0.1", 0, SOCK_DGRAM, -1);
	struct answer a;

	snprintf(f->server.addr, sizeof(f->server.addr), "127.0.0.1:%u", port_of(fd));
	close(fd);
	resolver_free(f->resolver);
	f->config.limits.dns_ms = 350;
	assert_int_equal(resolver_new(f->loop, &f->config, &f->resolver, NULL), 0);
	ask_for(f, &a, "good.test", 2000);
	assert_true(a.took_ms < 700);
	assert_false(a.found);
	assert_non_null(strstr(a.e.text, "no DNS server answered"));
}

/* Where resolv.conf can point to. */
static int bind_53(const char *addr)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(53)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_int_equal(inet_pton(AF_INET, addr, &in.sin_addr), 1);
	if (bind(fd, (struct sockaddr *)&in, sizeof(in)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The files of the system: a name in hosts is not asked for, in either family; a resolv.conf that
 * changes is followed, and what is under way on the old servers ends there. */
static void test_system_files(void **state)
{
	struct fix *f = *state;
	char dir[] = "/tmp/stile-resolve-test-XXXXXX", conf[64], hosts[64];
	int old = bind_53("127.0.0.9"), fresh = bind_53("127.0.0.10");
	struct answer a, b;
	char q[512];

	if (old < 0 || fresh < 0) {
		close(old);
		close(fresh);
		skip(); /* needs root */
	}
	assert_non_null(mkdtemp(dir));
	snprintf(conf, sizeof(conf), "%s/resolv.conf", dir);
	snprintf(hosts, sizeof(hosts), "%s/hosts", dir);
	write_file(conf, "search evil.test\noptions ndots:9\nnameserver 127.0.0.9\n");
	write_file(hosts, "10.1.1.1 inhosts.test\n");
	resolver_free(f->resolver);
	assert_int_equal(resolver_new_at(f->loop, NULL, conf, hosts, &f->resolver, NULL), 0);
	ask_for(f, &a, "inhosts.test", 1000);
	assert_int_equal(a.status, RESOLVE_DONE);
	assert_string_equal(text_of(&a), "10.1.1.1");
	start(f, &a, "one.test", 400);
	run_for(f->loop, 5);
	for (int i = 0; i < 2; i++) /* A and AAAA of one.test, and nothing of inhosts.test */
		assert_true(recv(old, q, sizeof(q), MSG_DONTWAIT) > 0 &&
			    memcmp(q + 12, "\3one\4test", 10) == 0);
	assert_int_equal(recv(old, q, sizeof(q), MSG_DONTWAIT), -1);

	write_file(conf, "nameserver 127.0.0.10\n# longer than before, or at least different\n");
	start(f, &b, "two.test", 200); /* looked at just now: still the old one */
	run_for(f->loop, 5);
	assert_true(recv(old, q, sizeof(q), MSG_DONTWAIT) > 0);
	resolve_cancel(b.question);
	resolver_look_again(f->resolver);
	start(f, &b, "three.test", 200);
	run_for(f->loop, 5);
	assert_true(recv(fresh, q, sizeof(q), MSG_DONTWAIT) > 0);
	assert_memory_equal(q + 12, "\5three", 6);
	run_loop(f->loop, 1000);
	run_loop(f->loop, 1000);
	assert_int_equal(a.calls, 1);
	assert_int_equal(b.calls, 1);
	assert_int_equal(b.e.reason, REASON_DNS_TIMEOUT);
	close(old);
	close(fresh);
	resolver_free(f->resolver);
	f->resolver = NULL;
	unlink(conf);
	unlink(hosts);
	rmdir(dir);
}

static void test_server_texts(void **state)
{
	static const char *const good[] = {"127.0.0.1", "127.0.0.1:5353", "::1",
					   "[::1]",	"[::1]:53",	  "2001:db8::1"};
	static const char *const bad[] = {"",
					  "dns.test",
					  "127.0.0.1:",
					  "127.0.0.1:0",
					  "127.0.0.1:65536",
					  "127.0.0.1:5x",
					  "[::1",
					  "[::1]x",
					  "[127.0.0.1]x",
					  "fe80::1%eth0",
					  "127.0.0.1,::1",
					  "dns://127.0.0.1",
					  "[fe80::1%lo]:53",
					  "127.1"};
	struct fix *f = *state;
	struct resolver *r = NULL;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		f->servers[0] = (char *)(uintptr_t)good[i];
		assert_int_equal(resolver_new(f->loop, &f->config, &r, &e), 0);
		resolver_free(r);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		f->servers[0] = (char *)(uintptr_t)bad[i];
		assert_int_equal(resolver_new(f->loop, &f->config, &r, &e), -1);
		assert_non_null(strstr(e.text, "DNS server"));
	}
	/* Without a configuration: the system's servers. */
	assert_int_equal(resolver_new(f->loop, NULL, &r, &e), 0);
	resolver_free(r);
}

/* ---- the cache ---- */

static bool cached(struct dns_cache *c, const char *name, enum dns_family f, int64_t now_s,
		   struct dns_answer *ret)
{
	return dns_cache_get(c, str_from_c(name), f, now_s * 1000000, ret);
}

static void test_cache_times(void **state)
{
	struct dns_answer found = {.status = DNS_FOUND, .ttl_secs = 10, .n = 1}, a;
	struct dns_answer none = {.status = DNS_NO_NAME};
	struct dns_cache *c;

	(void)state;
	found.addrs[0] = ip("192.0.2.1");
	assert_int_equal(dns_cache_new(4, &c, NULL), 0);
	dns_cache_put(c, STR("a"), DNS_V4, 0, &found);
	assert_true(cached(c, "a", DNS_V4, 9, &a));
	assert_true(ipaddr_eq(&a.addrs[0], &found.addrs[0]));
	assert_false(cached(c, "a", DNS_V4, 10, &a));
	assert_false(cached(c, "a", DNS_V6, 0, &a));
	found.ttl_secs = UINT32_MAX;
	dns_cache_put(c, STR("a"), DNS_V4, 0, &found);
	assert_true(cached(c, "a", DNS_V4, LIMIT_DNS_TTL_SECS - 1, &a));
	assert_false(cached(c, "a", DNS_V4, LIMIT_DNS_TTL_SECS, &a));
	dns_cache_put(c, STR("a"), DNS_V6, 0, &none);
	assert_true(cached(c, "a", DNS_V6, 4, &a));
	assert_int_equal(a.status, DNS_NO_NAME);
	assert_false(cached(c, "a", DNS_V6, 5, &a));
	/* A TTL of 0 also ends what was there before. */
	found.ttl_secs = 0;
	dns_cache_put(c, STR("a"), DNS_V4, 0, &found);
	assert_false(cached(c, "a", DNS_V4, 0, &a));
	dns_cache_free(c);
}

static void test_cache_bound(void **state)
{
	struct dns_answer found = {.status = DNS_FOUND, .ttl_secs = 10, .n = 1}, a;
	struct dns_cache *c;

	(void)state;
	found.addrs[0] = ip("192.0.2.1");
	assert_int_equal(dns_cache_new(2, &c, NULL), 0);
	dns_cache_put(c, STR("a"), DNS_V4, 0, &found);
	dns_cache_put(c, STR("b"), DNS_V4, 0, &found);
	assert_true(cached(c, "a", DNS_V4, 0, &a));
	dns_cache_put(c, STR("c"), DNS_V4, 0, &found);
	assert_true(cached(c, "a", DNS_V4, 0, &a));
	assert_false(cached(c, "b", DNS_V4, 0, &a));
	assert_true(cached(c, "c", DNS_V4, 0, &a));
	dns_cache_empty(c);
	assert_false(cached(c, "a", DNS_V4, 0, &a));
	dns_cache_free(c);
	dns_cache_free(NULL);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_SERVER(test_nothing_to_ask),
		WITH_SERVER(test_fixed_names_come_first),
		cmocka_unit_test(test_hosts_file),
		WITH_SERVER(test_both_families),
		WITH_SERVER(test_aaaa_servfail),
		WITH_SERVER(test_aaaa_never_answered),
		WITH_SERVER(test_aaaa_late),
		WITH_SERVER(test_a_slow_or_never),
		WITH_SERVER(test_failures),
		WITH_SERVER(test_never_answered),
		WITH_SERVER(test_tries_fit_the_time),
		WITH_SERVER(test_truncated_goes_to_tcp),
		WITH_SERVER(test_hundred_addresses),
		WITH_SERVER(test_order_stays_and_repeats_go),
		WITH_SERVER(test_ttl),
		WITH_SERVER(test_cname),
		WITH_SERVER(test_environment_is_not_read),
		WITH_SERVER(test_one_question_for_many),
		WITH_SERVER(test_each_has_its_own_time),
		WITH_SERVER(test_callback_asks_and_cancels),
		WITH_SERVER(test_callback_frees_the_resolver),
		WITH_SERVER(test_free_answers_what_is_open),
		WITH_SERVER(test_flood),
		WITH_SERVER(test_no_server),
		WITH_SERVER(test_server_texts),
		WITH_SERVER(test_system_files),
		cmocka_unit_test(test_cache_times),
		cmocka_unit_test(test_cache_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
