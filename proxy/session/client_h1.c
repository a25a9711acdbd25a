/*
 * How an exchange sees a client of HTTP/1 (downstream_ops in exchange.h): its request's body comes
 * from here, and heads, bodies and ends of answers go out here. client_h2.c is the same for a
 * stream of HTTP/2; client.c makes the exchange.
 */
#include "proxy/session/client.h"
#include "proxy/session/h1_out.h"
#include "proxy/session/pull.h"
#include "proxy/session/worker.h"

static struct client *client_of(struct downstream *d)
{
	return CONTAINER_OF(d, struct client, down);
}

static int ds_pull(struct downstream *d, size_t max, void (*sink)(void *arg, struct str data),
		   void *arg, bool *ret_done, struct err *e)
{
	struct client *c = client_of(d);

	if (pull_body(c->s, &c->body, &max, sink, arg, e) < 0)
		return -1;
	if (c->upgraded && stream_at_eof(c->s) && stream_data(c->s).n == 0)
		(void)!body_eof(&c->body, NULL);
	*ret_done = c->body.done;
	if (!c->body.done && stream_at_eof(c->s) && max >= PULL_MIN_ROOM)
		return err_reason(e, REASON_CLIENT_CLOSED, "the client's body was cut short");
	return 0;
}

static const struct fields *ds_trailers(struct downstream *d)
{
	return &client_of(d)->body.trailers;
}

static size_t ds_room(struct downstream *d)
{
	return stream_room(client_of(d)->s);
}

static int ds_send_head(struct downstream *d, const struct response *r, bool more, struct err *e)
{
	struct client *c = client_of(d);
	struct response out = *r;
	bool final = r->status >= 200;

	if (r->status == 101) {
		c->upgraded = true;
		c->until_close = true;
		c->keep = false;
		body_reader_clear(&c->body);
		body_reader_init(&c->body, BODY_CLOSE, 0);
	} else if (final) {
		c->keep = c->keep && !more && !c->worker->draining;
		/* What ends with the origin's connection gets an end of its own here, so that a cut
		 * cannot pass for one. */
		if (out.body == BODY_CLOSE)
			out.body = BODY_CHUNKED;
		c->chunked = out.body == BODY_CHUNKED && c->request.version == HTTP_11;
		c->until_close = out.body == BODY_CHUNKED && !c->chunked;
		if (c->until_close)
			c->keep = false;
	} else if (c->request.version != HTTP_11) {
		return 0; /* HTTP/1.0 knows no interim answers (RFC 9110 section 15.2) */
	}
	spare_text_lend(&c->worker->spare_texts, &c->head);
	if (h1_write_response(&out, c->request.version, c->keep, &c->head) < 0)
		return err_reason(e, REASON_UPSTREAM_MALFORMED, "the answer's head is too large");
	return 0;
}

static void let_go_of_head(struct client *c)
{
	spare_text_return(&c->worker->spare_texts, &c->head);
}

static void ds_send_body(struct downstream *d, struct str data)
{
	struct client *c = client_of(d);

	if (data.n == 0)
		return;
	h1_out_body(c->s, &c->head, c->chunked, data);
	let_go_of_head(c);
}

static void ds_send_end(struct downstream *d, const struct fields *trailers)
{
	struct client *c = client_of(d);

	if (c->upgraded)
		stream_shutdown(c->s);
	if (!c->chunked)
		return;
	h1_out_end(c->s, &c->head, trailers);
	let_go_of_head(c);
}

static void ds_send_continue(struct downstream *d)
{
	struct client *c = client_of(d);

	if (c->request.version == HTTP_11)
		stream_write(c->s, reply_continue());
}

static void ds_flush(struct downstream *d)
{
	struct client *c = client_of(d);

	if (c->head.len == 0)
		return;
	stream_write(c->s, strbuf_str(&c->head));
	let_go_of_head(c);
}

static void next_request(struct client *c)
{
	request_clear(&c->request);
	body_reader_clear(&c->body);
	c->scan = (struct h1_scan){0};
}

static void ds_finished(struct downstream *d, enum exchange_outcome how, const struct reply *reply)
{
	struct client *c = client_of(d);
	/* A body that was not read to its end leaves no place where a next request could begin. */
	bool keep = c->keep && c->body.done && !c->worker->draining;

	c->exchange = NULL;
	switch (how) {
	case EXCHANGE_CUT:
		/* A missing end of the framing says it; an answer that ends with the connection
		 * (HTTP/1.0) needs a reset, or it would pass for a whole one. */
		if (c->until_close) {
			stream_reset(c->s);
			c->s = NULL;
		}
		client_close(c, REASON_NONE, NULL);
		return;
	case EXCHANGE_REFUSED:
		strbuf_clear(&c->head);
		client_answer(c, reply, keep);
		if (!keep)
			return;
		break;
	case EXCHANGE_WHOLE:
		if (!keep) {
			client_end(c);
			return;
		}
		break;
	}
	next_request(c);
	client_goto(c, CLIENT_IDLE);
	if (stream_data(c->s).n > 0 || stream_at_eof(c->s))
		client_drive(c);
}

const struct downstream_ops client_h1_ops = {
	.pull = ds_pull,
	.trailers = ds_trailers,
	.room = ds_room,
	.send_head = ds_send_head,
	.send_body = ds_send_body,
	.send_end = ds_send_end,
	.send_continue = ds_send_continue,
	.flush = ds_flush,
	.finished = ds_finished,
};
