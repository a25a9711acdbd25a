/*
 * See h2_peer.h.
 */
#include "tests/replay/h2_peer.h"

#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

struct asked {
	struct h2_peer_stream s;
	int32_t id;
	const char *body;
	size_t body_n;
	bool open;
};

struct h2_peer {
	nghttp2_session *session;
	struct asked v[H2_PEER_STREAMS];
	int n;
	bool bad, goaway;
};

static struct asked *of(struct h2_peer *h, int32_t id)
{
	for (int i = 0; i < h->n; i++)
		if (h->v[i].id == id)
			return &h->v[i];
	return NULL;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags, void *arg)
{
	struct asked *a = of(arg, frame->hd.stream_id);

	(void)session;
	(void)flags;
	if (!a)
		return 0;
	if (name_n == 7 && memcmp(name, ":status", 7) == 0 && value_n == 3 && value[0] != '1')
		a->s.status = (unsigned)strtoul((const char *)value, NULL, 10);
	bytes_add(&a->s.got, value, value_n);
	bytes_add(&a->s.got, "\n", 1);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
		   void *arg)
{
	struct asked *a = of(arg, id);

	(void)session;
	(void)flags;
	if (a)
		bytes_add(&a->s.got, p, n);
	return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2_peer *h = arg;
	struct asked *a = of(h, frame->hd.stream_id);

	(void)session;
	h->goaway |= frame->hd.type == NGHTTP2_GOAWAY;
	if (a && frame->hd.type == NGHTTP2_RST_STREAM)
		a->s.reset = true;
	if (a && (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
	    (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		a->s.ended = true;
	return 0;
}

static int on_invalid(nghttp2_session *session, const nghttp2_frame *frame, int code, void *arg)
{
	(void)session;
	(void)frame;
	(void)code;
	((struct h2_peer *)arg)->bad = true;
	return 0;
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t n,
		       uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct asked *a = of(arg, id);

	(void)session;
	(void)source;
	if (!a)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	if (a->body_n == 0 && a->open)
		return NGHTTP2_ERR_DEFERRED;
	n = n < a->body_n ? n : a->body_n;
	if (n > 0)
		memcpy(buf, a->body, n);
	a->body += n;
	a->body_n -= n;
	if (a->body_n == 0 && !a->open)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

struct h2_peer *h2_peer_new(unsigned window)
{
	struct h2_peer *h = fake_calloc(sizeof(*h));
	nghttp2_settings_entry v[] = {{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
				      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window}};
	nghttp2_session_callbacks *cb;

	if (nghttp2_session_callbacks_new(&cb) != 0)
		abort();
	nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid);
	if (nghttp2_session_client_new(&h->session, cb, h) != 0 ||
	    nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, v, window ? 2 : 1) != 0)
		abort();
	nghttp2_session_callbacks_del(cb);
	return h;
}

void h2_peer_free(struct h2_peer *h)
{
	if (!h)
		return;
	nghttp2_session_del(h->session);
	for (int i = 0; i < h->n; i++)
		bytes_clear(&h->v[i].s.got);
	fake_free(h);
}

bool h2_peer_take(struct h2_peer *h, struct str data)
{
	if (nghttp2_session_mem_recv(h->session, (const uint8_t *)data.p, data.n) < 0)
		h->bad = true;
	return !h->bad;
}

struct str h2_peer_out(struct h2_peer *h)
{
	const uint8_t *p = NULL;
	ssize_t n = nghttp2_session_mem_send(h->session, &p);

	return n > 0 ? str_from(p, (size_t)n) : STR_NONE;
}

static nghttp2_nv pair(const char *name, const char *value)
{
	return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
			    strlen(value), NGHTTP2_NV_FLAG_NONE};
}

int h2_peer_ask(struct h2_peer *h, const char *method, const char *authority, const char *path,
		const char *length, const char *body, bool open, int tag)
{
	nghttp2_nv nv[] = {pair(":method", method), pair(":scheme", "https"),
			   pair(":authority", authority), pair(":path", path),
			   pair("content-length", length ? length : "")};
	nghttp2_nv socket[] = {pair(":method", "CONNECT"), pair(":protocol", "websocket"),
			       pair(":scheme", "https"),   pair(":authority", authority),
			       pair(":path", path),	   pair("sec-websocket-version", "13")};
	bool websocket = strcmp(method, "WEBSOCKET") == 0;
	nghttp2_data_provider data = {.read_callback = on_read};
	struct asked *a = &h->v[h->n];

	if (h->n == H2_PEER_STREAMS)
		return -1;
	*a = (struct asked){.s.tag = tag,
			    .body = body,
			    .body_n = body ? strlen(body) : 0,
			    .open = open};
	if (websocket)
		a->id = nghttp2_submit_request(h->session, NULL, socket, 6, &data, NULL);
	else
		a->id = nghttp2_submit_request(h->session, NULL, nv, length ? 5 : 4,
					       body || open ? &data : NULL, NULL);
	return a->id < 0 ? -1 : h->n++;
}

void h2_peer_cancel(struct h2_peer *h, int stream)
{
	if (stream >= 0 && stream < h->n)
		(void)nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, h->v[stream].id,
						NGHTTP2_CANCEL);
}

struct h2_peer_stream *h2_peer_stream(struct h2_peer *h, int stream)
{
	return stream >= 0 && stream < h->n ? &h->v[stream].s : NULL;
}

size_t h2_peer_heard(const struct h2_peer *h)
{
	size_t n = 0;

	for (int i = 0; i < h->n; i++)
		n += h->v[i].s.status >= 200 || h->v[i].s.reset;
	return n;
}

bool h2_peer_goaway(const struct h2_peer *h)
{
	return h->goaway;
}
