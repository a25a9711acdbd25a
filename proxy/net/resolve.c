/*
 * A name's way to its addresses: fixed names, localhost, the hosts file, the cache, then two
 * questions to DNS side by side. Who waits (struct resolve) and what is asked (struct question, one
 * for a name and family, however many wait for it) are separate objects. Speaks to c-ares through
 * dns_channel.h alone. A done callback is always called from r->deliver_ev, so never from within
 * c-ares and never from within resolve_start.
 */
#include "proxy/net/resolve.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "proxy/net/dns_cache.h"
#include "proxy/net/dns_channel.h"
#include "proxy/net/hosts_file.h"
#include "proxy/net/resolve_internal.h"

#define QUESTIONS_MAX  4096 /* under way at once; a flood of names ends here */
#define QUESTION_CHAIN 256
#define RESOLV_CONF    "/etc/resolv.conf"
#define HOSTS	       "/etc/hosts"
#define LOOK_US	       5000000 /* how often resolv.conf is looked at */

/* Without IPv6 little is lost, without IPv4 often everything: an AAAA that comes first gives the A
 * more time than RFC 8305 section 3 gives the AAAA. */
#define WAIT_V6_US (LIMIT_MS_RESOLUTION_WAIT * 1000)
#define WAIT_V4_US (10 * WAIT_V6_US)

struct question {
	LIST_ENTRY(question) chain;
	TAILQ_HEAD(, side) sides; /* who waits for it, the first first; may be empty */
	/* borrowed */
	struct resolver *resolver;
	struct dns_channel *channel;
	/* plain */
	enum dns_family family;
	int64_t started_us;
	char name[LIMIT_HOST_BYTES + 1];
};

struct side { /* one family of one who waits */
	TAILQ_ENTRY(side) of_question;
	struct question *question; /* borrowed; NULL when not waiting */
	struct resolve *waiter;	   /* borrowed: whose side it is */
	bool is_known;
	struct dns_answer answer;
};

struct resolve {
	TAILQ_ENTRY(resolve) link; /* in waiting or in ready */
	/* owned */
	struct timer timer;
	struct side sides[DNS_FAMILIES];
	/* borrowed */
	struct resolver *resolver;
	void (*done)(void *arg, const struct resolved *found, const struct err *e);
	void *arg;
	/* plain */
	int64_t deadline_us;
	int64_t wait_us; /* when one family will do; 0: not yet */
	bool is_ready;
	char name[LIMIT_HOST_BYTES + 1];
};

struct fixed {
	char *name;
	struct ipaddr *addrs;
	size_t n;
};

struct channel {
	LIST_ENTRY(channel) link;
	struct dns_channel *dns; /* owned */
};

TAILQ_HEAD(resolve_list, resolve);

struct resolver {
	/* owned */
	struct fixed *fixed; /* sorted by name */
	size_t fixed_n;
	char **servers;
	size_t servers_n;
	struct hosts_file *hosts;
	struct dns_cache *cache;
	struct dns_channel *channel;
	LIST_HEAD(, channel) retired; /* of an older resolv.conf, with questions still open */
	struct event deliver_ev;
	LIST_HEAD(question_chain, question) chains[QUESTION_CHAIN];
	struct resolve_list waiting, ready;
	/* borrowed */
	struct loop *loop;
	const char *resolv_conf;
	/* plain */
	uint64_t dns_ms;
	size_t questions_n;
	int64_t looked_us;
	struct stat conf; /* resolv.conf as of the channel; zero when it was not there */
	bool is_closing;
};

/* ---- fixed names ---- */

static int cmp_fixed(const void *a, const void *b)
{
	return strcmp(((const struct fixed *)a)->name, ((const struct fixed *)b)->name);
}

static int copy_fixed(struct resolver *r, const struct config *c)
{
	if (c->hosts_n == 0)
		return 0;
	r->fixed = calloc(c->hosts_n, sizeof(*r->fixed));
	if (!r->fixed)
		return -1;
	for (size_t i = 0; i < c->hosts_n; i++) {
		const struct config_host *from = &c->hosts[i];
		struct fixed *to = &r->fixed[r->fixed_n++];

		to->name = str_dup(host_str(&from->name));
		to->addrs = calloc(from->addrs_n + 1, sizeof(*to->addrs));
		if (!to->name || !to->addrs)
			return -1;
		if (from->addrs_n > 0)
			memcpy(to->addrs, from->addrs, from->addrs_n * sizeof(*to->addrs));
		to->n = from->addrs_n;
	}
	qsort(r->fixed, r->fixed_n, sizeof(*r->fixed), cmp_fixed);
	return 0;
}

static int copy_servers(struct resolver *r, const struct config *c)
{
	if (c->dns_servers_n == 0)
		return 0;
	r->servers = calloc(c->dns_servers_n, sizeof(*r->servers));
	if (!r->servers)
		return -1;
	for (size_t i = 0; i < c->dns_servers_n; i++) {
		r->servers[i] = str_dup(str_from_c(c->dns_servers[i]));
		if (!r->servers[i])
			return -1;
		r->servers_n++;
	}
	return 0;
}

/* ---- putting an answer together ---- */

/* RFC 8305 section 4: families take turns, IPv6 first, each in the order that it came in. */
static void interleave(const struct ipaddr *v6, size_t v6_n, const struct ipaddr *v4, size_t v4_n,
		       struct resolved *ret)
{
	ret->n = 0;
	for (size_t i = 0; i < v6_n || i < v4_n; i++) {
		if (i < v6_n && ret->n < LIMIT_DNS_ADDRESSES)
			ret->addrs[ret->n++] = v6[i];
		if (i < v4_n && ret->n < LIMIT_DNS_ADDRESSES)
			ret->addrs[ret->n++] = v4[i];
	}
}

static void interleave_mixed(const struct ipaddr *addrs, size_t n, struct resolved *ret)
{
	struct ipaddr v6[LIMIT_DNS_ADDRESSES], v4[LIMIT_DNS_ADDRESSES];
	size_t v6_n = 0, v4_n = 0;

	for (size_t i = 0; i < n; i++) {
		if (addrs[i].family == 6 && v6_n < LIMIT_DNS_ADDRESSES)
			v6[v6_n++] = addrs[i];
		else if (addrs[i].family == 4 && v4_n < LIMIT_DNS_ADDRESSES)
			v4[v4_n++] = addrs[i];
	}
	interleave(v6, v6_n, v4, v4_n, ret);
	ret->from_cache = false;
}

static bool is_found(const struct side *s)
{
	return s->is_known && s->answer.status == DNS_FOUND;
}

/* An answer that will be the same when asked again. */
static bool is_firm(const struct side *s)
{
	return s->is_known && (s->answer.status == DNS_FOUND || s->answer.status == DNS_NO_NAME ||
			       s->answer.status == DNS_NO_ADDRESS);
}

static const char *status_text(const struct side *s)
{
	switch (s->is_known ? s->answer.status : DNS_TIMED_OUT) {
	case DNS_FOUND: return "found";
	case DNS_NO_NAME: return "no such name";
	case DNS_NO_ADDRESS: return "no address";
	case DNS_SERVER_FAILED: return "the server failed";
	case DNS_NO_SERVER: return "no DNS server answered, or only with an error";
	case DNS_TIMED_OUT: return "no answer in time";
	case DNS_BROKEN: return "out of memory, or shutting down";
	}
	return "";
}

/* What the two sides come to: 0 and *ret, or -1 and the error. */
static int conclude(const char *name, const struct side *sides, struct resolved *ret, struct err *e)
{
	const struct side *v6 = &sides[DNS_V6], *v4 = &sides[DNS_V4];
	enum reason why = REASON_DNS_FAILED;

	if (is_found(v6) || is_found(v4)) {
		interleave(v6->answer.addrs, is_found(v6) ? v6->answer.n : 0, v4->answer.addrs,
			   is_found(v4) ? v4->answer.n : 0, ret);
		return 0;
	}
	if ((v6->is_known && v6->answer.status == DNS_NO_NAME) ||
	    (v4->is_known && v4->answer.status == DNS_NO_NAME))
		return err_reason(e, why, "DNS: %s: no such name", name);
	if (is_firm(v6) && is_firm(v4))
		return err_reason(e, why, "DNS: %s: the name has no address", name);
	if (!v6->is_known || !v4->is_known || v6->answer.status == DNS_TIMED_OUT ||
	    v4->answer.status == DNS_TIMED_OUT)
		why = REASON_DNS_TIMEOUT;
	return err_reason(e, why, "DNS: %s: A: %s; AAAA: %s", name, status_text(v4),
			  status_text(v6));
}

/* ---- who waits ---- */

static void leave_questions(struct resolve *w)
{
	for (size_t f = 0; f < DNS_FAMILIES; f++) {
		struct side *s = &w->sides[f];

		if (s->question)
			TAILQ_REMOVE(&s->question->sides, s, of_question);
		s->question = NULL;
	}
}

static void make_ready(struct resolve *w)
{
	struct resolver *r = w->resolver;

	if (w->is_ready)
		return;
	w->is_ready = true;
	leave_questions(w);
	timer_stop(&w->timer);
	TAILQ_REMOVE(&r->waiting, w, link);
	TAILQ_INSERT_TAIL(&r->ready, w, link);
	event_active(&r->deliver_ev, EV_TIMEOUT, 0);
}

/* How long the family that is missing may still take, now that the other has addresses. Nothing,
 * when its question is overdue already: a server that never answers AAAA must not slow down each
 * request anew. */
static int64_t patience_us(const struct side *missing, enum dns_family f, int64_t now_us)
{
	int64_t all = f == DNS_V4 ? WAIT_V4_US : WAIT_V6_US;

	if (missing->question && now_us - missing->question->started_us > 2 * WAIT_V4_US)
		return 0;
	return all;
}

static void arm_until(struct resolve *w, int64_t at_us, int64_t now_us)
{
	timer_arm(&w->timer, at_us > now_us ? (uint64_t)(at_us - now_us + 999) / 1000 : 0);
}

/* Called when a side has become known, and once when all questions are out. */
static void look_at(struct resolve *w)
{
	int64_t now = loop_now_us(w->resolver->loop);

	if (w->sides[DNS_V6].is_known && w->sides[DNS_V4].is_known) {
		make_ready(w);
		return;
	}
	for (size_t f = 0; f < DNS_FAMILIES && !w->wait_us; f++) {
		enum dns_family other = f == DNS_V4 ? DNS_V6 : DNS_V4;

		if (is_found(&w->sides[f]))
			w->wait_us = now + patience_us(&w->sides[other], other, now);
	}
	arm_until(w, w->wait_us && w->wait_us < w->deadline_us ? w->wait_us : w->deadline_us, now);
}

static void on_waiter_timer(void *arg)
{
	struct resolve *w = arg;

	make_ready(w); /* conclude() takes what is there for the answer */
}

static void waiter_free(struct resolve *w)
{
	timer_clear(&w->timer);
	free(w);
}

static void deliver(struct resolve *w, struct resolve_list *from)
{
	struct resolved found = {.from_cache = false};
	struct err e = ERR_INIT;
	void (*done)(void *, const struct resolved *, const struct err *) = w->done;
	void *arg = w->arg;
	int rc = conclude(w->name, w->sides, &found, &e);

	TAILQ_REMOVE(from, w, link);
	waiter_free(w);
	if (rc < 0)
		done(arg, NULL, &e);
	else
		done(arg, &found, NULL);
}

static void on_deliver(evutil_socket_t fd, short what, void *arg)
{
	struct resolver *r = arg;

	(void)fd;
	(void)what;
	/* A callback may cancel others, ask anew, or free the resolver (which empties the list). */
	while (!r->is_closing && !TAILQ_EMPTY(&r->ready))
		/* deliver takes it off first. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		deliver(TAILQ_FIRST(&r->ready), &r->ready);
}

/* ---- questions ---- */

static struct question_chain *chain_of(struct resolver *r, const char *name)
{
	uint32_t h = 2166136261U;

	for (const char *p = name; *p; p++)
		h = (h ^ (unsigned char)*p) * 16777619U;
	return &r->chains[(h ^ (h >> 16)) % QUESTION_CHAIN];
}

static void free_channel(void *obj)
{
	struct channel *c = obj;

	dns_channel_free(c->dns);
	free(c);
}

/* The last question on a channel of an older resolv.conf closes it, after this turn: here we are
 * within c-ares. */
static void bury_retired(struct resolver *r, struct dns_channel *dns)
{
	struct channel *c;

	LIST_FOREACH(c, &r->retired, link)
	if (c->dns == dns && dns_channel_open(dns) == 0) {
		LIST_REMOVE(c, link);
		loop_bury(r->loop, c, free_channel);
		return;
	}
}

static void on_answer(void *arg, const struct dns_answer *a)
{
	struct question *q = arg;
	struct resolver *r = q->resolver;
	struct side *s;

	LIST_REMOVE(q, chain);
	r->questions_n--;
	if (!r->is_closing && a->status != DNS_BROKEN)
		dns_cache_put(r->cache, str_from_c(q->name), q->family, loop_now_us(r->loop), a);
	while ((s = TAILQ_FIRST(&q->sides))) {
		TAILQ_REMOVE(&q->sides, s, of_question);
		s->question = NULL;
		s->is_known = true;
		s->answer = *a;
		look_at(s->waiter);
	}
	if (!r->is_closing && q->channel != r->channel)
		bury_retired(r, q->channel);
	free(q);
}

static struct question *find_question(struct resolver *r, const char *name, enum dns_family f)
{
	struct question *q;

	LIST_FOREACH(q, chain_of(r, name), chain)
	if (q->family == f && strcmp(q->name, name) == 0)
		return q;
	return NULL;
}

/* Lets the side wait for the question, which is asked unless it is under way already. */
static void ask(struct resolver *r, struct side *s, enum dns_family f)
{
	struct question *q = find_question(r, s->waiter->name, f);
	bool is_new = !q;

	if (is_new) {
		q = calloc(1, sizeof(*q));
		if (!q) {
			s->is_known = true;
			s->answer.status = DNS_BROKEN;
			return;
		}
		q->resolver = r;
		q->channel = r->channel;
		q->family = f;
		q->started_us = loop_now_us(r->loop);
		memcpy(q->name, s->waiter->name, sizeof(q->name));
		TAILQ_INIT(&q->sides);
		LIST_INSERT_HEAD(chain_of(r, q->name), q, chain);
		r->questions_n++;
	}
	s->question = q;
	TAILQ_INSERT_TAIL(&q->sides, s, of_question);
	if (is_new)
		dns_channel_ask(q->channel, q->name, f, on_answer, q); /* q may be gone now */
}

/* ---- resolv.conf ---- */

static void stat_conf(const struct resolver *r, struct stat *ret)
{
	if (stat(r->resolv_conf, ret) < 0)
		*ret = (struct stat){0};
}

static int new_channel(struct resolver *r, struct dns_channel **ret, struct err *e)
{
	return dns_channel_new(r->loop, r->servers, r->servers_n, r->resolv_conf, r->dns_ms, ret,
			       e);
}

/* A changed resolv.conf (another network) gets a new channel and an empty cache; what is under way
 * on the old one ends there. */
static void follow_conf(struct resolver *r)
{
	int64_t now = loop_now_us(r->loop);
	struct dns_channel *fresh;
	struct channel *old;
	struct stat st;

	if (r->servers_n > 0 || now - r->looked_us < LOOK_US)
		return;
	r->looked_us = now;
	stat_conf(r, &st);
	if (st.st_ino == r->conf.st_ino && st.st_dev == r->conf.st_dev &&
	    st.st_size == r->conf.st_size && st.st_mtim.tv_sec == r->conf.st_mtim.tv_sec &&
	    st.st_mtim.tv_nsec == r->conf.st_mtim.tv_nsec)
		return;
	old = calloc(1, sizeof(*old));
	if (!old || new_channel(r, &fresh, NULL) < 0) {
		free(old);
		return; /* the old servers stay; the next look tries again */
	}
	dns_cache_empty(r->cache);
	old->dns = r->channel;
	r->channel = fresh;
	r->conf = st;
	if (dns_channel_open(old->dns) == 0)
		free_channel(old);
	else
		LIST_INSERT_HEAD(&r->retired, old, link);
}

/* ---- the interface ---- */

int resolver_new(struct loop *l, const struct config *c, struct resolver **ret, struct err *e)
{
	return resolver_new_at(l, c, RESOLV_CONF, HOSTS, ret, e);
}

void resolver_look_again(struct resolver *r)
{
	r->looked_us = INT64_MIN / 2;
}

int resolver_new_at(struct loop *l, const struct config *c, const char *resolv_conf,
		    const char *hosts, struct resolver **ret, struct err *e)
{
	struct resolver *r = calloc(1, sizeof(*r));

	if (!r)
		return err_set(e, "out of memory");
	r->loop = l;
	r->resolv_conf = resolv_conf;
	r->dns_ms = c && c->limits.dns_ms ? c->limits.dns_ms : LIMIT_MS_DNS;
	TAILQ_INIT(&r->waiting);
	TAILQ_INIT(&r->ready);
	event_assign(&r->deliver_ev, loop_base(l), -1, 0, on_deliver, r);
	if (c && (copy_fixed(r, c) < 0 || copy_servers(r, c) < 0)) {
		err_set(e, "out of memory");
		goto fail;
	}
	stat_conf(r, &r->conf); /* before it is read: a change in between is seen later */
	r->looked_us = loop_now_us(l);
	if (hosts_file_new(hosts, &r->hosts, e) < 0 ||
	    dns_cache_new(LIMIT_DNS_CACHE, &r->cache, e) < 0 || new_channel(r, &r->channel, e) < 0)
		goto fail;
	*ret = r;
	return 0;
fail:
	resolver_free(r);
	return -1;
}

static void fail_all(struct resolve_list *list)
{
	while (!TAILQ_EMPTY(list)) {
		struct resolve *w = TAILQ_FIRST(list);

		/* deliver takes it off first. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		leave_questions(w);
		for (size_t f = 0; f < DNS_FAMILIES; f++) {
			w->sides[f].is_known = true;
			w->sides[f].answer.status = DNS_BROKEN;
		}
		deliver(w, list);
	}
}

void resolver_free(struct resolver *r)
{
	struct channel *c;

	if (!r || r->is_closing)
		return;
	r->is_closing = true; /* a callback that asks anew is refused */
	fail_all(&r->ready);
	fail_all(&r->waiting);
	event_del(&r->deliver_ev);
	dns_channel_free(r->channel);
	while ((c = LIST_FIRST(&r->retired))) {
		LIST_REMOVE(c, link);
		free_channel(c);
	}
	dns_cache_free(r->cache);
	hosts_file_free(r->hosts);
	for (size_t i = 0; i < r->fixed_n; i++) {
		free(r->fixed[i].name);
		free(r->fixed[i].addrs);
	}
	free(r->fixed);
	for (size_t i = 0; i < r->servers_n; i++)
		free(r->servers[i]);
	free(r->servers);
	loop_bury(r->loop, r, free); /* on_deliver may be on the stack */
}

/* RFC 6761 section 6.3: names below localhost never reach a server. */
static bool is_localhost(struct str name)
{
	return str_eq(name, STR("localhost")) || str_ends(name, STR(".localhost"));
}

static const struct ipaddr loopbacks[] = {{6, {[15] = 1}}, {4, {127, 0, 0, 1}}};

/* Everything that is known without asking or reading. */
static bool find_local(struct resolver *r, const struct host *host, struct resolved *ret)
{
	struct fixed key = {.name = (char *)(uintptr_t)host->text}, *fixed = NULL;

	if (host->kind != HOST_NAME) {
		interleave_mixed(&host->addr, 1, ret);
		return true;
	}
	if (r->fixed_n > 0)
		fixed = bsearch(&key, r->fixed, r->fixed_n, sizeof(key), cmp_fixed);
	if (fixed) {
		interleave_mixed(fixed->addrs, fixed->n, ret);
		return true;
	}
	if (is_localhost(host_str(host))) {
		interleave_mixed(loopbacks, ARRAY_LEN(loopbacks), ret);
		return true;
	}
	return false;
}

static bool find_in_hosts(struct resolver *r, const struct host *host, struct resolved *ret)
{
	struct ipaddr addrs[2 * LIMIT_DNS_ADDRESSES];
	size_t n = hosts_file_find(r->hosts, host_str(host), addrs, ARRAY_LEN(addrs));

	interleave_mixed(addrs, n, ret);
	return n > 0;
}

static void read_cache(struct resolver *r, const struct host *host, struct side *sides)
{
	int64_t now = loop_now_us(r->loop);

	for (size_t f = 0; f < DNS_FAMILIES; f++)
		sides[f].is_known = dns_cache_get(r->cache, host_str(host), (enum dns_family)f, now,
						  &sides[f].answer);
	/* A kept failure is no answer by itself. */
	for (size_t f = 0; f < DNS_FAMILIES; f++)
		if (!is_firm(&sides[f]) && !is_found(&sides[f == DNS_V4 ? DNS_V6 : DNS_V4]))
			sides[f].is_known = false;
}

static struct resolve *new_waiter(struct resolver *r, const struct host *host,
				  const struct side *sides)
{
	struct resolve *w = calloc(1, sizeof(*w));

	if (!w || timer_init(&w->timer, r->loop, on_waiter_timer, w) < 0) {
		free(w);
		return NULL;
	}
	w->resolver = r;
	memcpy(w->name, host->text, sizeof(w->name));
	for (size_t f = 0; f < DNS_FAMILIES; f++) {
		w->sides[f] = sides[f];
		w->sides[f].waiter = w;
	}
	return w;
}

static void ask_what_is_missing(struct resolver *r, struct resolve *w)
{
	TAILQ_INSERT_TAIL(&r->waiting, w, link);
	for (size_t f = 0; f < DNS_FAMILIES; f++)
		if (!w->sides[f].is_known)
			ask(r, &w->sides[f], (enum dns_family)f);
	if (!w->is_ready)
		look_at(w);
}

enum resolve_status
resolve_start(struct resolver *r, const struct host *host, uint64_t timeout_ms,
	      void (*done)(void *arg, const struct resolved *found, const struct err *e), void *arg,
	      struct resolved *ret, struct resolve **ret_question, struct err *e)
{
	struct side sides[DNS_FAMILIES] = {{.question = NULL}, {.question = NULL}};
	int64_t now = loop_now_us(r->loop);
	struct resolve *w;

	if (find_local(r, host, ret))
		return RESOLVE_DONE;
	if (r->is_closing) {
		err_reason(e, REASON_SHUTTING_DOWN, "DNS: %s: shutting down", host->text);
		return RESOLVE_FAILED;
	}
	follow_conf(r);
	/* What is cached was not in the hosts file when it was asked for. */
	if (hosts_file_look(r->hosts, now))
		dns_cache_empty(r->cache);
	read_cache(r, host, sides);
	if (sides[DNS_V6].is_known && sides[DNS_V4].is_known) {
		int rc = conclude(host->text, sides, ret, e);

		ret->from_cache = rc == 0;
		return rc < 0 ? RESOLVE_FAILED : RESOLVE_DONE;
	}
	if (find_in_hosts(r, host, ret))
		return RESOLVE_DONE;
	w = r->questions_n + DNS_FAMILIES <= QUESTIONS_MAX ? new_waiter(r, host, sides) : NULL;
	if (!w) {
		err_reason(e, REASON_OVERLOADED, "DNS: %s: too many questions are under way",
			   host->text);
		return RESOLVE_FAILED;
	}
	w->done = done;
	w->arg = arg;
	w->deadline_us = now + (int64_t)timeout_ms * 1000;
	*ret_question = w;
	ask_what_is_missing(r, w);
	return RESOLVE_PENDING;
}

void resolve_cancel(struct resolve *q)
{
	struct resolver *r;

	if (!q)
		return;
	r = q->resolver;
	leave_questions(q);
	if (q->is_ready)
		TAILQ_REMOVE(&r->ready, q, link);
	else
		TAILQ_REMOVE(&r->waiting, q, link);
	waiter_free(q);
}
