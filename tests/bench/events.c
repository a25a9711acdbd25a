/*
 * Event streams: an origin that sends an event every few milliseconds, each with the time at which
 * it was sent, and a client that compares it with the time at which it came (one clock, one
 * machine). HTTP/1.1 in chunks or HTTP/2, inside TLS. A thread a connection, and sockets that
 * block: there is one client and hardly any load.
 */
#include "h2.h"

#include <poll.h>
#include <pthread.h>

#define EVERY_MS    4
#define EVENT_BYTES 200
#define STAMP_AT    6 /* behind "data: " */

/* ---- origin ---- */

struct feed {
	struct h2 h;
	long events; /* how many it sends; 0: no request yet */
	long sent;
	int32_t stream;
	char event[EVENT_BYTES + 16];
	size_t event_n; /* waits to be sent in HTTP/2 */
	char head[4096];
	size_t head_n;
};

static void make_event(struct feed *f)
{
	int n = snprintf(f->event, sizeof(f->event), "data: %.9f ", now());

	memset(f->event + n, 'e', (size_t)(EVENT_BYTES - 2 - n));
	memcpy(f->event + EVENT_BYTES - 2, "\n\n", 2);
	f->event_n = EVENT_BYTES;
}

static long events_of(const char *path)
{
	return strncmp(path, "/events/", 8) == 0 ? strtol(path + 8, NULL, 10) : 1;
}

static int feed_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		       size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags,
		       void *arg)
{
	struct feed *f = arg;

	(void)session;
	(void)flags;
	(void)value_n;
	if (name_n == 5 && memcmp(name, ":path", 5) == 0) {
		f->events = events_of((const char *)value);
		f->stream = frame->hd.stream_id;
	}
	return 0;
}

static ssize_t feed_body(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room,
			 uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct feed *f = arg;
	size_t n = f->event_n < room ? f->event_n : room;

	(void)session;
	(void)id;
	(void)source;
	if (n == 0 && f->sent < f->events)
		return NGHTTP2_ERR_DEFERRED;
	memcpy(buf, f->event, n);
	f->event_n = 0;
	if (f->sent == f->events)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

static bool send_all(struct wire *w, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t r = wire_write(w, p, n);

		if (r <= 0)
			return false;
		p += r;
		n -= (size_t)r;
	}
	return true;
}

static bool feed_recv(struct feed *f)
{
	char *end;
	ssize_t n;

	if (f->h.session)
		return h2_recv(&f->h) && h2_send(&f->h) == 0;
	n = wire_read(&f->h.w, f->head + f->head_n, sizeof(f->head) - 1 - f->head_n);
	if (n <= 0)
		return false;
	f->head_n += (size_t)n;
	f->head[f->head_n] = '\0';
	end = strstr(f->head, "\r\n\r\n");
	if (end && strncmp(f->head, "GET ", 4) == 0) {
		f->events = events_of(f->head + 4);
		f->head_n = 0;
	}
	return true;
}

static bool feed_begin(struct feed *f)
{
	static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
				   "Cache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n";
	nghttp2_data_provider body = {.read_callback = feed_body};
	nghttp2_nv nv[] = {h2_nv(":status", "200"), h2_nv("content-type", "text/event-stream"),
			   h2_nv("cache-control", "no-store")};

	f->sent = 0;
	if (!f->h.session)
		return send_all(&f->h.w, head, sizeof(head) - 1);
	return nghttp2_submit_response(f->h.session, f->stream, nv, 3, &body) == 0 &&
	       h2_send(&f->h) == 0;
}

static bool feed_event(struct feed *f)
{
	char chunk[EVENT_BYTES + 32];
	int n;

	f->sent++;
	make_event(f);
	if (f->h.session)
		return nghttp2_session_resume_data(f->h.session, f->stream) == 0 &&
		       h2_send(&f->h) == 0;
	n = snprintf(chunk, sizeof(chunk), "%zx\r\n%.*s\r\n%s", f->event_n, (int)f->event_n,
		     f->event, f->sent == f->events ? "0\r\n\r\n" : "");
	return send_all(&f->h.w, chunk, (size_t)n);
}

/* Until the next event is due, what the peer says is read. */
static bool feed_pause(struct feed *f, double until)
{
	for (;;) {
		struct pollfd p = {.fd = f->h.w.fd, .events = POLLIN};
		double left = until - now();

		if (left <= 0)
			return true;
		if (ppoll(&p, 1, &(struct timespec){.tv_nsec = (long)(left * 1e9)}, NULL) == 1 &&
		    !feed_recv(f))
			return false;
	}
}

static bool feed_run(struct feed *f)
{
	double due;

	while (f->events == 0)
		if (!feed_recv(f))
			return false;
	if (!feed_begin(f))
		return false;
	due = now();
	while (f->sent < f->events) {
		due += EVERY_MS / 1e3;
		if (!feed_pause(f, due) || !feed_event(f))
			return false;
	}
	f->events = 0;
	return true;
}

static SSL_CTX *feed_ctx;
static nghttp2_session_callbacks *feed_cb;

static void *feed_main(void *arg)
{
	struct feed *f = arg;
	int one = 1;

	setsockopt(f->h.w.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	f->h.w.ssl = SSL_new(feed_ctx);
	SSL_set_fd(f->h.w.ssl, f->h.w.fd);
	if (SSL_accept(f->h.w.ssl) == 1) {
		if (o.h2 && (nghttp2_session_server_new(&f->h.session, feed_cb, f) != 0 ||
			     nghttp2_submit_settings(f->h.session, 0, NULL, 0) != 0))
			die("session");
		while (feed_run(f))
			;
	}
	if (f->h.session)
		nghttp2_session_del(f->h.session);
	wire_close(&f->h.w);
	free(f);
	return NULL;
}

_Noreturn void events_origin(void)
{
	int lfd = listen_any();

	(void)fcntl(lfd, F_SETFL, 0);
	feed_ctx = h2_server_ctx(o.pem, o.h2);
	nghttp2_session_callbacks_new(&feed_cb);
	nghttp2_session_callbacks_set_on_header_callback(feed_cb, feed_header);
	for (;;) {
		struct feed *f = calloc(1, sizeof(*f));
		pthread_t t;

		f->h.w.fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC);
		if (f->h.w.fd < 0 || pthread_create(&t, NULL, feed_main, f) != 0)
			die("accept");
		pthread_detach(t);
	}
}

/* ---- load ---- */

static struct {
	double *delays, came;
	long n, most;
	char line[EVENT_BYTES + 1];
	size_t line_n;
	bool ok; /* a 200 came */
} heard;

/* Events in whatever pieces; what is around them (heads, sizes of chunks) begins otherwise. */
static void hear(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (heard.line_n < EVENT_BYTES)
			heard.line[heard.line_n++] = p[i];
		if (p[i] != '\n')
			continue;
		heard.line[heard.line_n] = '\0';
		if (strncmp(heard.line, "data: ", STAMP_AT) == 0 && heard.n < heard.most)
			heard.delays[heard.n++] = heard.came - strtod(heard.line + STAMP_AT, NULL);
		if (strncmp(heard.line, "HTTP/1.1 200", 12) == 0)
			heard.ok = true;
		heard.line_n = 0;
	}
}

static int heard_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
			size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags,
			void *arg)
{
	(void)session;
	(void)frame;
	(void)flags;
	(void)arg;
	if (name_n == 7 && memcmp(name, ":status", 7) == 0)
		heard.ok = value_n == 3 && memcmp(value, "200", 3) == 0;
	return 0;
}

static int heard_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
		      size_t n, void *arg)
{
	(void)session;
	(void)flags;
	(void)id;
	(void)arg;
	hear((const char *)p, n);
	return 0;
}

static void ask(struct h2 *h, long events)
{
	char text[600], path[64];
	int n;

	(void)snprintf(path, sizeof(path), "/events/%ld", events);
	heard.n = 0;
	heard.most = events;
	heard.ok = false;
	if (h->session) {
		if (h2_request(h, path, NULL, NULL) < 0 || h2_send(h) != 0)
			die("request");
		return;
	}
	n = snprintf(text, sizeof(text),
		     "GET %s HTTP/1.1\r\nHost: %s:%d\r\nAccept: text/event-stream\r\n\r\n", path,
		     o.host, o.port);
	if (!send_all(&h->w, text, (size_t)n))
		die("request");
}

/* Reads once, and notes when. */
static bool listen_once(struct h2 *h)
{
	char buf[16384];
	ssize_t n = wire_read(&h->w, buf, sizeof(buf));

	heard.came = now();
	if (n <= 0)
		return false;
	if (!h->session) {
		hear(buf, (size_t)n);
		return true;
	}
	return nghttp2_session_mem_recv(h->session, (uint8_t *)buf, (size_t)n) == n &&
	       h2_send(h) == 0;
}

static void listen_to(struct h2 *h, long events)
{
	ask(h, events);
	while (heard.n < events) {
		struct pollfd p = {.fd = h->w.fd, .events = POLLIN};

		if ((!SSL_pending(h->w.ssl) && poll(&p, 1, 10000) != 1) || !listen_once(h) ||
		    (heard.n > 0 && !heard.ok)) {
			fprintf(stderr, "the stream ended after %ld of %ld events: %.100s\n",
				heard.n, events, heard.line);
			exit(1);
		}
	}
}

int events_load(void)
{
	struct h2 *h = calloc(1, sizeof(*h));
	nghttp2_session_callbacks *cb;
	double begun;

	heard.delays = calloc((size_t)o.requests + 1, sizeof(double));
	h->w = h2_dial(h2_client_ctx(o.h2));
	nghttp2_session_callbacks_new(&cb);
	nghttp2_session_callbacks_set_on_header_callback(cb, heard_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, heard_data);
	if (o.h2 && (nghttp2_session_client_new(&h->session, cb, h) != 0 ||
		     nghttp2_submit_settings(h->session, 0, NULL, 0) != 0))
		die("session");
	listen_to(h, 1);
	h2_ready();
	begun = now();
	listen_to(h, o.requests);
	h2_print(heard.delays, heard.n, now() - begun);
	return 0;
}
