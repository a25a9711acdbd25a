/*
 * OpenSSL's error queue as text for people: the first entry, without file names. Empties the queue.
 */
#ifndef STILE_CERTS_TLS_ERR_H
#define STILE_CERTS_TLS_ERR_H

#include <openssl/ssl.h>
#include <stdbool.h>

#include "logging/err.h"

/* err_reason with `fmt: what OpenSSL says`. */
int tls_err(struct err *e, enum reason reason, const char *fmt, ...) ATTR_PRINTF(3, 4);

/* Had the handshake come to its end? SSL_is_init_finished says no of each SSL that has failed. */
bool tls_was_up(const SSL *ssl);

#endif
