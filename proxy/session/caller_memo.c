/*
 * See caller_memo.h. A snapshot is told by its number, never by its address, which another one may
 * have had: a rule's address means that rule only as long as its snapshot is the same.
 */
#include "proxy/session/caller_memo.h"

#include <stdlib.h>

#include "logging/strbuf.h"

struct caller_memo {
	/* counted */
	struct pool_key *key; /* NULL: none yet */
	/* plain; slices are the caller's or the snapshot's */
	uint64_t snapshot;	       /* its number */
	const struct sandbox *sandbox; /* only compared */
	struct identity identity;
	/* What the key was made of, beside those. */
	const struct rule *rule; /* only compared */
	enum scheme scheme;
	uint16_t port;
	uint8_t host_at, host_n; /* within the key */
};

/* The memo of c under s, or NULL: nothing can be remembered. */
static struct caller_memo *memo_of(struct caller *c, const struct snapshot *s)
{
	struct caller_memo *m = c->memo;

	if (m && m->snapshot == s->number && m->sandbox == c->sandbox)
		return m;
	if (!m)
		m = c->memo = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	pool_key_unref(m->key);
	*m = (struct caller_memo){.snapshot = s->number,
				  .sandbox = c->sandbox,
				  .identity = identity_of(c, s)};
	return m;
}

struct identity caller_identity(struct caller *c, const struct snapshot *s)
{
	struct caller_memo *m = memo_of(c, s);

	return m ? m->identity : identity_of(c, s);
}

/* *ret_host_at: where the host stands in it. */
static struct pool_key *make_key(const struct pool *p, const struct identity *id,
				 const struct url *u, const struct rule *rule,
				 const struct client_cert *cert, size_t *ret_host_at)
{
	char mem[2049];
	struct pool_key *k = NULL;
	struct strbuf b;

	strbuf_init_fixed(&b, mem, sizeof(mem));
	if (cert) {
		/* And another certificate: that of before a rotation is another one. */
		strbuf_addc(&b, '!');
		strbuf_addu(&b, client_cert_id(cert));
		strbuf_addc(&b, '|');
	}
	strbuf_adds(&b, scheme_word(u->scheme));
	strbuf_addc(&b, '|');
	*ret_host_at = b.len;
	strbuf_add(&b, host_str(&u->host));
	strbuf_addc(&b, '|');
	strbuf_addu(&b, u->port);
	strbuf_addc(&b, '|');
	strbuf_adds(&b, policy_name(id->policy));
	strbuf_addc(&b, '|');
	strbuf_adds(&b, policy_version(id->policy));
	strbuf_addc(&b, '|');
	strbuf_addu(&b, rule->order);
	strbuf_addc(&b, '|');
	strbuf_add(&b, id->key);
	if (!b.overflowed)
		k = pool_key_new(p, strbuf_str(&b));
	return k;
}

static bool is_of(const struct caller_memo *m, const struct url *u, const struct rule *rule)
{
	return m->key && m->rule == rule && m->scheme == u->scheme && m->port == u->port &&
	       str_eq(host_str(&u->host), str_from(m->key->text + m->host_at, m->host_n));
}

struct pool_key *caller_pool_key(struct caller *c, const struct snapshot *s, const struct pool *p,
				 const struct url *u, const struct rule *rule,
				 const struct client_cert *cert)
{
	struct caller_memo *m = memo_of(c, s);
	struct identity id = m ? m->identity : identity_of(c, s);
	size_t host_at;
	struct pool_key *k;

	/* A certificate is renewed under the same rule: it is not remembered. */
	if (m && !cert && is_of(m, u, rule))
		return pool_key_ref(m->key);
	k = make_key(p, &id, u, rule, cert, &host_at);
	if (!k || !m || cert)
		return k;
	pool_key_unref(m->key);
	m->key = pool_key_ref(k);
	m->rule = rule;
	m->scheme = u->scheme;
	m->port = u->port;
	m->host_at = (uint8_t)host_at;
	m->host_n = u->host.len;
	return k;
}

void caller_memo_free(struct caller_memo *m)
{
	if (!m)
		return;
	pool_key_unref(m->key);
	free(m);
}
