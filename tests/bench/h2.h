/*
 * What h2.c and events.c share: the options, a tunnel with TLS inside it, an HTTP/2 session over a
 * connection.
 */
#ifndef STILE_TESTS_BENCH_H2_H
#define STILE_TESTS_BENCH_H2_H

#include <nghttp2/nghttp2.h>

#include "wire.h"

struct options {
	int proxy, port; /* proxy 0: direct */
	const char *host, *ca, *pem;
	long requests;
	int conns, streams;
	size_t body;
	bool grpc, h2;
};
extern struct options o;

/* One connection and its session; at, n: what waits in out. */
struct h2 {
	struct wire w; /* first: epoll gives it back */
	nghttp2_session *session;
	const uint8_t *frame; /* what did not fit into out */
	size_t frame_n, at, n;
	bool blocked; /* EPOLLOUT is awaited */
	int live;     /* load: streams under way */
	char out[16384];
};

SSL_CTX *h2_server_ctx(const char *pem, bool h2);
SSL_CTX *h2_client_ctx(bool h2);
/* A connection to the origin, through the proxy if there is one; blocking. Ends the program. */
struct wire h2_dial(SSL_CTX *ctx);
/* Sends what the session has. 1: some is left for later, 0: none is, -1: broken. */
int h2_send(struct h2 *h);
/* Reads what is there (blocking: some of it). False: over or broken. */
bool h2_recv(struct h2 *h);
nghttp2_nv h2_nv(const char *name, const char *value);
/* The head of a request; returns its stream. */
int32_t h2_request(struct h2 *h, const char *path, const nghttp2_data_provider *body, void *arg);
/* Says that all is set up, and waits until it is told to go. */
void h2_ready(void);
/* The numbers of a run as JSON; seconds[n] is sorted. */
void h2_print(double *seconds, long n, double took);

_Noreturn void events_origin(void);
int events_load(void);

#endif
