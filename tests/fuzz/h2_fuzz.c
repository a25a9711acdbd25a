/*
 * Frames of a peer into both sides of h2_conn, and the messages that come of it. The first byte
 * says which side; the rest arrives in pieces. What must hold: memory is bounded, what was read can
 * be written, and nothing is left.
 */
#include "tests/fuzz/fuzz.h"

#include "logging/limits.h"
#include "proxy/http/h2_conn.h"

static void look(struct h2_stream *s, bool server, const struct h1_context *ctx)
{
	struct h2_head *h;
	struct h2_fields out;
	struct fields trailers = {0};
	struct err e = ERR_INIT;

	while ((h = h2_stream_take_head(s))) {
		struct request q;
		struct response r;

		CHECK(h->mem_n <= LIMIT_HEAD_BYTES);
		if (server) {
			if (h2_read_request(h, ctx, &q, &e) == 0) {
				CHECK(q.url.path.n > 0 && q.url.path.p[0] == '/');
				CHECK(host_eq(&q.url.host, &ctx->host));
				CHECK(h2_write_request(&q, NULL, STR_NONE, &out) == 0);
				h2_fields_clear(&out);
			} else {
				CHECK(e.reason != REASON_NONE);
			}
			request_clear(&q);
		} else {
			struct str method = s->id == 3 ? STR("CONNECT") : STR("GET");

			if (h2_read_response(h, method, &r, &e) == 0) {
				CHECK(h2_write_response(&r, &out) == 0);
				h2_fields_clear(&out);
			} else {
				CHECK(e.reason == REASON_UPSTREAM_MALFORMED);
			}
			response_clear(&r);
		}
		free(h);
	}
	if (s->trailers)
		(void)!h2_read_trailers(s->trailers, &trailers, &e);
	fields_clear(&trailers);
	CHECK(h2_stream_data(s).n <= LIMIT_H2_STREAM_WINDOW);
	h2_stream_consume(s, h2_stream_data(s).n / 2);
}

static void answer(struct h2_stream *s, unsigned how)
{
	struct response r = {.status = 200, .body = BODY_CHUNKED};
	struct h2_fields out;

	if (s->owner || h2_write_response(&r, &out) < 0)
		return;
	s->owner = s;
	if (how % 3 == 0 && h2_stream_respond(s, &out, true) == 0) {
		(void)!h2_stream_write(s, STR("hello"));
		h2_stream_end(s, NULL);
	} else if (how % 3 == 1) {
		h2_stream_cut(s);
	}
	h2_fields_clear(&out);
}

/* Streams 1, 3 and 5, for a peer to answer. */
static void open_streams(struct h2_conn *c, const struct h1_context *ctx)
{
	struct h2_fields out;
	struct request q;
	struct h2_stream *s;

	CHECK(h1_parse_request(STR("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n"), ctx, &q, NULL) == 0);
	for (int i = 0; i < 3; i++) {
		CHECK(h2_write_request(&q, NULL, STR_NONE, &out) == 0);
		s = h2_stream_open(c, &out, i == 1);
		CHECK(s);
		if (i == 2)
			h2_stream_expect(s, 5);
		h2_fields_clear(&out);
	}
	request_clear(&q);
	while (h2_conn_send(c).n > 0)
		;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct h1_context ctx;
	struct fuzz_random rnd = fuzz_random(data, size);
	struct h2_conn *c;
	struct h2_stream *s;
	struct err e = ERR_INIT;
	bool server = size > 0 && data[0] % 2;
	size_t at = size > 0;
	int rc = 0;

	if (!ctx.in_tunnel) {
		CHECK(host_parse(STR("a.test"), &ctx.host, NULL) == 0);
		ctx = (struct h1_context){true, SCHEME_HTTPS, ctx.host, 443};
	}
	CHECK(h2_conn_new(server, &c, &e) == 0);
	if (server)
		rc = h2_conn_recv(c, STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 1, &e);
	else
		open_streams(c, &ctx);
	for (int64_t t = 2; rc == 0 && at < size; t++) {
		size_t n = fuzz_piece(&rnd, size - at);

		rc = h2_conn_recv(c, str_from(data + at, n), t, &e);
		at += n;
		while ((s = h2_conn_ready(c))) {
			look(s, server, &ctx);
			if (server)
				answer(s, (unsigned)t);
			if (s->closed)
				h2_stream_free(s);
		}
		while (h2_conn_send(c).n > 0)
			;
		CHECK(h2_conn_streams(c) <= 2 * LIMIT_H2_STREAMS + 64);
	}
	if (rc < 0)
		fuzz_check_err(&e);
	h2_conn_free(c);
	return 0;
}
