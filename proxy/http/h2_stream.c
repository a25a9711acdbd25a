/*
 * One stream of an HTTP/2 connection: its queues, and what its owner does with it; see h2_conn.h.
 * What comes for it is put there by h2_conn.c.
 */
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "proxy/http/h2_internal.h"

/* ---- queues ---- */

static void free_mem(const struct h2_queue *q)
{
	if (q->mem && q->wiped)
		OPENSSL_cleanse(q->mem, q->cap);
	free(q->mem);
}

static void queue_clear(struct h2_queue *q)
{
	free_mem(q);
	*q = (struct h2_queue){.wiped = q->wiped};
}

/* The same bytes in larger memory. */
static int queue_grow(struct h2_queue *q, size_t cap)
{
	/* Not where realloc could leave a copy behind. */
	char *grown = q->wiped ? malloc(cap) : realloc(q->mem, cap);

	if (!grown)
		return -1;
	if (q->wiped && q->end > 0)
		memcpy(grown, q->mem, q->end);
	if (q->wiped)
		free_mem(q);
	q->mem = grown;
	q->cap = cap;
	return 0;
}

int h2_queue_add(struct h2_queue *q, const void *p, size_t n)
{
	size_t used = h2_queued(q), cap = q->cap ? q->cap : 4096;

	if (n == 0)
		return 0;
	if (q->end + n > q->cap && q->start > 0) {
		memmove(q->mem, q->mem + q->start, used);
		q->start = 0;
		q->end = used;
	}
	while (cap < used + n)
		cap *= 2;
	if (cap != q->cap && queue_grow(q, cap) < 0)
		return -1;
	memcpy(q->mem + q->end, p, n);
	q->end += n;
	return 0;
}

static void queue_take(struct h2_queue *q, size_t n)
{
	q->start += n;
	if (q->start == q->end)
		queue_clear(q);
}

/* ---- streams ---- */

void h2_stream_news(struct h2_stream *s)
{
	if (s->is_ready)
		return;
	s->is_ready = true;
	TAILQ_INSERT_TAIL(&s->conn->ready, s, next);
}

struct h2_stream *h2_stream_add(struct h2_conn *c, int32_t id)
{
	struct h2_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->conn = c;
	s->id = id;
	s->out.wiped = !c->server;
	TAILQ_INSERT_TAIL(&c->all, s, all);
	c->n++;
	return s;
}

void h2_head_free(struct h2_head *h)
{
	if (!h)
		return;
	h2_head_clear(h);
	free(h);
}

/* Room came back: those that wait for it hear so. */
static void sent_some(struct h2_conn *c, struct h2_stream *s, size_t n)
{
	bool was_full = c->out_total + LIMIT_H2_STREAM_OUT_BYTES > LIMIT_H2_CONN_OUT_BYTES;
	struct h2_stream *other;

	c->out_total -= n;
	if (s && s->out_wanted && h2_queued(&s->out) <= LIMIT_H2_STREAM_OUT_BYTES / 2) {
		s->out_wanted = false;
		h2_stream_news(s);
	}
	if (!was_full)
		return;
	TAILQ_FOREACH(other, &c->all, all)
	if (other->out_wanted && other != s) {
		other->out_wanted = false;
		h2_stream_news(other);
	}
}

void h2_stream_drop_out(struct h2_stream *s)
{
	size_t n = h2_queued(&s->out);

	queue_clear(&s->out);
	if (n > 0)
		sent_some(s->conn, NULL, n);
}

void h2_stream_free(struct h2_stream *s)
{
	struct h2_conn *c;
	struct h2_head *h;

	if (!s)
		return;
	c = s->conn;
	if (!s->closed) {
		(void)nghttp2_session_set_stream_user_data(c->session, s->id, NULL);
		h2_conn_reset_stream(c, s->id,
				     c->server && s->out_sent ? NGHTTP2_NO_ERROR : NGHTTP2_CANCEL);
	}
	if (h2_queued(&s->in) > 0)
		h2_conn_said(c, nghttp2_session_consume_connection(c->session, h2_queued(&s->in)));
	h2_stream_drop_out(s);
	TAILQ_REMOVE(&c->all, s, all);
	if (s->is_ready)
		TAILQ_REMOVE(&c->ready, s, next);
	c->n--;
	queue_clear(&s->in);
	while ((h = h2_stream_take_head(s)))
		h2_head_free(h);
	h2_head_free(s->arriving);
	h2_head_free(s->trailers);
	h2_fields_clear(&s->end);
	free(s);
}

struct h2_stream *h2_stream_of(nghttp2_session *session, int32_t id)
{
	return nghttp2_session_get_stream_user_data(session, id);
}

/* ---- what goes ---- */

static int reset_cut(struct h2_stream *s)
{
	return nghttp2_submit_rst_stream(s->conn->session, NGHTTP2_FLAG_NONE, s->id,
					 s->connected ? NGHTTP2_CANCEL : NGHTTP2_INTERNAL_ERROR);
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
		       uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct h2_conn *c = arg;
	struct h2_stream *s = h2_stream_of(session, id);
	size_t n;

	(void)source;
	if (!s)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	n = h2_queued(&s->out) < length ? h2_queued(&s->out) : length;
	if (n > 0)
		memcpy(buf, s->out.mem + s->out.start, n);
	queue_take(&s->out, n);
	sent_some(c, s, n);
	if (h2_queued(&s->out) > 0)
		return (ssize_t)n;
	if (s->out_done) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (s->end.n > 0) {
			nghttp2_nv nv[LIMIT_HEAD_FIELDS];
			size_t k = 0;

			for (; k < s->end.n && k < LIMIT_HEAD_FIELDS; k++)
				nv[k] = (nghttp2_nv){
					.name = (uint8_t *)(uintptr_t)s->end.v[k].name.p,
					.value = (uint8_t *)(uintptr_t)s->end.v[k].value.p,
					.namelen = s->end.v[k].name.n,
					.valuelen = s->end.v[k].value.n};
			if (nghttp2_submit_trailer(session, id, nv, k) != 0)
				return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
			*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
		}
		return (ssize_t)n;
	}
	if (n == 0 && s->out_cut && reset_cut(s) < 0)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	return n > 0 ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
}

/* ---- for its owner ---- */

static nghttp2_nv *make_nv(const struct h2_fields *f)
{
	nghttp2_nv *nv = calloc(f->n ? f->n : 1, sizeof(*nv));

	for (size_t i = 0; nv && i < f->n; i++)
		nv[i] = (nghttp2_nv){
			.name = (uint8_t *)(uintptr_t)f->v[i].name.p,
			.value = (uint8_t *)(uintptr_t)f->v[i].value.p,
			.namelen = f->v[i].name.n,
			.valuelen = f->v[i].value.n,
			.flags = f->v[i].secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE,
		};
	return nv;
}

struct h2_stream *h2_stream_open(struct h2_conn *c, const struct h2_fields *head, bool body)
{
	nghttp2_data_provider data = {.read_callback = on_read};
	nghttp2_nv *nv = make_nv(head);
	struct h2_stream *s = nv ? h2_stream_add(c, 0) : NULL;

	h2_flood_opened(&c->flood);
	if (s) {
		s->id = nghttp2_submit_request(c->session, NULL, nv, head->n, body ? &data : NULL,
					       s);
		if (s->id < 0) {
			s->closed = true;
			h2_stream_free(s);
			s = NULL;
		}
	}
	free(nv);
	return s;
}

int h2_stream_interim(struct h2_stream *s, const struct h2_fields *head)
{
	nghttp2_nv *nv;
	int rc;

	if (s->closed)
		return 0;
	nv = make_nv(head);
	rc = nv ? nghttp2_submit_headers(s->conn->session, NGHTTP2_FLAG_NONE, s->id, NULL, nv,
					 head->n, NULL)
		: -1;
	free(nv);
	return rc == 0 ? 0 : -1;
}

int h2_stream_respond(struct h2_stream *s, const struct h2_fields *head, bool body)
{
	nghttp2_data_provider data = {.read_callback = on_read};
	nghttp2_nv *nv;
	int rc;

	if (s->closed)
		return 0;
	nv = make_nv(head);
	rc = nv ? nghttp2_submit_response(s->conn->session, s->id, nv, head->n, body ? &data : NULL)
		: -1;
	free(nv);
	return rc == 0 ? 0 : -1;
}

struct h2_head *h2_stream_take_head(struct h2_stream *s)
{
	struct h2_head *h = s->heads;

	if (h)
		s->heads = h->next;
	return h;
}

void h2_stream_expect(struct h2_stream *s, uint64_t n)
{
	s->expects = true;
	s->in_expected = n;
	if (s->in_total > n || (s->got_end && s->in_total != n))
		s->bad_length = true;
}

struct str h2_stream_data(const struct h2_stream *s)
{
	return str_from(s->in.mem ? s->in.mem + s->in.start : NULL, h2_queued(&s->in));
}

void h2_stream_consume(struct h2_stream *s, size_t n)
{
	if (n == 0)
		return;
	queue_take(&s->in, n);
	if (s->closed || s->got_end)
		h2_conn_said(s->conn, nghttp2_session_consume_connection(s->conn->session, n));
	else
		h2_conn_said(s->conn, nghttp2_session_consume(s->conn->session, s->id, n));
}

size_t h2_stream_room(struct h2_stream *s)
{
	size_t used = h2_queued(&s->out), total = s->conn->out_total;
	size_t mine = used < LIMIT_H2_STREAM_OUT_BYTES ? LIMIT_H2_STREAM_OUT_BYTES - used : 0;
	size_t all = total < LIMIT_H2_CONN_OUT_BYTES ? LIMIT_H2_CONN_OUT_BYTES - total : 0;

	if (s->closed)
		return 0;
	/* Streams that are not taken from must not starve the others. */
	if (used == 0 && all < LIMIT_H2_STREAM_OUT_MIN)
		all = LIMIT_H2_STREAM_OUT_MIN;
	if (mine < LIMIT_H2_STREAM_OUT_BYTES || all < LIMIT_H2_STREAM_OUT_BYTES)
		s->out_wanted = true;
	return mine < all ? mine : all;
}

int h2_stream_write(struct h2_stream *s, struct str data)
{
	if (s->closed)
		return 0;
	if (h2_queue_add(&s->out, data.p, data.n) < 0)
		return -1;
	s->conn->out_total += data.n;
	s->out_wanted = true; /* what did not fit now is not heard of otherwise */
	h2_conn_said(s->conn, nghttp2_session_resume_data(s->conn->session, s->id));
	return 0;
}

void h2_stream_connect(struct h2_stream *s)
{
	s->connected = true;
	if (s->trailers)
		s->bad_sequence = true;
}

void h2_stream_end(struct h2_stream *s, struct h2_fields *trailers)
{
	if (trailers) {
		s->end = *trailers;
		*trailers = (struct h2_fields){0};
	}
	s->out_done = true;
	h2_conn_said(s->conn, nghttp2_session_resume_data(s->conn->session, s->id));
}

void h2_stream_cut(struct h2_stream *s)
{
	if (s->closed)
		return;
	s->out_cut = true;
	if (h2_queued(&s->out) == 0)
		h2_conn_said(s->conn, reset_cut(s));
	else
		h2_conn_said(s->conn, nghttp2_session_resume_data(s->conn->session, s->id));
}
