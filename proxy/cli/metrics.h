/*
 * `metrics: ADDR:PORT`: what a running stile counts, in Prometheus's text format, to whoever may
 * connect. One connection, one GET /metrics, one answer, on the main thread's poll; nothing here
 * blocks, and all is bounded in bytes, in time, in number and in how often. Numbers alone: no host,
 * no name of anything, no secret (counts.h).
 */
#ifndef STILE_PROXY_CLI_METRICS_H
#define STILE_PROXY_CLI_METRICS_H

#include <poll.h>

#include "logging/limits.h"
#include "logging/strbuf.h"
#include "policy/config.h"
#include "proxy/session/engine.h"

#define METRICS_FDS (LIMIT_METRICS_CONNECTIONS + 1)

struct metrics;

/* Listens on c->metrics; *ret is NULL, and the result 0, where there is none. */
int metrics_open(const struct config *c, struct metrics **ret, struct err *e) ATTR_NODISCARD;
uint16_t metrics_port(const struct metrics *m); /* what port 0 became */
/* As admin_poll and admin_turn (admin_server.h). m: NULL is accepted, here and below. */
nfds_t metrics_poll(struct metrics *m, struct pollfd *v, int *wait_ms);
void metrics_turn(struct metrics *m, const struct pollfd *v, nfds_t n, struct engine *g);
void metrics_free(struct metrics *m);

/* The text itself. */
void metrics_text(struct engine *g, struct strbuf *out);

#endif
