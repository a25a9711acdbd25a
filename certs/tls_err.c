/*
 * OpenSSL's error queue in words. The queue belongs to the thread and outlives a call, so what is
 * left in it would be blamed on the next connection: reading it always empties it.
 */
#include "certs/tls_err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <openssl/err.h>

/* Room for the caller's words; OpenSSL's come behind them. */
#define PREFIX_MAX 384

int tls_err(struct err *e, enum reason reason, const char *fmt, ...)
{
	char prefix[PREFIX_MAX];
	unsigned long code = ERR_get_error();
	const char *words = NULL;
	va_list ap;

	ERR_clear_error();
	/* libssl loads its words itself, before it can fail. */
	OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, NULL);
	va_start(ap, fmt);
	vsnprintf(prefix, sizeof(prefix), fmt, ap);
	va_end(ap);

	if (code && ERR_SYSTEM_ERROR(code)) {
		int rc = err_sys(e, ERR_GET_REASON(code), "%s", prefix);

		if (e)
			e->reason = reason;
		return rc;
	}
	words = code ? ERR_reason_error_string(code) : "OpenSSL gives no cause";
	if (!words)
		return err_reason(e, reason, "%s: OpenSSL error %lx", prefix, code);
	return err_reason(e, reason, "%s: %s", prefix, words);
}

bool tls_was_up(const SSL *ssl)
{
	return SSL_get_state(ssl) == TLS_ST_OK;
}
