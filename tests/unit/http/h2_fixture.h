/*
 * Heads of HTTP/2, and two ends of a connection without a socket between them.
 */
#ifndef STILE_TESTS_UNIT_HTTP_H2_FIXTURE_H
#define STILE_TESTS_UNIT_HTTP_H2_FIXTURE_H

#include "proxy/http/h2_conn.h"

static inline struct h1_context inside(void)
{
	struct h1_context ctx = {.in_tunnel = true, .scheme = SCHEME_HTTPS, .port = 443};

	assert_int_equal(host_parse(STR("a.test"), &ctx.host, NULL), 0);
	return ctx;
}

/* "name: value\n..." */
static inline struct h2_head head_of(const char *text, bool end)
{
	struct h2_head h = {.end_stream = end};
	struct str rest = str_from_c(text);

	while (rest.n > 0) {
		struct str line = str_split(&rest, '\n'), name = line;
		size_t at = 1;

		while (at < line.n && line.p[at] != ':')
			at++;
		name = str_head(line, at);
		h2_head_add(&h, name, str_skip(line, at + 2));
	}
	return h;
}

struct pair {
	struct h2_conn *client, *server;
	struct h2_stream *c, *s; /* one stream, as either sees it */
};

static inline bool move(struct h2_conn *from, struct h2_conn *to)
{
	struct str out = h2_conn_send(from);

	if (out.n == 0)
		return false;
	assert_int_equal(h2_conn_recv(to, out, 1000000, NULL), 0);
	return true;
}

/* Until neither has anything to say. */
static inline void run(struct pair *p)
{
	while (move(p->client, p->server) || move(p->server, p->client))
		;
}

static inline void drop_head(struct h2_stream *s)
{
	struct h2_head *h = h2_stream_take_head(s);

	assert_non_null(h);
	h2_head_clear(h);
	free(h);
}

static inline void close_pair(struct pair *p)
{
	h2_conn_free(p->client);
	h2_conn_free(p->server);
}

#endif
