/*
 * See metrics.h. The request's first line is all that is looked at, behind the strict scan of the
 * head that the proxy itself goes by; nothing of it is in the answer.
 */
#include "proxy/cli/metrics.h"

#include <stdlib.h>
#include <unistd.h>

#include "proxy/cli/oneshot.h"
#include "proxy/http/h1.h"
#include "proxy/net/listener.h"

/* Behind each batch of connections: who floods gets one batch a turn of the main thread's poll,
 * which is half a second when nothing else is up. */
#define PAUSE_MS 100

struct metrics {
	/* owned */
	struct oneshot *server;
	/* plain */
	uint16_t port;
};

/* Empty lines before it are forgiven by the scan, and so here. */
static struct str first_line(struct str head)
{
	ptrdiff_t end;

	while (head.n > 1 && head.p[0] == '\r' && head.p[1] == '\n')
		head = str_skip(head, 2);
	end = str_find(head, '\r');
	return end < 0 ? head : str_head(head, (size_t)end);
}

static void answer(struct str line, struct engine *g, struct strbuf *out)
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
	strbuf_addf(out,
		    "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
		    "Content-Length: %zu\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
		    status, body.len);
	if (!is_head)
		strbuf_add(out, strbuf_str(&body));
	strbuf_clear(&body);
}

static int on_bytes(void *arg, struct str in, unsigned uid, struct strbuf *out)
{
	struct h1_scan scan = {0};
	size_t len = 0;
	int found = h1_scan_head(&scan, in, LIMIT_METRICS_REQUEST_BYTES, &len, NULL);

	(void)uid;
	if (found > 0)
		answer(first_line(str_head(in, len)), arg, out);
	return found;
}

static const struct oneshot_kind kind = {
	.clients = LIMIT_METRICS_CONNECTIONS,
	.question_bytes = LIMIT_METRICS_REQUEST_BYTES,
	.answer_bytes = LIMIT_METRICS_ANSWER_BYTES,
	.life_ms = LIMIT_MS_METRICS,
	.pause_ms = PAUSE_MS,
	.on_bytes = on_bytes,
};

int metrics_open(const struct config *c, struct metrics **ret, struct err *e)
{
	struct metrics *m;
	int fd;

	*ret = NULL;
	if (!c->metrics)
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return err_set(e, "out of memory");
	if (listener_open(c->metrics, false, &fd, &m->port, e) < 0)
		goto fail;
	if (oneshot_new(fd, &kind, &m->server, e) < 0) {
		close(fd);
		goto fail;
	}
	*ret = m;
	return 0;
fail:
	free(m);
	return err_wrap(e, "%s:%u:%u: metrics", c->file, c->metrics->at.line, c->metrics->at.col);
}

uint16_t metrics_port(const struct metrics *m)
{
	return m->port;
}

nfds_t metrics_poll(struct metrics *m, struct pollfd *v, int *wait_ms)
{
	return m ? oneshot_poll(m->server, v, wait_ms) : 0;
}

void metrics_turn(struct metrics *m, const struct pollfd *v, nfds_t n, struct engine *g)
{
	if (m)
		oneshot_turn(m->server, v, n, g);
}

void metrics_free(struct metrics *m)
{
	if (!m)
		return;
	oneshot_free(m->server);
	free(m);
}
