/*
 * What is counted, as text: a name, its help, its kind, its values. Prometheus's exposition format,
 * version 0.0.4. Called by metrics.c.
 */
#include <inttypes.h>

#include "proxy/cli/metrics.h"
#include "proxy/credentials/slot.h"
#include "proxy/session/counts.h"
#include "proxy/session/sandboxes.h"
#include "proxy/session/snapshot.h"

static void head(struct strbuf *out, const char *name, const char *kind, const char *help)
{
	strbuf_addf(out, "# HELP stile_%s %s\n# TYPE stile_%s %s\n", name, help, name, kind);
}

static void gauge(struct strbuf *out, const char *name, const char *help, uint64_t value)
{
	head(out, name, "gauge", help);
	strbuf_addf(out, "stile_%s %" PRIu64 "\n", name, value);
}

static void counter(struct strbuf *out, const char *name, const char *help, uint64_t value)
{
	head(out, name, "counter", help);
	strbuf_addf(out, "stile_%s %" PRIu64 "\n", name, value);
}

/* A reason has its line from the first time on. */
static void by_reason(struct strbuf *out, const char *name, const char *labels, const uint64_t *v)
{
	for (size_t i = 0; i < REASON_COUNT; i++)
		if (v[i] > 0)
			strbuf_addf(out, "stile_%s{%sreason=\"%s\"} %" PRIu64 "\n", name, labels,
				    reason_word((enum reason)i), v[i]);
}

static void decisions(struct strbuf *out, const char *name, const char *help, uint64_t allowed,
		      const uint64_t *denied)
{
	head(out, name, "counter", help);
	strbuf_addf(out, "stile_%s{decision=\"allow\",reason=\"\"} %" PRIu64 "\n", name, allowed);
	by_reason(out, name, "decision=\"deny\",", denied);
}

struct states {
	uint64_t available, renewing, unavailable, waiting;
};

static void count_state(void *arg, const struct config_credential *c, const struct slot_status *st)
{
	struct states *s = arg;

	(void)c;
	if (st->holds && !st->why[0])
		s->available++;
	else if (st->holds)
		s->renewing++;
	else if (st->tried)
		s->unavailable++;
	else
		s->waiting++;
}

static void credentials(struct strbuf *out, struct engine *g)
{
	static const char row[] = "stile_credentials{state=\"%s\"} %" PRIu64 "\n";
	struct states s = {0};

	credential_store_each(engine_snapshot(g)->credentials, count_state, &s);
	head(out, "credentials", "gauge",
	     "Credentials by their state; `renewing` has a value that could not be renewed.");
	strbuf_addf(out, row, "available", s.available);
	strbuf_addf(out, row, "renewing", s.renewing);
	strbuf_addf(out, row, "unavailable", s.unavailable);
	strbuf_addf(out, row, "waiting", s.waiting);
}

static void state(struct strbuf *out, struct engine *g)
{
	struct engine_measures m;

	engine_measure(g, &m);
	head(out, "build_info", "gauge", "1, with the version.");
	strbuf_adds(out, "stile_build_info{version=\"" STILE_VERSION "\"} 1\n");
	gauge(out, "up_seconds", "Since the start.", (uint64_t)m.up_us / 1000000);
	gauge(out, "healthy", "1: requests are taken, and their records can be written.",
	      m.log_available && !m.draining);
	gauge(out, "log_available", "1: the audit log can be written.", m.log_available);
	gauge(out, "workers", "Worker threads.", m.workers);
	gauge(out, "connections", "Connections of clients that are open.", m.connections);
	gauge(out, "requests_open", "Requests in flight.", m.requests);
	gauge(out, "sandboxes", "Tokens of sandboxes that live.", sandboxes_n(engine_sandboxes(g)));
}

void metrics_text(struct engine *g, struct strbuf *out)
{
	struct counts c = {0};

	engine_count(g, &c);
	state(out, g);
	credentials(out, g);
	decisions(out, "requests_total", "Requests by decision and reason.",
		  c.events[RECORD_REQUEST_START], c.requests_denied);
	decisions(out, "tunnels_total", "Tunnels and CONNECTs by decision and reason.",
		  c.events[RECORD_TUNNEL_START], c.tunnels_denied);
	counter(out, "dns_denied_total", "Questions to the stub DNS that no rule admits.",
		c.events[RECORD_DNS_DENY]);
	head(out, "errors_total", "counter",
	     "Admitted requests and tunnels that ended with an error, by its reason.");
	by_reason(out, "errors_total", "", c.failed);
	head(out, "bytes_total", "counter",
	     "Bytes of bodies and tunnels that have ended, toward origins and from them.");
	strbuf_addf(out, "stile_bytes_total{direction=\"out\"} %" PRIu64 "\n", c.bytes_out);
	strbuf_addf(out, "stile_bytes_total{direction=\"in\"} %" PRIu64 "\n", c.bytes_in);
	counter(out, "policy_loads_total", "Policies that came into force, the first ones too.",
		c.events[RECORD_POLICY_LOAD]);
	counter(out, "policy_rejects_total", "Reloads that changed nothing.",
		c.events[RECORD_POLICY_REJECT]);
}
