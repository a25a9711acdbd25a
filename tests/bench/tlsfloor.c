/*
 * The floor where TLS is ended: an epoll relay with OpenSSL on both sides that decrypts, encrypts
 * and looks at nothing. It checks no certificate, releases no buffer, makes no leaf, keeps no
 * timer: what is left is the kernel's price and the library's. Keep-alive alone; it waits for
 * whoever is full.
 */
#include <poll.h>
#include <signal.h>

#include "wire.h"

struct half {
	struct wire w; /* first: epoll gives it back */
	struct half *peer;
	bool dead;
	struct half *next_dead; /* of the pair's first half */
};

/* 0: the peer is gone. */
static ssize_t send_all(struct wire *w, const char *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		int r = SSL_write(w->ssl, p + at, (int)(n - at));
		struct pollfd f = {.fd = w->fd};

		if (r > 0) {
			at += (size_t)r;
			continue;
		}
		switch (SSL_get_error(w->ssl, r)) {
		case SSL_ERROR_WANT_READ: f.events = POLLIN; break;
		case SSL_ERROR_WANT_WRITE: f.events = POLLOUT; break;
		default: ERR_clear_error(); return 0;
		}
		poll(&f, 1, 10000);
	}
	return (ssize_t)n;
}

static void take(int lfd, int ep, int target, SSL_CTX *server, SSL_CTX *client)
{
	int fd, one = 1;

	while ((fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		struct half *a = calloc(2, sizeof(*a));

		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		a[0] = (struct half){.w = {fd, SSL_new(server)}, .peer = &a[1]};
		a[1] = (struct half){.w = {dial(target), SSL_new(client)}, .peer = &a[0]};
		SSL_set_accept_state(a[0].w.ssl);
		SSL_set_connect_state(a[1].w.ssl);
		for (int k = 0; k < 2; k++) {
			SSL_set_fd(a[k].w.ssl, a[k].w.fd);
			watch(ep, EPOLL_CTL_ADD, &a[k].w, EPOLLIN);
		}
	}
}

/* False: the pair is over. A short read tells that there is no more (SSL_pending aside). */
static bool relay(struct half *h)
{
	static char buf[65536];
	ssize_t r;

	while ((r = wire_read(&h->w, buf, sizeof(buf))) > 0) {
		if (send_all(&h->peer->w, buf, (size_t)r) <= 0)
			return false;
		if (!SSL_has_pending(h->w.ssl))
			return true;
	}
	return r == -1;
}

int main(int argc, char **argv)
{
	SSL_CTX *server, *client = SSL_CTX_new(TLS_client_method());
	int lfd, ep = epoll_create1(EPOLL_CLOEXEC), target;
	struct epoll_event ev[MAX_EVENTS], le = {.events = EPOLLIN};

	if (argc != 3) {
		fprintf(stderr, "usage: tlsfloor PORT PEM\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	target = (int)strtol(argv[1], NULL, 10);
	server = tls_server(argv[2]);
	/* As stile has it: the same suite on both sides, one read(2) for a record. */
	SSL_CTX_set_options(server, SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_ciphersuites(server, "TLS_AES_128_GCM_SHA256");
	SSL_CTX_set_ciphersuites(client, "TLS_AES_128_GCM_SHA256");
	SSL_CTX_set_read_ahead(server, 1);
	SSL_CTX_set_read_ahead(client, 1);
	lfd = listen_any();
	epoll_ctl(ep, EPOLL_CTL_ADD, lfd, &le);
	for (;;) {
		int n = epoll_wait(ep, ev, MAX_EVENTS, -1);
		struct half *graves = NULL;

		for (int i = 0; i < n; i++) {
			struct half *h = ev[i].data.ptr;

			if (!h) {
				take(lfd, ep, target, server, client);
			} else if (!h->dead && !relay(h)) {
				struct half *first = h < h->peer ? h : h->peer;

				h->dead = h->peer->dead = true;
				wire_close(&h->w);
				wire_close(&h->peer->w);
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
