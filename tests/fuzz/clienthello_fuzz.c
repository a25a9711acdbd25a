/*
 * ClientHellos: clienthello_parse. The input is the first bytes of a connection.
 * - It says MORE up to some byte and from there on always the same, name and all.
 * - The message within, cut into records of any sizes, is read as the same.
 * - What OpenSSL finds in the hello, in its ClientHello callback and as the server's name, is what
 *   we found, wherever we did not refuse; so is the ALPN list.
 * - A name is one that host_parse takes, in its one spelling, and no address.
 */
#include <openssl/ssl.h>

#include "logging/limits.h"
#include "policy/hostname.h"
#include "proxy/http/clienthello.h"
#include "tests/fuzz/fuzz.h"

static enum clienthello_result parse(struct str in, struct clienthello *h)
{
	struct err e = ERR_INIT;
	char *copy = fuzz_copy(in);
	enum clienthello_result rc = clienthello_parse(str_from(copy, in.n), h, &e);

	if (rc == CLIENTHELLO_BAD)
		fuzz_check_err(&e);
	free(copy);
	return rc;
}

static void check_same(const struct clienthello *a, const struct clienthello *b)
{
	CHECK(a->has_sni == b->has_sni && a->sni_len == b->sni_len);
	CHECK(strcmp(a->sni, b->sni) == 0);
	CHECK(a->ech == b->ech && a->version_max == b->version_max);
	CHECK(a->alpn_len == b->alpn_len && memcmp(a->alpn, b->alpn, a->alpn_len) == 0);
}

static void check_cuts(struct str in, enum clienthello_result rc, const struct clienthello *h,
		       struct fuzz_random *r)
{
	enum clienthello_result before = CLIENTHELLO_MORE;
	struct clienthello_scan scan = {0};

	for (size_t n = 0; n < in.n; n += in.n < 300 ? 1 : fuzz_piece(r, in.n - n)) {
		struct clienthello cut;
		enum clienthello_result now = parse(str_head(in, n), &cut);
		enum clienthello_result scanned = clienthello_scan(&scan, str_head(in, n), NULL);

		CHECK(scanned == CLIENTHELLO_OK ? now != CLIENTHELLO_MORE : scanned == now);
		CHECK(before == CLIENTHELLO_MORE || now == before);
		CHECK(now == CLIENTHELLO_MORE || now == rc);
		if (now == CLIENTHELLO_OK)
			check_same(h, &cut);
		before = now;
	}
}

/* The handshake message within the records of a hello that was read. */
static void join(struct str in, struct strbuf *out)
{
	size_t need = 4;

	while (out->len < need) {
		size_t n = (size_t)(uint8_t)in.p[3] << 8 | (uint8_t)in.p[4];

		strbuf_add(out, str_head(str_skip(in, 5), n));
		in = str_skip(in, 5 + n);
		if (out->len >= 4)
			need = 4 + ((size_t)(uint8_t)out->data[2] << 8 | (uint8_t)out->data[3]);
	}
}

static void check_records(struct str in, const struct clienthello *h, struct fuzz_random *r)
{
	struct strbuf message, records;
	struct clienthello again;
	struct str rest;

	strbuf_init(&message, LIMIT_CLIENTHELLO_BYTES);
	strbuf_init(&records, 8 * LIMIT_CLIENTHELLO_BYTES);
	join(in, &message);
	CHECK(!message.overflowed);
	for (rest = strbuf_str(&message); rest.n > 0;) {
		size_t n = fuzz_piece(r, rest.n < 16000 ? rest.n : 16000);
		char head[5] = {22, 3, 1, (char)(n >> 8), (char)n};

		strbuf_add(&records, str_from(head, 5));
		strbuf_add(&records, str_head(rest, n));
		rest = str_skip(rest, n);
	}
	if (records.len < 4 * LIMIT_CLIENTHELLO_BYTES) {
		CHECK(parse(strbuf_str(&records), &again) == CLIENTHELLO_OK);
		check_same(h, &again);
	}
	strbuf_clear(&message);
	strbuf_clear(&records);
}

/* ---- the second reader ---- */

struct seen {
	bool hello, named;
	struct strbuf raw;  /* the name in the extension, as the callback sees it */
	struct strbuf name; /* what OpenSSL takes for the server's name */
	bool has_raw, has_alpn;
	struct strbuf alpn;
};

static int on_hello(SSL *ssl, int *alert, void *arg)
{
	struct seen *s = SSL_get_app_data(ssl);
	const unsigned char *p;
	size_t n;

	(void)arg;
	(void)alert;
	s->hello = true;
	/* List length, type, name length, name: as its manual page reads it. */
	if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &p, &n)) {
		s->has_raw = true;
		if (n > 5)
			strbuf_add(&s->raw,
				   str_head(str_from(p + 5, n - 5), (size_t)p[3] << 8 | p[4]));
	}
	if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &p,
				      &n)) {
		s->has_alpn = true;
		if (n > 2)
			strbuf_add(&s->alpn, str_from(p + 2, n - 2));
	}
	return SSL_CLIENT_HELLO_SUCCESS;
}

static int on_name(SSL *ssl, int *alert, void *arg)
{
	struct seen *s = SSL_get_app_data(ssl);
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

	(void)arg;
	(void)alert;
	s->named = true;
	if (name)
		strbuf_adds(&s->name, name);
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static SSL_CTX *context(void)
{
	static SSL_CTX *ctx;

	if (ctx)
		return ctx;
	ctx = SSL_CTX_new(TLS_server_method());
	CHECK(ctx);
	SSL_CTX_set_client_hello_cb(ctx, on_hello, NULL);
	SSL_CTX_set_tlsext_servername_callback(ctx, on_name);
	SSL_CTX_set_security_level(ctx, 0);
	return ctx;
}

static void look(struct str in, struct seen *s)
{
	SSL *ssl = SSL_new(context());
	BIO *from = BIO_new_mem_buf(in.p, (int)in.n), *to = BIO_new(BIO_s_mem());

	CHECK(ssl && from && to);
	strbuf_init(&s->raw, 65536);
	strbuf_init(&s->name, 65536);
	strbuf_init(&s->alpn, 65536);
	SSL_set_bio(ssl, from, to);
	SSL_set_app_data(ssl, s);
	(void)SSL_accept(ssl);
	SSL_free(ssl);
}

static void check_name(const struct clienthello *h, const struct strbuf *other)
{
	struct host host;

	CHECK(host_parse(strbuf_str(other), &host, NULL) == 0);
	CHECK(str_eq(host_str(&host), str_from(h->sni, h->sni_len)));
}

static void check_openssl(struct str in, const struct clienthello *h)
{
	struct seen s = {0};

	look(in, &s);
	if (s.hello) {
		CHECK(s.has_raw == h->has_sni);
		if (h->has_sni)
			check_name(h, &s.raw);
		CHECK(s.has_alpn == (h->alpn_len > 0) || s.alpn.len > sizeof(h->alpn));
		CHECK(str_starts(strbuf_str(&s.alpn), str_from(h->alpn, h->alpn_len)));
	}
	if (s.named) {
		CHECK((s.name.len > 0) == h->has_sni);
		if (h->has_sni)
			check_name(h, &s.name);
	}
	strbuf_clear(&s.raw);
	strbuf_clear(&s.name);
	strbuf_clear(&s.alpn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_random r = fuzz_random(data, size);
	struct str in = str_from(data, size);
	struct clienthello h;
	struct host host;
	enum clienthello_result rc = parse(in, &h);

	check_cuts(in, rc, &h, &r);
	if (rc != CLIENTHELLO_OK)
		return 0;
	CHECK(h.has_sni == (h.sni_len > 0) && h.sni_len == strlen(h.sni));
	if (h.has_sni) {
		CHECK(host_parse(str_from_c(h.sni), &host, NULL) == 0 && host.kind == HOST_NAME);
		CHECK(strcmp(host.text, h.sni) == 0);
	}
	check_records(in, &h, &r);
	check_openssl(in, &h);
	return 0;
}
