/*
 * Puts a credential into a request and takes the client's own out. What is added is kept apart from
 * the request, so that nothing that logs or repeats the request can meet it; the writer of the
 * upstream head joins the two. Called once for each admitted request whose rule names a credential.
 */
#include "proxy/credentials/inject.h"

#include <string.h>

#include "logging/limits.h"
#include "proxy/credentials/encode.h"
#include "proxy/credentials/strip.h"

/* base64 makes four of three, percent-encoding three of one; names and user names come on top. */
#define BOUND_BYTES (4 * LIMIT_SECRET_BYTES)

void injection_init(struct injection *i)
{
	*i = (struct injection){0};
	strbuf_init(&i->query, BOUND_BYTES);
	strbuf_init(&i->path, LIMIT_TARGET_BYTES);
	strbuf_init(&i->mem, BOUND_BYTES);
}

void injection_clear(struct injection *i)
{
	/* Of most requests nothing is there. */
	if (!i->extra.v && !i->query.data && !i->path.data && !i->mem.data) {
		i->query.overflowed = i->path.overflowed = i->mem.overflowed = false;
		return;
	}
	fields_clear(&i->extra);
	strbuf_wipe(&i->query);
	strbuf_wipe(&i->path);
	strbuf_wipe(&i->mem);
}

static int unusable(const struct config_credential *c, const char *why, struct err *e)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "credential %s is not available: %s",
			  c->name, why);
}

/* field-vchar and SP (RFC 9110 section 5.5) without obs-text, which servers read in several ways.
 * SP at the ends is no part of a value: the origin would get another secret, or none. */
static bool fits_field(struct str v)
{
	if (v.n == 0 || v.p[0] == ' ' || v.p[v.n - 1] == ' ')
		return false;
	for (size_t i = 0; i < v.n; i++) {
		if (v.p[i] < 0x20 || v.p[i] > 0x7e)
			return false;
	}
	return true;
}

/* user-id ":" password (RFC 7617 section 2): the user-id may hold no colon. */
static int add_basic(const struct config_credential *c, struct str v, struct strbuf *out,
		     struct err *e)
{
	struct strbuf user;

	strbuf_add(out, STR("Basic "));
	if (!c->username) {
		if (str_find(v, ':') < 0)
			return unusable(c, "it is not of the form user:password", e);
		encode_base64(out, v, STR_NONE);
		return 0;
	}
	if (strchr(c->username, ':'))
		return unusable(c, "its user name holds a colon", e);
	strbuf_init(&user, LIMIT_SECRET_BYTES);
	strbuf_adds(&user, c->username);
	strbuf_addc(&user, ':');
	encode_base64(out, strbuf_str(&user), v);
	strbuf_clear(&user);
	return 0;
}

/* The value of the field. */
static int add_value(const struct config_credential *c, struct str v, struct strbuf *out,
		     struct err *e)
{
	if (c->as == CREDENTIAL_AS_BASIC)
		return add_basic(c, v, out, e);
	if (!fits_field(v))
		return unusable(
			c, "it holds a byte that cannot stand in a header, or a blank at an end",
			e);
	if (c->as == CREDENTIAL_AS_BEARER)
		strbuf_add(out, STR("Bearer "));
	strbuf_add(out, v);
	return 0;
}

int credential_add_value(const struct config_credential *c, const struct secret *s,
			 struct strbuf *out, struct err *e)
{
	return add_value(c, secret_value(s), out, e);
}

static int add_field(const struct config_credential *c, struct str v, struct injection *ret,
		     struct err *e)
{
	struct str name =
		c->as == CREDENTIAL_AS_HEADER ? str_from_c(c->as_name) : STR("Authorization");
	struct str all;

	strbuf_add(&ret->mem, name);
	if (add_value(c, v, &ret->mem, e) != 0)
		return -1;
	all = strbuf_str(&ret->mem);
	if (ret->mem.overflowed ||
	    fields_add(&ret->extra, str_head(all, name.n), str_skip(all, name.n)) != 0)
		return unusable(c, "out of memory", e);
	return 0;
}

static int add_query(const struct config_credential *c, struct str v, struct injection *ret,
		     struct err *e)
{
	encode_percent(&ret->query, str_from_c(c->as_name));
	strbuf_addc(&ret->query, '=');
	encode_percent(&ret->query, v);
	return ret->query.overflowed ? unusable(c, "out of memory", e) : 0;
}

/* A cookie-string of one pair (RFC 6265 section 4.2.1). What else a browser would quote or cut, a
 * server reads in its own way. */
static int add_cookie(const struct config_credential *c, struct str v, struct injection *ret,
		      struct err *e)
{
	struct str name = STR("Cookie"), all;

	for (size_t i = 0; i < v.n; i++)
		if (v.p[i] <= 0x20 || v.p[i] > 0x7e || strchr("\",;\\", v.p[i]))
			return unusable(c, "it holds a byte that cannot stand in a cookie", e);
	strbuf_add(&ret->mem, name);
	strbuf_adds(&ret->mem, c->as_name);
	strbuf_addc(&ret->mem, '=');
	strbuf_add(&ret->mem, v);
	all = strbuf_str(&ret->mem);
	if (ret->mem.overflowed ||
	    fields_add(&ret->extra, str_head(all, name.n), str_skip(all, name.n)) != 0)
		return unusable(c, "out of memory", e);
	return 0;
}

static int add(const struct config_credential *c, struct str v, struct injection *ret,
	       struct err *e)
{
	switch (c->as) {
	case CREDENTIAL_AS_BEARER:
	case CREDENTIAL_AS_BASIC:
	case CREDENTIAL_AS_HEADER: return add_field(c, v, ret, e);
	case CREDENTIAL_AS_QUERY: return add_query(c, v, ret, e);
	case CREDENTIAL_AS_COOKIE: return add_cookie(c, v, ret, e);
	case CREDENTIAL_AS_PLACEHOLDER: break; /* swap.h: where the client put it */
	case CREDENTIAL_AS_MTLS: break;	       /* shown in the handshake: credential_get_cert */
	case CREDENTIAL_AS_SIGV4: break;       /* signing.c */
	}
	return unusable(c, "it goes into an unknown place", e);
}

int credential_inject(const struct config_credential *c, const struct secret *s,
		      struct injection *ret, struct err *e)
{
	injection_clear(ret);
	if (add(c, secret_value(s), ret, e) == 0)
		return 0;
	injection_clear(ret);
	return -1;
}

/* ---- what the client brought ---- */

static struct strip sought(const struct config_credential *c, bool identities)
{
	struct strip s = {.field = STR_NONE, .query = STR_NONE, .identities = identities};

	if (!c)
		return s;
	switch (c->as) {
	case CREDENTIAL_AS_BEARER:
	case CREDENTIAL_AS_BASIC:
	case CREDENTIAL_AS_SIGV4: s.field = STR("Authorization"); break;
	case CREDENTIAL_AS_HEADER: s.field = str_from_c(c->as_name); break;
	case CREDENTIAL_AS_QUERY: s.query = str_from_c(c->as_name); break;
	case CREDENTIAL_AS_COOKIE: s.field = STR("Cookie"); break;
	case CREDENTIAL_AS_PLACEHOLDER:
		s.field = str_from_c(c->placeholder->header);
		s.query = str_from_c(c->placeholder->query);
		break;
	case CREDENTIAL_AS_MTLS: break;
	}
	return s;
}

int credential_check_client(const struct config_credential *c, enum rule_client client,
			    const struct request *r, struct err *e)
{
	struct strip s;

	if (client != RULE_CLIENT_DENY)
		return 0;
	s = sought(c, true);
	if (!strip_finds(&s, &r->fields, &r->url))
		return 0;
	return err_reason(e, REASON_CLIENT_CREDENTIAL,
			  "the request brings a credential, which this rule does not admit (send "
			  "none: no Authorization, Cookie, key or token)");
}

bool credential_strip(const struct config_credential *c, enum rule_client client, struct request *r)
{
	struct strip s;
	bool fields, keys;

	if (!c && client == RULE_CLIENT_PASS)
		return false;
	s = sought(c, client != RULE_CLIENT_PASS);
	if (c && c->as == CREDENTIAL_AS_SIGV4) {
		/* A date and a hash go as well, and are no identity. */
		bool found = strip_finds(&s, &r->fields, &r->url);

		s.sigv4 = true;
		(void)strip_fields(&s, &r->fields);
		(void)strip_query(&s, &r->url);
		return found;
	}
	fields = strip_fields(&s, &r->fields);
	keys = strip_query(&s, &r->url);
	return fields || keys;
}
