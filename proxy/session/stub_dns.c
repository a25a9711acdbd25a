/*
 * See stub_dns.h. One question is answered where it is read, over UDP and TCP alike (RFC 7766); the
 * bytes are net/dns_message's business. Back-pressure: while the log takes nothing, or too much was
 * refused in a short time, nothing is read, so that no question is answered without its record and
 * nobody floods the log faster than a client of HTTP could. Called by worker.c.
 */
#include "proxy/session/stub_dns.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "logging/limits.h"
#include "proxy/net/datagrams.h"
#include "proxy/net/dns_message.h"
#include "proxy/net/name_map.h"
#include "proxy/net/stream.h"
#include "proxy/session/audit.h"
#include "proxy/session/worker.h"

#define FRAME_BYTES 2 /* RFC 1035 section 4.2.2 */

struct conn {
	LIST_ENTRY(conn) next;
	/* owned */
	struct stream *s;
	struct timer timer; /* from one whole question to the next */
	/* borrowed */
	struct stub_dns *d;
	/* plain */
	struct listener_peer peer;
	bool is_closed;
};

struct stub_dns {
	/* owned: one of them */
	struct datagrams *udp;
	struct listener *tcp;
	LIST_HEAD(, conn) conns;
	struct timer timer; /* until more is read */
	/* borrowed */
	struct worker *w;
	const struct entrance *en;
	/* plain */
	int64_t refilled_us;
	unsigned refusals; /* that may still be written now */
};

/* ---- records, and how many ---- */

static void refill(struct stub_dns *d)
{
	int64_t now = loop_now_us(d->w->loop);
	int64_t more = (now - d->refilled_us) * LIMIT_DNS_REFUSED_PER_S / 1000000;

	if (more <= 0)
		return;
	d->refilled_us = now;
	d->refusals = more + d->refusals < LIMIT_DNS_REFUSED ? d->refusals + (unsigned)more
							     : LIMIT_DNS_REFUSED;
}

/* May a question be read now? If not, it will be looked at again. */
static bool may_read(struct stub_dns *d)
{
	refill(d);
	if (d->refusals > 0 && worker_log_available(d->w))
		return true;
	if (!d->timer.armed)
		timer_arm(&d->timer, LIMIT_MS_LOG_RETRY);
	if (d->udp)
		datagrams_pause(d->udp);
	return false;
}

/* False: the log did not take it, so there must be no answer. */
static bool write_refusal(struct stub_dns *d, const struct listener_peer *from, struct str host,
			  const struct rule *rule, const struct err *why)
{
	struct caller caller = {.entrance = d->en, .client = str_from_c(from->text)};
	struct identity who = identity_of(&caller, d->w->snapshot);
	char id[RECORD_ID_LEN + 1];
	struct record r;
	struct audit_mem m;

	record_new_id(id);
	audit_init(&r, &m, RECORD_DNS_DENY);
	r.id = str_from(id, RECORD_ID_LEN);
	audit_caller(&r, &caller, &who);
	audit_policy(&r, who.policy);
	r.host = host;
	audit_rule(&r, &m, rule);
	audit_decision(&r, false, why->reason);
	r.error_detail = str_from_c(why->text);
	if (d->refusals > 0)
		d->refusals--;
	return worker_log(d->w, &r, false) != 0;
}

/* ---- one question ---- */

struct verdict {
	enum dns_rcode rcode;
	bool has_addr;
	struct ipaddr addr;
	const struct rule *rule; /* the deny; borrowed from the policy of this moment */
};

static bool is_below(const struct host *h, const char *top)
{
	size_t n = strlen(top);

	return h->len >= n && memcmp(h->text + h->len - n, top, n) == 0 &&
	       (h->len == n || h->text[h->len - n - 1] == '.');
}

static int refuse(struct verdict *v, enum dns_rcode rcode, enum reason reason, const char *why,
		  struct err *e)
{
	v->rcode = rcode;
	return err_reason(e, reason, "%s", why);
}

/* RFC 6761 section 6.3: every name below localhost is this host. */
static void answer_localhost(const struct dns_question *q, struct verdict *v)
{
	v->has_addr = q->type == DNS_TYPE_A || q->type == DNS_TYPE_AAAA;
	v->addr = q->type == DNS_TYPE_A ? (struct ipaddr){4, {127, 0, 0, 1}}
					: (struct ipaddr){6, {[15] = 1}};
}

static const struct policy *policy_now(const struct stub_dns *d)
{
	struct caller caller = {.entrance = d->en};

	return identity_of(&caller, d->w->snapshot).policy;
}

static int check_policy(struct stub_dns *d, const struct host *h, struct verdict *v, struct err *e)
{
	const struct policy *p = policy_now(d);
	struct policy_connect may = {.reason = REASON_NO_RULE};

	if (p && policy_admits_name(p, h))
		return 0;
	/* For the record: is it a deny that closes what most ask for? */
	if (p)
		policy_decide_connect(p, h, 443, &may);
	v->rule = may.deny;
	return refuse(v, DNS_NXDOMAIN, may.deny ? REASON_DENIED_BY_RULE : REASON_NO_RULE,
		      may.deny ? "a rule denies all of this name" : "no rule allows this name", e);
}

/* 0: *v is the answer; else it is what goes with the refusal. */
static int judge(struct stub_dns *d, const struct dns_question *q, struct verdict *v, struct err *e)
{
	const char *escape;
	struct ipaddr v4, v6;
	struct host h;

	*v = (struct verdict){.rcode = DNS_NXDOMAIN};
	/* That the root did not exist would mean that nothing does (RFC 8020). */
	if (strcmp(q->name, ".") == 0)
		return refuse(v, DNS_REFUSED, REASON_NO_RULE, "no rule allows the root", e);
	escape = strchr(q->name, '\\');
	/* To host_parse it would be the backslash of dns_message that is at fault. */
	if (escape && escape[1] == '.')
		return refuse(v, DNS_NXDOMAIN, REASON_AMBIGUOUS_URL,
			      "a dot within a label, which some readers take for its end", e);
	if (escape)
		return refuse(v, DNS_NXDOMAIN, REASON_MALFORMED_REQUEST,
			      "a label holds a byte that no host's name has", e);
	if (host_parse(str_from_c(q->name), &h, e) != 0)
		return -1;
	if (h.kind != HOST_NAME)
		return refuse(v, DNS_NXDOMAIN, REASON_MALFORMED_REQUEST,
			      "an address is not a name to ask for", e);
	v->rcode = DNS_NOERROR;
	if (is_below(&h, "localhost")) {
		answer_localhost(q, v);
		return 0;
	}
	if (check_policy(d, &h, v, e) != 0)
		return -1;
	/* RFC 6761 section 6.4, whatever a rule for all hosts says. */
	if (is_below(&h, "invalid"))
		return refuse(v, DNS_NXDOMAIN, REASON_DNS_FAILED,
			      "no name below `invalid` exists (RFC 6761)", e);
	/* Nothing of any other type: no alias, no mail, and of HTTPS (RFC 9460) no hint that
	 * would lead past the addresses, to HTTP/3 or to an encrypted ClientHello. */
	if (q->type != DNS_TYPE_A && !(q->type == DNS_TYPE_AAAA && d->en->names_v6))
		return 0;
	if (name_map_give(d->en->names, &h, policy_spells_name(policy_now(d), &h),
			  loop_now_us(d->w->loop), &v4, &v6, e) != 0) {
		v->rcode = DNS_SERVFAIL;
		return -1;
	}
	v->has_addr = true;
	v->addr = q->type == DNS_TYPE_A ? v4 : v6;
	return 0;
}

/* Most ask for both addresses of a name, which makes two records. */
static void wrap_type(uint16_t type, struct err *e)
{
	if (type == DNS_TYPE_A || type == DNS_TYPE_AAAA)
		err_wrap(e, "%s", type == DNS_TYPE_A ? "A" : "AAAA");
	else
		err_wrap(e, "type %u", type);
}

/* The length of the answer; 0: none. */
static size_t answer(struct stub_dns *d, struct str in, const struct listener_peer *from,
		     uint8_t out[DNS_ANSWER_BYTES])
{
	struct dns_question q;
	struct verdict v = {.rcode = DNS_FORMERR};
	struct err e = ERR_INIT;

	bool is_answered = dns_message_read(in, &q, &v.rcode, &e) == 0;

	if (is_answered && judge(d, &q, &v, &e) != 0) {
		wrap_type(q.type, &e);
		is_answered = false;
	}
	if (!is_answered && (!write_refusal(d, from, str_from_c(q.name), v.rule, &e) || q.is_mute))
		return 0;
	return dns_message_write(&q, v.rcode, v.has_addr ? &v.addr : NULL, LIMIT_NAME_TTL_SECS,
				 out);
}

/* ---- UDP ---- */

static size_t on_datagram(void *arg, struct str in, const struct listener_peer *from, uint8_t *out,
			  size_t room)
{
	struct stub_dns *d = arg;
	size_t n = room < DNS_ANSWER_BYTES ? 0 : answer(d, in, from, out);

	(void)may_read(d);
	return n;
}

/* ---- TCP ---- */

static void conn_close(struct conn *c)
{
	struct stub_dns *d = c->d;

	c->is_closed = true;
	LIST_REMOVE(c, next);
	timer_clear(&c->timer);
	stream_close(c->s);
	listener_counts_leave(d->en->counts, &c->peer);
	loop_bury(d->w->loop, c, free);
}

static void on_conn_timer(void *arg)
{
	conn_close(arg);
}

/* What no resolver sends: its end is a record, and no answer. */
static void conn_refuse(struct conn *c, const char *why)
{
	struct err e = ERR_INIT;

	err_reason(&e, REASON_MALFORMED_REQUEST, "%s", why);
	(void)write_refusal(c->d, &c->peer, STR_NONE, NULL, &e);
	conn_close(c);
}

/* The next whole question, if it is here. False: nothing more can be done now. */
static bool conn_step(struct conn *c)
{
	struct str in = stream_data(c->s);
	uint8_t out[FRAME_BYTES + DNS_ANSWER_BYTES];
	size_t len, n;

	if (in.n < FRAME_BYTES)
		return false;
	len = (size_t)(uint8_t)in.p[0] << 8 | (uint8_t)in.p[1];
	if ((in.n < FRAME_BYTES + len && len <= LIMIT_DNS_QUERY_BYTES) || !may_read(c->d))
		return false;
	if (len > LIMIT_DNS_QUERY_BYTES) {
		conn_refuse(c, "a question that is far too long");
		return false;
	}
	if (stream_room(c->s) < sizeof(out))
		return false;
	n = answer(c->d, str_head(str_skip(in, FRAME_BYTES), len), &c->peer, out + FRAME_BYTES);
	stream_consume(c->s, FRAME_BYTES + len);
	timer_arm(&c->timer, LIMIT_MS_DNS_CLIENT);
	if (n == 0) {
		conn_close(c);
		return false;
	}
	out[0] = (uint8_t)(n >> 8);
	out[1] = (uint8_t)n;
	stream_write(c->s, str_from(out, FRAME_BYTES + n));
	return true;
}

static void conn_drive(struct conn *c)
{
	bool is_whole;
	struct str in;

	stream_cork(c->s);
	while (conn_step(c))
		;
	if (c->is_closed)
		return;
	stream_uncork(c->s);
	in = stream_data(c->s);
	is_whole = in.n >= FRAME_BYTES &&
		   in.n >= FRAME_BYTES + ((size_t)(uint8_t)in.p[0] << 8 | (uint8_t)in.p[1]);
	if (stream_at_eof(c->s) && !is_whole && stream_pending(c->s) == 0)
		conn_close(c);
}

static void on_stream(void *arg, unsigned events)
{
	struct conn *c = arg;

	if (events & STREAM_ERROR)
		conn_close(c);
	else
		conn_drive(c);
}

static void on_accept(void *arg, int fd, const struct listener_peer *peer)
{
	struct stub_dns *d = arg;
	struct conn *c = calloc(1, sizeof(*c));

	if (!c || timer_init(&c->timer, d->w->loop, on_conn_timer, c) < 0) {
		free(c);
		close(fd);
		listener_counts_leave(d->en->counts, peer);
		return;
	}
	c->d = d;
	c->peer = *peer;
	if (stream_new(d->w->loop, fd, on_stream, c, &c->s, NULL) < 0) {
		timer_clear(&c->timer);
		listener_counts_leave(d->en->counts, peer);
		free(c);
		return;
	}
	LIST_INSERT_HEAD(&d->conns, c, next);
	timer_arm(&c->timer, LIMIT_MS_DNS_CLIENT);
}

static void on_refused(void *arg, int fd, const struct listener_peer *peer, enum reason why)
{
	struct stub_dns *d = arg;
	struct err e = ERR_INIT;

	err_reason(&e, why, "too many connections");
	if (may_read(d))
		(void)write_refusal(d, peer, STR_NONE, NULL, &e);
	close(fd);
}

/* ---- the whole ---- */

static void on_timer(void *arg)
{
	struct stub_dns *d = arg;
	struct conn *c = LIST_FIRST(&d->conns);

	if (!may_read(d))
		return;
	if (d->udp)
		datagrams_resume(d->udp);
	while (c) {
		struct conn *next = LIST_NEXT(c, next);

		conn_drive(c);
		c = next;
	}
}

int stub_dns_new(struct worker *w, const struct entrance *en, int fd, struct stub_dns **ret,
		 struct err *e)
{
	struct stub_dns *d = calloc(1, sizeof(*d));
	int type = 0;
	socklen_t n = sizeof(type);

	if (!d || timer_init(&d->timer, w->loop, on_timer, d) < 0) {
		free(d);
		return err_set(e, "out of memory");
	}
	d->w = w;
	d->en = en;
	d->refusals = LIMIT_DNS_REFUSED;
	d->refilled_us = loop_now_us(w->loop);
	LIST_INIT(&d->conns);
	(void)getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n);
	if (type == SOCK_DGRAM ? datagrams_new(w->loop, fd, on_datagram, d, &d->udp, e) < 0
			       : listener_new(w->loop, fd, en->counts, on_accept, on_refused, d,
					      &d->tcp, e) < 0) {
		timer_clear(&d->timer);
		free(d);
		return -1;
	}
	*ret = d;
	return 0;
}

void stub_dns_free(struct stub_dns *d)
{
	struct conn *c;

	if (!d)
		return;
	while ((c = LIST_FIRST(&d->conns)))
		conn_close(c);
	datagrams_free(d->udp);
	listener_free(d->tcp);
	timer_clear(&d->timer);
	loop_bury(d->w->loop, d, free);
}
