/*
 * The JSON writer and the audit record: json_str, json_str_max, record_format. The first byte of
 * the input chooses where the rest is cut into the values of a record.
 * - What is written is one line of clean UTF-8: no control character, no hazard for a terminal.
 * - jansson reads it back as what went in, an invalid byte as the four characters \xNN; a value
 *   that was cut is a beginning of it and ends in [cut].
 * - A record is at most LIMIT_RECORD_BYTES, has its keys in the documented order and no null.
 * - It is byte for byte what the reference of the unit tests makes, which goes piece by piece.
 * - Where the room is short nothing is written.
 */
#include <jansson.h>

#include "logging/json.h"
#include "logging/limits.h"
#include "logging/record.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/logging/record_reference.h"

/* s as a reader of the JSON is to see it. */
static void add_expected(struct strbuf *out, struct str s)
{
	while (s.n > 0) {
		uint32_t cp;
		size_t n = utf8_decode(s, &cp);

		if (cp == UTF8_INVALID)
			strbuf_addf(out, "\\x%02x", (unsigned)(uint8_t)s.p[0]);
		else
			strbuf_add(out, str_head(s, n));
		s = str_skip(s, n);
	}
}

static void check_string(const json_t *v, struct str s)
{
	struct str got, mark = STR("[cut]");
	struct strbuf want;

	CHECK(json_is_string(v));
	got = str_from(json_string_value(v), json_string_length(v));
	strbuf_init(&want, 4 * s.n + 1);
	add_expected(&want, s);
	if (!str_eq(got, strbuf_str(&want))) {
		CHECK(str_ends(got, mark));
		CHECK(str_starts(strbuf_str(&want), str_head(got, got.n - mark.n)));
	}
	strbuf_clear(&want);
}

static json_t *load(struct str line)
{
	json_error_t why;
	json_t *v = json_loadb(line.p, line.n,
			       JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);

	CHECK(utf8_clean(line) == line.n);
	CHECK(v);
	return v;
}

static void check_json(struct str s, size_t max)
{
	struct strbuf out;
	struct json j;
	json_t *v;

	strbuf_init(&out, 16 * s.n + 64);
	json_init(&j, &out);
	json_open(&j, '[');
	json_str(&j, s);
	json_str_max(&j, s, max);
	json_close(&j, ']');
	CHECK(!out.overflowed);
	v = load(strbuf_str(&out));
	CHECK(json_array_size(v) == 2);
	check_string(json_array_get(v, 0), s);
	/* Whole, though it may look as if it had been cut. */
	CHECK(json_string_length(json_array_get(v, 0)) >= s.n);
	check_string(json_array_get(v, 1), s);
	json_decref(v);
	strbuf_clear(&out);
}

/* The slices of a record, by key, in the order of the documentation; the query stands apart. */
static const char *const order[] = {
	"time",
	"event",
	"id",
	"sandbox",
	"client",
	"listener",
	"method",
	"scheme",
	"host",
	"port",
	"path",
	"query",
	"http",
	"decision",
	"reason",
	"rule",
	"rule_at",
	"policy",
	"policy_version",
	"credential",
	"credential_stripped",
	"upstream",
	"status",
	"bytes_out",
	"bytes_in",
	"redacted",
	"ms",
	"tls",
	"error",
	"error_detail",
};

static struct str *slice_of(struct record *r, const char *key)
{
	struct {
		const char *key;
		struct str *s;
	} const all[] = {
		{"id", &r->id},
		{"sandbox", &r->sandbox},
		{"client", &r->client},
		{"listener", &r->listener},
		{"method", &r->method},
		{"scheme", &r->scheme},
		{"host", &r->host},
		{"path", &r->path},
		{"http", &r->http},
		{"rule", &r->rule},
		{"rule_at", &r->rule_at},
		{"policy", &r->policy},
		{"policy_version", &r->policy_version},
		{"credential", &r->credential},
		{"upstream", &r->upstream},
		{"error", &r->error},
		{"error_detail", &r->error_detail},
	};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (strcmp(all[i].key, key) == 0)
			return all[i].s;
	return NULL;
}

static void fill(struct record *r, struct str in, struct fuzz_random *rnd)
{
	for (size_t i = 0; i < ARRAY_LEN(order); i++) {
		struct str *s = slice_of(r, order[i]);
		struct str piece;

		if (in.n == 0 || fuzz_pick(rnd, 3) == 0)
			continue;
		piece = str_head(in, fuzz_piece(rnd, in.n));
		in = str_skip(in, piece.n);
		if (s)
			*s = piece;
		else if (strcmp(order[i], "query") == 0)
			r->query = piece;
		else if (strcmp(order[i], "tls") == 0)
			r->tls_sni = r->tls_alpn = piece;
	}
	r->time.tv_sec = (time_t)fuzz_pick(rnd, 1u << 31);
	r->time.tv_nsec = (long)fuzz_pick(rnd, 1000000000);
	r->event = (enum record_event)fuzz_pick(rnd, RECORD_EVENTS);
	r->reason = (enum reason)fuzz_pick(rnd, REASON_COUNT);
	r->port = (uint16_t)fuzz_pick(rnd, 65536);
	r->has_decision = fuzz_pick(rnd, 2);
	r->credential_stripped = fuzz_pick(rnd, 2);
	r->ech = fuzz_pick(rnd, 2);
	r->has_bytes = fuzz_pick(rnd, 2);
	r->bytes_in = fuzz_pick(rnd, 1u << 31);
	r->redacted = fuzz_pick(rnd, 3);
	r->has_ms = fuzz_pick(rnd, 2);
	r->ms = (struct record_ms){-1, 1, 1000, 1234567, (int64_t)fuzz_pick(rnd, 1u << 31)};
}

static size_t place_of(const char *key)
{
	size_t i = 0;

	while (i < ARRAY_LEN(order) && strcmp(order[i], key) != 0)
		i++;
	CHECK(i < ARRAY_LEN(order));
	return i;
}

static void check_record(struct record *r, json_t *o)
{
	const char *key;
	json_t *v;
	size_t last = 0, n = 0;

	CHECK(json_is_object(o));
	json_object_foreach(o, key, v)
	{
		struct str *s = slice_of(r, key);

		CHECK(n++ == 0 || place_of(key) > last);
		last = place_of(key);
		CHECK(!json_is_null(v));
		if (s)
			check_string(v, *s);
	}
	for (size_t i = 0; i < ARRAY_LEN(order); i++) {
		struct str *s = slice_of(r, order[i]);

		if (s)
			CHECK((s->n > 0) == (json_object_get(o, order[i]) != NULL));
	}
	v = json_object_get(o, "tls");
	if (r->tls_sni.n > 0) {
		check_string(json_object_get(v, "sni"), r->tls_sni);
		check_string(json_object_get(v, "alpn"), r->tls_alpn);
	}
}

static void check_format(struct str in, struct fuzz_random *rnd)
{
	struct record r = {0};
	struct strbuf out, want, small;
	json_t *o;

	fill(&r, in, rnd);
	strbuf_init(&out, 4 * LIMIT_RECORD_BYTES);
	strbuf_adds(&out, "before\n");
	CHECK(record_format(&r, &out) == 0);
	CHECK(out.len - 7 <= LIMIT_RECORD_BYTES && out.data[out.len - 1] == '\n');
	r.time.tv_sec++; /* zero is now */
	strbuf_init(&want, 1 << 20);
	record_reference(&r, &want);
	strbuf_reset(&out);
	strbuf_adds(&out, "before\n");
	CHECK(record_format(&r, &out) == 0);
	CHECK(str_eq(strbuf_str(&want), str_skip(strbuf_str(&out), 7)));
	strbuf_clear(&want);
	o = load(str_from(out.data + 7, out.len - 8));
	check_record(&r, o);
	json_decref(o);
	strbuf_init(&small, 7 + fuzz_pick(rnd, out.len - 7));
	strbuf_adds(&small, "before\n");
	if (record_format(&r, &small) < 0)
		CHECK(strcmp(strbuf_cstr(&small), "before\n") == 0 && !small.overflowed);
	strbuf_clear(&small);
	strbuf_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_random rnd = fuzz_random(data, size);
	char *copy = fuzz_copy(str_from(data, size));
	struct str in = str_from(copy, size);

	check_json(str_skip(in, 1), fuzz_u8(&in));
	check_format(in, &rnd);
	free(copy);
	return 0;
}
