/*
 * Writes HTTP/2 field sections from canonical messages (RFC 9113 section 8), never from bytes that
 * came in. Called by the session for requests upstream and answers to a client.
 */
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "logging/strbuf.h"
#include "proxy/http/field_kind.h"
#include "proxy/http/h1_text.h"
#include "proxy/http/h2.h"

void h2_fields_clear(struct h2_fields *f)
{
	if (f->mem)
		OPENSSL_cleanse(f->mem, f->mem_cap);
	free(f->mem);
	free(f->v);
	*f = (struct h2_fields){0};
}

/* All memory at once, so that slices stay where they are. */
static int reserve(struct h2_fields *f, size_t fields, size_t bytes)
{
	f->v = calloc(fields ? fields : 1, sizeof(*f->v));
	f->mem = malloc(bytes ? bytes : 1);
	f->cap = fields;
	f->mem_cap = bytes;
	return f->v && f->mem ? 0 : -1;
}

static struct str keep(struct h2_fields *f, struct str s, bool lower)
{
	char *at = f->mem + f->mem_n;

	if (f->failed || s.n > f->mem_cap - f->mem_n) {
		f->failed = true;
		return STR_NONE;
	}
	for (size_t i = 0; i < s.n; i++)
		at[i] = lower && s.p[i] >= 'A' && s.p[i] <= 'Z' ? (char)(s.p[i] | 0x20) : s.p[i];
	f->mem_n += s.n;
	return str_from(at, s.n);
}

static void add(struct h2_fields *f, struct str name, struct str value, bool secret)
{
	if (f->n == f->cap) {
		f->failed = true;
		return;
	}
	name = keep(f, name, true);
	value = keep(f, value, false);
	f->v[f->n++] = (struct h2_field){name, value, secret};
}

/* What another reader of the same compression context must not be able to probe for. */
static bool is_secret(struct str name)
{
	return str_eq_nocase(name, STR("authorization")) || str_eq_nocase(name, STR("cookie")) ||
	       str_eq_nocase(name, STR("set-cookie"));
}

static bool is_ours(enum field_kind k)
{
	return field_is_framing(k) || k == FIELD_TE || k == FIELD_UPGRADE ||
	       k == FIELD_HTTP2_SETTINGS || k == FIELD_PROXY_AUTHORIZATION;
}

/* RFC 8441 section 5: proofs of HTTP/1 alone. */
static bool is_proof(struct str name)
{
	return str_eq_nocase(name, STR("sec-websocket-key")) ||
	       str_eq_nocase(name, STR("sec-websocket-accept"));
}

static int add_fields(struct h2_fields *out, const struct fields *f, bool secret, bool websocket)
{
	for (size_t i = 0; f && i < f->n; i++) {
		const struct field *one = &f->v[i];

		if (!h1_is_field(one) || is_ours(field_kind(one->name)))
			return -1;
		if (websocket && is_proof(one->name))
			continue;
		add(out, one->name, one->value, secret || is_secret(one->name));
	}
	return 0;
}

static size_t size_of(const struct fields *f)
{
	size_t n = 0;

	for (size_t i = 0; f && i < f->n; i++)
		n += f->v[i].name.n + f->v[i].value.n;
	return n;
}

static void add_number(struct h2_fields *out, struct str name, uint64_t n)
{
	char mem[24];
	struct strbuf b;

	strbuf_init_fixed(&b, mem, sizeof(mem));
	strbuf_addu(&b, n);
	add(out, name, strbuf_str(&b), false);
}

static int finish(struct h2_fields *out, int rc)
{
	if (rc == 0 && !out->failed)
		return 0;
	h2_fields_clear(out);
	return -1;
}

#define PSEUDO	  5
#define OWN	  3   /* content-length, te, expect */
#define OWN_BYTES 256 /* their names and values, and those of the pseudo-fields */

int h2_write_request(const struct request *r, const struct fields *extra, struct str extra_query,
		     struct h2_fields *out)
{
	struct strbuf target, authority;
	int rc = -1;

	*out = (struct h2_fields){0};
	strbuf_init(&target, LIMIT_TARGET_BYTES + LIMIT_HEAD_BYTES);
	strbuf_init(&authority, LIMIT_HOST_BYTES + 16);
	if (r->method.n == 0 || !h1_all(r->method, H1_TOKEN) || r->form == TARGET_AUTHORITY ||
	    r->url.path.n == 0 || !h1_all(extra_query, H1_TARGET) ||
	    str_find(extra_query, '#') >= 0)
		goto out;
	request_add_target(&r->url, extra_query, &target);
	url_add_authority(&r->url, &authority);
	if (target.overflowed || authority.overflowed ||
	    reserve(out, PSEUDO + r->fields.n + OWN + (extra ? extra->n : 0),
		    size_of(&r->fields) + size_of(extra) + target.len + authority.len +
			    r->method.n + OWN_BYTES) < 0)
		goto out;
	add(out, STR(":method"), r->websocket ? STR("CONNECT") : r->method, false);
	if (r->websocket)
		add(out, STR(":protocol"), STR("websocket"), false);
	add(out, STR(":scheme"), str_from_c(scheme_word(r->url.scheme)), false);
	add(out, STR(":authority"), strbuf_str(&authority), false);
	add(out, STR(":path"), strbuf_str(&target), extra_query.n > 0);
	if (add_fields(out, &r->fields, false, r->websocket) < 0)
		goto out;
	if (r->body == BODY_LENGTH && !r->websocket)
		add_number(out, STR("content-length"), r->length);
	if (r->te_trailers && !r->websocket)
		add(out, STR("te"), STR("trailers"), false);
	if (r->expect_continue)
		add(out, STR("expect"), STR("100-continue"), false);
	rc = add_fields(out, extra, true, false);
out:
	strbuf_wipe(&target);
	strbuf_clear(&authority);
	return finish(out, rc);
}

int h2_write_response(const struct response *r, struct h2_fields *out)
{
	bool websocket = r->status == 101 && str_eq_nocase(r->upgrade, STR("websocket"));

	*out = (struct h2_fields){0};
	if (r->status < 100 || r->status > 599 || (r->status == 101 && !websocket) ||
	    reserve(out, 2 + r->fields.n, size_of(&r->fields) + OWN_BYTES) < 0)
		return finish(out, -1);
	add_number(out, STR(":status"), websocket ? 200 : r->status);
	if (add_fields(out, &r->fields, false, websocket) < 0)
		return finish(out, -1);
	if (r->status >= 200 && r->body == BODY_LENGTH)
		add_number(out, STR("content-length"), r->length);
	else if (r->status >= 200 && r->body == BODY_NONE && r->has_content_length &&
		 r->status != 204)
		add_number(out, STR("content-length"), r->content_length);
	return finish(out, 0);
}

int h2_write_trailers(const struct fields *trailers, struct h2_fields *out)
{
	*out = (struct h2_fields){0};
	if (reserve(out, trailers->n, size_of(trailers)) < 0)
		return finish(out, -1);
	for (size_t i = 0; i < trailers->n; i++)
		if (field_may_trail(trailers->v[i].name) && h1_is_field(&trailers->v[i]))
			add(out, trailers->v[i].name, trailers->v[i].value, false);
	return finish(out, 0);
}
