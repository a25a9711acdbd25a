/*
 * The requests of a Vault: where they go, what they carry, and how long they may take.
 */
#include "proxy/credentials/vault_internal.h"

static int add_fields(const struct vault *v, struct fields *f, struct str token)
{
	const char *space = vault_text(v, PARAM_VAULT_NAMESPACE);

	if (fields_add(f, STR("X-Vault-Request"), STR("true")) < 0 ||
	    (token.n > 0 && fields_add(f, STR("X-Vault-Token"), token) < 0) ||
	    (space && fields_add(f, STR("X-Vault-Namespace"), str_from_c(space)) < 0))
		return -1;
	return fields_add(f, STR("Content-Type"), STR("application/json"));
}

static uint64_t timeout_of(const struct vault *v)
{
	uint64_t ms = v->s.c->timeout_ms;
	int64_t left;

	if (v->step != STEP_FAREWELL)
		return ms;
	left = (v->farewell_ends_us - vault_clock_us()) / 1000;
	return left < 1 ? 1 : (uint64_t)left < ms ? (uint64_t)left : ms;
}

/* url: the whole of it. body: NULL for a GET; wiped here. */
static int ask_url(struct vault *v, enum vault_step step, struct str url, struct str token,
		   struct strbuf *body, struct err *e)
{
	struct fields fields = {0};
	struct fetch_request r = {
		.method = body ? STR("POST") : STR("GET"),
		.url = url,
		.fields = &fields,
		.body = body ? strbuf_str(body) : STR_NONE,
		.ranges = v->s.c->ranges,
		.ranges_n = v->s.c->ranges_n,
	};
	int rc;

	v->step = step;
	v->asked_us = vault_clock_us();
	r.timeout_ms = timeout_of(v);
	if ((body && body->overflowed) || add_fields(v, &fields, token) < 0)
		rc = vault_no_memory(e);
	else
		rc = fetch_start(v->s.fetcher, &r, vault_on_answer, v, &v->fetch, e);
	fields_clear(&fields);
	if (body)
		strbuf_wipe(body);
	return rc;
}

int vault_ask_path(struct vault *v, enum vault_step step, const char *path, const char *more,
		   struct str token, struct strbuf *body, struct err *e)
{
	struct str address = str_from_c(vault_text(v, PARAM_VAULT_ADDRESS));
	struct strbuf url;
	int rc;

	if (str_ends(address, STR("/")))
		address.n--;
	strbuf_init(&url, LIMIT_URL_BYTES);
	strbuf_addf(&url, "%.*s/v1/%s%s", STR_FMT(address), path, more);
	rc = ask_url(v, step, strbuf_str(&url), token, body, e);
	strbuf_clear(&url);
	return rc;
}

void vault_begin_body(struct strbuf *b, struct json *j)
{
	strbuf_init(b, LIMIT_SOURCE_BYTES);
	json_init(j, b);
	json_open(j, '{');
}

void vault_add_seconds(struct json *j, int64_t life_us)
{
	json_kv_u64(j, "increment", (uint64_t)life_us / 1000000);
}
