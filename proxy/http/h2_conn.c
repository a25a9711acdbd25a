/*
 * See h2_conn.h. nghttp2's own checks of messages are off: it would drop some bad fields silently
 * and reset streams without a word, where a request has to be answered and recorded; h2_read.c is
 * as strict, for all of it. The callbacks note what came, and nothing more.
 */
#include <malloc.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "proxy/http/h2_internal.h"

static nghttp2_session_callbacks *callbacks;
static nghttp2_option *options;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- bounds on the peer ---- */

/* The GOAWAY that says why, unless one is on its way. */
static void say_why(struct h2_conn *c, enum reason why)
{
	uint32_t code = why == REASON_MALFORMED_REQUEST ? NGHTTP2_PROTOCOL_ERROR
			: why == REASON_INTERNAL_ERROR	? NGHTTP2_INTERNAL_ERROR
							: NGHTTP2_ENHANCE_YOUR_CALM;

	(void)nghttp2_session_terminate_session(c->session, code);
}

/* Ends the connection: the first fault is the one told. */
static int kill_conn(struct h2_conn *c, enum reason why, const char *text)
{
	if (c->fault.reason == REASON_NONE)
		(void)err_reason(&c->fault, why, "HTTP/2: %s", text);
	c->ended = true;
	say_why(c, why);
	return NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* What has to be said cannot be put into words: only the end of the connection tells the peer. */
static void out_of_memory(struct h2_conn *c)
{
	if (c->fault.reason == REASON_NONE)
		(void)err_reason(&c->fault, REASON_INTERNAL_ERROR, "HTTP/2: out of memory");
	c->ended = c->failed = true;
}

void h2_conn_said(struct h2_conn *c, int rc)
{
	if (rc == NGHTTP2_ERR_NOMEM)
		out_of_memory(c);
}

void h2_conn_reset_stream(struct h2_conn *c, int32_t id, uint32_t code)
{
	h2_conn_said(c, nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, id, code));
}

static int count_control(struct h2_conn *c, const char *text)
{
	return h2_flood_control(&c->flood, c->now_us) ? 0 : kill_conn(c, REASON_RATE_LIMITED, text);
}

static int count_reset(struct h2_conn *c)
{
	return h2_flood_reset(&c->flood, c->now_us)
		       ? 0
		       : kill_conn(c, REASON_RATE_LIMITED, "too many streams were reset");
}

/* ---- what comes: callbacks ---- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2_conn *c = arg;
	struct h2_stream *s;

	if (frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	c->head_since_us = c->now_us;
	h2_flood_head(&c->flood);
	s = h2_stream_of(session, frame->hd.stream_id);
	if (!s && c->server && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
		s = h2_stream_add(c, frame->hd.stream_id);
		if (!s) {
			c->lost++;
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
		}
		c->last_id = frame->hd.stream_id;
		(void)nghttp2_session_set_stream_user_data(session, s->id, s);
	}
	if (!s)
		return 0;
	s->got_any = true;
	h2_head_free(s->arriving);
	s->arriving = calloc(1, sizeof(*s->arriving));
	return s->arriving ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags, void *arg)
{
	struct h2_conn *c = arg;
	struct h2_stream *s;

	(void)flags;
	if (frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	/* A little that unfolds to a lot: decoding has to go on for the sake of the others, but not
	 * without end. */
	if (!h2_flood_field(&c->flood, name_n + value_n + 32))
		return kill_conn(c, REASON_HEAD_TOO_LARGE,
				 "a head that unfolds far beyond its bound");
	s = h2_stream_of(session, frame->hd.stream_id);
	if (s && s->arriving)
		h2_head_add(s->arriving, str_from(name, name_n), str_from(value, value_n));
	return 0;
}

static bool is_interim(const struct h2_head *h)
{
	const struct h2_line *l = h->lines;

	return h->n > 0 && l->name_n == 7 && memcmp(h->mem + l->name_at, ":status", 7) == 0 &&
	       l->value_n == 3 && h->mem[l->value_at] == '1';
}

/* A section where none may stand: told to the stream's owner, but not as often as one likes. */
static int bad_section(struct h2_conn *c, struct h2_stream *s, struct h2_head *h)
{
	s->bad_sequence = true;
	h2_head_free(h);
	return count_control(c, "too many field sections on a stream");
}

static int take_section(struct h2_conn *c, struct h2_stream *s, bool end)
{
	struct h2_head *h = s->arriving, **at = &s->heads;

	s->arriving = NULL;
	h->end_stream = end;
	if (s->got_final) {
		/* Section 8.1: a second one is trailers, and ends the stream. */
		if (!end || s->trailers || s->connected)
			return bad_section(c, s, h);
		s->trailers = h;
		return 0;
	}
	s->got_final = c->server || !is_interim(h);
	s->heads_n++;
	s->interim_bytes += s->got_final ? 0 : h->bytes;
	if (s->heads_n > LIMIT_INTERIM_RESPONSES + 1 || s->interim_bytes > LIMIT_HEAD_BYTES)
		return bad_section(c, s, h);
	while (*at)
		at = &(*at)->next;
	*at = h;
	return 0;
}

static void take_end(struct h2_stream *s)
{
	s->got_end = true;
	if (s->expects && s->in_total != s->in_expected)
		s->bad_length = true;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2_conn *c = arg;
	struct h2_stream *s = h2_stream_of(session, frame->hd.stream_id);
	bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
	size_t n;
	int rc;

	switch (frame->hd.type) {
	case NGHTTP2_HEADERS:
		c->head_since_us = 0;
		if (!s || !s->arriving)
			return 0;
		rc = take_section(c, s, end);
		if (end)
			take_end(s);
		h2_stream_news(s);
		return rc;
	case NGHTTP2_DATA:
		n = frame->hd.length > frame->data.padlen ? frame->hd.length - frame->data.padlen
							  : 0;
		if (n == 0 && !end && count_control(c, "too many empty DATA frames") < 0)
			return NGHTTP2_ERR_CALLBACK_FAILURE;
		if (!h2_flood_padding(&c->flood, n, frame->data.padlen))
			return kill_conn(c, REASON_RATE_LIMITED, "too much padding");
		if (s && end) {
			take_end(s);
			h2_stream_news(s);
		}
		return 0;
	case NGHTTP2_RST_STREAM:
		if (s)
			s->by_peer = true;
		return 0;
	case NGHTTP2_SETTINGS:
		if (!(frame->hd.flags & NGHTTP2_FLAG_ACK))
			c->got_settings = true;
		return 0;
	default: return 0;
	}
}

/* Section 8.1: the answer is whole, the rest of the request is not wanted. But there are clients
 * that read no answer before they have sent all, and take no notice of a reset behind its end: so
 * some is taken and dropped first. A frame costs something, however little is in it. */
static void take_late(struct h2_stream *s, size_t n)
{
	s->in_late += n > LIMIT_H2_LATE_FRAME_BYTES ? n : LIMIT_H2_LATE_FRAME_BYTES;
	if (s->in_late > LIMIT_LINGER_BYTES)
		h2_conn_reset_stream(s->conn, s->id, NGHTTP2_NO_ERROR);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
		   void *arg)
{
	struct h2_conn *c = arg;
	struct h2_stream *s = h2_stream_of(session, id);

	(void)flags;
	if (s) {
		s->in_total += n;
		if (c->server && s->out_sent && !s->connected)
			take_late(s, n);
		if (!s->got_final)
			s->bad_sequence = true;
		if (s->expects && s->in_total > s->in_expected)
			s->bad_length = true;
		h2_stream_news(s);
	}
	if (s && !s->bad_length && !s->bad_sequence && !s->no_memory)
		s->no_memory = h2_queue_add(&s->in, p, n) < 0;
	/* Nobody will take it: the connection's window must not run dry for that. */
	if (!s || s->bad_length || s->bad_sequence || s->no_memory)
		h2_conn_said(c, nghttp2_session_consume_connection(c->session, n));
	return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct h2_stream *s = h2_stream_of(session, id);

	(void)arg;
	if (!s)
		return 0;
	s->closed = true;
	s->reset = code != NGHTTP2_NO_ERROR || !s->got_end;
	s->reset_code = code;
	h2_stream_drop_out(s);
	h2_stream_news(s);
	return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code,
			    void *arg)
{
	struct h2_conn *c = arg;

	(void)session;
	if (c->fault.reason == REASON_NONE)
		(void)err_reason(&c->fault, REASON_MALFORMED_REQUEST,
				 "HTTP/2: a frame of type %u: %s", frame->hd.type,
				 nghttp2_strerror(code));
	return 0;
}

/* ---- what goes ---- */

static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2_conn *c = arg;
	struct h2_stream *s = h2_stream_of(session, frame->hd.stream_id);

	switch (frame->hd.type) {
	case NGHTTP2_DATA:
		h2_flood_sent_data(&c->flood, s && h2_queued(&s->out) > 0 &&
						      frame->hd.length < LIMIT_H2_DATA_CUT);
		break;
	case NGHTTP2_RST_STREAM:
		h2_flood_sent_reset(&c->flood, frame->hd.stream_id);
		/* Streams that a peer makes us reset cost as much as those that it resets. */
		if (c->server && frame->rst_stream.error_code != NGHTTP2_NO_ERROR)
			(void)count_reset(c);
		return 0;
	case NGHTTP2_GOAWAY:
		/* nghttp2 has found a fault of its own accord: its words are in there. */
		if (frame->goaway.error_code != NGHTTP2_NO_ERROR) {
			c->ended = c->failed = true;
			if (c->fault.reason == REASON_NONE)
				(void)err_reason(&c->fault, REASON_MALFORMED_REQUEST,
						 "HTTP/2: %s%s%.*s",
						 nghttp2_http2_strerror(frame->goaway.error_code),
						 frame->goaway.opaque_data_len ? ": " : "",
						 (int)frame->goaway.opaque_data_len,
						 frame->goaway.opaque_data_len
							 ? (const char *)frame->goaway.opaque_data
							 : "");
		}
		return 0;
	case NGHTTP2_HEADERS: break;
	default: return 0;
	}
	if (s && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
		s->out_sent = true;
		h2_stream_news(s);
	}
	return 0;
}

static int on_frame_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int code,
			     void *arg)
{
	struct h2_stream *s = h2_stream_of(session, frame->hd.stream_id);

	if (!s || frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	/* A request that never left (the peer is going away) has no stream to be closed. */
	s->closed = s->closed || !nghttp2_session_find_stream(session, s->id);
	s->reset = true;
	s->reset_code =
		code == NGHTTP2_ERR_START_STREAM_NOT_ALLOWED || code == NGHTTP2_ERR_SESSION_CLOSING
			? NGHTTP2_REFUSED_STREAM
			: NGHTTP2_INTERNAL_ERROR;
	/* An answer's head or trailers that could not be sent: nothing else would end it. */
	if (((struct h2_conn *)arg)->server)
		h2_conn_reset_stream(arg, s->id, NGHTTP2_INTERNAL_ERROR);
	h2_stream_news(s);
	return 0;
}

/* ---- birth and death ---- */

static void make_shared(void)
{
	if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&options) != 0) {
		nghttp2_session_callbacks_del(callbacks);
		callbacks = NULL;
		return;
	}
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
	nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
	nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_frame_not_sent);
	nghttp2_option_set_no_auto_window_update(options, 1);
	nghttp2_option_set_no_http_messaging(options, 1);
	nghttp2_option_set_no_closed_streams(options, 1);
	nghttp2_option_set_max_settings(options, LIMIT_H2_SETTINGS);
	nghttp2_option_set_max_outbound_ack(options, 4 * (size_t)LIMIT_H2_CONTROL);
	nghttp2_option_set_max_send_header_block_length(options, 4 * LIMIT_HEAD_BYTES);
	nghttp2_option_set_peer_max_concurrent_streams(options, LIMIT_H2_STREAMS_UNTOLD);
}

/* Heads hold credentials, and nghttp2 keeps copies of them: memory is wiped as it is freed. */
static void *wipe_malloc(size_t n, void *arg)
{
	(void)arg;
	return malloc(n);
}

static void wipe_free(void *p, void *arg)
{
	(void)arg;
	if (p)
		OPENSSL_cleanse(p, malloc_usable_size(p));
	free(p);
}

static void *wipe_calloc(size_t n, size_t size, void *arg)
{
	(void)arg;
	return calloc(n, size);
}

static void *wipe_realloc(void *p, size_t n, void *arg)
{
	size_t had = p ? malloc_usable_size(p) : 0;
	void *fresh;

	if (p && n <= had)
		return p;
	fresh = malloc(n);
	if (fresh && p) {
		memcpy(fresh, p, had < n ? had : n);
		wipe_free(p, arg);
	}
	return fresh;
}

/*
 * A server's session: nghttp2 1.52 frees what it was to send twice when its queue of streams, the
 * first that is made by realloc, cannot grow. So the queue has room for all streams from birth.
 */
#define QUEUE_BYTES (2 * LIMIT_H2_STREAMS * sizeof(void *))

static void *plain_malloc(size_t n, void *arg)
{
	(void)arg;
	return malloc(n);
}

static void plain_free(void *p, void *arg)
{
	(void)arg;
	free(p);
}

static void *roomy_realloc(void *p, size_t n, void *arg)
{
	struct h2_conn *c = arg;

	if (p && n <= malloc_usable_size(p))
		return p;
	if (!p && c->queue_room && n <= QUEUE_BYTES) {
		p = c->queue_room;
		c->queue_room = NULL;
		return p;
	}
	return realloc(p, n);
}

static int new_session(struct h2_conn *c)
{
	nghttp2_mem wiping = {NULL, wipe_malloc, wipe_free, wipe_calloc, wipe_realloc};
	nghttp2_mem roomy = {c, plain_malloc, plain_free, wipe_calloc, roomy_realloc};

	if (!c->server)
		return nghttp2_session_client_new3(&c->session, callbacks, c, options, &wiping);
	c->queue_room = malloc(QUEUE_BYTES);
	return c->queue_room
		       ? nghttp2_session_server_new3(&c->session, callbacks, c, options, &roomy)
		       : NGHTTP2_ERR_NOMEM;
}

static int say_settings(struct h2_conn *c)
{
	/* The last is a server's alone: extended CONNECT is taken. */
	nghttp2_settings_entry v[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, LIMIT_H2_STREAMS},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, LIMIT_H2_STREAM_WINDOW},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, LIMIT_HEAD_BYTES},
		{c->server ? NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES : NGHTTP2_SETTINGS_ENABLE_PUSH,
		 c->server ? 1 : 0},
		{NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1},
	};
	size_t n = c->server ? ARRAY_LEN(v) : ARRAY_LEN(v) - 1;

	return nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, v, n) == 0 &&
			       nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE,
								     0, LIMIT_H2_CONN_WINDOW) == 0
		       ? 0
		       : -1;
}

int h2_conn_new(bool server, struct h2_conn **ret, struct err *e)
{
	struct h2_conn *c = calloc(1, sizeof(*c));

	pthread_once(&once, make_shared);
	if (!c || !callbacks)
		goto fail;
	TAILQ_INIT(&c->all);
	TAILQ_INIT(&c->ready);
	c->server = server;
	c->frames.preface = server ? NGHTTP2_CLIENT_MAGIC_LEN : 0;
	h2_flood_init(&c->flood);
	if (new_session(c) != 0 || say_settings(c) < 0)
		goto fail;
	*ret = c;
	return 0;
fail:
	if (c) {
		nghttp2_session_del(c->session);
		free(c->queue_room);
	}
	free(c);
	return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
}

void h2_conn_free(struct h2_conn *c)
{
	if (!c)
		return;
	while (!TAILQ_EMPTY(&c->all)) {
		TAILQ_FIRST(&c->all)->closed = true;
		h2_stream_free(TAILQ_FIRST(&c->all));
	}
	nghttp2_session_del(c->session);
	free(c->queue_room);
	free(c);
}

/* ---- the connection ---- */

static enum reason reason_of(ssize_t code)
{
	return code == NGHTTP2_ERR_NOMEM		    ? REASON_INTERNAL_ERROR
	       : code == NGHTTP2_ERR_FLOODED		    ? REASON_RATE_LIMITED
	       : code == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS ? REASON_HEAD_TOO_LARGE
							    : REASON_MALFORMED_REQUEST;
}

static const char *too_many(uint8_t type)
{
	switch (type) {
	case NGHTTP2_PRIORITY: return "too many PRIORITY frames";
	case NGHTTP2_RST_STREAM: return "too many RST_STREAM frames";
	case NGHTTP2_SETTINGS: return "too many SETTINGS frames";
	case NGHTTP2_PING: return "too many PING frames";
	case NGHTTP2_GOAWAY: return "too many GOAWAY frames";
	default: return "too many frames of other types";
	}
}

/* DATA or HEADERS: whether there is a stream for it. What is on its way for one that we reset is
 * read past, so much of it; what a client sends on one that it has ended itself, or skipped, ends
 * the connection (RFC 9113 sections 5.1 and 5.1.1). */
static int admit_on_stream(struct h2_conn *c, const struct h2_frames *f)
{
	if (f->stream == 0 || nghttp2_session_find_stream(c->session, f->stream) ||
	    (c->server && f->stream > c->last_id))
		return 0;
	if (c->server && f->stream % 2 == 1 && !h2_flood_was_reset(&c->flood, f->stream))
		return kill_conn(c, REASON_MALFORMED_REQUEST, "a frame for a stream that is over");
	return h2_flood_stray(&c->flood, f->length)
		       ? 0
		       : kill_conn(c, REASON_RATE_LIMITED,
				   "too many frames for streams that are over");
}

/* The head of a frame has come, and nghttp2 has not seen it yet. */
static int admit_frame(struct h2_conn *c, const struct h2_frames *f)
{
	if (!h2_flood_frame(&c->flood, f->type == NGHTTP2_CONTINUATION))
		return kill_conn(c, REASON_HEAD_TOO_LARGE,
				 "too many CONTINUATION frames in one head");
	switch (f->type) {
	case NGHTTP2_CONTINUATION: return 0;
	case NGHTTP2_DATA:
	case NGHTTP2_HEADERS: return admit_on_stream(c, f);
	case NGHTTP2_WINDOW_UPDATE:
		return h2_flood_window(&c->flood, c->now_us)
			       ? 0
			       : kill_conn(c, REASON_RATE_LIMITED, "too many WINDOW_UPDATE frames");
	case NGHTTP2_RST_STREAM:
		return c->server ? count_reset(c) : count_control(c, too_many(f->type));
	case NGHTTP2_PRIORITY:
		/* Read past by nghttp2, since priorities are off (section 6.3). */
		if (f->stream == 0)
			return kill_conn(c, REASON_MALFORMED_REQUEST, "PRIORITY of stream 0");
		return count_control(c, too_many(f->type));
	default: return count_control(c, too_many(f->type));
	}
}

/* Frame by frame, so that what is counted is judged by what came before it. 0, or nghttp2's error.
 */
static ssize_t feed(struct h2_conn *c, struct str in)
{
	while (in.n > 0 && !c->ended) {
		bool begins;
		size_t n = h2_frames_next(&c->frames, in, &begins);
		ssize_t rc;

		if (begins && admit_frame(c, &c->frames) < 0)
			return 0;
		rc = nghttp2_session_mem_recv(c->session, (const uint8_t *)in.p, n);
		if (rc < 0)
			return rc;
		in = str_skip(in, n);
	}
	return 0;
}

int h2_conn_recv(struct h2_conn *c, struct str in, int64_t now_us, struct err *e)
{
	ssize_t n;

	c->now_us = now_us;
	n = feed(c, in);
	/* What nghttp2 gives up on without a word: no preface, too many CONTINUATION frames (of
	 * which it takes one whose header comes in pieces for as many). */
	if (n < 0 && c->fault.reason == REASON_NONE) {
		(void)err_reason(&c->fault, reason_of(n), "HTTP/2: %s", nghttp2_strerror((int)n));
		say_why(c, c->fault.reason);
	}
	/* A fault of the peer's within nghttp2: it has its GOAWAY ready and reads no more. */
	if (n < 0 || c->ended || !nghttp2_session_want_read(c->session)) {
		bool fault = c->fault.reason != REASON_NONE;

		c->ended = true;
		if (fault) {
			if (e)
				*e = c->fault;
			return -1;
		}
		return 0;
	}
	c->fault = ERR_INIT; /* of a stream alone */
	return 0;
}

struct str h2_conn_send(struct h2_conn *c)
{
	const uint8_t *p = NULL;
	ssize_t n = nghttp2_session_mem_send(c->session, &p);

	if (n < 0) {
		if (c->fault.reason == REASON_NONE)
			(void)err_reason(&c->fault, reason_of(n), "HTTP/2: %s",
					 nghttp2_strerror((int)n));
		c->ended = c->failed = true;
	}
	return n > 0 ? str_from(p, (size_t)n) : STR_NONE;
}

bool h2_conn_wants_send(struct h2_conn *c)
{
	return nghttp2_session_want_write(c->session);
}

struct h2_stream *h2_conn_ready(struct h2_conn *c)
{
	struct h2_stream *s = TAILQ_FIRST(&c->ready);

	if (!s)
		return NULL;
	TAILQ_REMOVE(&c->ready, s, next);
	s->is_ready = false;
	return s;
}

bool h2_conn_failed(const struct h2_conn *c, struct err *e)
{
	if (c->failed && e)
		*e = c->fault;
	return c->failed;
}

bool h2_conn_has_news(const struct h2_conn *c)
{
	return !TAILQ_EMPTY(&c->ready);
}

struct h2_stream *h2_conn_first(struct h2_conn *c)
{
	return TAILQ_FIRST(&c->all);
}

struct h2_stream *h2_stream_next(struct h2_stream *s)
{
	return TAILQ_NEXT(s, all);
}

size_t h2_conn_take_lost(struct h2_conn *c)
{
	size_t n = c->lost;

	c->lost = 0;
	return n;
}

size_t h2_conn_streams(const struct h2_conn *c)
{
	return c->n;
}

void h2_conn_goaway(struct h2_conn *c)
{
	(void)nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE,
				    nghttp2_session_get_last_proc_stream_id(c->session) > c->last_id
					    ? nghttp2_session_get_last_proc_stream_id(c->session)
					    : c->last_id,
				    NGHTTP2_NO_ERROR, NULL, 0);
}

void h2_conn_end(struct h2_conn *c)
{
	(void)nghttp2_session_terminate_session(c->session, NGHTTP2_NO_ERROR);
	c->ended = true;
}

bool h2_conn_over(struct h2_conn *c)
{
	return (c->ended || !nghttp2_session_want_read(c->session)) &&
	       !nghttp2_session_want_write(c->session);
}

bool h2_conn_has_room(struct h2_conn *c, size_t in_use)
{
	uint32_t max = c->got_settings
			       ? nghttp2_session_get_remote_settings(
					 c->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS)
			       : LIMIT_H2_STREAMS;

	return !c->ended && nghttp2_session_check_request_allowed(c->session) &&
	       in_use < (max < LIMIT_H2_STREAMS ? max : LIMIT_H2_STREAMS);
}

int h2_conn_takes_connect(struct h2_conn *c)
{
	if (!c->got_settings)
		return -1;
	return nghttp2_session_get_remote_settings(c->session,
						   NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL) == 1;
}

int64_t h2_conn_head_since_us(const struct h2_conn *c)
{
	return c->head_since_us;
}
