/*
 * A small name server on a thread, UDP and TCP on one port of 127.0.0.1. What it answers follows
 * from the first label of the name (see answer()); what it was asked is counted.
 */
#ifndef STILE_TESTS_DNS_SERVER_H
#define STILE_TESTS_DNS_SERVER_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "net_test.h"

enum { T_A = 1, T_CNAME = 5, T_AAAA = 28 };
enum { RC_OK = 0, RC_SERVFAIL = 2, RC_NXDOMAIN = 3, RC_SILENT = -1 };

struct dns_server {
	pthread_t thread;
	int udp, tcp, stop[2];
	uint16_t port;
	char addr[32]; /* "127.0.0.1:PORT" */
	pthread_mutex_t lock;
	/* under the lock */
	char log[65536]; /* " A:name/udp AAAA:name/tcp ..." */
	size_t log_n;
	unsigned questions;
};

struct msg {
	unsigned char b[65535];
	size_t n;
};

static void put16(struct msg *m, unsigned v)
{
	m->b[m->n++] = (unsigned char)(v >> 8);
	m->b[m->n++] = (unsigned char)v;
}

static void put_name(struct msg *m, const char *name)
{
	while (*name) {
		size_t n = strcspn(name, ".");

		m->b[m->n++] = (unsigned char)n;
		memcpy(m->b + m->n, name, n);
		m->n += n;
		name += n + (name[n] == '.');
	}
	m->b[m->n++] = 0;
}

static void put_rr(struct msg *m, const char *owner, unsigned type, uint32_t ttl, const void *data,
		   size_t n)
{
	put_name(m, owner);
	put16(m, type);
	put16(m, 1);
	put16(m, ttl >> 16);
	put16(m, ttl & 0xffff);
	put16(m, (unsigned)n);
	memcpy(m->b + m->n, data, n);
	m->n += n;
	m->b[7]++; /* ANCOUNT, below 256 here */
}

static void put_cname(struct msg *m, const char *owner, uint32_t ttl, const char *target)
{
	struct msg t = {.n = 0};

	put_name(&t, target);
	put_rr(m, owner, T_CNAME, ttl, t.b, t.n);
}

static void put_a(struct msg *m, const char *owner, uint32_t ttl, unsigned last)
{
	unsigned char a[4] = {192, 0, 2, (unsigned char)last};

	put_rr(m, owner, T_A, ttl, a, 4);
}

static void put_aaaa(struct msg *m, const char *owner, uint32_t ttl, unsigned last)
{
	unsigned char a[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = (unsigned char)last};

	put_rr(m, owner, T_AAAA, ttl, a, 16);
}

static bool is_label(const char *name, const char *label)
{
	size_t n = strlen(label);

	return strncmp(name, label, n) == 0 && name[n] == '.';
}

static void pause_ms(long ms)
{
	struct timespec ts = {.tv_nsec = ms * 1000000};

	nanosleep(&ts, NULL);
}

/* Fills the answer section; the result is the RCODE or RC_SILENT. *tc: truncated over UDP. */
static int answer(struct msg *m, const char *name, unsigned type, unsigned nth, bool is_tcp,
		  bool *tc)
{
	bool v4 = type == T_A;

	*tc = false;
	if (is_label(name, "silent"))
		return RC_SILENT;
	if (is_label(name, "none"))
		return RC_NXDOMAIN;
	if (is_label(name, "nodata"))
		return RC_OK;
	if (is_label(name, "servfail"))
		return RC_SERVFAIL;
	if (is_label(name, "v6fail") && !v4)
		return RC_SERVFAIL;
	if (is_label(name, "v6silent") && !v4)
		return RC_SILENT;
	if (is_label(name, "v4silent") && v4)
		return RC_SILENT;
	if (is_label(name, "v4slow") && v4)
		pause_ms(200);
	if (is_label(name, "v6late") && !v4)
		pause_ms(120);
	if ((is_label(name, "big") || is_label(name, "hundred")) && !is_tcp) {
		*tc = true;
		return RC_OK;
	}
	if (is_label(name, "hundred")) {
		for (unsigned i = 1; i <= 100; i++)
			v4 ? put_a(m, name, 60, i) : put_aaaa(m, name, 60, i);
	} else if (is_label(name, "order") && v4) {
		static const unsigned lasts[] = {9, 3, 9, 7, 1, 3, 5};

		for (size_t i = 0; i < ARRAY_LEN(lasts); i++)
			put_a(m, name, 60, lasts[i]);
	} else if (is_label(name, "ttl0") || is_label(name, "ttl60")) {
		if (v4)
			put_a(m, name, is_label(name, "ttl0") ? 0 : 60, nth);
	} else if (is_label(name, "cname") || is_label(name, "cname0")) {
		put_cname(m, name, 60, "b.elsewhere.test");
		put_cname(m, "b.elsewhere.test", is_label(name, "cname0") ? 0 : 60,
			  "c.elsewhere.test");
		if (v4)
			put_a(m, "c.elsewhere.test", 60, nth);
	} else if (is_label(name, "v4only")) {
		if (v4)
			put_a(m, name, 60, 1);
	} else {
		v4 ? put_a(m, name, 60, 1) : put_aaaa(m, name, 60, 1);
	}
	return RC_OK;
}

static unsigned note(struct dns_server *s, const char *name, unsigned type, bool is_tcp)
{
	char want[300];
	unsigned nth = 1;

	snprintf(want, sizeof(want), " %s:%s/",
		 type == T_A	  ? "A"
		 : type == T_AAAA ? "AAAA"
				  : "?",
		 name);
	pthread_mutex_lock(&s->lock);
	for (const char *p = s->log; (p = strstr(p, want)); p++)
		nth++;
	if (s->log_n + 400 < sizeof(s->log))
		s->log_n += (size_t)snprintf(s->log + s->log_n, sizeof(s->log) - s->log_n, "%s%s",
					     want, is_tcp ? "tcp" : "udp");
	s->questions++;
	pthread_mutex_unlock(&s->lock);
	return nth;
}

/* How many questions came so far. */
static unsigned dns_server_questions(struct dns_server *s)
{
	unsigned n;

	pthread_mutex_lock(&s->lock);
	n = s->questions;
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* From a question to the whole reply; false: none. */
static bool reply(struct dns_server *s, const unsigned char *q, size_t n, bool is_tcp,
		  struct msg *m)
{
	char name[256];
	size_t at = 12, len = 0;
	bool tc;
	int rcode;

	if (n < 17)
		return false;
	while (at < n && q[at]) {
		memcpy(name + len, q + at + 1, q[at]);
		len += q[at];
		name[len++] = '.';
		at += q[at] + 1U;
	}
	name[len ? len - 1 : 0] = '\0';
	unsigned type = (unsigned)(q[at + 1] << 8 | q[at + 2]);
	memset(m->b, 0, 12);
	memcpy(m->b, q, 2);
	m->b[5] = 1;
	memcpy(m->b + 12, q + 12, at + 5 - 12);
	m->n = at + 5;
	rcode = answer(m, name, type, note(s, name, type, is_tcp), is_tcp, &tc);
	m->b[2] = (unsigned char)(0x81 | (tc ? 2 : 0));
	m->b[3] = (unsigned char)(0x80 | (rcode < 0 ? 0 : rcode));
	return rcode != RC_SILENT;
}

static void serve_tcp(struct dns_server *s, struct msg *m)
{
	int fd = accept(s->tcp, NULL, NULL);
	struct timeval half = {.tv_usec = 500000};
	unsigned char q[1024], head[2];

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &half, sizeof(half));
	while (recv(fd, head, 2, MSG_WAITALL) == 2) {
		size_t n = (size_t)(head[0] << 8 | head[1]);

		if (n > sizeof(q) || recv(fd, q, n, MSG_WAITALL) != (ssize_t)n)
			break;
		if (!reply(s, q, n, true, m))
			continue;
		head[0] = (unsigned char)(m->n >> 8);
		head[1] = (unsigned char)m->n;
		if (send(fd, head, 2, MSG_NOSIGNAL | MSG_MORE) != 2 ||
		    send(fd, m->b, m->n, MSG_NOSIGNAL) != (ssize_t)m->n)
			break;
		break; /* one question a connection; the client opens another */
	}
	close(fd);
}

static void *serve(void *arg)
{
	struct dns_server *s = arg;
	struct pollfd fds[3] = {{s->udp, POLLIN, 0}, {s->tcp, POLLIN, 0}, {s->stop[0], POLLIN, 0}};
	struct msg *m = malloc(sizeof(*m));

	while (poll(fds, 3, -1) > 0 && !fds[2].revents) {
		if (fds[0].revents) {
			struct sockaddr_in from;
			socklen_t from_n = sizeof(from);
			unsigned char q[1024];
			ssize_t n = recvfrom(s->udp, q, sizeof(q), 0, (struct sockaddr *)&from,
					     &from_n);

			if (n > 0 && reply(s, q, (size_t)n, false, m))
				sendto(s->udp, m->b, m->n, 0, (struct sockaddr *)&from, from_n);
		}
		if (fds[1].revents)
			serve_tcp(s, m);
	}
	free(m);
	return NULL;
}

static void dns_server_start(struct dns_server *s)
{
	memset(s, 0, sizeof(*s));
	pthread_mutex_init(&s->lock, NULL);
	/* A port that is free for UDP may be somebody's connection over TCP. */
	s->tcp = -1;
	for (int i = 0; i < 100 && s->tcp < 0; i++) {
		s->udp = bound_at("127.0.0.1", 0, SOCK_DGRAM, -1);
		s->port = port_of(s->udp);
		s->tcp = try_bound_at("127.0.0.1", s->port, SOCK_STREAM, 16);
		if (s->tcp < 0)
			close(s->udp);
	}
	assert_true(s->tcp >= 0);
	snprintf(s->addr, sizeof(s->addr), "127.0.0.1:%u", s->port);
	assert_int_equal(pipe2(s->stop, O_CLOEXEC), 0);
	assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void dns_server_stop(struct dns_server *s)
{
	assert_int_equal(write(s->stop[1], "x", 1), 1);
	pthread_join(s->thread, NULL);
	close(s->udp);
	close(s->tcp);
	close(s->stop[0]);
	close(s->stop[1]);
	pthread_mutex_destroy(&s->lock);
}

/* How often it was asked for " A:name/" or the like. */
static unsigned dns_server_count(struct dns_server *s, const char *what)
{
	unsigned n = 0;

	pthread_mutex_lock(&s->lock);
	for (const char *p = s->log; (p = strstr(p, what)); p++)
		n++;
	pthread_mutex_unlock(&s->lock);
	return n;
}

#endif
