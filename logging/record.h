/*
 * The audit record: the schema of the log, as plain data, and its one line of JSON. Slices are
 * borrowed for the time of the call. Absent (empty slice, zero number where it says so) is left
 * out, never written as null.
 */
#ifndef STILE_LOGGING_RECORD_H
#define STILE_LOGGING_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "logging/limits.h"
#include "logging/reason.h"
#include "logging/str.h"
#include "logging/strbuf.h"

enum record_event {
	RECORD_REQUEST_START,
	RECORD_REQUEST_END,
	RECORD_REQUEST_DENY,
	RECORD_TUNNEL_START,
	RECORD_TUNNEL_END,
	RECORD_TUNNEL_DENY,
	RECORD_DNS_DENY,
	RECORD_PROXY_START,
	RECORD_PROXY_STOP,
	RECORD_POLICY_LOAD,
	RECORD_POLICY_REJECT,
	RECORD_SANDBOX_NEW,
	RECORD_SANDBOX_END,
	RECORD_EVENTS, /* how many */
};

#define RECORD_ID_LEN  20 /* characters of a request id, without terminator */
#define RECORD_MS_NONE (-1)

struct record_ms { /* milliseconds as microseconds; RECORD_MS_NONE when it did not happen */
	int64_t dns_us, connect_us, tls_us, first_byte_us, total_us;
};

/* The members from `id` to `credential_stripped`, and `upstream` and `via` behind them, as they
 * stand in the first record of a request: the last one says them alike. */
struct record_same {
	size_t n;	   /* 0: nothing is kept, as it was too much */
	size_t upstream_n; /* behind those n bytes */
	char text[LIMIT_RECORD_SAME];
};

struct record {
	struct timespec time; /* CLOCK_REALTIME; all zero: now */
	enum record_event event;
	struct str id, sandbox, client, listener;
	struct str method, scheme, host;
	uint16_t port; /* 0: absent */
	struct str path;
	bool has_path;	  /* an empty path is absent unless this is set */
	struct str query; /* raw; redacted while being written */
	bool has_query;
	struct str http; /* "1.1", "2" */
	bool has_decision;
	bool allow;
	enum reason reason;
	struct str rule, rule_at, policy, policy_version, credential;
	bool credential_stripped; /* the client brought its own; its value is nowhere */
	struct str upstream;
	struct str via;	 /* host:port of upstream.proxy */
	unsigned status; /* 0: absent */
	bool has_bytes;
	uint64_t bytes_out, bytes_in;
	uint64_t redacted; /* so often the credential stood in the answer; 0: absent */
	bool has_ms;
	struct record_ms ms;
	struct str tls_sni, tls_version, tls_alpn;
	struct str upstream_tls_version, upstream_tls_alpn; /* in the same object */
	bool ech;
	struct str error;		/* a reason word */
	struct str error_detail;	/* for people: what exactly failed */
	struct str rule_members;	/* from record_format_rule; empty: none */
	const struct record_same *same; /* NULL: none */
	bool same_upstream;		/* upstream and via are in it, too */
	struct record_same *keep;	/* NULL: nobody asks */
};

/* Appends one line with its '\n' to out. The result is valid JSON whatever the slices hold, and at
 * most LIMIT_RECORD_BYTES long: longer values are cut and marked "[cut]". 0, or -1 when out had no
 * room (then out is as before). Keys come in the order of logging/README.md. What r->same or
 * r->rule_members has is taken from there, and those members of r are not looked at; r->keep is
 * filled for that. */
int record_format(const struct record *r, struct strbuf *out);

/* The members `rule` to `policy_version` alone, which many requests have in common. How long they
 * are; 0: longer than LIMIT_RECORD_RULE, or there is none. */
size_t record_format_rule(const struct record *r, char text[LIMIT_RECORD_RULE]);

/* Writes query with the values of secret-looking keys as [redacted]: keys compare without case and
 * after percent-decoding (token, key, secret, password, sig, signature, credential, code, ... as a
 * whole word or as the end of a compound such as securityToken, exaApiKey, X-Amz-Signature). */
void record_redact_query(struct str query, struct strbuf *out);

/* A new id: RECORD_ID_LEN characters of base32 from time and randomness, sortable by time,
 * terminated. Thread-safe. */
void record_new_id(char ret_id[RECORD_ID_LEN + 1]);

const char *record_event_word(enum record_event e);

#endif
