/*
 * record_redact_query. The input is a query as it came and, up to each 0xff in it, a program that
 * spells a pair with a secret key: which word, what stands around it, which case, how it is
 * percent-encoded.
 * - A query without a secret key is not changed.
 * - What is redacted once is not changed by a second time; nothing is added but the mark.
 * - It is byte for byte what the reference of the unit tests makes of it.
 * - The value of a secret key is gone, however the key is spelt and whatever stands around it.
 */
#include "logging/limits.h"
#include "logging/record.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/logging/redact_reference.h"

#define SECRET "S3cr3t"
#define BOUND  (1u << 20)

/* Words of logging/README.md, and what may stand before and behind one. */
static const char *const words[] = {"key",	 "token",      "secret",    "password", "sig",
				    "signature", "credential", "auth",	    "code",	"session",
				    "jwt",	 "apikey",     "accesskey", "sessionid"};
/* Words that count at the end of a compound, too. */
static const char *const ends[] = {"token",  "secret",	  "password",	"signature",
				   "apikey", "accesskey", "credential", "sessionid"};
static const char *const before[] = {"", "X-Amz-", "my_", "user.", "a[", "x-", "0", "%5B", "$"};
static const char *const behind[] = {"", "-id", "_2", "[]", ".x", "]", "1", "%5D", "Value"};

static void flip_case(struct strbuf *key, struct fuzz_random *r, size_t from, size_t to)
{
	/* All of a word or none of it: a change of case within is an edge between two words. */
	if (fuzz_pick(r, 2))
		for (size_t i = from; i < to; i++)
			if (key->data[i] >= 'a' && key->data[i] <= 'z')
				key->data[i] = (char)(key->data[i] ^ 0x20);
}

static void make_key(struct strbuf *key, struct str *program, struct fuzz_random *r)
{
	unsigned what = fuzz_u8(program);
	size_t from, to;

	if (what & 1) {
		/* securityToken, userapikey */
		strbuf_adds(key, what & 2 ? "security" : "user");
		from = key->len;
		strbuf_adds(key, ends[fuzz_u8(program) % ARRAY_LEN(ends)]);
		if (what & 4)
			key->data[from] = (char)(key->data[from] ^ 0x20);
		return;
	}
	strbuf_adds(key, before[fuzz_u8(program) % ARRAY_LEN(before)]);
	from = key->len;
	strbuf_adds(key, words[fuzz_u8(program) % ARRAY_LEN(words)]);
	to = key->len;
	strbuf_adds(key, behind[fuzz_u8(program) % ARRAY_LEN(behind)]);
	/* keyValue is two words, KEYValue too; but KeyValue must begin as one. */
	flip_case(key, r, from, to);
}

/* Some bytes of the key as escapes, again and again. Escapes of escapes count as layers: three, and
 * those of the words above make four. */
static void encode(struct strbuf *key, unsigned layers, struct fuzz_random *r)
{
	static const char *const digits[] = {"0123456789ABCDEF", "0123456789abcdef"};

	for (unsigned i = 0; i < layers; i++) {
		struct strbuf out;

		strbuf_init(&out, BOUND);
		for (size_t at = 0; at < key->len; at++) {
			unsigned c = (uint8_t)key->data[at];
			const char *hex = digits[fuzz_pick(r, 2)];

			if (fuzz_pick(r, 4)) {
				strbuf_addc(&out, (char)c);
				continue;
			}
			strbuf_addc(&out, '%');
			strbuf_addc(&out, hex[c >> 4]);
			strbuf_addc(&out, hex[c & 15]);
		}
		strbuf_clear(key);
		*key = out;
	}
}

static void add_pair(struct strbuf *query, struct str program, struct fuzz_random *r)
{
	struct strbuf key;

	strbuf_init(&key, BOUND);
	make_key(&key, &program, r);
	encode(&key, fuzz_u8(&program) % 4, r);
	strbuf_add(query, strbuf_str(&key));
	strbuf_adds(query, "=" SECRET);
	/* To a server that knows no ';' this is still the value. */
	if (fuzz_u8(&program) & 1)
		strbuf_adds(query, ";" SECRET);
	strbuf_clear(&key);
}

static bool has(const struct strbuf *b, const char *word)
{
	return b->len > 0 && memmem(b->data, b->len, word, strlen(word)) != NULL;
}

static void redact(struct str query, struct strbuf *out)
{
	char *copy = fuzz_copy(query);

	strbuf_init(out, BOUND);
	record_redact_query(str_from(copy, query.n), out);
	CHECK(!out->overflowed);
	free(copy);
}

static void check_plain(struct str query)
{
	struct strbuf once, twice;

	redact(query, &once);
	redact(strbuf_str(&once), &twice);
	/* A user that is taken out may have held the pair's first '=', so that what follows is a
	 * key only then. */
	if (!has(&once, "[redacted]@") && !has(&once, "[redacted]%"))
		fuzz_check_same(&once, &twice);
	if (!has(&once, "[redacted]"))
		CHECK(str_eq(strbuf_str(&once), query));
	strbuf_clear(&once);
	strbuf_clear(&twice);
}

static void check_secret(struct str in, struct fuzz_random *r)
{
	struct str rest = in;
	struct strbuf query, out;

	strbuf_init(&query, BOUND);
	while (rest.p) {
		struct str program = str_split(&rest, (char)0xff);
		/* What stands beside it comes from the input as well, but not the secret. */
		struct str other = str_head(program, program.n / 2);

		strbuf_add(&query, other);
		strbuf_addc(&query, fuzz_pick(r, 2) ? '&' : ';');
		add_pair(&query, str_skip(program, other.n), r);
		strbuf_addc(&query, fuzz_pick(r, 2) ? '&' : ';');
		/* A bare piece behind a ';' belongs to the value. */
		strbuf_adds(&query, "page=2&");
	}
	redact(strbuf_str(&query), &out);
	if (has(&out, SECRET)) {
		(void)fprintf(stderr, "survives: %s\n%s\n", strbuf_cstr(&query), strbuf_cstr(&out));
		abort();
	}
	CHECK(has(&out, "page=2"));
	strbuf_clear(&query);
	strbuf_clear(&out);
}

static void check_reference(struct str in)
{
	struct strbuf got, want;

	redact(in, &got);
	strbuf_init(&want, BOUND);
	redact_reference(in, &want);
	CHECK(str_eq(strbuf_str(&got), strbuf_str(&want)));
	strbuf_clear(&got);
	strbuf_clear(&want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_random r = fuzz_random(data, size);
	struct str in = str_from(data, size);
	struct strbuf harmless;

	if (size > 4096 || memmem(data, size, SECRET, sizeof(SECRET) - 1))
		return 0;
	check_plain(in);
	check_reference(in);
	check_secret(in, &r);
	redact(STR("page=2&q=a+b%20c&limit=10;name=x&=&&color"), &harmless);
	CHECK(str_eq(strbuf_str(&harmless), STR("page=2&q=a+b%20c&limit=10;name=x&=&&color")));
	strbuf_clear(&harmless);
	return 0;
}
