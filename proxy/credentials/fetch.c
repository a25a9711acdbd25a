/*
 * See fetch.h. The states stand in the order in which a fetch passes through them. One timer is for
 * the whole: an endpoint that drips costs its time and no more.
 */
#include "proxy/credentials/fetch.h"

#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "proxy/credentials/secret.h"
#include "proxy/http/body.h"
#include "proxy/http/h1.h"
#include "proxy/net/dial.h"
#include "proxy/net/own_addrs.h"
#include "proxy/net/resolve.h"
#include "proxy/net/stream.h"

struct fetcher {
	/* owned */
	struct resolver *resolver;
	struct own_addrs *own;
	/* counted */
	struct config *config;
	struct trust *trust;
	/* borrowed */
	struct loop *loop;
};

enum fetch_state { FETCH_RESOLVE, FETCH_DIAL, FETCH_TLS, FETCH_HEAD, FETCH_BODY, FETCH_DONE };

struct fetch {
	/* owned */
	struct request request;
	struct strbuf out; /* head and body; wiped */
	struct resolve *question;
	struct dial *dial;
	struct stream *stream;
	struct response response;
	struct body_reader body;
	struct secret *answer;
	struct timer timer;
	/* counted */
	struct trust *trust; /* NULL: the fetcher's */
	/* borrowed */
	struct fetcher *fetcher;
	const struct iprange *ranges;
	/* plain */
	enum fetch_state state;
	struct h1_scan scan;
	struct resolved judged;
	size_t ranges_n;
	size_t answer_n, most;
	bool too_large;
	void (*done)(void *arg, const struct fetch_answer *a, const struct err *why);
	void *arg;
};

/* ---- fetcher ---- */

int fetcher_new(struct loop *l, struct fetcher **ret, struct err *e)
{
	struct fetcher *f = calloc(1, sizeof(*f));

	if (!f)
		return err_set(e, "out of memory");
	f->loop = l;
	if (own_addrs_new(&f->own, e) < 0) {
		free(f);
		return -1;
	}
	*ret = f;
	return 0;
}

void fetcher_free(struct fetcher *f)
{
	if (!f)
		return;
	resolver_free(f->resolver);
	own_addrs_free(f->own);
	trust_unref(f->trust);
	config_unref(f->config);
	free(f);
}

int fetcher_use(struct fetcher *f, struct config *c, struct trust *t, struct err *e)
{
	struct resolver *fresh;

	if (f->config != c) {
		if (resolver_new(f->loop, c, &fresh, e) < 0)
			return -1;
		resolver_free(f->resolver);
		f->resolver = fresh;
		config_unref(f->config);
		f->config = config_ref(c);
	}
	if (f->trust != t) {
		trust_unref(f->trust);
		f->trust = trust_ref(t);
	}
	return 0;
}

/* ---- the end ---- */

static void fetch_free(void *arg)
{
	struct fetch *f = arg;

	request_clear(&f->request);
	response_clear(&f->response);
	body_reader_clear(&f->body);
	strbuf_wipe(&f->out);
	secret_unref(f->answer);
	trust_unref(f->trust);
	timer_clear(&f->timer);
	free(f);
}

static void fetch_goto(struct fetch *f, enum fetch_state to)
{
	/* Always onwards; any state may be the last. */
	if (to <= f->state)
		abort();
	f->state = to;
}

void fetch_cancel(struct fetch *f)
{
	if (!f || f->state == FETCH_DONE)
		return;
	fetch_goto(f, FETCH_DONE);
	resolve_cancel(f->question);
	dial_cancel(f->dial);
	stream_close(f->stream);
	f->question = NULL;
	f->dial = NULL;
	f->stream = NULL;
	timer_stop(&f->timer);
	loop_bury(f->fetcher->loop, f, fetch_free);
}

static void fail(struct fetch *f, const struct err *why)
{
	struct err e = *why;

	fetch_cancel(f);
	e.reason = REASON_CREDENTIAL_UNAVAILABLE;
	(void)err_wrap(&e, "its endpoint");
	f->done(f->arg, NULL, &e);
}

static void fail_with(struct fetch *f, const char *what)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, "%s", what);
	fail(f, &e);
}

static void succeed(struct fetch *f)
{
	struct fetch_answer a = {
		.status = f->response.status,
		.fields = &f->response.fields,
		.body = str_from(f->answer ? secret_room(f->answer) : "", f->answer_n),
	};

	/* Buried for the end of the turn: what a points to lives until then. */
	fetch_cancel(f);
	f->done(f->arg, &a, NULL);
}

static void on_timer(void *arg)
{
	fail_with(arg, "did not answer in time");
}

/* ---- the answer ---- */

static void keep(struct fetch *f, struct str data)
{
	if (f->answer_n + data.n > f->most) {
		f->too_large = true;
		return;
	}
	memcpy(secret_room(f->answer) + f->answer_n, data.p, data.n);
	f->answer_n += data.n;
}

/* 1: on to the body; 0: more is needed; -1: failed. */
static int read_head(struct fetch *f, struct err *e)
{
	size_t len = 0;
	int r = h1_scan_head(&f->scan, stream_data(f->stream), LIMIT_HEAD_BYTES, &len, e);

	if (r <= 0)
		return r;
	response_clear(&f->response);
	response_init(&f->response);
	if (h1_parse_response(str_head(stream_data(f->stream), len), f->request.method,
			      &f->response, e) < 0)
		return -1;
	stream_consume(f->stream, len);
	f->scan = (struct h1_scan){.response = true};
	if (f->response.status == 101)
		return err_set(e, "changed the protocol");
	if (f->response.status < 200)
		return read_head(f, e);
	body_reader_clear(&f->body);
	body_reader_init(&f->body, f->response.body, f->response.length);
	f->body.padded_sizes = true;
	f->answer = secret_new(f->most + 1);
	return f->answer ? 1 : err_set(e, "out of memory");
}

/* 1: whole; 0: more is needed; -1: failed. */
static int read_body(struct fetch *f, struct err *e)
{
	while (!f->body.done) {
		struct str data = STR_NONE;
		size_t used = 0;

		if (f->response.body == BODY_NONE ||
		    (f->response.body == BODY_LENGTH && f->response.length == 0))
			return 1;
		if (body_read(&f->body, stream_data(f->stream), &used, &data, e) < 0)
			return -1;
		if (used == 0 && !f->body.done)
			return 0;
		keep(f, data);
		stream_consume(f->stream, used);
		if (f->too_large)
			return err_set(e, "said more than %zu bytes", f->most);
	}
	return 1;
}

static void read_answer(struct fetch *f, unsigned events)
{
	struct err e = ERR_INIT;
	int r = 1;

	if (f->state == FETCH_HEAD) {
		r = read_head(f, &e);
		if (r > 0)
			fetch_goto(f, FETCH_BODY);
	}
	if (f->state == FETCH_BODY)
		r = read_body(f, &e);
	if (r == 0 && f->state == FETCH_BODY && (events & STREAM_EOF) && !(events & STREAM_ERROR) &&
	    body_eof(&f->body, NULL) == 0)
		r = 1;
	if (r < 0) {
		fail(f, &e);
	} else if (r > 0) {
		succeed(f);
	} else if (events & (STREAM_EOF | STREAM_ERROR)) {
		/* A late alert says why: a certificate was wanted, say. */
		if ((events & STREAM_ERROR) && stream_error_is_tls(f->stream) &&
		    !stream_was_cut(f->stream)) {
			(void)trust_explain(stream_ssl(f->stream), &e);
			fail(f, &e);
		} else {
			fail_with(f, "closed the connection before its answer was whole");
		}
	}
}

/* ---- the way there ---- */

static void send_request(struct fetch *f)
{
	fetch_goto(f, FETCH_HEAD);
	stream_write(f->stream, strbuf_str(&f->out));
	strbuf_wipe(&f->out);
}

static void on_event(void *arg, unsigned events)
{
	struct fetch *f = arg;
	struct err e = ERR_INIT;

	if (f->state == FETCH_TLS) {
		if (events & STREAM_HANDSHAKED) {
			send_request(f);
		} else if (events & (STREAM_ERROR | STREAM_EOF)) {
			(void)trust_explain(stream_ssl(f->stream), &e);
			fail(f, &e);
		}
		return;
	}
	read_answer(f, events);
}

static int start_tls(struct fetch *f, struct err *e)
{
	const struct host *h = &f->request.url.host;
	bool is_ip = h->kind != HOST_NAME;
	struct strbuf key;
	SSL *ssl = NULL;
	int rc;

	strbuf_init(&key, LIMIT_HOST_BYTES + 32);
	strbuf_addf(&key, "credentials|%s:%u", h->text, f->request.url.port);
	rc = trust_client_new(f->trust ? f->trust : f->fetcher->trust, h->text,
			      is_ip ? h->addr.b : NULL, h->kind == HOST_IPV4 ? 4 : 16,
			      (struct str){"\x08http/1.1", 9}, strbuf_str(&key), &ssl, e);
	strbuf_clear(&key);
	if (rc < 0)
		return -1;
	fetch_goto(f, FETCH_TLS);
	return stream_start_tls(f->stream, ssl, e);
}

static void on_dialled(void *arg, int fd, const struct ipaddr *addr, const struct err *why)
{
	struct fetch *f = arg;
	struct err e = ERR_INIT;

	(void)addr;
	f->dial = NULL;
	if (fd < 0) {
		fail(f, why);
	} else if (stream_new(f->fetcher->loop, fd, on_event, f, &f->stream, &e) < 0) {
		fail(f, &e);
	} else if (f->request.url.scheme == SCHEME_HTTP) {
		send_request(f);
	} else if (start_tls(f, &e) < 0) {
		fail(f, &e);
	}
}

/* What is not encrypted stays on this machine or on its link, where clouds have their metadata. */
static bool may_be_plain(const struct ipaddr *a)
{
	char buf[64];
	const char *what = ipaddr_special(a, buf, sizeof(buf));

	return what && (strcmp(what, "loopback") == 0 || strcmp(what, "link-local") == 0 ||
			ipaddr_is_metadata(a));
}

static int judge(struct fetch *f, const struct resolved *found, struct err *e)
{
	const struct ipaddr *own;
	struct err first = ERR_INIT;
	size_t own_n;

	if (own_addrs_get(f->fetcher->own, loop_now_us(f->fetcher->loop), &own, &own_n, e) < 0)
		return -1;
	f->judged.n = 0;
	for (size_t i = 0; i < found->n; i++) {
		const struct ipaddr *a = &found->addrs[i];
		struct err why = ERR_INIT;

		if (ipaddr_judge(a, f->ranges, f->ranges_n, own, own_n, &why) == 0) {
			if (f->request.url.scheme == SCHEME_HTTPS || may_be_plain(a))
				f->judged.addrs[f->judged.n++] = *a;
			else
				(void)err_set(&why, "is asked in clear beyond this machine (use "
						    "https)");
		}
		if (first.text[0] == '\0')
			first = why;
	}
	if (f->judged.n > 0)
		return 0;
	return err_set(e, "%s", first.text[0] ? first.text : "has no address");
}

/* -1: failed. */
static int dial(struct fetch *f, const struct resolved *found, struct err *e)
{
	if (judge(f, found, e) < 0)
		return -1;
	fetch_goto(f, FETCH_DIAL);
	return dial_start(f->fetcher->loop, f->judged.addrs, f->judged.n, f->request.url.port,
			  f->fetcher->config->limits.dial_ms, on_dialled, f, &f->dial, e);
}

static void on_resolved(void *arg, const struct resolved *found, const struct err *why)
{
	struct fetch *f = arg;
	struct err e = ERR_INIT;

	f->question = NULL;
	if (!found)
		fail(f, why);
	else if (dial(f, found, &e) < 0)
		fail(f, &e);
}

static int resolve(struct fetch *f, struct err *e)
{
	struct resolved found;

	switch (resolve_start(f->fetcher->resolver, &f->request.url.host,
			      f->fetcher->config->limits.dns_ms, on_resolved, f, &found,
			      &f->question, e)) {
	case RESOLVE_DONE: return dial(f, &found, e);
	case RESOLVE_PENDING: return 0;
	case RESOLVE_FAILED: return -1;
	}
	return -1;
}

/* ---- birth ---- */

/* Everything that is sent, at once: it is small. */
static int write_request(struct fetch *f, const struct fetch_request *r, struct err *e)
{
	struct request *q = &f->request;

	if (url_parse_absolute(r->url, &q->url, e) < 0)
		return -1;
	q->method = str_eq(r->method, STR("POST"))  ? STR("POST")
		    : str_eq(r->method, STR("PUT")) ? STR("PUT")
						    : STR("GET");
	q->version = HTTP_11;
	q->length = r->body.n;
	if (r->body.n > 0 || !str_eq(q->method, STR("GET")))
		q->body = BODY_LENGTH;
	if (h1_write_request(q, r->fields, STR_NONE, &f->out) < 0)
		return err_set(e, "cannot be asked: its head is too large");
	strbuf_add(&f->out, r->body);
	return f->out.overflowed ? err_set(e, "cannot be asked: out of memory") : 0;
}

int fetch_start(struct fetcher *fetcher, const struct fetch_request *r,
		void (*done)(void *arg, const struct fetch_answer *a, const struct err *why),
		void *arg, struct fetch **ret, struct err *e)
{
	struct fetch *f = calloc(1, sizeof(*f));
	struct err why = ERR_INIT;

	if (!f)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
	f->fetcher = fetcher;
	f->ranges = r->ranges;
	f->ranges_n = r->ranges_n;
	f->trust = r->trust ? trust_ref(r->trust) : NULL;
	f->most = r->most ? r->most : LIMIT_SOURCE_BYTES;
	f->done = done;
	f->arg = arg;
	f->scan.response = true;
	request_init(&f->request);
	response_init(&f->response);
	body_reader_init(&f->body, BODY_NONE, 0);
	strbuf_init(&f->out, LIMIT_HEAD_BYTES + LIMIT_SOURCE_BYTES);
	if (timer_init(&f->timer, fetcher->loop, on_timer, f) < 0 ||
	    write_request(f, r, &why) < 0 || resolve(f, &why) < 0) {
		if (why.text[0] == '\0')
			(void)err_set(&why, "cannot be asked: out of memory");
		fetch_cancel(f);
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its endpoint: %s", why.text);
	}
	timer_arm(&f->timer, r->timeout_ms);
	*ret = f;
	return 0;
}
