/*
 * HTTP/2 for the measurements: `origin` (answers every request with the same few bytes, a gRPC call
 * with one message and its status), `load` (a closed loop over connections that hold so many
 * streams each, through a CONNECT tunnel with TLS inside), and the event streams of events.c. The
 * load sets everything up, does each stream once, says so and waits to be told to go: what is
 * counted from then on is requests alone.
 */
#include "h2.h"

#include <getopt.h>
#include <signal.h>

struct options o = {.host = "localhost", .requests = 10000, .conns = 1, .streams = 1, .body = 100};

#define MESSAGE_HEAD 5 /* of gRPC: a flag, four bytes of length */
#define STREAMS_MAX  128
#define WINDOW	     (1 << 20)

/* ---- shared ---- */

static const unsigned char alpn_h2[] = "\x02h2", alpn_h1[] = "\x08http/1.1";

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_n,
		   const unsigned char *in, unsigned in_n, void *arg)
{
	(void)ssl;
	(void)arg;
	return SSL_select_next_proto((unsigned char **)(uintptr_t)out, out_n, alpn_h2,
				     sizeof(alpn_h2) - 1, in, in_n) == OPENSSL_NPN_NEGOTIATED
		       ? SSL_TLSEXT_ERR_OK
		       : SSL_TLSEXT_ERR_ALERT_FATAL;
}

SSL_CTX *h2_server_ctx(const char *pem, bool h2)
{
	SSL_CTX *ctx = tls_server(pem);

	if (h2)
		SSL_CTX_set_alpn_select_cb(ctx, on_alpn, NULL);
	return ctx;
}

SSL_CTX *h2_client_ctx(bool h2)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	if (o.ca && SSL_CTX_load_verify_locations(ctx, o.ca, NULL) == 1)
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	(void)SSL_CTX_set_alpn_protos(ctx, h2 ? alpn_h2 : alpn_h1,
				      h2 ? sizeof(alpn_h2) - 1 : sizeof(alpn_h1) - 1);
	return ctx;
}

static void connect_tunnel(int fd)
{
	char buf[1024];
	size_t got = 0;
	int n = snprintf(buf, sizeof(buf), "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", o.host,
			 o.port, o.host, o.port);

	if (send(fd, buf, (size_t)n, MSG_NOSIGNAL) != n)
		die("send");
	do {
		ssize_t r = recv(fd, buf + got, sizeof(buf) - 1 - got, 0);

		if (r <= 0)
			die("CONNECT");
		got += (size_t)r;
		buf[got] = '\0';
	} while (!strstr(buf, "\r\n\r\n") && got < sizeof(buf) - 1);
	if (strncmp(buf + 8, " 200", 4) != 0) {
		fprintf(stderr, "CONNECT: %.300s\n", buf);
		exit(1);
	}
}

struct wire h2_dial(SSL_CTX *ctx)
{
	struct wire w = {.fd = dial(o.proxy ? o.proxy : o.port)};
	const struct timeval wait = {.tv_sec = 10};
	const unsigned char *alpn;
	unsigned alpn_n;

	(void)fcntl(w.fd, F_SETFL, 0);
	setsockopt(w.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	if (o.proxy)
		connect_tunnel(w.fd);
	w.ssl = SSL_new(ctx);
	SSL_set_fd(w.ssl, w.fd);
	SSL_set_tlsext_host_name(w.ssl, o.host);
	SSL_set1_host(w.ssl, o.host);
	if (SSL_connect(w.ssl) != 1) {
		ERR_print_errors_fp(stderr);
		exit(1);
	}
	SSL_get0_alpn_selected(w.ssl, &alpn, &alpn_n);
	if (o.h2 && (alpn_n != 2 || memcmp(alpn, "h2", 2) != 0)) {
		fprintf(stderr, "HTTP/2 was not agreed on\n");
		exit(1);
	}
	return w;
}

/* Small frames leave as one TLS record. */
static int gather(struct h2 *h)
{
	h->at = h->n = 0;
	while (h->n < sizeof(h->out)) {
		size_t room = sizeof(h->out) - h->n;

		if (h->frame_n == 0) {
			ssize_t n = nghttp2_session_mem_send(h->session, &h->frame);

			if (n < 0)
				return -1;
			if (n == 0)
				break;
			h->frame_n = (size_t)n;
		}
		if (room > h->frame_n)
			room = h->frame_n;
		memcpy(h->out + h->n, h->frame, room);
		h->n += room;
		h->frame += room;
		h->frame_n -= room;
	}
	return 0;
}

int h2_send(struct h2 *h)
{
	for (;;) {
		while (h->at < h->n) {
			ssize_t w = wire_write(&h->w, h->out + h->at, h->n - h->at);

			if (w == -1)
				return 1;
			if (w < 0)
				return -1;
			h->at += (size_t)w;
		}
		if (gather(h) < 0)
			return -1;
		if (h->n == 0)
			return 0;
	}
}

bool h2_recv(struct h2 *h)
{
	static _Thread_local uint8_t buf[65536];
	ssize_t n = wire_read(&h->w, buf, sizeof(buf));

	if (n == -1)
		return true;
	return n > 0 && nghttp2_session_mem_recv(h->session, buf, (size_t)n) == n;
}

nghttp2_nv h2_nv(const char *name, const char *value)
{
	return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
			    .value = (uint8_t *)(uintptr_t)value,
			    .namelen = strlen(name),
			    .valuelen = strlen(value)};
}

int32_t h2_request(struct h2 *h, const char *path, const nghttp2_data_provider *body, void *arg)
{
	static char authority[300];
	nghttp2_nv nv[8] = {h2_nv(":method", body ? "POST" : "GET"), h2_nv(":scheme", "https"),
			    h2_nv(":path", path)};
	size_t n = 3;

	if (!*authority)
		(void)snprintf(authority, sizeof(authority), "%s:%d", o.host, o.port);
	nv[n++] = h2_nv(":authority", authority);
	nv[n++] = h2_nv("user-agent", "bench");
	if (body) {
		nv[n++] = h2_nv("content-type", "application/grpc");
		nv[n++] = h2_nv("te", "trailers");
	} else {
		nv[n++] = h2_nv("accept", "*/*");
	}
	return nghttp2_submit_request(h->session, NULL, nv, n, body, arg);
}

void h2_ready(void)
{
	char line[16];

	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(1);
}

void h2_print(double *seconds, long n, double took)
{
	qsort(seconds, (size_t)n, sizeof(*seconds), compare);
	printf("{\"requests\":%ld,\"seconds\":%.3f,\"rps\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f}\n",
	       n, took, (double)n / took, seconds[n / 2] * 1e6, seconds[n * 99 / 100] * 1e6);
}

/* After something came or became possible. False: broken. */
static bool keep_sending(int ep, struct h2 *h)
{
	int left = h2_send(h);

	if (left < 0)
		return false;
	if (h->blocked != (left == 1)) {
		h->blocked = left == 1;
		watch(ep, EPOLL_CTL_MOD, &h->w, h->blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
	}
	return true;
}

static bool serve_event(int ep, struct h2 *h)
{
	/* A record that is already read wakes nobody. */
	do {
		if (!h2_recv(h))
			return false;
	} while (SSL_pending(h->w.ssl) > 0);
	return !SSL_is_init_finished(h->w.ssl) || keep_sending(ep, h);
}

/* The body of a call either way: one message, which is its length and its bytes. */
static char *body_bytes;

static void make_body(void)
{
	body_bytes = calloc(1, o.body + MESSAGE_HEAD);
	for (int i = 0; i < 4; i++)
		body_bytes[1 + i] = (char)(o.body >> (24 - 8 * i));
	memset(body_bytes + MESSAGE_HEAD, 'x', o.body);
}

static size_t body_piece(uint8_t *buf, size_t room, size_t *at, bool grpc)
{
	size_t n = o.body + (grpc ? MESSAGE_HEAD : 0) - *at;

	if (n > room)
		n = room;
	memcpy(buf, body_bytes + (grpc ? 0 : MESSAGE_HEAD) + *at, n);
	*at += n;
	return n;
}

/* ---- origin ---- */

struct answer {
	size_t at;
	bool grpc;
};

static int origin_begins(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	(void)arg;
	if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
		(void)nghttp2_session_set_stream_user_data(session, frame->hd.stream_id,
							   calloc(1, sizeof(struct answer)));
	return 0;
}

static int origin_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
			 size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags,
			 void *arg)
{
	struct answer *a = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	(void)flags;
	(void)arg;
	if (a && name_n == 12 && memcmp(name, "content-type", 12) == 0)
		a->grpc = value_n >= 16 && memcmp(value, "application/grpc", 16) == 0;
	return 0;
}

static ssize_t origin_body(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room,
			   uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct answer *a = source->ptr;
	size_t n = body_piece(buf, room, &a->at, a->grpc);

	(void)arg;
	if (a->at < o.body + (a->grpc ? MESSAGE_HEAD : 0))
		return (ssize_t)n;
	*flags |= NGHTTP2_DATA_FLAG_EOF;
	if (a->grpc) {
		nghttp2_nv end = h2_nv("grpc-status", "0");

		*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
		(void)nghttp2_submit_trailer(session, id, &end, 1);
	}
	return (ssize_t)n;
}

static int origin_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	static char length[32];
	int32_t id = frame->hd.stream_id;
	struct answer *a;
	nghttp2_data_provider body = {.read_callback = origin_body};
	nghttp2_nv nv[2] = {h2_nv(":status", "200")};

	(void)arg;
	if ((frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) ||
	    !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	a = nghttp2_session_get_stream_user_data(session, id);
	if (!a)
		return 0;
	if (!*length)
		(void)snprintf(length, sizeof(length), "%zu", o.body);
	nv[1] = a->grpc ? h2_nv("content-type", "application/grpc")
			: h2_nv("content-length", length);
	body.source.ptr = a;
	return nghttp2_submit_response(session, id, nv, 2, &body);
}

static int origin_closes(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	(void)code;
	(void)arg;
	free(nghttp2_session_get_stream_user_data(session, id));
	return 0;
}

static struct h2 *origin_accept(int fd, SSL_CTX *ctx, const nghttp2_session_callbacks *cb)
{
	nghttp2_settings_entry v[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX}};
	struct h2 *h = calloc(1, sizeof(*h));
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	h->w.fd = fd;
	h->w.ssl = SSL_new(ctx);
	SSL_set_fd(h->w.ssl, fd);
	SSL_set_accept_state(h->w.ssl);
	if (nghttp2_session_server_new(&h->session, cb, h) != 0 ||
	    nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, v, 1) != 0)
		die("session");
	return h;
}

static _Noreturn void origin_main(void)
{
	int lfd = listen_any(), ep = epoll_create1(EPOLL_CLOEXEC), fd;
	SSL_CTX *ctx = h2_server_ctx(o.pem, true);
	struct epoll_event ev[MAX_EVENTS], le = {.events = EPOLLIN};
	nghttp2_session_callbacks *cb;

	nghttp2_session_callbacks_new(&cb);
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb, origin_begins);
	nghttp2_session_callbacks_set_on_header_callback(cb, origin_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, origin_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, origin_closes);
	epoll_ctl(ep, EPOLL_CTL_ADD, lfd, &le);
	for (;;) {
		int n = epoll_wait(ep, ev, MAX_EVENTS, -1);

		for (int i = 0; i < n; i++) {
			struct h2 *h = ev[i].data.ptr;

			if (h && !serve_event(ep, h)) {
				nghttp2_session_del(h->session);
				wire_close(&h->w);
				free(h);
			}
			if (h)
				continue;
			while ((fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
				watch(ep, EPOLL_CTL_ADD, &origin_accept(fd, ctx, cb)->w, EPOLLIN);
		}
	}
}

/* ---- load ---- */

/* One stream's request: each is followed by the next on the same place. */
struct call {
	double begun;
	size_t sent, got;
	bool ok, grpc_ok;
};

static long begun_n, done_n, until;
static double *times;

static ssize_t load_body(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room,
			 uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct call *c = source->ptr;
	size_t n = body_piece(buf, room, &c->sent, true);

	(void)session;
	(void)id;
	(void)arg;
	if (c->sent == o.body + MESSAGE_HEAD)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

static void load_begin(struct h2 *h, struct call *c)
{
	nghttp2_data_provider body = {.source.ptr = c, .read_callback = load_body};

	*c = (struct call){.begun = now()};
	begun_n++;
	h->live++;
	if (h2_request(h, o.grpc ? "/bench.Echo/Unary" : "/x", o.grpc ? &body : NULL, c) < 0)
		die("no further stream");
}

static int load_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		       size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags,
		       void *arg)
{
	struct call *c = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	(void)flags;
	(void)arg;
	if (name_n == 7 && memcmp(name, ":status", 7) == 0)
		c->ok = value_n == 3 && memcmp(value, "200", 3) == 0;
	if (name_n == 11 && memcmp(name, "grpc-status", 11) == 0)
		c->grpc_ok = value_n == 1 && *value == '0';
	return 0;
}

static int load_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
		     size_t n, void *arg)
{
	struct call *c = nghttp2_session_get_stream_user_data(session, id);

	(void)flags;
	(void)p;
	(void)arg;
	c->got += n;
	return 0;
}

static int load_closes(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct call *c = nghttp2_session_get_stream_user_data(session, id);
	struct h2 *h = arg;

	if (code != 0 || !c->ok || c->got != o.body + (o.grpc ? MESSAGE_HEAD : 0) ||
	    (o.grpc && !c->grpc_ok)) {
		fprintf(stderr, "a bad answer: error %u, %s, %zu bytes\n", code,
			c->ok ? "200" : "not 200", c->got);
		exit(1);
	}
	times[done_n++] = now() - c->begun;
	h->live--;
	if (begun_n < until)
		load_begin(h, c);
	return 0;
}

/* Until `requests` are done, all streams of all connections at work. */
static void load_round(int ep, struct h2 **all, struct call *calls, long requests)
{
	struct epoll_event ev[MAX_EVENTS];

	begun_n = done_n = 0;
	until = requests;
	for (int k = 0; k < o.streams; k++)
		for (int i = 0; i < o.conns && begun_n < until; i++)
			load_begin(all[i], &calls[i * o.streams + k]);
	for (int i = 0; i < o.conns; i++)
		if (!keep_sending(ep, all[i]))
			die("write");
	while (done_n < until) {
		int n = epoll_wait(ep, ev, MAX_EVENTS, 10000);

		if (n <= 0) {
			fprintf(stderr, "stalled after %ld of %ld\n", done_n, until);
			exit(1);
		}
		for (int i = 0; i < n; i++) {
			struct h2 *h = ev[i].data.ptr;

			if (!serve_event(ep, h)) {
				fprintf(stderr, "a connection ended with %d streams\n", h->live);
				exit(1);
			}
		}
	}
}

static struct h2 *load_open(SSL_CTX *ctx, const nghttp2_session_callbacks *cb)
{
	nghttp2_settings_entry v[] = {{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
				      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW}};
	struct h2 *h = calloc(1, sizeof(*h));

	h->w = h2_dial(ctx);
	(void)fcntl(h->w.fd, F_SETFL, O_NONBLOCK);
	if (nghttp2_session_client_new(&h->session, cb, h) != 0 ||
	    nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, v, 2) != 0 ||
	    nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0, 16 * WINDOW) !=
		    0)
		die("session");
	return h;
}

static int load_main(void)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	long most = o.conns * o.streams > o.requests ? o.conns * o.streams : o.requests;
	struct h2 **all = calloc((size_t)o.conns, sizeof(struct h2 *));
	struct call *calls = calloc((size_t)(o.conns * o.streams), sizeof(*calls));
	nghttp2_session_callbacks *cb;
	SSL_CTX *ctx = h2_client_ctx(true);
	double begun;

	times = calloc((size_t)most, sizeof(*times));
	nghttp2_session_callbacks_new(&cb);
	nghttp2_session_callbacks_set_on_header_callback(cb, load_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, load_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, load_closes);
	for (int i = 0; i < o.conns; i++) {
		all[i] = load_open(ctx, cb);
		watch(ep, EPOLL_CTL_ADD, &all[i]->w, EPOLLIN);
	}
	load_round(ep, all, calls, (long)o.conns * o.streams);
	h2_ready();
	begun = now();
	load_round(ep, all, calls, o.requests);
	h2_print(times, done_n, now() - begun);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"proxy", 1, 0, 'p'}, {"port", 1, 0, 'o'},     {"host", 1, 0, 'h'},
		{"ca", 1, 0, 'a'},    {"requests", 1, 0, 'n'}, {"conns", 1, 0, 'k'},
		{"pem", 1, 0, 'e'},   {"streams", 1, 0, 's'},  {"body", 1, 0, 'b'},
		{"grpc", 0, 0, 'g'},  {"h2", 0, 0, '2'},       {0},
	};
	const char *what = argc > 1 ? argv[1] : "";
	int opt;

	signal(SIGPIPE, SIG_IGN);
	while ((opt = getopt_long(argc - 1, argv + 1, "", longs, NULL)) != -1) {
		switch (opt) {
		case 'p': o.proxy = (int)strtol(optarg, NULL, 10); break;
		case 'o': o.port = (int)strtol(optarg, NULL, 10); break;
		case 'h': o.host = optarg; break;
		case 'a': o.ca = optarg; break;
		case 'n': o.requests = strtol(optarg, NULL, 10); break;
		case 'k': o.conns = (int)strtol(optarg, NULL, 10); break;
		case 'e': o.pem = optarg; break;
		case 's': o.streams = (int)strtol(optarg, NULL, 10); break;
		case 'b': o.body = strtoul(optarg, NULL, 10); break;
		case 'g': o.grpc = true; break;
		case '2': o.h2 = true; break;
		default: return 2;
		}
	}
	make_body();
	if (strcmp(what, "origin") == 0)
		origin_main();
	if (strcmp(what, "load") == 0) {
		o.h2 = true;
		return load_main();
	}
	if (strcmp(what, "events-origin") == 0)
		events_origin();
	if (strcmp(what, "events") == 0)
		return events_load();
	fprintf(stderr, "usage: h2 origin|load|events-origin|events [options]\n");
	return 2;
}
