/*
 * The base of signer.c's and trust.c's contexts. OpenSSL's library-wide configuration may have
 * loosened a context before it reaches us; whatever could weaken a decision is set back here.
 */
#include "certs/tls_ctx.h"

#include <string.h>

#include "logging/strbuf.h"

#define SUITE_TEXT_MAX 512

/* 112 bits: no SHA-1 signatures, no RSA below 2048. */
#define SECURITY_LEVEL 2

static void add_suite(struct strbuf *out, const SSL_CIPHER *c)
{
	if (out->len > 0)
		strbuf_addc(out, ':');
	strbuf_add(out, str_from_c(SSL_CIPHER_get_name(c)));
}

/* Of TLS 1.3's suites the one that every implementation has (RFC 8446 section 9.1) goes first: its
 * cipher takes ten rounds for fourteen, its hash has instructions of its own on most processors,
 * and a handshake hashes a hundred blocks. Which suites there are stays as the library's
 * configuration says. */
static bool order_suites(SSL_CTX *ctx)
{
	STACK_OF(SSL_CIPHER) *all = SSL_CTX_get_ciphers(ctx);
	char mem[SUITE_TEXT_MAX];
	struct strbuf names;

	strbuf_init_fixed(&names, mem, sizeof(mem));
	for (int others = 0; others <= 1; others++)
		for (int i = 0; i < sk_SSL_CIPHER_num(all); i++) {
			const SSL_CIPHER *c = sk_SSL_CIPHER_value(all, i);
			bool is_other = SSL_CIPHER_get_id(c) != TLS1_3_CK_AES_128_GCM_SHA256;

			if (strcmp(SSL_CIPHER_get_version(c), "TLSv1.3") == 0 && is_other == others)
				add_suite(&names, c);
		}
	if (names.overflowed || names.len == 0)
		return true; /* as they were */
	return SSL_CTX_set_ciphersuites(ctx, names.data) == 1;
}

SSL_CTX *tls_ctx_new(const SSL_METHOD *method)
{
	SSL_CTX *ctx = SSL_CTX_new(method);

	if (!ctx)
		return NULL;
	SSL_CTX_set_security_level(ctx, SECURITY_LEVEL);
	if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 ||
	    SSL_CTX_set_max_proto_version(ctx, 0) != 1 || !order_suites(ctx)) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	/* A connection that ends without close_notify was cut: the reader must learn of it. */
	SSL_CTX_clear_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF |
					   SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION |
					   SSL_OP_LEGACY_SERVER_CONNECT | SSL_OP_NO_TICKET |
					   SSL_OP_NO_TLSv1_2 | SSL_OP_NO_TLSv1_3);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	/* Buffers go while idle; a write may take less than offered and be tried again from a
	 * buffer that has moved. */
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
				      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	/* With read-ahead a record may wait behind a ticket in OpenSSL's own buffer, where no event
	 * on the descriptor would tell of it: a read goes on to the next record by itself. */
	SSL_CTX_set_mode(ctx, SSL_MODE_AUTO_RETRY);
	/* One read(2) for a record's head and body. */
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_max_early_data(ctx, 0);
	return ctx;
}
