/*
 * What placeholders cost a request: the search of a usual head that has none, the swap in a field,
 * in the query, in a Basic pair, and the search and the swap in bodies. Links against the
 * credentials and what is below. Prints one JSON object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "logging/limits.h"
#include "policy/config.h"
#include "proxy/credentials/body_swap.h"
#include "proxy/credentials/encode.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/swap.h"
#include "proxy/http/h1.h"

#define TIMES 200000
#define CHUNK 16384
#define BULK  (512u << 20)

static double now_ns(void)
{
	struct timespec t;

	/* The processor's own time: who else runs is of no account. */
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static struct config *load(long n)
{
	struct config *c = NULL;
	struct strbuf b;
	struct faults f;

	strbuf_init(&b, 1 << 20);
	strbuf_adds(&b, "version: 1\ncredentials:\n");
	for (long i = 0; i < n; i++)
		strbuf_addf(&b,
			    "  k%ld: {from: {env: NONE}, as: {placeholder: {env: K%ld, length: 40, "
			    "in: [header, basic, query]}}}\n",
			    i, i);
	strbuf_adds(&b, "policies: {p: {rules: [{allow: a.test, credential: k0}]}}\n");
	faults_init(&f, "bench.yaml");
	if (config_load_text("bench.yaml", strbuf_str(&b), &c, &f) < 0)
		exit(1);
	faults_clear(&f);
	strbuf_clear(&b);
	return c;
}

static struct request *request_with(const char *query, const char *field)
{
	struct h1_context where = {.in_tunnel = true, .scheme = SCHEME_HTTPS, .port = 443};
	struct request *r = malloc(sizeof(*r));
	struct strbuf b;

	strbuf_init(&b, 65536);
	strbuf_addf(
		&b,
		"GET /repos/acme/site/issues?state=open&per_page=100%s HTTP/1.1\r\nHost: a.test\r\n"
		"User-Agent: python-requests/2.28.1\r\nAccept-Encoding: gzip, deflate, br\r\n"
		"Accept: application/vnd.github+json\r\nConnection: keep-alive\r\n"
		"X-GitHub-Api-Version: 2022-11-28\r\n%s\r\n",
		query, field);
	request_init(r);
	if (host_parse(STR("a.test"), &where.host, NULL) < 0 ||
	    h1_parse_request(strbuf_str(&b), &where, r, NULL) < 0)
		exit(1);
	strbuf_clear(&b);
	return r;
}

static double search_ns(const struct placeholders *p)
{
	struct request *r =
		request_with("",
			     "Authorization: Bearer 0123456789012345678901234567890123456789\r\n");
	double begun = now_ns();

	for (int i = 0; i < TIMES; i++)
		if (swap_check_none(p, r, NULL) < 0)
			exit(1);
	request_clear(r);
	free(r);
	return (now_ns() - begun) / TIMES;
}

/* Taking out and putting in; what is taken is put back without being counted much. */
static double swap_ns(const struct placeholders *p, const struct config *c, struct secret *s,
		      const char *query, const char *field)
{
	const struct config_credential *k = config_credential(c, "k0");
	struct request *r = request_with(query, field);
	size_t fields_n = r->fields.n, query_n = r->url.query.n, own;
	char *copy = malloc(query_n);
	struct field *v = malloc(fields_n * sizeof(*v));
	struct injection inj;
	double begun;

	memcpy(copy, r->url.query.p, query_n);
	memcpy(v, r->fields.v, fields_n * sizeof(*v));
	if (!placeholders_find(p, STR_NONE, "k0", &own))
		exit(1);
	injection_init(&inj);
	begun = now_ns();
	for (int i = 0; i < TIMES; i++) {
		struct swap w;

		swap_init(&w);
		if (swap_take(p, k, own, RULE_CLIENT_STRIP, r, &w, NULL) < 0 || !swap_is_any(&w) ||
		    swap_put(p, k, own, r, &w, s, RULE_CLIENT_STRIP, &inj, NULL) < 0)
			exit(1);
		swap_clear(&w);
		memcpy(r->fields.v, v, fields_n * sizeof(*v));
		r->fields.n = fields_n;
		memcpy((void *)(uintptr_t)r->url.query.p, copy, query_n);
		r->url.query.n = query_n;
	}
	begun = (now_ns() - begun) / TIMES;
	injection_clear(&inj);
	request_clear(r);
	free(r);
	free(copy);
	free(v);
	return begun;
}

static size_t taken;

static void sink(void *arg, struct str data)
{
	(void)arg;
	taken += data.n;
}

/* JSON-like text; `own` in each chunk when something is swapped. */
static double body_gb_per_s(const struct placeholders *p, struct secret *s)
{
	char *chunk = malloc(CHUNK);
	struct body_swap b;
	double begun;
	size_t own;

	for (size_t i = 0; i < CHUNK; i++)
		chunk[i] = "{\"name\": \"value of some length\", \"n\": 12345}, "[i % 45];
	body_swap_init(&b, placeholders_needles(p));
	if (s) {
		if (!placeholders_find(p, STR_NONE, "k0", &own))
			exit(1);
		memcpy(chunk + 5000, needles_text(placeholders_needles(p), own).p, 40);
		body_swap_give(&b, "k0", own, secret_ref(s), UINT64_MAX);
	}
	begun = now_ns();
	for (size_t done = 0; done < BULK; done += CHUNK)
		if (body_swap_feed(&b, str_from(chunk, CHUNK), sink, NULL, NULL) < 0)
			exit(1);
	begun = BULK / (now_ns() - begun);
	body_swap_clear(&b);
	free(chunk);
	return begun;
}

int main(int argc, char **argv)
{
	long n = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
	struct placeholders *p = NULL;
	struct secret *s = secret_new(40);
	char header[256], query[256];
	struct strbuf basic;
	struct str text;
	struct config *c;
	size_t own;

	if (n <= 0 || !s) {
		fprintf(stderr, "usage: placeholders COUNT\n");
		return 2;
	}
	memset(secret_room(s), 'S', 40);
	secret_trim(s, 40);
	c = load(n);
	if (placeholders_new(c, &p, NULL) < 0 || !placeholders_find(p, STR_NONE, "k0", &own))
		return 1;
	text = needles_text(placeholders_needles(p), own);
	snprintf(header, sizeof(header), "Authorization: Bearer %s\r\n", text.p);
	snprintf(query, sizeof(query), "&api_key=%s", text.p);
	strbuf_init(&basic, 1000);
	strbuf_adds(&basic, "Authorization: Basic ");
	encode_base64(&basic, STR("x-access-token:"), text);
	strbuf_adds(&basic, "\r\n");
	printf("{\"count\":%ld,\"search_ns\":%.0f,\"header_ns\":%.0f,\"query_ns\":%.0f,\"basic_"
	       "ns\":%.0f,"
	       "\"body_search_gb_s\":%.2f,\"body_swap_gb_s\":%.2f}\n",
	       n, search_ns(p), swap_ns(p, c, s, "", header), swap_ns(p, c, s, query, ""),
	       swap_ns(p, c, s, "", strbuf_cstr(&basic)), body_gb_per_s(p, NULL),
	       body_gb_per_s(p, s));
	strbuf_clear(&basic);
	placeholders_free(p);
	config_unref(c);
	secret_unref(s);
	return taken == 0;
}
