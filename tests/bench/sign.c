/*
 * What a signature of AWS costs a request: the canonical request of a usual GET of S3 with a
 * session token, signed again and again with one key. Links against libcredentials alone. Prints
 * one JSON object: CPU, and the same with a key that must be derived.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "logging/limits.h"
#include "proxy/credentials/sigv4.h"

#define ROUNDS 50000

static double cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double run(struct sigv4 *s, struct sigv4_request *r, bool fresh)
{
	double before = cpu_ns();

	for (int i = 0; i < ROUNDS; i++) {
		struct fields extra = {0};
		struct strbuf mem;

		strbuf_init(&mem, SIGV4_MAX_TEXT);
		/* Another day is another key. */
		if (fresh)
			r->now += 86400;
		if (sigv4_sign(s, r, &mem, &extra, NULL) < 0)
			exit(1);
		fields_clear(&extra);
		strbuf_wipe(&mem);
	}
	return (cpu_ns() - before) / ROUNDS;
}

int main(void)
{
	char token[901];
	struct fields fields = {0};
	struct sigv4 *s;
	struct url u;
	struct sigv4_request r = {
		.method = STR("GET"),
		.url = &u,
		.fields = &fields,
		.payload = STR(SIGV4_EMPTY_HASH),
		.region = STR("eu-central-1"),
		.service = STR("s3"),
		.now = 1780000000,
	};
	double kept, fresh;

	for (size_t i = 0; i < sizeof(token) - 1; i++)
		token[i] = (char)('A' + i % 26);
	token[sizeof(token) - 1] = '\0';
	r.who = (struct sigv4_parts){STR("ASIAABCDEFGHIJKLMNOP"),
				     STR("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
				     str_from_c(token)};
	if (url_parse_absolute(STR("https://bucket.s3.eu-central-1.amazonaws.com/some/key/of/usual/"
				   "length.parquet?x-id=GetObject"),
			       &u, NULL) < 0 ||
	    fields_add(&fields, STR("x-amz-checksum-mode"), STR("ENABLED")) < 0 ||
	    sigv4_new(&s, NULL) < 0)
		return 1;
	kept = run(s, &r, false);
	fresh = run(s, &r, true);
	printf("{\"sign_ns\": %.0f, \"derive_ns\": %.0f}\n", kept, fresh);
	sigv4_free(s);
	fields_clear(&fields);
	url_clear(&u);
	return 0;
}
