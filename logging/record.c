/*
 * The audit record as one line of JSON. This is done twice for each request, before a byte goes
 * upstream and at its end, so it allocates nothing but the growth of `out`, and a line that holds
 * nothing unusual is written straight to where it stays, without a check for each piece. It does
 * not write to any file; writer.c does. port.c, the workers' side of that, is what calls it.
 */
#include "logging/record.h"

#include <string.h>

#include "logging/json.h"
#include "logging/limits.h"
#include "logging/pen.h"

/* Tried in turn until the line fits. The last one fits always. */
static const size_t value_caps[] = {LIMIT_RECORD_VALUE, 1024, 256, 96};

/* What is text of others in a record: the values that may need an escape or a cut. */
static const size_t values[] = {
	offsetof(struct record, id),
	offsetof(struct record, sandbox),
	offsetof(struct record, client),
	offsetof(struct record, listener),
	offsetof(struct record, method),
	offsetof(struct record, scheme),
	offsetof(struct record, host),
	offsetof(struct record, path),
	offsetof(struct record, query),
	offsetof(struct record, http),
	offsetof(struct record, rule),
	offsetof(struct record, rule_at),
	offsetof(struct record, policy),
	offsetof(struct record, policy_version),
	offsetof(struct record, credential),
	offsetof(struct record, upstream),
	offsetof(struct record, via),
	offsetof(struct record, tls_sni),
	offsetof(struct record, tls_version),
	offsetof(struct record, tls_alpn),
	offsetof(struct record, upstream_tls_version),
	offsetof(struct record, upstream_tls_alpn),
	offsetof(struct record, error),
	offsetof(struct record, error_detail),
};

static struct str *value_at(struct record *r, size_t i)
{
	return (struct str *)(void *)((char *)r + values[i]);
}

#define VALUES_SAME 15 /* the first ones, which record_same stands for */

/* All that a line is besides its values, at its longest. */
#define LONGEST_FRAME                                                                              \
	"{\"time\":\"0000-00-00T00:00:00.000000Z\",\"event\":\"policy.reject\",\"id\":\"\","       \
	"\"sandbox\":\"\",\"client\":\"\",\"listener\":\"\",\"method\":\"\",\"scheme\":\"\","      \
	"\"host\":\"\",\"port\":65535,\"path\":\"\",\"query\":\"\",\"http\":\"\","                 \
	"\"decision\":\"allow\",\"reason\":\"a_word_of_the_table_of_reasons_\",\"rule\":\"\","     \
	"\"rule_at\":\"\",\"policy\":\"\",\"policy_version\":\"\",\"credential\":\"\","            \
	"\"credential_stripped\":true,\"upstream\":\"\",\"via\":\"\",\"status\":4294967295,"       \
	"\"bytes_out\":18446744073709551615,\"bytes_in\":18446744073709551615,"                    \
	"\"redacted\":18446744073709551615,\"ms\":{\"dns\":9223372036854775.807,"                  \
	"\"connect\":9223372036854775.807,\"tls\":9223372036854775.807,"                           \
	"\"first_byte\":9223372036854775.807,\"total\":9223372036854775.807},"                     \
	"\"tls\":{\"sni\":\"\",\"version\":\"\",\"alpn\":\"\",\"ech\":true,"                       \
	"\"upstream_version\":\"\",\"upstream_alpn\":\"\"},\"error\":\"\",\"error_detail\":\"\"}"  \
	"\n"

#define X(name, word, status, rfc9209)                                                             \
	_Static_assert(sizeof(word) - 1 <= REASON_WORD_MAX, "LONGEST_FRAME has no room "           \
							    "for " word);
REASON_TABLE(X)
#undef X

_Static_assert(sizeof(LONGEST_FRAME) <= LIMIT_RECORD_FRAME, "pen.h checks nothing");
_Static_assert(LIMIT_RECORD_FRAME + LIMIT_RECORD_QUICK <= LIMIT_RECORD_BYTES &&
		       LIMIT_RECORD_QUICK <= LIMIT_RECORD_VALUE,
	       "of what is written quickly nothing has to be cut");
_Static_assert(LIMIT_RECORD_SAME < LIMIT_RECORD_QUICK, "it is one of the texts");
/* With six characters for a byte at worst; and what was formatted before is no longer than the
 * values in whose place it stands. */
#define SHORTEST (6 * 96)
_Static_assert(LIMIT_RECORD_FRAME + (SHORTEST + sizeof(JSON_CUT_MARK)) * ARRAY_LEN(values) <=
			       LIMIT_RECORD_BYTES &&
		       LIMIT_RECORD_SAME <= SHORTEST * VALUES_SAME &&
		       LIMIT_RECORD_RULE <= SHORTEST * 4,
	       "the last of value_caps fits always");

struct event_word {
	char text[16]; /* copied whole */
	size_t n;
};

#define WORD(lit)                                                                                  \
	{                                                                                          \
		lit, sizeof(lit) - 1                                                               \
	}

static const struct event_word event_words[RECORD_EVENTS] = {
	[RECORD_REQUEST_START] = WORD("request.start"),
	[RECORD_REQUEST_END] = WORD("request.end"),
	[RECORD_REQUEST_DENY] = WORD("request.deny"),
	[RECORD_TUNNEL_START] = WORD("tunnel.start"),
	[RECORD_TUNNEL_END] = WORD("tunnel.end"),
	[RECORD_TUNNEL_DENY] = WORD("tunnel.deny"),
	[RECORD_DNS_DENY] = WORD("dns.deny"),
	[RECORD_PROXY_START] = WORD("proxy.start"),
	[RECORD_PROXY_STOP] = WORD("proxy.stop"),
	[RECORD_POLICY_LOAD] = WORD("policy.load"),
	[RECORD_POLICY_REJECT] = WORD("policy.reject"),
	[RECORD_SANDBOX_NEW] = WORD("sandbox.new"),
	[RECORD_SANDBOX_END] = WORD("sandbox.end"),
};

#undef WORD

static const struct event_word *event_word(enum record_event e)
{
	static const struct event_word unknown = {"unknown", 7};

	return (size_t)e < ARRAY_LEN(event_words) ? &event_words[e] : &unknown;
}

const char *record_event_word(enum record_event e)
{
	return event_word(e)->text;
}

/* ---- the time ---- */

#define SECOND_LEN 19 /* 2024-01-31T12:34:56 */

/* Records of one thread come many to a second: all but the fraction is kept from the last call. */
static const char *second_text(time_t second)
{
	static _Thread_local time_t cached = 0;
	static _Thread_local char text[] = "1970-01-01T00:00:00";
	struct tm tm;

	if (second == cached)
		return text;
	cached = second;
	/* RFC 3339 has years of four digits. */
	if (!gmtime_r(&second, &tm) || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900) {
		second = 0;
		gmtime_r(&second, &tm);
	}
	digits_put_pair(text, (unsigned)(tm.tm_year + 1900) / 100);
	digits_put_pair(text + 2, (unsigned)(tm.tm_year + 1900) % 100);
	digits_put_pair(text + 5, (unsigned)tm.tm_mon + 1);
	digits_put_pair(text + 8, (unsigned)tm.tm_mday);
	digits_put_pair(text + 11, (unsigned)tm.tm_hour);
	digits_put_pair(text + 14, (unsigned)tm.tm_min);
	digits_put_pair(text + 17, (unsigned)tm.tm_sec);
	return text;
}

static ATTR_INLINE void put_time(struct pen *w, struct timespec t)
{
	unsigned us;

	if (t.tv_sec == 0 && t.tv_nsec == 0)
		clock_gettime(CLOCK_REALTIME, &t);
	us = (unsigned)(t.tv_nsec / 1000);
	pen_literal(w, STR("{\"time\":\""));
	memcpy(w->at, second_text(t.tv_sec), SECOND_LEN);
	w->at += SECOND_LEN;
	pen_char(w, '.');
	digits_put_pair(w->at, us / 10000);
	digits_put_pair(w->at + 2, us / 100 % 100);
	digits_put_pair(w->at + 4, us % 100);
	w->at += 6;
	pen_char(w, 'Z');
}

/* ---- the line ----
 * All of it is written by a pen. Each value's own part of the room is its length, and all that
 * stands between them is LONGEST_FRAME at most. */

/* Where a line has what the next record of the request says alike. */
struct marks {
	char *from, *to, *upstream_to;
};

#define KEY(name)	    STR(",\"" name "\":\"")
#define KEY_OF_NUMBER(name) STR(",\"" name "\":")
#define KEY_WITHIN(name)    STR("\"" name "\":\"")

static ATTR_INLINE void put_text(struct pen *w, struct str key, struct str s)
{
	pen_literal(w, key);
	pen_text(w, s);
	pen_char(w, '"');
}

/* An absent value is left out. */
static ATTR_INLINE void put_value(struct pen *w, struct str key, struct str s)
{
	if (s.n > 0)
		put_text(w, key, s);
}

static ATTR_INLINE void put_number(struct pen *w, struct str key, uint64_t n)
{
	pen_literal(w, key);
	pen_number(w, n);
}

static ATTR_INLINE void put_request(struct pen *w, const struct record *r, struct str query)
{
	put_value(w, KEY("id"), r->id);
	put_value(w, KEY("sandbox"), r->sandbox);
	put_value(w, KEY("client"), r->client);
	put_value(w, KEY("listener"), r->listener);
	put_value(w, KEY("method"), r->method);
	put_value(w, KEY("scheme"), r->scheme);
	put_value(w, KEY("host"), r->host);
	if (r->port)
		put_number(w, KEY_OF_NUMBER("port"), r->port);
	if (r->has_path || r->path.n)
		put_text(w, KEY("path"), r->path);
	if (r->has_query || r->query.n)
		put_text(w, KEY("query"), query);
	put_value(w, KEY("http"), r->http);
}

static ATTR_INLINE void put_decision(struct pen *w, const struct record *r)
{
	if (r->has_decision && r->allow)
		pen_literal(w, STR(",\"decision\":\"allow\""));
	else if (r->has_decision)
		pen_literal(w, STR(",\"decision\":\"deny\""));
	if (r->reason != REASON_NONE)
		put_text(w, KEY("reason"), str_from_c(reason_word(r->reason)));
	if (r->rule_members.n > 0) {
		pen_literal(w, r->rule_members);
	} else {
		put_value(w, KEY("rule"), r->rule);
		put_value(w, KEY("rule_at"), r->rule_at);
		put_value(w, KEY("policy"), r->policy);
		put_value(w, KEY("policy_version"), r->policy_version);
	}
	put_value(w, KEY("credential"), r->credential);
	if (r->credential_stripped)
		pen_literal(w, STR(",\"credential_stripped\":true"));
}

/* Within an object each member has its comma behind it, and the last one's becomes the bracket. */
static ATTR_INLINE void put_within(struct pen *w, struct str key, struct str s)
{
	put_value(w, key, s);
	if (s.n > 0)
		pen_char(w, ',');
}

/* Microseconds as milliseconds with up to three decimals: a JSON number, no float on the way. */
static ATTR_INLINE void put_ms(struct pen *w, struct str key, int64_t us)
{
	unsigned fraction;

	if (us < 0)
		return;
	put_number(w, key, (uint64_t)us / 1000);
	fraction = (unsigned)((uint64_t)us % 1000);
	if (fraction > 0) {
		w->at[0] = '.';
		w->at[1] = (char)('0' + fraction / 100);
		digits_put_pair(w->at + 2, fraction % 100);
		w->at += fraction % 10 ? 4 : fraction % 100 ? 3 : 2;
	}
	pen_char(w, ',');
}

static ATTR_INLINE void put_ms_object(struct pen *w, const struct record_ms *ms)
{
	if ((ms->dns_us & ms->connect_us & ms->tls_us & ms->first_byte_us & ms->total_us) < 0)
		return;
	pen_literal(w, STR(",\"ms\":{"));
	put_ms(w, STR("\"dns\":"), ms->dns_us);
	put_ms(w, STR("\"connect\":"), ms->connect_us);
	put_ms(w, STR("\"tls\":"), ms->tls_us);
	put_ms(w, STR("\"first_byte\":"), ms->first_byte_us);
	put_ms(w, STR("\"total\":"), ms->total_us);
	w->at[-1] = '}';
}

static ATTR_INLINE void put_tls_object(struct pen *w, const struct record *r)
{
	if (r->tls_sni.n == 0 && r->tls_version.n == 0 && r->tls_alpn.n == 0 && !r->ech &&
	    r->upstream_tls_version.n == 0)
		return;
	pen_literal(w, STR(",\"tls\":{"));
	put_within(w, KEY_WITHIN("sni"), r->tls_sni);
	put_within(w, KEY_WITHIN("version"), r->tls_version);
	put_within(w, KEY_WITHIN("alpn"), r->tls_alpn);
	if (r->ech)
		pen_literal(w, STR("\"ech\":true,"));
	put_within(w, KEY_WITHIN("upstream_version"), r->upstream_tls_version);
	put_within(w, KEY_WITHIN("upstream_alpn"), r->upstream_tls_alpn);
	w->at[-1] = '}';
}

static ATTR_INLINE void put_outcome(struct pen *w, const struct record *r)
{
	if (r->status)
		put_number(w, KEY_OF_NUMBER("status"), r->status);
	if (r->has_bytes) {
		put_number(w, KEY_OF_NUMBER("bytes_out"), r->bytes_out);
		put_number(w, KEY_OF_NUMBER("bytes_in"), r->bytes_in);
	}
	if (r->redacted)
		put_number(w, KEY_OF_NUMBER("redacted"), r->redacted);
	if (r->has_ms)
		put_ms_object(w, &r->ms);
	put_tls_object(w, r);
	put_value(w, KEY("error"), r->error);
	put_value(w, KEY("error_detail"), r->error_detail);
}

/* Of what was said before. */
static ATTR_INLINE size_t same_len(const struct record *r)
{
	return r->same ? r->same->n + (r->same_upstream ? r->same->upstream_n : 0) : 0;
}

/* The groups are only for the reader of this file: together they are the order of the README. query
 * is r's without its secrets. Where the line ends. */
static ATTR_INLINE char *put_line(char *at, const struct record *r, struct str query, bytes16 *odd,
				  struct marks *m)
{
	const struct event_word *event = event_word(r->event);
	struct pen w = {at, odd};

	put_time(&w, r->time);
	pen_literal(&w, STR("\",\"event\":\""));
	pen_literal(&w, str_from(event->text, sizeof(event->text)));
	w.at -= sizeof(event->text) - event->n;
	pen_char(&w, '"');
	m->from = w.at;
	if (r->same) {
		pen_literal(&w, str_from(r->same->text, same_len(r)));
	} else {
		put_request(&w, r, query);
		put_decision(&w, r);
	}
	m->to = w.at;
	if (!r->same_upstream) {
		put_value(&w, KEY("upstream"), r->upstream);
		put_value(&w, KEY("via"), r->via);
	}
	m->upstream_to = w.at;
	put_outcome(&w, r);
	pen_literal(&w, STR("}\n"));
	return w.at;
}

/* For the next record of the request, if that is not too much. */
static void keep_same(struct record_same *s, const struct marks *m)
{
	size_t n = (size_t)(m->upstream_to - m->from);

	s->n = 0;
	if (n > sizeof(s->text))
		return;
	memcpy(s->text, m->from, n);
	s->n = (size_t)(m->to - m->from);
	s->upstream_n = (size_t)(m->upstream_to - m->to);
}

/* ---- quickly: all is plain and short, as nearly always ---- */

static ATTR_INLINE size_t values_len(const struct record *r)
{
	size_t n = same_len(r) + r->rule_members.n;

#pragma GCC unroll 32
	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		n += ((const struct str *)(const void *)((const char *)r + values[i]))->n;
	return n;
}

/* False, and nothing is added: some value has an escape to get, or is long, or the room is short.
 */
static bool format_quickly(const struct record *r, struct str query, struct strbuf *out)
{
	bytes16 odd = {0};
	struct marks m;
	char *line, *end;

	if (values_len(r) + query.n > LIMIT_RECORD_QUICK)
		return false;
	line = strbuf_room(out, LIMIT_RECORD_FRAME + LIMIT_RECORD_QUICK);
	if (!line)
		line = strbuf_reserve(out, LIMIT_RECORD_FRAME + LIMIT_RECORD_QUICK);
	if (!line)
		return false;
	end = put_line(line, r, query, &odd, &m);
	if (plain_any(odd)) {
		*line = '\0';
		return false;
	}
	*end = '\0';
	out->len += (size_t)(end - line);
	if (r->keep)
		keep_same(r->keep, &m);
	return true;
}

/* ---- slowly: whatever is in it ---- */

/* Makes absent what is not looked at. */
static void leave_out(struct record *r)
{
	for (size_t i = 0; r->same && i < VALUES_SAME; i++)
		*value_at(r, i) = STR_NONE;
	if (r->same_upstream)
		r->upstream = r->via = STR_NONE;
	if (r->rule_members.n > 0)
		r->rule = r->rule_at = r->policy = r->policy_version = STR_NONE;
}

/* s as it may stand in a line, cut to cap bytes, into text. False: no room is left there. */
static bool prepare(struct strbuf *text, struct str *s, size_t cap)
{
	size_t from = text->len + 1;
	struct json j;

	if (s->n == 0)
		return true;
	json_init(&j, text);
	json_str_max(&j, *s, cap);
	if (text->overflowed)
		return false;
	*s = str_from(text->data + from, text->len - from - 1);
	return true;
}

/* The line with its values cut to cap bytes each. How long it is; 0: too long. */
static size_t format_capped(const struct record *r, struct str query, size_t cap,
			    char line[LIMIT_RECORD_FRAME + LIMIT_RECORD_BYTES], struct marks *m)
{
	char mem[LIMIT_RECORD_BYTES];
	struct record ready = *r;
	struct strbuf text;
	bytes16 odd = {0}; /* not asked: all that needs an escape has it */
	size_t n;

	strbuf_init_fixed(&text, mem, sizeof(mem) - same_len(r) - r->rule_members.n);
	ready.query = query;
	leave_out(&ready);
	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		if (!prepare(&text, value_at(&ready, i), cap))
			return 0;
	n = (size_t)(put_line(line, &ready, ready.query, &odd, m) - line);
	return n <= LIMIT_RECORD_BYTES ? n : 0;
}

static ATTR_NOINLINE int format_slowly(const struct record *r, struct str query, struct strbuf *out)
{
	char line[LIMIT_RECORD_FRAME + LIMIT_RECORD_BYTES];
	struct marks m;
	char *to;
	size_t n = 0, i;

	for (i = 0; i < ARRAY_LEN(value_caps) && n == 0; i++) {
		n = format_capped(r, query, value_caps[i], line, &m);
		/* A buffer that is nearly full is no reason to cut what a line has room for. */
		if (n == 0 && out->max - out->len < LIMIT_RECORD_BYTES)
			break;
	}
	to = n > 0 ? strbuf_reserve(out, n) : NULL;
	if (!to)
		return -1;
	memcpy(to, line, n);
	to[n] = '\0';
	out->len += n;
	if (r->keep && i == 1)
		keep_same(r->keep, &m);
	return 0;
}

static ATTR_INLINE int format(const struct record *r, struct str query, struct strbuf *out)
{
	return format_quickly(r, query, out) ? 0 : format_slowly(r, query, out);
}

static ATTR_NOINLINE int format_with_query(const struct record *r, struct strbuf *out)
{
	char mem[LIMIT_RECORD_VALUE + 2]; /* a byte more than is shown, so that the cut is seen */
	struct strbuf redacted;

	strbuf_init_fixed(&redacted, mem, sizeof(mem));
	record_redact_query(r->query, &redacted);
	return format(r, strbuf_str(&redacted), out);
}

int record_format(const struct record *r, struct strbuf *out)
{
	if (r->keep)
		r->keep->n = 0;
	if (r->query.n > 0 && !r->same)
		return format_with_query(r, out);
	return format(r, STR_NONE, out);
}

size_t record_format_rule(const struct record *r, char text[LIMIT_RECORD_RULE])
{
	char mem[LIMIT_RECORD_RULE + 1];
	struct strbuf out;
	struct json j;

	strbuf_init_fixed(&out, mem, sizeof(mem));
	json_init(&j, &out);
	j.need_comma = true;
	json_kv_opt(&j, "rule", r->rule);
	json_kv_opt(&j, "rule_at", r->rule_at);
	json_kv_opt(&j, "policy", r->policy);
	json_kv_opt(&j, "policy_version", r->policy_version);
	if (out.overflowed)
		return 0;
	memcpy(text, mem, out.len);
	return out.len;
}
