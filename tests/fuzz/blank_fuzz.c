/*
 * What must not come back: redactor, redaction, redact_in_place. The first byte of the input says
 * how the credential is sent, the second how long its value is (of the bytes that follow); the rest
 * is the text, in which each byte 0x01 to 0x10 stands for the value in one of its spellings.
 * - Any cut of the text gives the same bytes, as many of them as came, and the same count.
 * - In what comes out, the value stands in none of these spellings, though its letters be cut.
 * - What has nothing to be found in it comes out as it came.
 * - What is released early is of no match that ends later; what follows is blanked all the same.
 */
#include "logging/limits.h"
#include "proxy/credentials/encode.h"
#include "proxy/credentials/redact.h"
#include "tests/fuzz/fuzz.h"

#define SPELLINGS 16

static void add_unicode(struct strbuf *b, unsigned char c)
{
	strbuf_addf(b, "\\u%04x", c);
}

/* The value, spelt. UTF-8 is escaped as a whole by real encoders; here values are ASCII. */
static void spell(struct strbuf *b, struct str v, unsigned how, struct fuzz_random *r)
{
	static const char upper[] = "0123456789ABCDEF", lower[] = "0123456789abcdef";
	struct strbuf b64;

	if (how >= 8) {
		/* At each alignment, in either alphabet; in lines. */
		size_t before = (how - 8) % 3, width = how < 14 ? SIZE_MAX : 8 + fuzz_pick(r, 69);

		strbuf_init(&b64, 8 * v.n + 100);
		encode_base64(&b64, str_from("xy", before), v);
		for (size_t i = 0; i < b64.len; i++) {
			char c = b64.data[i];

			if (i > 0 && i % width == 0)
				strbuf_adds(b, how == 14 ? "\n" : "\r\n");
			strbuf_addc(b, how < 11 || how > 13 ? c
				       : c == '+'	    ? '-'
				       : c == '/'	    ? '_'
							    : c);
		}
		strbuf_clear(&b64);
		return;
	}
	for (size_t i = 0; i < v.n; i++) {
		unsigned char c = (unsigned char)v.p[i];
		const char *digits = fuzz_pick(r, 2) ? upper : lower;
		unsigned way = how == 7 ? (unsigned)fuzz_pick(r, 6) : how;

		switch (way) {
		case 1:
			strbuf_addc(b, '%');
			strbuf_addc(b, digits[c >> 4]);
			strbuf_addc(b, digits[c & 15]);
			break;
		case 2: add_unicode(b, c); break;
		case 3: strbuf_addf(b, "&#%u;", c); break;
		case 4: strbuf_addf(b, "\\x%02X", c); break;
		case 5: strbuf_addf(b, "&#x%x;", c); break;
		case 6: strbuf_addf(b, "%02x", c); break; /* all of it, or none */
		default: strbuf_addc(b, (char)c); break;
		}
	}
}

static void sink(void *arg, struct str data)
{
	strbuf_add(arg, data);
}

static uint64_t run(const struct redactor *red, struct str in, struct fuzz_random *r,
		    struct strbuf *out, bool release)
{
	struct redaction x;
	struct err e = ERR_INIT;
	uint64_t found;

	strbuf_init(out, in.n + 1);
	redaction_init(&x, red);
	for (size_t at = 0; at < in.n;) {
		size_t n = r ? fuzz_piece(r, in.n - at) : in.n;
		char *copy = fuzz_copy(str_from(in.p + at, n));

		CHECK(redaction_push(&x, str_from(copy, n), sink, out, &e) == 0);
		free(copy);
		at += n;
		CHECK(out->len <= at);
		if (release && fuzz_pick(r, 2))
			redaction_release(&x, sink, out);
	}
	redaction_end(&x, sink, out);
	CHECK(x.n == 0 && !x.held);
	CHECK(out->len == in.n);
	found = x.found;
	redaction_clear(&x);
	return found;
}

static bool has(struct str text, struct str what)
{
	return what.n > 0 && text.n >= what.n && memmem(text.p, text.n, what.p, what.n);
}

/* Blanks are made of these: a value of nothing else may come of them. */
static bool is_telling(struct str v)
{
	for (size_t i = 0; i < v.n; i++)
		if (!strchr("[redact]*", v.p[i]))
			return true;
	return false;
}

static void check(const struct redactor *red, struct str value, struct str text,
		  struct fuzz_random *r)
{
	struct strbuf whole, cut, early;
	uint64_t found = run(red, text, NULL, &whole, false);
	char *place = fuzz_copy(text);

	for (int way = 0; way < 3; way++) {
		CHECK(run(red, text, r, &cut, false) == found);
		CHECK(str_eq(strbuf_str(&cut), strbuf_str(&whole)));
		strbuf_clear(&cut);
	}
	(void)run(red, text, r, &early, true);
	CHECK(redact_in_place(red, place, text.n, false) == found);
	CHECK(str_eq(str_from(place, text.n), strbuf_str(&whole)));
	CHECK(redact_finds(red, text) == (found > 0));
	if (found == 0)
		CHECK(str_eq(strbuf_str(&whole), text));
	if (is_telling(value)) {
		CHECK(!has(strbuf_str(&whole), value));
		CHECK(!has(strbuf_str(&early), value));
		for (unsigned how = 0; how < SPELLINGS; how++) {
			struct fuzz_random fixed = {how};
			struct strbuf s;
			struct str inner;

			strbuf_init(&s, 16 * value.n + 100);
			spell(&s, value, how, &fixed);
			inner = strbuf_str(&s);
			/* Whole, as a part of its letters may be another value's. */
			while (how >= 8 && inner.n > 0 && strchr("=\r\n", inner.p[inner.n - 1]))
				inner.n--;
			CHECK(inner.n < 8 || !has(strbuf_str(&whole), inner));
			strbuf_clear(&s);
		}
	}
	free(place);
	strbuf_clear(&whole);
	strbuf_clear(&early);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char name[] = "k", user[] = "user";
	struct config_credential c = {.name = name};
	struct fuzz_random r = fuzz_random(data, size);
	struct redactor *red;
	struct err e = ERR_INIT;
	struct strbuf text;
	char value[64];
	size_t n;

	if (size < 2)
		return 0;
	c.as = data[0] & 1 ? CREDENTIAL_AS_BASIC : CREDENTIAL_AS_BEARER;
	c.username = data[0] & 2 ? user : NULL;
	n = data[1] % sizeof(value);
	data += 2;
	size -= 2;
	if (n > size)
		n = size;
	for (size_t i = 0; i < n; i++)
		value[i] = (char)(0x20 + data[i] % 95);
	CHECK(redactor_new(&c, str_from(value, n), &red, &e) == 0);
	CHECK(red || n < LIMIT_REDACT_MIN);
	if (!red)
		return 0;
	strbuf_init(&text, 1 << 20);
	for (size_t i = n; i < size; i++) {
		if (data[i] > 0 && data[i] <= SPELLINGS && n >= LIMIT_REDACT_MIN)
			spell(&text, str_from(value, n), data[i] - 1u, &r);
		else
			strbuf_addc(&text, (char)data[i]);
	}
	if (!text.overflowed && n >= LIMIT_REDACT_MIN)
		check(red, str_from(value, n), strbuf_str(&text), &r);
	strbuf_clear(&text);
	redactor_free(red);
	return 0;
}
