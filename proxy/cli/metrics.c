/*
 * See metrics.h. The request's first line is all that is looked at, behind the strict scan of the
 * head that the proxy itself goes by; nothing of it is in the answer.
 */
#include "proxy/cli/metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "logging/log.h"
#include "proxy/http/h1.h"
#include "proxy/net/listener.h"

/* Behind each batch of connections: who floods gets one batch a turn of the main thread's poll,
 * which is half a second when nothing else is up. */
#define PAUSE_MS 100

struct metrics_client {
	int fd; /* -1: free */
	int64_t end_ms;
	size_t n; /* of in */
	bool answered;
	size_t sent;
	struct strbuf out;
	struct h1_scan scan;
	char in[LIMIT_METRICS_REQUEST_BYTES];
};

struct metrics {
	/* owned */
	int fd;
	/* plain */
	uint16_t port;
	int64_t paused_ms; /* not before then */
	struct metrics_client clients[LIMIT_METRICS_CONNECTIONS];
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int metrics_open(const struct config *c, struct metrics **ret, struct err *e)
{
	struct metrics *m;

	*ret = NULL;
	if (!c->metrics)
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return err_set(e, "out of memory");
	for (size_t i = 0; i < ARRAY_LEN(m->clients); i++)
		m->clients[i].fd = -1;
	if (listener_open(c->metrics, false, &m->fd, &m->port, e) < 0) {
		free(m);
		return err_wrap(e, "metrics");
	}
	*ret = m;
	return 0;
}

uint16_t metrics_port(const struct metrics *m)
{
	return m->port;
}

/* ---- one connection ---- */

static void drop(struct metrics_client *c)
{
	close(c->fd);
	c->fd = -1;
	strbuf_clear(&c->out);
}

static struct metrics_client *find_free(struct metrics *m)
{
	for (size_t i = 0; i < ARRAY_LEN(m->clients); i++)
		if (m->clients[i].fd < 0)
			return &m->clients[i];
	return NULL;
}

static void accept_some(struct metrics *m)
{
	struct metrics_client *c;

	m->paused_ms = now_ms() + PAUSE_MS;
	while ((c = find_free(m))) {
		int fd = accept4(m->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno != EAGAIN)
				m->paused_ms = now_ms() + LIMIT_MS_ACCEPT_PAUSE;
			return;
		}
		c->fd = fd;
		c->end_ms = now_ms() + LIMIT_MS_METRICS;
		c->n = c->sent = 0;
		c->answered = false;
		c->scan = (struct h1_scan){0};
		strbuf_init(&c->out, LIMIT_METRICS_ANSWER_BYTES);
	}
}

/* True: gone, or nothing more can be done now. */
static bool write_out(struct metrics_client *c)
{
	struct str rest = str_skip(strbuf_str(&c->out), c->sent);
	ssize_t n = send(c->fd, rest.p, rest.n, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n > 0)
		c->sent += (size_t)n;
	if (n <= 0 || c->sent == c->out.len) {
		(void)shutdown(c->fd, SHUT_WR);
		drop(c);
		return true;
	}
	return false;
}

/* Empty lines before it are forgiven by the scan, and so here. */
static struct str first_line(struct str head)
{
	ptrdiff_t end;

	while (head.n > 1 && head.p[0] == '\r' && head.p[1] == '\n')
		head = str_skip(head, 2);
	end = str_find(head, '\r');
	return end < 0 ? head : str_head(head, (size_t)end);
}

static void answer(struct metrics_client *c, struct str line, struct engine *g)
{
	bool is_head = str_starts(line, STR("HEAD "));
	struct str target = str_skip(line, is_head ? 5 : 4);
	struct strbuf body;
	const char *status = "200 OK";

	strbuf_init(&body, LIMIT_METRICS_ANSWER_BYTES / 2);
	if (!is_head && !str_starts(line, STR("GET ")))
		status = "405 Method Not Allowed\r\nAllow: GET, HEAD";
	else if (!str_starts(target, STR("/metrics ")) && !str_starts(target, STR("/metrics?")))
		status = "404 Not Found";
	else
		metrics_text(g, &body);
	if (body.overflowed) {
		status = "500 Internal Server Error";
		strbuf_reset(&body);
	}
	strbuf_addf(&c->out,
		    "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
		    "Content-Length: %zu\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
		    status, body.len);
	if (!is_head)
		strbuf_add(&c->out, strbuf_str(&body));
	strbuf_clear(&body);
	c->answered = true;
	while (!write_out(c))
		;
}

static void read_in(struct metrics_client *c, struct engine *g)
{
	ssize_t n = recv(c->fd, c->in + c->n, sizeof(c->in) - c->n, MSG_DONTWAIT);
	struct err e = ERR_INIT;
	size_t len = 0;
	int found;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		drop(c);
		return;
	}
	c->n += (size_t)n;
	found = h1_scan_head(&c->scan, str_from(c->in, c->n), sizeof(c->in), &len, &e);
	if (found > 0)
		answer(c, first_line(str_from(c->in, len)), g);
	else if (found < 0 || c->n == sizeof(c->in))
		drop(c);
}

/* ---- the loop's side ---- */

nfds_t metrics_poll(const struct metrics *m, struct pollfd *v)
{
	nfds_t n = 0;
	bool room = false;

	for (size_t i = 0; m && i < ARRAY_LEN(m->clients); i++) {
		const struct metrics_client *c = &m->clients[i];

		room |= c->fd < 0;
		if (c->fd >= 0)
			v[n++] = (struct pollfd){.fd = c->fd,
						 .events = c->answered ? POLLOUT : POLLIN};
	}
	if (room && now_ms() >= m->paused_ms)
		v[n++] = (struct pollfd){.fd = m->fd, .events = POLLIN};
	return n;
}

static void serve(struct metrics *m, int fd, struct engine *g)
{
	if (fd == m->fd) {
		accept_some(m);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(m->clients); i++) {
		struct metrics_client *c = &m->clients[i];

		if (c->fd != fd)
			continue;
		if (!c->answered)
			read_in(c, g);
		else
			while (!write_out(c))
				;
		return;
	}
}

void metrics_turn(struct metrics *m, const struct pollfd *v, nfds_t n, struct engine *g)
{
	if (!m)
		return;
	for (nfds_t i = 0; i < n; i++)
		if (v[i].revents)
			serve(m, v[i].fd, g);
	for (size_t i = 0; i < ARRAY_LEN(m->clients); i++)
		if (m->clients[i].fd >= 0 && now_ms() >= m->clients[i].end_ms)
			drop(&m->clients[i]);
}

void metrics_free(struct metrics *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < ARRAY_LEN(m->clients); i++)
		if (m->clients[i].fd >= 0)
			drop(&m->clients[i]);
	close(m->fd);
	free(m);
}
