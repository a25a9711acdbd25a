/*
 * See endpoint.h.
 */
#include "proxy/credentials/endpoint.h"

#include "logging/limits.h"

static int add(struct fields *f, struct str name, struct str value)
{
	return value.n > 0 ? fields_add(f, name, value) : 0;
}

static int add_fields(const struct endpoint_question *q, struct str bearer, struct fields *f)
{
	struct str json = STR("application/json");

	/* Some refuse whoever does not say what it is. */
	if (add(f, STR("User-Agent"), STR("stile")) < 0 ||
	    add(f, STR("Accept"), q->accept.n > 0 ? q->accept : json) < 0 ||
	    add(f, STR("Authorization"), bearer) < 0 || add(f, q->more.name, q->more.value) < 0)
		return -1;
	return q->post ? add(f, STR("Content-Type"), q->type.n > 0 ? q->type : json) : 0;
}

int endpoint_ask(const struct endpoint_question *q, endpoint_done_fn *done, void *arg,
		 struct fetch **ret, struct err *e)
{
	struct str base = str_from_c(q->base);
	struct fields fields = {0};
	struct strbuf url, bearer;
	struct fetch_request r = {
		.method = q->post ? STR("POST") : STR("GET"),
		.fields = &fields,
		.body = q->body,
		.ranges = q->s->c->ranges,
		.ranges_n = q->s->c->ranges_n,
		.trust = q->trust,
		.timeout_ms = q->s->c->timeout_ms,
		.most = q->most,
	};
	int rc;

	strbuf_init(&url, LIMIT_URL_BYTES);
	strbuf_init(&bearer, LIMIT_HEAD_BYTES);
	strbuf_add(&url,
		   str_ends(base, STR("/")) && q->path.n > 0 ? str_head(base, base.n - 1) : base);
	strbuf_add(&url, q->path);
	if (q->bearer.n > 0)
		strbuf_adds(&bearer, "Bearer ");
	strbuf_add(&bearer, q->bearer);
	r.url = strbuf_str(&url);
	if (url.overflowed || bearer.overflowed || add_fields(q, strbuf_str(&bearer), &fields) < 0)
		rc = err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				"its endpoint: cannot be asked: its question is too long");
	else
		rc = fetch_start(q->s->fetcher, &r, done, arg, ret, e);
	fields_clear(&fields);
	strbuf_clear(&url);
	strbuf_wipe(&bearer);
	return rc;
}

int endpoint_refused(const struct fetch_answer *a, const struct endpoint_hint *hints, struct err *e)
{
	const char *hint = NULL;

	for (; hints->status != 0 && !hint; hints++)
		if (hints->status == a->status)
			hint = hints->text;
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its endpoint answers %u%s%s%s",
			  a->status, hint ? " (" : "", hint ? hint : "", hint ? ")" : "");
}

void endpoint_answered(const struct source_setting *s, const struct fetch_answer *a,
		       const struct err *why, endpoint_read_fn *read, void *self)
{
	struct secret *value = NULL;
	struct err e = ERR_INIT;
	int64_t life_us = 0;

	if (!a)
		e = *why;
	else if (read(self, a, &value, &life_us, &e) < 0)
		value = NULL;
	s->on_result(s->arg, value, life_us, &e);
}
