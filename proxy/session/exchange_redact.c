/*
 * What the answer to a request with a credential must not hold: the credential. Its heads, body and
 * trailers, and the bytes of a WebSocket, are searched on their way (credentials/redact.h); what is
 * coded is decoded first, and passed on so. exchange.c calls it.
 */
#include <stdlib.h>
#include <string.h>

#include "proxy/credentials/redact.h"
#include "proxy/http/content_coding.h"
#include "proxy/session/exchange_internal.h"
#include "proxy/session/pull.h"

struct exchange_redact {
	/* owned */
	struct redaction body;
	struct content_decoder *decoder; /* NULL: it comes as it is */
	struct timer timer; /* what is held has waited long enough, or it is our turn again */
	char *head_mem;	    /* of the head or trailers at hand, where it was changed */
	struct fields trailers;
	/* counted */
	struct secret *secret; /* that was sent, whatever it is renewed to meanwhile */
	/* plain */
	const struct redactor *r; /* the secret's */
	size_t head_at;
	uint64_t found; /* in heads and trailers */
	struct err error;
	bool turn_over;	  /* the timer is there for others, not for what is held */
	bool source_done; /* the origin's body is whole; of it something may wait to be decoded */
};

static void on_timer(void *arg);

/* ---- the request ---- */

/* The client's wishes for a coding, and what comes compressed within the body. One field says it
 * all: without one, any coding would do (RFC 9110 section 12.5.3). */
static void ask_for_identity(struct fields *f, struct str name, bool add)
{
	bool had = fields_remove(f, name) > 0;

	/* Where there is no room for it, it is not asked for, and what comes is decoded. */
	if (had || add)
		(void)!fields_add(f, name, STR("identity"));
}

int exchange_redact_begin(struct exchange *x, struct secret *s, struct err *e)
{
	struct fields *f = &x->request->fields;
	struct exchange_redact *d;

	if (!secret_redactor(s))
		return 0;
	d = calloc(1, sizeof(*d));
	if (!d || timer_init(&d->timer, x->worker->loop, on_timer, x) < 0) {
		free(d);
		return err_reason(e, REASON_OVERLOADED, "out of memory");
	}
	d->secret = secret_ref(s);
	d->r = secret_redactor(s);
	redaction_init(&d->body, d->r);
	x->redact = d;
	ask_for_identity(f, STR("Accept-Encoding"), !x->request->websocket);
	ask_for_identity(f, STR("Grpc-Accept-Encoding"), false);
	ask_for_identity(f, STR("Connect-Accept-Encoding"), false);
	/* Their compression would be read by nobody here. */
	(void)fields_remove(f, STR("Sec-WebSocket-Extensions"));
	return 0;
}

void exchange_redact_stop(struct exchange *x)
{
	if (x->redact)
		timer_clear(&x->redact->timer);
}

void exchange_redact_free(struct exchange *x)
{
	struct exchange_redact *d = x->redact;

	if (!d)
		return;
	timer_clear(&d->timer);
	redaction_clear(&d->body);
	content_decoder_free(d->decoder);
	fields_clear(&d->trailers);
	free(d->head_mem);
	secret_unref(d->secret);
	free(d);
	x->redact = NULL;
}

uint64_t exchange_redact_count(const struct exchange *x)
{
	return x->redact ? x->redact->found + x->redact->body.found : 0;
}

void exchange_redact_error(struct exchange *x)
{
	if (x->redact)
		x->redact->found +=
			redact_in_place(x->redact->r, x->error.text, strlen(x->error.text), true);
}

/* ---- heads ---- */

/* All that may be changed of them fits. */
static int new_head_mem(struct exchange_redact *d, const struct fields *f, size_t more)
{
	for (size_t i = 0; i < f->n; i++)
		more += f->v[i].value.n;
	free(d->head_mem);
	d->head_at = 0;
	d->head_mem = malloc(more + 1);
	return d->head_mem ? 0 : -1;
}

static void blank(struct exchange_redact *d, struct str *s)
{
	char *at = d->head_mem + d->head_at;

	if (!redact_finds(d->r, *s))
		return;
	memcpy(at, s->p, s->n);
	d->found += redact_in_place(d->r, at, s->n, false);
	d->head_at += s->n;
	s->p = at;
}

/* A name cannot be blanked and stay a name. */
static void blank_fields(struct exchange_redact *d, struct fields *f)
{
	size_t kept = 0, had = f->n;

	for (size_t i = 0; i < had; i++) {
		if (redact_finds(d->r, f->v[i].name)) {
			d->found++;
			continue;
		}
		blank(d, &f->v[i].value);
		f->v[kept++] = f->v[i];
	}
	f->n = kept;
}

static bool finds_any(const struct exchange_redact *d, const struct fields *f)
{
	for (size_t i = 0; i < f->n; i++)
		if (redact_finds(d->r, f->v[i].name) || redact_finds(d->r, f->v[i].value))
			return true;
	return false;
}

static const struct str CODING[] = {{"content-encoding", 16},
				    {"grpc-encoding", 13},
				    {"connect-content-encoding", 24}};

static bool is_coded(const struct fields *f)
{
	for (size_t i = 0; i < ARRAY_LEN(CODING); i++)
		if (fields_get(f, CODING[i]))
			return true;
	return false;
}

static bool has_value(const struct fields *f, struct str name)
{
	const struct field *one = fields_get(f, name);

	return one && !str_eq_nocase(one->value, STR("identity"));
}

/* Part of something compressed means nothing by itself, and messages that are compressed each by
 * themselves are a format of their own. */
static int check_coding(const struct response *r, bool coded, struct err *e)
{
	if (has_value(&r->fields, CODING[1]) || has_value(&r->fields, CODING[2]))
		return err_reason(
			e, REASON_CONTENT_CODING,
			"the answer's messages are compressed, and cannot be looked into");
	if (coded && r->status == 206)
		return err_reason(e, REASON_CONTENT_CODING,
				  "the answer is part of a compressed whole, and cannot be looked "
				  "into");
	return 0;
}

/* Where there is no body (HEAD, 304) the head says what that of a GET would. */
static int open_coding(struct exchange_redact *d, struct response *r, struct err *e)
{
	struct strbuf tag;
	int rc;

	if (content_decoder_new(&r->fields, &d->decoder, e) < 0 ||
	    check_coding(r, d->decoder != NULL, e) < 0)
		return -1;
	if (!d->decoder)
		return 0;
	/* Behind the fields' values there is room for the one that grows. */
	strbuf_init_fixed(&tag, d->head_mem + d->head_at, LIMIT_HEAD_BYTES);
	rc = content_forget_coding(r, &tag);
	if (r->body == BODY_NONE) {
		content_decoder_free(d->decoder);
		d->decoder = NULL;
	}
	return rc == 0 ? 0 : err_reason(e, REASON_UPSTREAM_MALFORMED, "an ETag that is too long");
}

int exchange_redact_head(struct exchange *x, struct response *r, struct err *e)
{
	struct exchange_redact *d = x->redact;

	if (!d || (!finds_any(d, &r->fields) && !redact_finds(d->r, r->reason) &&
		   !redact_finds(d->r, r->upgrade) && !is_coded(&r->fields)))
		return 0;
	if (new_head_mem(d, &r->fields, r->reason.n + r->upgrade.n + LIMIT_HEAD_BYTES) < 0)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	blank(d, &r->reason);
	blank(d, &r->upgrade);
	blank_fields(d, &r->fields);
	return r->status >= 200 ? open_coding(d, r, e) : 0;
}

const struct fields *exchange_redact_trailers(struct exchange *x, struct err *e)
{
	const struct fields *f = upstream_trailers(x->up);
	struct exchange_redact *d = x->redact;

	if (!d || (!d->decoder && !finds_any(d, f)))
		return f;
	fields_clear(&d->trailers);
	for (size_t i = 0; i < f->n; i++)
		if (fields_add(&d->trailers, f->v[i].name, f->v[i].value) < 0)
			goto fail;
	if (new_head_mem(d, f, 0) < 0)
		goto fail;
	blank_fields(d, &d->trailers);
	if (d->decoder)
		content_forget_digests(&d->trailers);
	return &d->trailers;
fail:
	(void)err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	return NULL;
}

/* ---- the body ---- */

static void sink_client(void *arg, struct str data)
{
	struct exchange *x = arg;

	x->down->ops->send_body(x->down, data);
	x->bytes_down += data.n;
}

static void sink_plain(void *arg, struct str data)
{
	struct exchange *x = arg;

	x->bytes_in += data.n;
	sink_client(x, data);
}

static void search(struct exchange *x, struct str data)
{
	struct exchange_redact *d = x->redact;

	/* What is lost is not passed over: the answer ends. */
	if (d->error.reason == REASON_NONE)
		(void)!redaction_push(&d->body, data, sink_client, x, &d->error);
}

static void sink_search(void *arg, struct str data)
{
	struct exchange *x = arg;

	x->bytes_in += data.n;
	search(x, data);
}

static void sink_decode(void *arg, struct str data)
{
	struct exchange *x = arg;
	struct exchange_redact *d = x->redact;

	x->bytes_in += data.n;
	if (d->error.reason == REASON_NONE)
		(void)!content_decoder_feed(d->decoder, data, &d->error);
}

/* Some of what is held would be waited for in vain: its message ends there. */
static void on_timer(void *arg)
{
	struct exchange *x = arg;

	if (x->redact->turn_over)
		x->redact->turn_over = false;
	else
		redaction_release(&x->redact->body, sink_client, x);
	exchange_drive(x);
}

static int give_error(const struct exchange_redact *d, struct err *e)
{
	*e = d->error;
	return -1;
}

/* 1: the next bytes are needed and not there; 0: there are more; -1. */
static int feed(struct exchange *x, struct err *e)
{
	struct exchange_redact *d = x->redact;
	uint64_t before = x->bytes_in;

	if (d->source_done)
		return 1;
	if (upstream_pull(x->up, LIMIT_DECODE_IN, sink_decode, x, &d->source_done, e) < 0)
		return -1;
	if (d->error.reason != REASON_NONE)
		return give_error(d, e);
	return x->bytes_in == before ? 1 : 0;
}

/* A few bytes may unfold to gigabytes: what the client has no room for waits as they came, and
 * after LIMIT_DECODE_TURN others have their turn. Of a text made for it the search takes 0.2 ms a
 * KiB, so that a turn is 6 ms. */
static int pull_decoded(struct exchange *x, bool *ret_done, struct err *e)
{
	struct exchange_redact *d = x->redact;
	size_t made = 0;

	while (made < LIMIT_DECODE_TURN && x->down->ops->room(x->down) >= LIMIT_DECODE_STEP) {
		struct str data;

		if (content_decode(d->decoder, LIMIT_DECODE_STEP, &data, e) < 0)
			return -1;
		made += data.n;
		search(x, data);
		if (d->error.reason != REASON_NONE)
			return give_error(d, e);
		if (data.n == 0) {
			int rc = feed(x, e);

			if (rc < 0)
				return -1;
			if (rc > 0 && !d->source_done)
				return 0;
			if (rc > 0) {
				*ret_done = true;
				return content_decoder_end(d->decoder, e);
			}
		}
	}
	if (made >= LIMIT_DECODE_TURN) {
		d->turn_over = true;
		timer_arm(&d->timer, 0);
	}
	return 0;
}

/* From its last byte on. */
static void wait_for_more(struct exchange *x, uint64_t before)
{
	struct exchange_redact *d = x->redact;
	unsigned ms;

	if (d->turn_over || (x->bytes_in == before && d->timer.armed))
		return;
	ms = redaction_patience_ms(&d->body);
	if (ms > 0)
		timer_arm(&d->timer, ms);
	else if (d->timer.armed)
		timer_stop(&d->timer);
}

int exchange_redact_pull(struct exchange *x, bool *ret_done, struct err *e)
{
	struct exchange_redact *d = x->redact;
	size_t room = x->down->ops->room(x->down);
	uint64_t before = x->bytes_in;
	int rc;

	if (!d)
		return upstream_pull(x->up, room, sink_plain, x, ret_done, e);
	if (d->decoder)
		rc = pull_decoded(x, ret_done, e);
	else
		rc = upstream_pull(x->up, room, sink_search, x, ret_done, e);
	if (rc < 0)
		return -1;
	if (d->error.reason != REASON_NONE)
		return give_error(d, e);
	if (*ret_done)
		redaction_end(&d->body, sink_client, x);
	else
		wait_for_more(x, before);
	return 0;
}
