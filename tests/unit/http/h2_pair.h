/*
 * Two ends of HTTP/2 without a socket between them.
 */
#ifndef STILE_TESTS_UNIT_HTTP_H2_PAIR_H
#define STILE_TESTS_UNIT_HTTP_H2_PAIR_H

#include "proxy/http/h2_conn.h"

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
