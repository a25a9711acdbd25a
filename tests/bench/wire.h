/*
 * What the programs of a measurement share: sockets on loopback that never block, a connection that
 * may hold TLS, the clock. For bench.c and h2.c.
 */
#ifndef STILE_TESTS_BENCH_WIRE_H
#define STILE_TESTS_BENCH_WIRE_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MAX_EVENTS 256

static inline _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

static inline struct sockaddr_in loopback(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

static inline int listen_any(void)
{
	struct sockaddr_in a = loopback(0);
	socklen_t n = sizeof(a);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) < 0 || listen(fd, 4096) < 0)
		die("listen");
	getsockname(fd, (struct sockaddr *)&a, &n);
	printf("%d\n", ntohs(a.sin_port));
	fflush(stdout);
	return fd;
}

static inline int dial(int port)
{
	struct sockaddr_in a = loopback(port);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 && errno != EINPROGRESS)
		die("connect");
	return fd;
}

static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct wire {
	int fd;
	SSL *ssl; /* NULL: clear */
};

/* Bytes, 0 at the end, -1 would block, -2 broken. */
static inline ssize_t wire_read(struct wire *w, void *p, size_t n)
{
	ssize_t r;

	if (!w->ssl) {
		r = recv(w->fd, p, n, 0);
		return r >= 0 ? r : errno == EAGAIN ? -1 : -2;
	}
	r = SSL_read(w->ssl, p, (int)n);
	if (r > 0)
		return r;
	switch (SSL_get_error(w->ssl, (int)r)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE: return -1;
	case SSL_ERROR_ZERO_RETURN: return 0;
	default: ERR_clear_error(); return -2;
	}
}

static inline ssize_t wire_write(struct wire *w, const void *p, size_t n)
{
	ssize_t r;

	if (!w->ssl) {
		r = send(w->fd, p, n, MSG_NOSIGNAL);
		return r >= 0 ? r : errno == EAGAIN ? -1 : -2;
	}
	r = SSL_write(w->ssl, p, (int)n);
	if (r > 0)
		return r;
	return SSL_get_error(w->ssl, (int)r) == SSL_ERROR_WANT_WRITE ? -1 : -2;
}

static inline void watch(int ep, int op, const struct wire *w, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = (void *)(uintptr_t)w};

	epoll_ctl(ep, op, w->fd, &e);
}

static inline void wire_close(struct wire *w)
{
	SSL_free(w->ssl);
	w->ssl = NULL;
	close(w->fd);
}

static inline SSL_CTX *tls_server(const char *pem)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

	if (SSL_CTX_use_certificate_chain_file(ctx, pem) != 1 ||
	    SSL_CTX_use_PrivateKey_file(ctx, pem, SSL_FILETYPE_PEM) != 1)
		die(pem);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	return ctx;
}

static inline int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

#endif
