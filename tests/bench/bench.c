/*
 * The three parts of a measurement beside the proxy itself, in one small program: `origin` (answers
 * every request with the same few bytes, plain or TLS), `floor` (a bare relay that only reads and
 * writes: the kernel's own price of being in the middle), `load` (a closed loop of keep-alive or
 * one-request connections through a proxy), `idle` (tunnels that are opened and then silent). And
 * `handshake`: what the library alone takes for the server's side of a TLS handshake, in memory.
 * Loopback only; bounded by count.
 */
#include <getopt.h>
#include <poll.h>
#include <signal.h>

#include "wire.h"

/* ---- a connection of origin and load ---- */

struct conn {
	struct wire w; /* first: epoll gives it back */
	int state;
	size_t got;  /* bytes in buf */
	size_t need; /* body bytes still to come */
	bool in_body;
	bool last;   /* the connection ends with this answer */
	bool ended;  /* origin: nothing more is answered */
	bool served; /* it has carried an answer */
	double begun;
	char buf[8192];
	char *bulk; /* origin: answer under way */
	size_t bulk_at, bulk_n;
};

static void conn_free(struct conn *c)
{
	wire_close(&c->w);
	free(c);
}

/* ---- origin ---- */

static char *answer, *bulk_answer;
static size_t answer_n, bulk_answer_n;

static void make_answers(size_t body, size_t bulk)
{
	answer = malloc(body + 256);
	answer_n = (size_t)snprintf(answer, 256, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
				    body);
	memset(answer + answer_n, 'x', body);
	answer_n += body;
	bulk_answer = malloc(bulk + 256);
	bulk_answer_n = (size_t)snprintf(bulk_answer, 256,
					 "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", bulk);
	memset(bulk_answer + bulk_answer_n, 'y', bulk);
	bulk_answer_n += bulk;
}

/* What the peer still sends is read, so that no reset destroys the answer on its way. */
static bool origin_end(struct conn *c)
{
	shutdown(c->w.fd, SHUT_WR);
	c->ended = true;
	return true;
}

/* False: the connection is over. */
static bool origin_send(int ep, struct conn *c)
{
	while (c->bulk_at < c->bulk_n) {
		ssize_t n = wire_write(&c->w, c->bulk + c->bulk_at, c->bulk_n - c->bulk_at);

		if (n == -1) {
			watch(ep, EPOLL_CTL_MOD, &c->w, EPOLLIN | EPOLLOUT);
			return true;
		}
		if (n < 0)
			return false;
		c->bulk_at += (size_t)n;
	}
	watch(ep, EPOLL_CTL_MOD, &c->w, EPOLLIN);
	if (c->last)
		return origin_end(c);
	return true;
}

static bool origin_serve(int ep, struct conn *c)
{
	ssize_t n;

	if (c->ended)
		return recv(c->w.fd, c->buf, sizeof(c->buf), 0) > 0;
	if (c->bulk_at < c->bulk_n)
		return origin_send(ep, c);
	while ((n = wire_read(&c->w, c->buf + c->got, sizeof(c->buf) - 1 - c->got)) > 0) {
		char *end;

		c->got += (size_t)n;
		c->buf[c->got] = '\0';
		while ((end = strstr(c->buf, "\r\n\r\n"))) {
			bool bulk = strncmp(c->buf, "GET /bulk", 9) == 0;
			size_t head = (size_t)(end + 4 - c->buf);
			char *close_at = strcasestr(c->buf, "\nConnection: close");

			c->last = close_at && close_at < end;
			c->got -= head;
			memmove(c->buf, c->buf + head, c->got + 1);
			c->bulk = bulk ? bulk_answer : answer;
			c->bulk_n = bulk ? bulk_answer_n : answer_n;
			c->bulk_at = 0;
			ssize_t w = wire_write(&c->w, c->bulk, c->bulk_n);
			if (w == -2)
				return false;
			c->bulk_at = w > 0 ? (size_t)w : 0;
			if (c->bulk_at < c->bulk_n)
				return origin_send(ep, c);
			if (c->last)
				return origin_end(c);
		}
		if (!c->w.ssl && (size_t)n < sizeof(c->buf) / 2)
			return true;
	}
	return n == -1;
}

static _Noreturn void origin_main(const char *pem, size_t body, size_t bulk)
{
	int lfd = listen_any(), ep = epoll_create1(EPOLL_CLOEXEC);
	SSL_CTX *ctx = pem ? tls_server(pem) : NULL;
	struct epoll_event ev[MAX_EVENTS], le = {.events = EPOLLIN};

	make_answers(body, bulk);
	epoll_ctl(ep, EPOLL_CTL_ADD, lfd, &le);
	for (;;) {
		int n = epoll_wait(ep, ev, MAX_EVENTS, -1);

		for (int i = 0; i < n; i++) {
			struct conn *c = ev[i].data.ptr;

			if (c) {
				if (!origin_serve(ep, c))
					conn_free(c);
				continue;
			}
			int fd, one = 1;
			while ((fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
				setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
				c = calloc(1, sizeof(*c));
				c->w.fd = fd;
				if (ctx) {
					c->w.ssl = SSL_new(ctx);
					SSL_set_fd(c->w.ssl, fd);
					SSL_set_accept_state(c->w.ssl);
				}
				watch(ep, EPOLL_CTL_ADD, &c->w, EPOLLIN);
			}
		}
	}
}

/* ---- floor ---- */

struct half {
	int fd;
	struct half *peer;
	bool dead;
	struct half *next_dead; /* of the pair's first half */
};

/* Blocks when the peer is full: a floor has no buffers. 0: the peer is gone. */
static ssize_t floor_send(int fd, const char *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t w = send(fd, p + at, n - at, MSG_NOSIGNAL);

		if (w > 0) {
			at += (size_t)w;
		} else if (errno == EAGAIN || errno == ENOTCONN) {
			struct pollfd f = {.fd = fd, .events = POLLOUT};

			poll(&f, 1, 10000);
		} else {
			return 0;
		}
	}
	return (ssize_t)n;
}

static _Noreturn void floor_main(int target)
{
	static char buf[65536];
	int lfd = listen_any(), ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev[MAX_EVENTS], le = {.events = EPOLLIN};

	epoll_ctl(ep, EPOLL_CTL_ADD, lfd, &le);
	for (;;) {
		int n = epoll_wait(ep, ev, MAX_EVENTS, -1);
		struct half *graves = NULL;

		for (int i = 0; i < n; i++) {
			struct half *h = ev[i].data.ptr;
			ssize_t r;

			if (!h) {
				int fd, one = 1;

				while ((fd = accept4(lfd, NULL, NULL,
						     SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
					struct half *a = calloc(2, sizeof(*a));

					setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
					a[0] = (struct half){.fd = fd, .peer = &a[1]};
					a[1] = (struct half){.fd = dial(target), .peer = &a[0]};
					for (int k = 0; k < 2; k++) {
						struct epoll_event e = {.events = EPOLLIN,
									.data.ptr = &a[k]};
						epoll_ctl(ep, EPOLL_CTL_ADD, a[k].fd, &e);
					}
				}
				continue;
			}
			if (h->dead)
				continue;
			r = recv(h->fd, buf, sizeof(buf), 0);
			if (r < 0 && errno == EAGAIN)
				continue;
			if (r > 0)
				r = floor_send(h->peer->fd, buf, (size_t)r);
			if (r <= 0) {
				struct half *first = h < h->peer ? h : h->peer;

				h->dead = h->peer->dead = true;
				close(h->fd);
				close(h->peer->fd);
				first->next_dead = graves;
				graves = first;
			}
		}
		while (graves) {
			struct half *next = graves->next_dead;

			free(graves);
			graves = next;
		}
	}
}

/* ---- load ---- */

enum { L_CONNECTING, L_CONNECT_SENT, L_TLS, L_ANSWER };

static struct {
	int proxy, port; /* proxy 0: direct */
	const char *host;
	bool tunnel, tls, fresh;
	const char *path;
	const char *ca;
	long requests;
	int conns;
} o = {.host = "origin.test", .requests = 10000, .conns = 32, .path = "/x"};

static char request[1024], connect_head[512];
static size_t request_n, connect_n;
static long sent, done, reopened;
static double *times;
static SSL_CTX *client_ctx;
static uint64_t body_bytes;

static void load_open(int ep, struct conn *c)
{
	c->w.fd = dial(o.proxy ? o.proxy : o.port);
	c->state = L_CONNECTING;
	c->got = c->need = 0;
	c->in_body = c->served = false;
	c->begun = now();
	watch(ep, EPOLL_CTL_ADD, &c->w, EPOLLOUT);
}

static void load_request(int ep, struct conn *c)
{
	if (!o.fresh)
		c->begun = now();
	c->got = 0;
	c->in_body = false;
	c->state = L_ANSWER;
	sent++;
	(void)wire_write(&c->w, request,
			 request_n); /* reading says it when the other side has ended */
	watch(ep, EPOLL_CTL_MOD, &c->w, EPOLLIN);
}

static void load_tls(int ep, struct conn *c)
{
	int r = SSL_do_handshake(c->w.ssl);

	if (r == 1)
		load_request(ep, c);
	else if (SSL_get_error(c->w.ssl, r) == SSL_ERROR_WANT_READ)
		watch(ep, EPOLL_CTL_MOD, &c->w, EPOLLIN);
	else {
		ERR_print_errors_fp(stderr);
		exit(1);
	}
}

static void load_inside(int ep, struct conn *c)
{
	if (!o.tls) {
		load_request(ep, c);
		return;
	}
	c->state = L_TLS;
	c->w.ssl = SSL_new(client_ctx);
	SSL_set_fd(c->w.ssl, c->w.fd);
	SSL_set_tlsext_host_name(c->w.ssl, o.host);
	SSL_set1_host(c->w.ssl, o.host);
	SSL_set_connect_state(c->w.ssl);
	load_tls(ep, c);
}

static void load_done(int ep, struct conn *c)
{
	times[done++] = now() - c->begun;
	c->served = true;
	if (o.fresh || c->last) {
		SSL_free(c->w.ssl);
		c->w.ssl = NULL;
		close(c->w.fd);
		if (sent < o.requests)
			load_open(ep, c);
		return;
	}
	if (sent < o.requests)
		load_request(ep, c);
}

static void load_answer(int ep, struct conn *c)
{
	static char sink[262144];
	ssize_t n;

	for (;;) {
		n = c->in_body ? wire_read(&c->w, sink, sizeof(sink))
			       : wire_read(&c->w, c->buf + c->got, sizeof(c->buf) - 1 - c->got);
		if (n == -1)
			return;
		if (n <= 0 && c->served && c->got == 0 && !c->in_body) {
			/* A kept connection that was not kept: once more on a new one. */
			double begun = c->begun;

			sent--;
			reopened++;
			SSL_free(c->w.ssl);
			c->w.ssl = NULL;
			close(c->w.fd);
			load_open(ep, c);
			c->begun = begun;
			return;
		}
		if (n <= 0) {
			fprintf(stderr, "connection ended: %.300s\n", c->got ? c->buf : "");
			exit(1);
		}
		if (!c->in_body) {
			char *end, *cl;

			c->got += (size_t)n;
			c->buf[c->got] = '\0';
			end = strstr(c->buf, "\r\n\r\n");
			if (!end)
				continue;
			if (strncmp(c->buf + 8, " 200", 4) != 0) {
				fprintf(stderr, "%.300s\n", c->buf);
				exit(1);
			}
			*end = '\0';
			c->last = strcasestr(c->buf, "\nConnection: close") != NULL;
			cl = strcasestr(c->buf, "content-length:");
			c->need = cl ? strtoul(cl + 15, NULL, 10) : 0;
			c->in_body = true;
			n = (ssize_t)(c->got - (size_t)(end + 4 - c->buf));
		}
		body_bytes += (uint64_t)n;
		c->need -= (size_t)n;
		if (c->need == 0) {
			load_done(ep, c);
			return;
		}
	}
}

static void load_event(int ep, struct conn *c)
{
	ssize_t n;

	switch (c->state) {
	case L_CONNECTING:
		if (o.tunnel) {
			c->state = L_CONNECT_SENT;
			if (wire_write(&c->w, connect_head, connect_n) < 0)
				die("write");
			watch(ep, EPOLL_CTL_MOD, &c->w, EPOLLIN);
		} else
			load_inside(ep, c);
		return;
	case L_CONNECT_SENT:
		n = recv(c->w.fd, c->buf, sizeof(c->buf) - 1, 0);
		if (n <= 0 || strncmp(c->buf + 8, " 200", 4) != 0) {
			fprintf(stderr, "CONNECT: %.*s\n", n > 0 ? (int)n : 0, c->buf);
			exit(1);
		}
		load_inside(ep, c);
		return;
	case L_TLS: load_tls(ep, c); return;
	default: load_answer(ep, c); return;
	}
}

static void make_connect_head(void)
{
	connect_n = (size_t)snprintf(connect_head, sizeof(connect_head),
				     "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", o.host,
				     o.port, o.host, o.port);
}

static int load_main(void)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev[MAX_EVENTS];
	double begun = now(), took;
	bool absolute = o.proxy && !o.tunnel;

	request_n =
		absolute
			? (size_t)snprintf(request, sizeof(request),
					   "GET http://%s:%d%s HTTP/1.1\r\nHost: %s:%d\r\n"
					   "User-Agent: bench\r\nAccept: */*\r\n\r\n",
					   o.host, o.port, o.path, o.host, o.port)
			: (size_t)snprintf(request, sizeof(request),
					   "GET %s HTTP/1.1\r\nHost: %s:%d\r\nUser-Agent: bench\r\n"
					   "Accept: */*\r\n\r\n",
					   o.path, o.host, o.port);
	make_connect_head();
	times = calloc((size_t)o.requests + (size_t)o.conns, sizeof(*times));
	client_ctx = SSL_CTX_new(TLS_client_method());
	if (o.ca && SSL_CTX_load_verify_locations(client_ctx, o.ca, NULL) == 1)
		SSL_CTX_set_verify(client_ctx, SSL_VERIFY_PEER, NULL);
	for (int i = 0; i < o.conns; i++)
		load_open(ep, calloc(1, sizeof(struct conn)));
	while (done < o.requests) {
		int n = epoll_wait(ep, ev, MAX_EVENTS, 10000);

		if (n == 0) {
			fprintf(stderr, "stalled after %ld of %ld\n", done, o.requests);
			return 1;
		}
		for (int i = 0; i < n; i++)
			load_event(ep, ev[i].data.ptr);
	}
	took = now() - begun;
	qsort(times, (size_t)done, sizeof(*times), compare);
	printf("{\"requests\":%ld,\"seconds\":%.3f,\"rps\":%.0f,\"p50_us\":%.0f,\"p99_us\":%.0f,"
	       "\"bytes\":%llu,\"reopened\":%ld}\n",
	       done, took, (double)done / took, times[done / 2] * 1e6, times[done * 99 / 100] * 1e6,
	       (unsigned long long)body_bytes, reopened);
	return 0;
}

/* ---- idle ---- */

/* One after the other, each until its CONNECT is answered; says so, and holds them until its input
 * ends. */
static int idle_main(void)
{
	char buf[1024];

	make_connect_head();
	for (int i = 0; i < o.conns; i++) {
		int fd = dial(o.proxy ? o.proxy : o.port);
		struct pollfd f = {.fd = fd, .events = POLLIN};
		ssize_t n;

		if (!o.proxy)
			continue;
		if (send(fd, connect_head, connect_n, MSG_NOSIGNAL) != (ssize_t)connect_n)
			die("send");
		if (poll(&f, 1, 10000) != 1)
			die("poll");
		n = recv(fd, buf, sizeof(buf) - 1, 0);
		if (n < 12 || strncmp(buf + 8, " 200", 4) != 0) {
			fprintf(stderr, "tunnel %d: %.*s\n", i, n > 0 ? (int)n : 0, buf);
			return 1;
		}
	}
	puts("ready");
	fflush(stdout);
	return read(STDIN_FILENO, buf, 1) < 0;
}

/* ---- handshake ---- */

static double thread_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The CPU that one full handshake takes on the server's side, socket and proxy left out. */
static double one_handshake(SSL_CTX *server, SSL_CTX *client)
{
	BIO *near, *far;
	SSL *c = SSL_new(client), *s;
	double cpu = -thread_us();
	int up = 0;

	s = SSL_new(server);
	if (BIO_new_bio_pair(&near, 0, &far, 0) != 1)
		die("bio pair");
	SSL_set_bio(s, near, near);
	SSL_set_accept_state(s);
	cpu += thread_us();
	SSL_set_bio(c, far, far);
	SSL_set_connect_state(c);
	for (int turn = 0; turn < 8 && !up; turn++) {
		bool client_up = SSL_do_handshake(c) == 1;

		cpu -= thread_us();
		up = SSL_do_handshake(s) == 1 && client_up;
		cpu += thread_us();
	}
	if (!up)
		die("handshake");
	cpu -= thread_us();
	SSL_free(s);
	cpu += thread_us();
	SSL_free(c);
	return cpu;
}

static int handshake_main(const char *pem)
{
	SSL_CTX *server = tls_server(pem), *client = SSL_CTX_new(TLS_client_method());
	double best = 0;

	SSL_CTX_set_num_tickets(server, 1); /* as a proxy does */
	for (int round = 0; round < 5; round++) {
		double sum = 0;

		for (int i = 0; i < 200; i++)
			sum += one_handshake(server, client);
		if (round == 0 || sum / 200 < best)
			best = sum / 200;
	}
	printf("{\"cpu_us\": %.1f}\n", best);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"proxy", 1, 0, 'p'},	 {"port", 1, 0, 'o'},
		{"host", 1, 0, 'h'},	 {"tunnel", 0, 0, 'c'},
		{"tls", 0, 0, 't'},	 {"fresh", 0, 0, 'f'},
		{"path", 1, 0, 'u'},	 {"ca", 1, 0, 'a'},
		{"requests", 1, 0, 'n'}, {"conns", 1, 0, 'k'},
		{"pem", 1, 0, 'e'},	 {"body", 1, 0, 'b'},
		{"bulk", 1, 0, 'B'},	 {0},
	};
	const char *what = argc > 1 ? argv[1] : "", *pem = NULL;
	size_t body = 100, bulk = 1 << 20;
	int opt;

	signal(SIGPIPE, SIG_IGN);
	while ((opt = getopt_long(argc - 1, argv + 1, "", longs, NULL)) != -1) {
		switch (opt) {
		case 'p': o.proxy = (int)strtol(optarg, NULL, 10); break;
		case 'o': o.port = (int)strtol(optarg, NULL, 10); break;
		case 'h': o.host = optarg; break;
		case 'c': o.tunnel = true; break;
		case 't': o.tls = true; break;
		case 'f': o.fresh = true; break;
		case 'u': o.path = optarg; break;
		case 'a': o.ca = optarg; break;
		case 'n': o.requests = strtol(optarg, NULL, 10); break;
		case 'k': o.conns = (int)strtol(optarg, NULL, 10); break;
		case 'e': pem = optarg; break;
		case 'b': body = strtoul(optarg, NULL, 10); break;
		case 'B': bulk = strtoul(optarg, NULL, 10); break;
		default: return 2;
		}
	}
	if (strcmp(what, "origin") == 0)
		origin_main(pem, body, bulk);
	if (strcmp(what, "floor") == 0)
		floor_main(o.port);
	if (strcmp(what, "load") == 0)
		return load_main();
	if (strcmp(what, "idle") == 0)
		return idle_main();
	if (strcmp(what, "handshake") == 0)
		return handshake_main(pem);
	fprintf(stderr, "usage: bench origin|floor|load|idle|handshake [options]\n");
	return 2;
}
