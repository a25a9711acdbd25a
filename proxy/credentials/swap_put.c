/*
 * The other half of swap.h: the fields, the pairs of the query and the path with the real value in
 * the placeholder's place. Each place says which bytes it can hold: a value that would end what it
 * stands in, or lead elsewhere, is not sent.
 */
#include <stdlib.h>

#include <openssl/crypto.h>

#include "logging/limits.h"
#include "proxy/credentials/encode.h"
#include "proxy/credentials/swap_internal.h"

struct put {
	/* borrowed */
	const struct config_credential *c;
	struct str text, value;
	struct injection *ret;
};

static int unusable(const struct put *u, const char *why, struct err *e)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "credential %s is not available: %s",
			  u->c->name, why);
}

/* field-vchar and SP (RFC 9110 section 5.5), no SP at the ends. */
static bool fits_field(struct str v)
{
	for (size_t i = 0; i < v.n; i++)
		if (v.p[i] < 0x20 || v.p[i] > 0x7e)
			return false;
	return v.n > 0 && v.p[0] != ' ' && v.p[v.n - 1] != ' ';
}

static bool holds_one_of(struct str v, const char *bytes)
{
	for (size_t i = 0; i < v.n; i++)
		if (strchr(bytes, v.p[i]))
			return true;
	return false;
}

/* RFC 7617 section 2: the user has no colon. */
static int add_basic(const struct put *u, struct str pair, bool user, struct err *e)
{
	struct strbuf *mem = &u->ret->mem;
	struct str other;

	if (user && str_find(u->value, ':') >= 0)
		return unusable(u, "it holds a colon, which a user name cannot", e);
	strbuf_add(mem, STR("Basic "));
	if (user) {
		encode_base64(mem, u->value, str_skip(pair, u->text.n));
		return 0;
	}
	other = str_head(pair, pair.n - u->text.n);
	encode_base64(mem, other, u->value);
	return 0;
}

static int add_cookies(const struct put *u, struct str all, bool others, struct err *e)
{
	struct strbuf *mem = &u->ret->mem;
	bool first = true;

	if (holds_one_of(u->value, " \",;\\"))
		return unusable(u, "it holds a byte that cannot stand in a cookie", e);
	while (all.p) {
		struct str pair = str_trim_ows(str_split(&all, ';'));
		bool ours = swap_is_cookie_pair(pair, u->text);

		if (!ours && !others)
			continue;
		if (!first)
			strbuf_add(mem, STR("; "));
		first = false;
		strbuf_add(mem, ours ? str_head(pair, (size_t)str_find(pair, '=') + 1) : pair);
		if (ours)
			strbuf_add(mem, u->value);
	}
	return 0;
}

static int add_value(const struct put *u, const struct field *f, bool others, struct err *e)
{
	struct strbuf *mem = &u->ret->mem;
	struct str pair, v = f->value, tail = STR_NONE;
	char *decoded = NULL;
	bool user;
	int rc;

	if (str_eq_nocase(f->name, STR("Authorization")) && swap_basic_pair(v, &decoded, &pair)) {
		rc = swap_is_pair(u->c->placeholder, pair, u->text, &user) ? 1 : 0;
		if (rc)
			rc = add_basic(u, pair, user, e) == 0 ? 1 : -1;
		free(decoded);
		if (rc != 0)
			return rc < 0 ? -1 : 0;
	}
	if (!fits_field(u->value))
		return unusable(u,
				"it holds a byte that cannot stand in a header, or a blank at an "
				"end",
				e);
	if (swap_is_cookie(f))
		return add_cookies(u, v, others, e);
	if (str_ends(v, STR("\""))) {
		tail = STR("\"");
		v.n--;
		if (holds_one_of(u->value, "\"\\"))
			return unusable(u, "it holds a quote, and stands in quotes", e);
	}
	strbuf_add(mem, str_head(v, v.n - u->text.n));
	strbuf_add(mem, u->value);
	strbuf_add(mem, tail);
	return 0;
}

/* mem must not move while slices of it are taken, so its room is made before. */
static int put_fields(const struct put *u, const struct swap *s, bool others, struct err *e)
{
	struct strbuf *mem = &u->ret->mem;
	const char *base;
	size_t room = 0;

	for (size_t i = 0; i < s->fields.n; i++)
		room += s->fields.v[i].name.n +
			(s->fields.v[i].value.n + 1) / u->text.n * (2 * u->value.n + 4) +
			2 * s->fields.v[i].value.n + 16;
	if (room > 0 && !strbuf_reserve(mem, room))
		return unusable(u, "there is no room for it", e);
	base = mem->data;
	for (size_t i = 0; i < s->fields.n; i++) {
		const struct field *f = &s->fields.v[i];
		struct str name = {mem->data + mem->len, f->name.n}, value;

		strbuf_add(mem, f->name);
		value = str_from(mem->data + mem->len, mem->len);
		if (add_value(u, f, others, e) < 0)
			return -1;
		value.n = mem->len - value.n;
		if (mem->overflowed || mem->data != base ||
		    fields_add(&u->ret->extra, name, value) < 0)
			return unusable(u, "out of memory", e);
	}
	return 0;
}

static int put_query(const struct put *u, const struct swap *s, struct err *e)
{
	struct str keys = strbuf_str(&s->keys);

	while (keys.n > 0) {
		struct str key = str_split(&keys, '&');

		if (u->ret->query.len > 0)
			strbuf_addc(&u->ret->query, '&');
		strbuf_add(&u->ret->query, key);
		strbuf_addc(&u->ret->query, '=');
		encode_percent(&u->ret->query, u->value);
	}
	return u->ret->query.overflowed ? unusable(u, "out of memory", e) : 0;
}

/* pchar (RFC 3986 section 3.3) without what some servers cut a segment at (`;`) and without
 * escapes, of which it is not known who undoes them. A dot alone could be the whole segment: the
 * caller's look at the URL refuses that. */
static int put_path(const struct put *u, const struct request *r, struct err *e)
{
	for (size_t i = 0; i < u->value.n; i++) {
		char c = u->value.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      strchr("-._~:@!$&'()*+,=", c)))
			return unusable(u, "it holds a byte that cannot stand in a path", e);
	}
	(void)swap_path(r->url.path, u->text, u->value, &u->ret->path);
	return u->ret->path.overflowed ? unusable(u, "out of memory", e) : 0;
}

int swap_put(const struct placeholders *p, const struct config_credential *c, size_t own,
	     const struct request *r, const struct swap *s, const struct secret *value,
	     enum rule_client client, struct injection *ret, struct err *e)
{
	struct put u = {
		.c = c,
		.text = needles_text(placeholders_needles(p), own),
		.value = secret_value(value),
		.ret = ret,
	};

	injection_clear(ret);
	if (put_fields(&u, s, client == RULE_CLIENT_PASS, e) == 0 && put_query(&u, s, e) == 0 &&
	    (!s->path || put_path(&u, r, e) == 0))
		return 0;
	injection_clear(ret);
	return -1;
}
