/*
 * What a list costs: a policy file of N hosts is loaded, asked, and weighed. Every tenth host is a
 * wildcard; a rule holds a hundred of them; half of the questions name a host that is not listed.
 * Links against libpolicy alone. Prints one JSON object.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/config.h"
#include "policy/policy.h"
#include "policy/yaml.h"

#define PER_RULE  100
#define QUESTIONS 4096
#define ASKED	  2000000

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void write_config(const char *path, long hosts)
{
	FILE *f = fopen(path, "w");

	if (!f) {
		perror(path);
		exit(1);
	}
	fputs("version: 1\nlisten: [{proxy: \"127.0.0.1:0\"}]\npolicies:\n  default:\n    rules:\n",
	      f);
	for (long i = 0; i < hosts; i++) {
		const char *wild = i % 10 == 9 ? "*." : "";

		if (i % PER_RULE == 0)
			fprintf(f, "%s      - allow: [", i ? "]\n" : "");
		fprintf(f, "%s\"%sh%ld.zone%ld.example.com\"", i % PER_RULE ? ", " : "", wild, i,
			i % 977);
	}
	fputs("]\n", f);
	fclose(f);
}

/* Every name is another one than the last, so that the processor's caches see what they see. */
static void make_questions(struct host *q, long hosts)
{
	unsigned long long seed = 88172645463325252ULL;

	for (int i = 0; i < QUESTIONS; i++) {
		char name[128];
		long n;

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		n = (long)(seed % (unsigned long long)hosts);
		snprintf(name, sizeof(name), "%s%sh%ld.zone%ld.example.com", i % 2 ? "no." : "",
			 n % 10 == 9 ? "a." : "", n, n % 977);
		if (host_parse(str_from_c(name), &q[i], NULL) < 0)
			exit(1);
	}
}

static double best_load_ms(const char *path, struct config **ret, size_t *ret_bytes)
{
	double best = 1e18;

	for (int i = 0; i < 5; i++) {
		struct faults f;
		size_t before;
		double begun, took;

		config_unref(*ret);
		*ret = NULL;
		faults_init(&f, path);
		before = mallinfo2().uordblks + mallinfo2().hblkhd;
		begun = now_ns();
		if (config_load_file(path, ret, &f) < 0) {
			fprintf(stderr, "%s could not be loaded\n", path);
			exit(1);
		}
		took = (now_ns() - begun) / 1e6;
		best = took < best ? took : best;
		*ret_bytes = mallinfo2().uordblks + mallinfo2().hblkhd - before;
		faults_clear(&f);
	}
	return best;
}

int main(int argc, char **argv)
{
	long hosts = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
	struct host *q = calloc(QUESTIONS, sizeof(*q));
	struct config *c = NULL;
	struct policy *p;
	size_t bytes = 0;
	double load_ms, begun, ns;
	long allowed = 0;

	if (hosts <= 0 || !q) {
		fprintf(stderr, "usage: decide HOSTS FILE\n");
		return 2;
	}
	write_config(argv[2], hosts);
	load_ms = best_load_ms(argv[2], &c, &bytes);
	p = config_policy(c, "default");
	make_questions(q, hosts);
	begun = now_ns();
	for (long i = 0; i < ASKED; i++) {
		struct policy_request r = {
			.scheme = SCHEME_HTTPS,
			.host = &q[i % QUESTIONS],
			.port = 443,
			.method = STR("GET"),
			.path = STR("/some/path/of/usual/length"),
		};
		struct policy_decision d;

		policy_decide(p, &r, &d);
		allowed += d.allow;
	}
	ns = (now_ns() - begun) / ASKED;
	printf("{\"hosts\":%ld,\"decision_ns\":%.1f,\"load_ms\":%.2f,\"mb\":%.2f,\"allowed\":%ld}"
	       "\n",
	       hosts, ns, load_ms, (double)bytes / 1e6, allowed);
	return allowed == 0;
}
