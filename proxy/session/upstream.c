/*
 * Which wire format an origin is spoken to in, and where a kept connection is found; see
 * upstream.h. The exchange calls it, and knows no format.
 */
#include "proxy/session/upstream.h"

struct upstream *upstream_take(struct worker *w, struct upstream_place *place,
			       void (*on_event)(void *arg), void *arg, struct err *e)
{
	struct upstream *u = NULL;
	struct stream *s;

	if (w->origins_n > 0)
		u = upstream_h2_take(w, place, NULL, on_event, arg, e);
	if (u || (e && e->reason != REASON_NONE))
		return u;
	s = pool_take(w->pool, place->key, &place->addr, &place->port);
	if (!s || upstream_h1_new(w, s, true, place, on_event, arg, &u, e) < 0)
		return NULL;
	return u;
}

struct upstream *upstream_take_websocket(struct worker *w, struct upstream_place *place,
					 bool *ret_h1_only, void (*on_event)(void *arg), void *arg,
					 struct err *e)
{
	return upstream_h2_take(w, place, ret_h1_only, on_event, arg, e);
}

static struct str alpn_of(const struct stream *s)
{
	const unsigned char *alpn = NULL;
	unsigned n = 0;

	if (stream_ssl(s))
		SSL_get0_alpn_selected(stream_ssl(s), &alpn, &n);
	return str_eq(str_from(alpn, n), STR("h2"))	    ? STR("h2")
	       : str_eq(str_from(alpn, n), STR("http/1.1")) ? STR("http/1.1")
							    : STR_NONE;
}

void upstream_note_tls(struct upstream *u, const struct stream *s)
{
	if (!stream_ssl(s))
		return;
	u->tls_version = str_from_c(SSL_get_version(stream_ssl(s)));
	u->tls_alpn = alpn_of(s);
}

int upstream_open(struct worker *w, struct stream *s, const struct upstream_place *place,
		  void (*on_event)(void *arg), void *arg, struct upstream **ret, struct err *e)
{
	if (str_eq(alpn_of(s), STR("h2")))
		return upstream_h2_open(w, s, place, on_event, arg, ret, e);
	return upstream_h1_new(w, s, false, place, on_event, arg, ret, e);
}
