/*
 * Why the client's side of TLS failed. Most often the client does not trust the CA; its alert is
 * then the only word we get, and a TLS 1.3 client sends it when our own handshake is already done.
 */
#include "certs/clientfail.h"

#include <openssl/err.h>

#include "certs/tls_err.h"

#define ALERT_OFFSET 1000 /* SSL_AD_REASON_OFFSET: alerts as reason codes */

/* The alerts by which a client turns down a certificate, by their names of RFC 8446 section 6. */
static const char *leaf_alert_name(int alert)
{
	switch (alert) {
	case SSL_AD_BAD_CERTIFICATE: return "bad_certificate";
	case SSL_AD_UNSUPPORTED_CERTIFICATE: return "unsupported_certificate";
	case SSL_AD_CERTIFICATE_REVOKED: return "certificate_revoked";
	case SSL_AD_CERTIFICATE_EXPIRED: return "certificate_expired";
	case SSL_AD_CERTIFICATE_UNKNOWN: return "certificate_unknown";
	case SSL_AD_UNKNOWN_CA: return "unknown_ca";
	case SSL_AD_BAD_CERTIFICATE_STATUS_RESPONSE: return "bad_certificate_status_response";
	default: return NULL;
	}
}

static int explain_alert(int alert, struct err *e)
{
	const char *name = leaf_alert_name(alert);

	if (!name)
		return err_reason(e, REASON_CLIENT_TLS_FAILED, "the client sent the alert \"%s\"",
				  SSL_alert_desc_string_long(alert));
	if (alert == SSL_AD_CERTIFICATE_EXPIRED)
		return err_reason(
			e, REASON_LEAF_REJECTED,
			"the client finds stile's certificate out of date (alert %s): set its "
			"clock, or let it trust the current CA (`stile ca bundle`)",
			name);
	return err_reason(
		e, REASON_LEAF_REJECTED,
		"the client does not accept stile's certificate (alert %s): let it trust the "
		"CA (`stile ca bundle`), or set `tls: passthrough` on the rule if it pins the "
		"origin's own",
		name);
}

int clientfail_explain(SSL *ssl, struct err *e)
{
	unsigned long code = ERR_peek_error();
	int reason = ERR_GET_REASON(code);
	bool is_ssl = code && ERR_GET_LIB(code) == ERR_LIB_SSL;

	if (is_ssl && reason >= ALERT_OFFSET) {
		ERR_clear_error();
		return explain_alert(reason - ALERT_OFFSET, e);
	}
	if (is_ssl && reason == SSL_R_NO_APPLICATION_PROTOCOL) {
		ERR_clear_error();
		return err_reason(e, REASON_CLIENT_TLS_FAILED,
				  "the client offers no protocol (ALPN) that can be spoken here");
	}
	if (code == 0 || ERR_SYSTEM_ERROR(code) ||
	    (is_ssl && reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)) {
		ERR_clear_error();
		return err_reason(
			e, REASON_CLIENT_TLS_FAILED,
			tls_was_up(ssl)
				? "the client cut the connection without a request or a TLS close "
				  "(some do so when they do not trust the CA)"
				: "the client closed the connection during the TLS handshake "
				  "(some do so when they do not trust the CA)");
	}
	return tls_err(e, REASON_CLIENT_TLS_FAILED, "TLS with the client failed");
}
