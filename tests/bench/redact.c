/*
 * What it costs to look for a credential in an answer, as it streams by in pieces of 16 KiB: in
 * text, in random bytes, in text of which each character is escaped, in base64 in lines, in letters
 * of which each may be a beginning; and unfolded out of gzip, beside the unfolding alone. Links
 * against the credentials and what is below. Prints one JSON object, CPU in ns a byte (of gzip: a
 * byte that came out).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <zlib.h>

#include "logging/limits.h"
#include "proxy/credentials/redact.h"
#include "proxy/http/content_coding.h"

#define PIECE 16384
#define TEXT  (4u << 20)

static const char value[] = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";

static double cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint64_t state = 88172645463325252u;

static unsigned pick(unsigned n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state >> 32) % n;
}

/* JSON such as an API's, a line a pair. */
static void text(char *p)
{
	static const char letters[] = "etaoinshrdlucmfwypvbgkjqxzETAOIN0123456789_-./";
	size_t n = 0;

	while (n < TEXT) {
		char line[128];
		int len = snprintf(line, sizeof(line), "  \"");

		for (unsigned i = 0; i < 3 + pick(12); i++)
			line[len++] = letters[pick(26)];
		len += snprintf(line + len, 16, "\": \"");
		for (unsigned i = 0; i < 5 + pick(60); i++)
			line[len++] = pick(6) ? letters[pick(sizeof(letters) - 1)] : ' ';
		len += snprintf(line + len, 16, "\",\n");
		if ((size_t)len > TEXT - n)
			len = (int)(TEXT - n);
		memcpy(p + n, line, (size_t)len);
		n += (size_t)len;
	}
}

static void escaped(char *p)
{
	static const char hex[] = "0123456789ABCDEF";

	for (size_t n = 0; n + 3 <= TEXT; n += 3) {
		unsigned c = 0x20 + pick(95);

		p[n] = '%';
		p[n + 1] = hex[c >> 4];
		p[n + 2] = hex[c & 15];
	}
	p[TEXT - 1] = '.';
}

static void base64(char *p)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t n = 0; n < TEXT; n++)
		p[n] = n % 77 == 76 ? '\n' : digits[pick(64)];
}

static void noise(char *p)
{
	for (size_t n = 0; n < TEXT; n++)
		p[n] = (char)pick(256);
}

/* The worst: each third of it is the beginning of the value. */
static void beginnings(char *p)
{
	for (size_t n = 0; n < TEXT; n++)
		p[n] = value[n % 13];
}

static uint64_t sum;

static void sink(void *arg, struct str data)
{
	(void)arg;
	sum += (unsigned char)data.p[0] + data.n;
}

static double search(const struct redactor *r, const char *p)
{
	double before, best = 0;

	for (int round = 0; round < 5; round++) {
		struct redaction x;

		redaction_init(&x, r);
		before = cpu_ns();
		for (size_t at = 0; at < TEXT; at += PIECE)
			if (redaction_push(&x, str_from(p + at, PIECE), sink, NULL, NULL) < 0)
				exit(1);
		redaction_end(&x, sink, NULL);
		before = (cpu_ns() - before) / TEXT;
		best = round == 0 || before < best ? before : best;
		if (x.found != 0)
			exit(1);
		redaction_clear(&x);
	}
	return best;
}

/* As deflated by a server; with r it is searched as well. */
static double unfold(const struct redactor *r, const unsigned char *coded, size_t n)
{
	struct fields f = {0};
	struct content_decoder *d = NULL;
	struct redaction x;
	double before;
	size_t at = 0;

	if (fields_add(&f, STR("Content-Encoding"), STR("gzip")) < 0 ||
	    content_decoder_new(&f, &d, NULL) < 0 || !d)
		exit(1);
	redaction_init(&x, r);
	before = cpu_ns();
	for (;;) {
		struct str out;

		if (content_decode(d, PIECE, &out, NULL) < 0)
			exit(1);
		if (out.n > 0 && r && redaction_push(&x, out, sink, NULL, NULL) < 0)
			exit(1);
		if (out.n > 0 && !r)
			sink(NULL, out);
		if (out.n == 0) {
			size_t now = n - at < PIECE ? n - at : PIECE;

			if (now == 0)
				break;
			if (content_decoder_feed(d, str_from((const char *)coded + at, now), NULL) <
			    0)
				exit(1);
			at += now;
		}
	}
	if (r)
		redaction_end(&x, sink, NULL);
	before = (cpu_ns() - before) / TEXT;
	redaction_clear(&x);
	content_decoder_free(d);
	fields_clear(&f);
	return before;
}

static size_t deflate_all(const char *p, unsigned char *out, size_t room)
{
	z_stream z = {0};

	/* 16: gzip's own head. */
	if (deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		exit(1);
	z.next_in = (unsigned char *)(uintptr_t)p;
	z.avail_in = TEXT;
	z.next_out = out;
	z.avail_out = (unsigned)room;
	if (deflate(&z, Z_FINISH) != Z_STREAM_END)
		exit(1);
	(void)deflateEnd(&z);
	return z.total_out;
}

int main(void)
{
	static const struct {
		const char *name;
		void (*make)(char *p);
	} kinds[] = {{"text", text},
		     {"random", noise},
		     {"escaped", escaped},
		     {"base64", base64},
		     {"beginnings", beginnings}};
	static char name[] = "k";
	struct config_credential c = {.name = name, .as = CREDENTIAL_AS_BEARER};
	unsigned char *coded = malloc(2 * TEXT);
	struct redactor *r = NULL;
	char *p = malloc(TEXT);
	size_t n;

	if (!p || !coded || redactor_new(&c, str_from_c(value), &r, NULL) < 0 || !r)
		return 1;
	(void)printf("{");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		kinds[i].make(p);
		(void)printf("\"%s\": %.3f, ", kinds[i].name, search(r, p));
	}
	text(p);
	n = deflate_all(p, coded, 2 * TEXT);
	(void)printf("\"gzip\": %.3f, \"gzip_searched\": %.3f}\n", unfold(NULL, coded, n),
		     unfold(r, coded, n));
	redactor_free(r);
	free(coded);
	free(p);
	return sum == 0;
}
