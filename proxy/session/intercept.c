/*
 * TLS towards the client of an inspected connection: the leaf from certs/, the handshake, and the
 * words for its failure. A client that does not accept the leaf gets a hard failure and a record,
 * never a raw tunnel.
 */
#include <string.h>

#include "certs/clientfail.h"
#include "certs/signer.h"
#include "proxy/session/client.h"
#include "proxy/session/client_h2.h"

/* What we speak inside; the wire format of RFC 7301. A client that offers http/1.0 alone (curl
 * --http1.0) is answered in it. */
static const struct str ALPN = {"\x02h2\x08http/1.1\x08http/1.0", 21};
/* For git, whose CONNECT says who it is. Before 2.44 it may stand still for ever in a push that is
 * larger than http.postBuffer: libcurl asks once more for a body that was whole, as it does in
 * HTTP/2 on a busy machine, and git then waits for its own other half, which waits for the answer.
 * One request at a time has little of HTTP/2. */
static const struct str ALPN_GIT = {"\x08http/1.1\x08http/1.0", 18};

static void on_leaf(void *arg, struct leaf *leaf, const struct err *why)
{
	struct client *c = arg;
	struct err e = ERR_INIT;
	SSL *ssl = NULL;
	int r;

	if (c->state != CLIENT_LEAF) {
		leaf_unref(leaf);
		return;
	}
	if (!leaf) {
		client_close(c, why->reason ? why->reason : REASON_INTERNAL_ERROR, why->text);
		return;
	}
	r = signer_server_new(c->worker->signer, leaf,
			      request_is_git(&c->request) ? ALPN_GIT : ALPN, &ssl, &e);
	leaf_unref(leaf);
	if (r < 0) {
		client_close(c, REASON_INTERNAL_ERROR, e.text);
		return;
	}
	client_goto(c, CLIENT_TLS);
	if (stream_start_tls(c->s, ssl, &e) < 0)
		client_close(c, REASON_INTERNAL_ERROR, e.text);
}

void intercept_start(struct client *c)
{
	const struct client_connect *k = c->connect;

	client_goto(c, CLIENT_LEAF);
	desk_get(c->worker->desk, &k->host, k->port, &c->leaf, on_leaf, c);
}

void intercept_handshaked(struct client *c)
{
	SSL *ssl = stream_ssl(c->s);
	const unsigned char *alpn = NULL;
	unsigned alpn_n = 0;

	c->caller.tls_version = str_from_c(SSL_get_version(ssl));
	SSL_get0_alpn_selected(ssl, &alpn, &alpn_n);
	/* Static text: it outlives the SSL. */
	c->caller.tls_alpn = str_eq(str_from(alpn, alpn_n), STR("h2"))	       ? STR("h2")
			     : str_eq(str_from(alpn, alpn_n), STR("http/1.0")) ? STR("http/1.0")
			     : str_eq(str_from(alpn, alpn_n), STR("http/1.1")) ? STR("http/1.1")
									       : STR_NONE;
	c->where.scheme = SCHEME_HTTPS;
	c->served = false;
	c->leaf_unproven = true;
	request_clear(&c->request);
	if (!str_eq(c->caller.tls_alpn, STR("h2"))) {
		client_goto(c, CLIENT_IDLE);
		return;
	}
	c->caller.http = STR("2");
	c->h2 = client_h2_new(c);
	if (c->h2)
		client_goto(c, CLIENT_H2);
	else
		client_close(c, REASON_OVERLOADED, "out of memory");
}

void intercept_failed(struct client *c)
{
	struct err e = ERR_INIT;

	if (c->connect && stream_error_is_tls(c->s) &&
	    (c->connect->pending || !stream_was_cut(c->s))) {
		(void)clientfail_explain(stream_ssl(c->s), &e);
		client_close(c, e.reason, e.text);
	} else {
		client_left(c);
	}
}
