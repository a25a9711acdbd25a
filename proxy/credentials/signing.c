/*
 * See signing.h. What a server could read in another way than the signature says is refused, with a
 * text that says what to change: a client's SDK has signed for a key that is not here, and not all
 * that it did can be done again.
 */
#include "proxy/credentials/signing.h"

#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"

#define STREAMING_UNSIGNED "STREAMING-UNSIGNED-PAYLOAD-TRAILER"

enum payload {
	PAYLOAD_FIXED,	  /* `hash` or `word` is known */
	PAYLOAD_DECLARED, /* `hash` is what the client says: to be checked */
	PAYLOAD_HELD,	  /* the body is held until it is whole */
};

struct signing {
	/* owned */
	struct sigv4_hash *running;
	struct strbuf body; /* of PAYLOAD_HELD */
	/* counted */
	struct secret *secret;
	/* borrowed from the config */
	const struct config_credential *c;
	/* plain */
	struct sigv4_parts who; /* slices of secret */
	enum payload payload;
	const char *word; /* stands for the hash; NULL: none does */
	char hash[SIGV4_HASH_HEX];
	bool checked, differs;
};

static int unsignable(struct err *e, const char *why)
{
	return err_reason(e, REASON_UNSIGNABLE, "it cannot be signed: %s", why);
}

/* ---- what may be signed ---- */

static bool starts_nocase(struct str s, struct str prefix)
{
	return s.n >= prefix.n && str_eq_nocase(str_head(s, prefix.n), prefix);
}

/* `x_amz_` and the like: to whoever folds it, another field beside the one that was signed. */
static bool is_lookalike(struct str name)
{
	char mem[6];

	if (name.n < sizeof(mem))
		return false;
	for (size_t i = 0; i < sizeof(mem); i++)
		mem[i] = str_name_fold(name.p[i]);
	return str_eq_nocase(str_from(mem, sizeof(mem)), STR("x-amz-")) &&
	       !starts_nocase(name, STR("x-amz-"));
}

static bool is_signed_once(struct str name)
{
	return starts_nocase(name, STR("x-amz-")) || str_eq_nocase(name, STR("content-type")) ||
	       str_eq_nocase(name, STR("content-md5"));
}

/* Two fields of one name are joined in the signature; which of them a service obeys is another
 * matter. */
static int check_fields(const struct fields *f, struct err *e)
{
	for (size_t i = 0; i < f->n; i++) {
		struct str name = f->v[i].name;

		if (is_lookalike(name))
			return unsignable(e, "a field is called like X-Amz-... with underscores");
		if (!is_signed_once(name))
			continue;
		for (size_t k = 0; k < i; k++)
			if (str_eq_nocase(f->v[k].name, name))
				return err_reason(e, REASON_UNSIGNABLE,
						  "it cannot be signed: %.*s stands there twice",
						  name.n > 64 ? 64 : (int)name.n, name.p);
	}
	return 0;
}

/* The path is judged with %2F as a character of its segment, and S3 reads a slash. */
static bool has_escaped_slash(struct str path)
{
	for (size_t i = 0; i + 2 < path.n; i++)
		if (path.p[i] == '%' && path.p[i + 1] == '2' && (path.p[i + 2] | 0x20) == 'f')
			return true;
	return false;
}

static int check_request(const struct config_credential *c, const struct request *r, struct err *e)
{
	if (r->websocket)
		return unsignable(e, "it asks for a WebSocket");
	if (!str_starts(r->url.path, STR("/")))
		return unsignable(e, "it is for no path");
	if (sigv4_keeps_path(str_from_c(c->service)) && has_escaped_slash(r->url.path))
		return unsignable(e, "its path holds %2F, which S3 reads as a slash (write /)");
	return check_fields(&r->fields, e);
}

/* ---- the body ---- */

static bool read_hash(struct str v, char out[SIGV4_HASH_HEX])
{
	if (v.n != SIGV4_HASH_HEX)
		return false;
	for (size_t i = 0; i < v.n; i++) {
		char c = v.p[i];

		if (c >= 'A' && c <= 'F')
			c = (char)(c + ('a' - 'A'));
		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
		out[i] = c;
	}
	return true;
}

static int too_large(struct err *e)
{
	return err_reason(e, REASON_BODY_TOO_LARGE,
			  "a body that is to be signed has at most %d bytes, unless its hash "
			  "stands in X-Amz-Content-Sha256 (or say `payload: unsigned` in the "
			  "credential's `sigv4`, where the service takes that)",
			  LIMIT_SIGV4_BODY);
}

static int hold_or_refuse(struct signing *g, const struct request *r, struct err *e)
{
	g->payload = PAYLOAD_HELD;
	if (r->body == BODY_LENGTH && r->length > LIMIT_SIGV4_BODY)
		return too_large(e);
	return sigv4_hash_new(&g->running) < 0 ? unsignable(e, "out of memory") : 0;
}

/* What the client itself says of its body, in the field that we are going to write. */
static int plan(struct signing *g, const struct request *r, struct err *e)
{
	const struct field *f = fields_get(&r->fields, STR("x-amz-content-sha256"));
	struct str said = f ? f->value : STR_NONE;
	bool empty = r->body == BODY_NONE || (r->body == BODY_LENGTH && r->length == 0);

	if (str_eq(said, STR(STREAMING_UNSIGNED))) {
		if (!g->c->payload_unsigned)
			return unsignable(e, "its body is framed as " STREAMING_UNSIGNED
					     " (say `payload: unsigned` in the credential's "
					     "`sigv4`)");
		g->word = STREAMING_UNSIGNED;
		return 0;
	}
	if (starts_nocase(said, STR("STREAMING-")))
		return unsignable(e, "its body is signed in chunks by a key of the client's (have "
				     "the client sign no chunks: in SDKs, payload signing off, or "
				     "checksums \"when required\")");
	if (said.n > 0 && !str_eq(said, STR(SIGV4_UNSIGNED)) && !read_hash(said, g->hash))
		return unsignable(e, "its X-Amz-Content-Sha256 is neither a hash nor known");
	if (empty) {
		g->word = SIGV4_EMPTY_HASH;
		return 0;
	}
	if (g->c->payload_unsigned) {
		g->word = SIGV4_UNSIGNED;
		return 0;
	}
	if (said.n != SIGV4_HASH_HEX)
		return hold_or_refuse(g, r, e);
	g->payload = PAYLOAD_DECLARED;
	return sigv4_hash_new(&g->running) < 0 ? unsignable(e, "out of memory") : 0;
}

int signing_new(const struct config_credential *c, struct secret *s, const struct request *r,
		struct signing **ret, struct err *e)
{
	struct signing *g = calloc(1, sizeof(*g));

	if (!g)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	g->c = c;
	g->secret = secret_ref(s);
	strbuf_init(&g->body, LIMIT_SIGV4_BODY);
	if (sigv4_read_parts(secret_value(s), &g->who, e) < 0) {
		(void)err_wrap(e, "credential %s is not available", c->name);
		goto fail;
	}
	if (check_request(c, r, e) < 0 || plan(g, r, e) < 0)
		goto fail;
	*ret = g;
	return 0;
fail:
	signing_free(g);
	return -1;
}

void signing_free(struct signing *g)
{
	if (!g)
		return;
	sigv4_hash_free(g->running);
	strbuf_clear(&g->body);
	secret_unref(g->secret);
	free(g);
}

bool signing_holds_body(const struct signing *g)
{
	return g->payload == PAYLOAD_HELD;
}

int signing_hold(struct signing *g, struct str data, struct err *e)
{
	if (data.n > LIMIT_SIGV4_BODY - g->body.len)
		return too_large(e);
	strbuf_add(&g->body, data);
	if (g->body.overflowed || sigv4_hash_add(g->running, data) < 0)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	return 0;
}

int signing_hold_end(struct signing *g, struct err *e)
{
	if (sigv4_hash_end(g->running, g->hash) < 0)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	return 0;
}

struct str signing_held(const struct signing *g)
{
	return strbuf_str(&g->body);
}

int signing_check(struct signing *g, struct str data, bool last, struct err *e)
{
	char found[SIGV4_HASH_HEX];

	if (g->payload != PAYLOAD_DECLARED || (g->checked && !g->differs && data.n == 0))
		return 0;
	if (!g->checked && sigv4_hash_add(g->running, data) < 0)
		g->checked = g->differs = true;
	/* What comes behind the end is not what was declared either. */
	if (g->checked && data.n > 0)
		g->differs = true;
	if (!g->checked && last) {
		g->checked = true;
		g->differs = sigv4_hash_end(g->running, found) < 0 ||
			     memcmp(found, g->hash, sizeof(found)) != 0;
	}
	if (!g->differs)
		return 0;
	return err_reason(e, REASON_MALFORMED_REQUEST,
			  "the body is not the one whose hash stands in X-Amz-Content-Sha256");
}

int signing_sign(struct signing *g, struct sigv4 *s, const struct request *r, time_t now,
		 struct injection *ret, struct err *e)
{
	struct sigv4_request q = {
		.method = r->method,
		.url = &r->url,
		.fields = &r->fields,
		.payload = g->word ? str_from_c(g->word) : str_from(g->hash, SIGV4_HASH_HEX),
		.who = g->who,
		.region = str_from_c(g->c->region),
		.service = str_from_c(g->c->service),
		.now = now,
	};

	injection_clear(ret);
	if (sigv4_sign(s, &q, &ret->mem, &ret->extra, e) == 0)
		return 0;
	injection_clear(ret);
	return -1;
}
