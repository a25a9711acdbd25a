/*
 * The audit record as one line of JSON, its id, and its time. This is done for each request, before
 * a byte goes upstream, so it allocates nothing but the growth of `out`. It does not write to any
 * file; writer.c does, and it is the one that calls record_format.
 */
#include "logging/record.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "logging/json.h"
#include "logging/limits.h"

/* Tried in turn until the line fits. The last one fits always: 22 values of 96 bytes, each byte six
 * characters at worst, and the keys. */
static const size_t value_caps[] = {LIMIT_RECORD_VALUE, 1024, 256, 96};

static const char *const event_words[] = {
	[RECORD_REQUEST_START] = "request.start", [RECORD_REQUEST_END] = "request.end",
	[RECORD_REQUEST_DENY] = "request.deny",	  [RECORD_TUNNEL_START] = "tunnel.start",
	[RECORD_TUNNEL_END] = "tunnel.end",	  [RECORD_TUNNEL_DENY] = "tunnel.deny",
	[RECORD_DNS_DENY] = "dns.deny",		  [RECORD_PROXY_START] = "proxy.start",
	[RECORD_PROXY_STOP] = "proxy.stop",	  [RECORD_POLICY_LOAD] = "policy.load",
	[RECORD_POLICY_REJECT] = "policy.reject", [RECORD_SANDBOX_NEW] = "sandbox.new",
	[RECORD_SANDBOX_END] = "sandbox.end",
};

const char *record_event_word(enum record_event e)
{
	return (size_t)e < ARRAY_LEN(event_words) ? event_words[e] : "unknown";
}

/* n as exactly `width` decimal digits. */
static void put_digits(char *out, unsigned n, unsigned width)
{
	while (width--) {
		out[width] = (char)('0' + n % 10);
		n /= 10;
	}
}

#define SECOND_LEN 19 /* 2024-01-31T12:34:56 */

/* Records of one thread come many to a second: all but the fraction is kept from the last call. */
static const char *second_text(time_t second)
{
	static _Thread_local time_t cached = -1;
	static _Thread_local char text[SECOND_LEN];
	struct tm tm;

	if (second == cached)
		return text;
	/* RFC 3339 has years of four digits. */
	if (!gmtime_r(&second, &tm) || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900) {
		second = 0;
		gmtime_r(&second, &tm);
	}
	memcpy(text, "0000-00-00T00:00:00", SECOND_LEN);
	put_digits(text, (unsigned)(tm.tm_year + 1900), 4);
	put_digits(text + 5, (unsigned)tm.tm_mon + 1, 2);
	put_digits(text + 8, (unsigned)tm.tm_mday, 2);
	put_digits(text + 11, (unsigned)tm.tm_hour, 2);
	put_digits(text + 14, (unsigned)tm.tm_min, 2);
	put_digits(text + 17, (unsigned)tm.tm_sec, 2);
	cached = second;
	return text;
}

static ATTR_INLINE void put_word(struct json *j, struct str key, struct str s)
{
	json_key_literal(j, key);
	json_str(j, s);
}

static ATTR_INLINE void put_number(struct json *j, struct str key, uint64_t n)
{
	json_key_literal(j, key);
	json_u64(j, n);
}

static void put_time(struct json *j, struct timespec t)
{
	char text[SECOND_LEN + 8];

	if (t.tv_sec == 0 && t.tv_nsec == 0)
		clock_gettime(CLOCK_REALTIME, &t);
	memcpy(text, second_text(t.tv_sec), SECOND_LEN);
	text[SECOND_LEN] = '.';
	put_digits(text + SECOND_LEN + 1, (unsigned)(t.tv_nsec / 1000), 6);
	text[SECOND_LEN + 7] = 'Z';
	put_word(j, JSON_KEY("time"), str_from(text, sizeof(text)));
}

/* An absent value is left out. */
static ATTR_INLINE void put_value(struct json *j, struct str key, struct str s, size_t cap)
{
	if (s.n == 0)
		return;
	json_key_literal(j, key);
	json_str_max(j, s, cap);
}

static void put_query(struct json *j, struct str query, size_t cap)
{
	char mem[LIMIT_RECORD_VALUE + 2]; /* a byte more than is shown, so that the cut is seen */
	struct strbuf redacted;

	strbuf_init_fixed(&redacted, mem, sizeof(mem));
	record_redact_query(query, &redacted);
	json_key_literal(j, JSON_KEY("query"));
	json_str_max(j, strbuf_str(&redacted), cap);
}

/* Microseconds as milliseconds with up to three decimals: a JSON number, no float on the way. */
static void put_ms(struct json *j, struct str key, int64_t us)
{
	char fraction[4] = ".000";
	size_t n = sizeof(fraction);

	if (us < 0)
		return;
	put_number(j, key, (uint64_t)us / 1000);
	put_digits(fraction + 1, (unsigned)(us % 1000), 3);
	while (n && (fraction[n - 1] == '0' || fraction[n - 1] == '.'))
		n--;
	strbuf_add(j->out, str_from(fraction, n));
}

static void put_ms_object(struct json *j, const struct record_ms *ms)
{
	if (ms->dns_us < 0 && ms->connect_us < 0 && ms->tls_us < 0 && ms->first_byte_us < 0 &&
	    ms->total_us < 0)
		return;
	json_key_literal(j, JSON_KEY("ms"));
	json_open(j, '{');
	put_ms(j, JSON_KEY("dns"), ms->dns_us);
	put_ms(j, JSON_KEY("connect"), ms->connect_us);
	put_ms(j, JSON_KEY("tls"), ms->tls_us);
	put_ms(j, JSON_KEY("first_byte"), ms->first_byte_us);
	put_ms(j, JSON_KEY("total"), ms->total_us);
	json_close(j, '}');
}

static void put_tls_object(struct json *j, const struct record *r, size_t cap)
{
	if (r->tls_sni.n == 0 && r->tls_version.n == 0 && r->tls_alpn.n == 0 && !r->ech &&
	    r->upstream_tls_version.n == 0)
		return;
	json_key_literal(j, JSON_KEY("tls"));
	json_open(j, '{');
	put_value(j, JSON_KEY("sni"), r->tls_sni, cap);
	put_value(j, JSON_KEY("version"), r->tls_version, cap);
	put_value(j, JSON_KEY("alpn"), r->tls_alpn, cap);
	if (r->ech) {
		json_key_literal(j, JSON_KEY("ech"));
		json_bool(j, true);
	}
	put_value(j, JSON_KEY("upstream_version"), r->upstream_tls_version, cap);
	put_value(j, JSON_KEY("upstream_alpn"), r->upstream_tls_alpn, cap);
	json_close(j, '}');
}

static void put_request(struct json *j, const struct record *r, size_t cap)
{
	put_value(j, JSON_KEY("id"), r->id, cap);
	put_value(j, JSON_KEY("sandbox"), r->sandbox, cap);
	put_value(j, JSON_KEY("client"), r->client, cap);
	put_value(j, JSON_KEY("listener"), r->listener, cap);
	put_value(j, JSON_KEY("method"), r->method, cap);
	put_value(j, JSON_KEY("scheme"), r->scheme, cap);
	put_value(j, JSON_KEY("host"), r->host, cap);
	if (r->port)
		put_number(j, JSON_KEY("port"), r->port);
	if (r->has_path || r->path.n) {
		json_key_literal(j, JSON_KEY("path"));
		json_str_max(j, r->path, cap);
	}
	if (r->has_query || r->query.n)
		put_query(j, r->query, cap);
	put_value(j, JSON_KEY("http"), r->http, cap);
}

static void put_decision(struct json *j, const struct record *r, size_t cap)
{
	if (r->has_decision)
		put_word(j, JSON_KEY("decision"), r->allow ? STR("allow") : STR("deny"));
	if (r->reason != REASON_NONE)
		put_word(j, JSON_KEY("reason"), str_from_c(reason_word(r->reason)));
	put_value(j, JSON_KEY("rule"), r->rule, cap);
	put_value(j, JSON_KEY("rule_at"), r->rule_at, cap);
	put_value(j, JSON_KEY("policy"), r->policy, cap);
	put_value(j, JSON_KEY("policy_version"), r->policy_version, cap);
	put_value(j, JSON_KEY("credential"), r->credential, cap);
	if (r->credential_stripped) {
		json_key_literal(j, JSON_KEY("credential_stripped"));
		json_bool(j, true);
	}
}

static void put_outcome(struct json *j, const struct record *r, size_t cap)
{
	put_value(j, JSON_KEY("upstream"), r->upstream, cap);
	put_value(j, JSON_KEY("via"), r->via, cap);
	if (r->status)
		put_number(j, JSON_KEY("status"), r->status);
	if (r->has_bytes) {
		put_number(j, JSON_KEY("bytes_out"), r->bytes_out);
		put_number(j, JSON_KEY("bytes_in"), r->bytes_in);
	}
	if (r->redacted)
		put_number(j, JSON_KEY("redacted"), r->redacted);
	if (r->has_ms)
		put_ms_object(j, &r->ms);
	put_tls_object(j, r, cap);
	put_value(j, JSON_KEY("error"), r->error, cap);
	put_value(j, JSON_KEY("error_detail"), r->error_detail, cap);
}

/* The groups are only for the reader of this file: together they are the order of the README. */
static void put_record(const struct record *r, struct strbuf *out, size_t cap)
{
	struct json j;

	json_init(&j, out);
	json_open(&j, '{');
	put_time(&j, r->time);
	put_word(&j, JSON_KEY("event"), str_from_c(record_event_word(r->event)));
	if (r->same.n > 0 && cap == value_caps[0]) {
		json_members(&j, r->same);
	} else {
		put_request(&j, r, cap);
		put_decision(&j, r, cap);
	}
	put_outcome(&j, r, cap);
	json_close(&j, '}');
	strbuf_addc(out, '\n');
}

int record_format_same(const struct record *r, struct strbuf *out)
{
	struct json j;

	json_init(&j, out);
	put_request(&j, r, value_caps[0]);
	put_decision(&j, r, value_caps[0]);
	if (!out->overflowed)
		return 0;
	strbuf_reset(out);
	return -1;
}

int record_format(const struct record *r, struct strbuf *out)
{
	size_t start = out->len, max = out->max;
	bool is_roomy = max - start >= LIMIT_RECORD_BYTES;
	bool fits = false;

	if (out->overflowed)
		return -1;
	/* While the line is made the buffer's bound is the line's. */
	if (is_roomy)
		out->max = start + LIMIT_RECORD_BYTES;
	for (size_t i = 0; i < ARRAY_LEN(value_caps) && !fits; i++) {
		put_record(r, out, value_caps[i]);
		fits = !out->overflowed;
		if (fits)
			break;
		out->len = start;
		out->overflowed = false;
		if (out->data)
			out->data[start] = '\0';
		/* A buffer that is nearly full is no reason to cut what a line has room for. */
		if (!is_roomy)
			break;
	}
	out->max = max;
	return fits ? 0 : -1;
}

/* Random bytes of this thread, fetched many at a time so that an id costs no system call. */
static uint64_t random_bits(void)
{
	static _Thread_local uint64_t pool[32]; /* 256 bytes: never interrupted, random(4) */
	static _Thread_local size_t left;
	struct timespec t;

	if (left == 0) {
		ssize_t n;

		do
			n = getrandom(pool, sizeof(pool), 0);
		while (n < 0 && errno == EINTR);
		/* An id must differ; it need not be secret. */
		if (n != (ssize_t)sizeof(pool)) {
			clock_gettime(CLOCK_MONOTONIC, &t);
			return (uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15U ^ (uintptr_t)pool;
		}
		left = ARRAY_LEN(pool);
	}
	return pool[--left];
}

/* Ten characters of five bits, the most significant first, so that ids sort as their numbers do. */
static void put_base32(char *out, uint64_t v)
{
	for (unsigned i = 10; i--; v >>= 5)
		out[i] = "0123456789abcdefghjkmnpqrstvwxyz"[v & 31];
}

void record_new_id(char ret_id[RECORD_ID_LEN + 1])
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	put_base32(ret_id, (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
	put_base32(ret_id + 10, random_bits());
	ret_id[RECORD_ID_LEN] = '\0';
}
