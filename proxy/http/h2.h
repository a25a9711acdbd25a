/*
 * HTTP/2 heads, strictly (RFC 9113 section 8): decoded fields to the canonical message and back.
 * The same request gives the same canonical form as in HTTP/1. It knows no frame and no stream
 * (h2_conn.h), and nothing of HPACK.
 */
#ifndef STILE_PROXY_HTTP_H2_H
#define STILE_PROXY_HTTP_H2_H

#include "proxy/http/h1.h"
#include "proxy/http/message.h"

struct h2_line {
	uint32_t name_at, name_n, value_at, value_n; /* in mem */
};

/* One field section as it comes in. It keeps what fits and counts what does not. */
struct h2_head {
	/* owned */
	char *mem;
	struct h2_line *lines;
	/* plain */
	size_t mem_n, mem_cap, n, cap;
	uint64_t bytes; /* as SETTINGS_MAX_HEADER_LIST_SIZE counts: 32 more a field */
	bool over;	/* a bound was passed: not all of it is here */
	bool no_memory;
	bool end_stream; /* no body follows */
	struct h2_head *next;
};

void h2_head_clear(struct h2_head *h);
/* Takes one field; beyond LIMIT_HEAD_BYTES or LIMIT_HEAD_FIELDS it only counts. */
void h2_head_add(struct h2_head *h, struct str name, struct str value);

/* Reads a request head that arrived inside the tunnel ctx. 0, or -1 with the reasons of
 * h1_parse_request; *ret is filled as far as could be read, also then: request_clear in both cases.
 * What h holds moves into *ret. :authority (or Host, where there is none; where both are they are
 * one) is the tunnel's, :scheme too. Fields of a connection are refused (section 8.2.2), not
 * dropped. CONNECT is refused, but for the extended one (RFC 8441) to a WebSocket, which comes out
 * as the GET of its handshake, without a key; r->upgrade is the :protocol of any. */
int h2_read_request(struct h2_head *h, const struct h1_context *ctx, struct request *ret,
		    struct err *e) ATTR_NODISCARD;
/* Reads a response head to a request with this method (CONNECT: an extended one, to a WebSocket);
 * -1: REASON_UPSTREAM_MALFORMED. 101 does not exist here (section 8.6): it comes out of the 200
 * that opens a WebSocket. */
int h2_read_response(struct h2_head *h, struct str method, struct response *ret,
		     struct err *e) ATTR_NODISCARD;
/* Reads a trailer section: as HTTP/1 does, fields that may not trail are dropped. The slices of
 * *ret point into h, which must stay. -1: malformed. */
int h2_read_trailers(const struct h2_head *h, struct fields *ret, struct err *e) ATTR_NODISCARD;

/* Fields to be written: names in lower case, in memory of its own, wiped at the end. */
struct h2_field {
	struct str name, value;
	bool secret; /* never to be indexed by HPACK (RFC 7541 section 7.1.3) */
};
struct h2_fields {
	/* owned */
	struct h2_field *v;
	char *mem;
	/* plain */
	size_t n, cap, mem_n, mem_cap;
	bool failed;
};
void h2_fields_clear(struct h2_fields *f);

/* Each -1 when memory is out, a bound is passed, or a field would break the message or double what
 * is written here. `extra`, `extra_query`: as h1_write_request. What asks for a WebSocket becomes
 * an extended CONNECT, and the 101 that opens one a 200; neither has a key (RFC 8441 section 5). */
int h2_write_request(const struct request *r, const struct fields *extra, struct str extra_query,
		     struct h2_fields *out) ATTR_NODISCARD;
int h2_write_response(const struct response *r, struct h2_fields *out) ATTR_NODISCARD;
int h2_write_trailers(const struct fields *trailers, struct h2_fields *out) ATTR_NODISCARD;

#endif
