/*
 * The audit record once more, one piece after the other through json.h, each checked for room: what
 * record_format must give byte for byte, however it gets there.
 */
#ifndef STILE_TESTS_UNIT_LOGGING_RECORD_REFERENCE_H
#define STILE_TESTS_UNIT_LOGGING_RECORD_REFERENCE_H

#include <stdio.h>

#include "logging/json.h"
#include "logging/limits.h"
#include "logging/record.h"

static void say(struct json *j, const char *key, struct str s, size_t cap)
{
	if (s.n == 0)
		return;
	json_key(j, key);
	json_str_max(j, s, cap);
}

static void say_ms(struct json *j, const char *key, int64_t us)
{
	char text[32];
	int n;

	if (us < 0)
		return;
	n = snprintf(text, sizeof(text), "%lld.%03lld", (long long)us / 1000, (long long)us % 1000);
	while (text[n - 1] == '0')
		n--;
	if (text[n - 1] == '.')
		n--;
	json_key(j, key);
	strbuf_add(j->out, str_from(text, (size_t)n));
	j->need_comma = true;
}

static void say_request(struct json *j, const struct record *r, size_t cap)
{
	char mem[LIMIT_RECORD_VALUE + 2];
	struct strbuf redacted;

	say(j, "id", r->id, cap);
	say(j, "sandbox", r->sandbox, cap);
	say(j, "client", r->client, cap);
	say(j, "listener", r->listener, cap);
	say(j, "method", r->method, cap);
	say(j, "scheme", r->scheme, cap);
	say(j, "host", r->host, cap);
	if (r->port)
		json_kv_u64(j, "port", r->port);
	if (r->has_path || r->path.n > 0) {
		json_key(j, "path");
		json_str_max(j, r->path, cap);
	}
	if (r->has_query || r->query.n > 0) {
		strbuf_init_fixed(&redacted, mem, sizeof(mem));
		record_redact_query(r->query, &redacted);
		json_key(j, "query");
		json_str_max(j, strbuf_str(&redacted), cap);
	}
	say(j, "http", r->http, cap);
	if (r->has_decision)
		json_kv_str(j, "decision", r->allow ? STR("allow") : STR("deny"));
	if (r->reason != REASON_NONE)
		json_kv_str(j, "reason", str_from_c(reason_word(r->reason)));
	say(j, "rule", r->rule, cap);
	say(j, "rule_at", r->rule_at, cap);
	say(j, "policy", r->policy, cap);
	say(j, "policy_version", r->policy_version, cap);
	say(j, "credential", r->credential, cap);
	if (r->credential_stripped) {
		json_key(j, "credential_stripped");
		json_bool(j, true);
	}
}

static void say_outcome(struct json *j, const struct record *r, size_t cap)
{
	say(j, "upstream", r->upstream, cap);
	say(j, "via", r->via, cap);
	if (r->status)
		json_kv_u64(j, "status", r->status);
	if (r->has_bytes) {
		json_kv_u64(j, "bytes_out", r->bytes_out);
		json_kv_u64(j, "bytes_in", r->bytes_in);
	}
	if (r->redacted)
		json_kv_u64(j, "redacted", r->redacted);
	if (r->has_ms && (r->ms.dns_us >= 0 || r->ms.connect_us >= 0 || r->ms.tls_us >= 0 ||
			  r->ms.first_byte_us >= 0 || r->ms.total_us >= 0)) {
		json_key(j, "ms");
		json_open(j, '{');
		say_ms(j, "dns", r->ms.dns_us);
		say_ms(j, "connect", r->ms.connect_us);
		say_ms(j, "tls", r->ms.tls_us);
		say_ms(j, "first_byte", r->ms.first_byte_us);
		say_ms(j, "total", r->ms.total_us);
		json_close(j, '}');
	}
	if (r->tls_sni.n || r->tls_version.n || r->tls_alpn.n || r->ech ||
	    r->upstream_tls_version.n) {
		json_key(j, "tls");
		json_open(j, '{');
		say(j, "sni", r->tls_sni, cap);
		say(j, "version", r->tls_version, cap);
		say(j, "alpn", r->tls_alpn, cap);
		if (r->ech) {
			json_key(j, "ech");
			json_bool(j, true);
		}
		say(j, "upstream_version", r->upstream_tls_version, cap);
		say(j, "upstream_alpn", r->upstream_tls_alpn, cap);
		json_close(j, '}');
	}
	say(j, "error", r->error, cap);
	say(j, "error_detail", r->error_detail, cap);
}

/* r->time is not zero. out is roomy. */
static void record_reference(const struct record *r, struct strbuf *out)
{
	static const size_t caps[] = {LIMIT_RECORD_VALUE, 1024, 256, 96};
	time_t second = r->time.tv_sec;
	char time[64], text[96];
	struct tm tm;

	for (size_t i = 0; i < ARRAY_LEN(caps); i++) {
		struct json j;

		strbuf_reset(out);
		json_init(&j, out);
		json_open(&j, '{');
		gmtime_r(&second, &tm);
		strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &tm);
		snprintf(text, sizeof(text), "%s.%06ldZ", time, r->time.tv_nsec / 1000);
		json_kv_str(&j, "time", str_from_c(text));
		json_kv_str(&j, "event", str_from_c(record_event_word(r->event)));
		say_request(&j, r, caps[i]);
		say_outcome(&j, r, caps[i]);
		json_close(&j, '}');
		strbuf_addc(out, '\n');
		if (out->len <= LIMIT_RECORD_BYTES)
			return;
	}
}

#endif
