/*
 * Why an origin was not believed, in words that say what to do. Everything quoted from a
 * certificate is the origin's word: it is escaped and bounded, and the cure stands where it cannot
 * push it out.
 */
#include <arpa/inet.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "certs/tls_err.h"
#include "certs/trust.h"
#include "certs/trust_conn.h"

#define QUOTE_MAX    110  /* bytes of one quoted name, escaped */
#define NAMES_MAX    4	  /* of a subjectAltName; the rest are counted */
#define ALERT_OFFSET 1000 /* SSL_AD_REASON_OFFSET: alerts as reason codes */

static void add_quote(struct strbuf *out, struct str raw)
{
	struct strbuf quote;

	strbuf_init(&quote, QUOTE_MAX);
	strbuf_add_printable(&quote, raw);
	strbuf_add(out, strbuf_str(&quote));
	if (quote.overflowed)
		strbuf_adds(out, "...");
	strbuf_clear(&quote);
}

/* As RFC 2253 writes it, but with other alphabets left readable. */
static void add_dn(struct strbuf *out, const char *label, const X509_NAME *name)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *p = NULL;
	long n = 0;

	if (bio && X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB) >= 0)
		n = BIO_get_mem_data(bio, &p);
	strbuf_adds(out, label);
	if (n > 0)
		add_quote(out, str_from(p, (size_t)n));
	else
		strbuf_adds(out, "(empty)");
	BIO_free(bio);
}

static void add_date(struct strbuf *out, const ASN1_TIME *t)
{
	struct tm tm;

	if (ASN1_TIME_to_tm(t, &tm) == 1)
		strbuf_addf(out, "%04d-%02d-%02d at %02d:%02dZ", tm.tm_year + 1900, tm.tm_mon + 1,
			    tm.tm_mday, tm.tm_hour, tm.tm_min);
	else
		strbuf_adds(out, "a date that cannot be read");
}

/* "certificate of HOST", or which of the others in its chain. */
static void add_which(struct strbuf *out, const struct trust_conn *conn)
{
	strbuf_addf(out, conn->depth == 0 ? "certificate of %s" : "a CA certificate of %s",
		    conn->host);
}

static void add_who(struct strbuf *out, X509 *x)
{
	add_dn(out, " (subject ", X509_get_subject_name(x));
	add_dn(out, ", issuer ", X509_get_issuer_name(x));
	strbuf_addc(out, ')');
}

/* False for a kind of name that is not a host's. */
static bool add_general_name(struct strbuf *out, const GENERAL_NAME *gn)
{
	char text[INET6_ADDRSTRLEN];
	int n;

	if (gn->type == GEN_DNS) {
		add_quote(out, str_from(ASN1_STRING_get0_data(gn->d.dNSName),
					(size_t)ASN1_STRING_length(gn->d.dNSName)));
		return true;
	}
	if (gn->type != GEN_IPADD)
		return false;
	n = ASN1_STRING_length(gn->d.iPAddress);
	if (n != 4 && n != 16)
		return false;
	if (inet_ntop(n == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(gn->d.iPAddress), text,
		      sizeof(text)))
		strbuf_adds(out, text);
	return true;
}

/* "a.test, b.test and 3 more"; the number of names. */
static size_t add_names(struct strbuf *out, X509 *x)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
	size_t shown = 0, more = 0;

	for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
		const GENERAL_NAME *gn = sk_GENERAL_NAME_value(names, i);

		if (gn->type != GEN_DNS && gn->type != GEN_IPADD)
			continue;
		if (shown == NAMES_MAX || out->len > out->max / 2) {
			more++;
			continue;
		}
		if (shown > 0)
			strbuf_adds(out, ", ");
		if (add_general_name(out, gn))
			shown++;
	}
	if (more > 0)
		strbuf_addf(out, " and %zu more", more);
	GENERAL_NAMES_free(names);
	return shown + more;
}

/* An address that stands among the names, where RFC 9525 section 6.1 does not look for it. */
static bool is_address_as_name(const struct trust_conn *conn)
{
	return conn->error == X509_V_ERR_IP_ADDRESS_MISMATCH &&
	       X509_check_host(conn->bad, conn->host, strlen(conn->host),
			       X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_WILDCARDS,
			       NULL) == 1;
}

static void say_wrong_name(struct strbuf *out, const struct trust_conn *conn)
{
	struct strbuf names;

	if (is_address_as_name(conn)) {
		strbuf_addf(
			out,
			"certificate has %s as a DNS name, and not as the IP address that it is",
			conn->host);
		add_dn(out, " (subject ", X509_get_subject_name(conn->bad));
		strbuf_addc(out, ')');
		return;
	}

	strbuf_init(&names, ERR_TEXT_MAX / 2);
	if (add_names(&names, conn->bad) > 0)
		strbuf_addf(out, "certificate is for %s, not for %s", strbuf_cstr(&names),
			    conn->host);
	else
		strbuf_addf(out,
			    "certificate has no subjectAltName that names a host, so it is not "
			    "for %s",
			    conn->host);
	strbuf_clear(&names);
	add_dn(out, " (subject ", X509_get_subject_name(conn->bad));
	strbuf_addc(out, ')');
}

static void say_unknown_issuer(struct strbuf *out, const struct trust_conn *conn)
{
	add_dn(out, "issuer ", X509_get_issuer_name(conn->bad));
	strbuf_addf(out, " is not trusted, which stands behind %s", conn->host);
	strbuf_adds(out, " (add its CA to upstream.trust: [system, FILE]");
	if (conn->depth == 0 && conn->chain_n <= 1)
		strbuf_adds(out,
			    "; the origin sends no intermediate certificate, and none is fetched");
	strbuf_addc(out, ')');
	add_dn(out, "; subject ", X509_get_subject_name(conn->bad));
}

static void say_self_signed(struct strbuf *out, const struct trust_conn *conn)
{
	strbuf_addf(out, "certificate of %s is self-signed and not trusted", conn->host);
	strbuf_adds(out, " (add it to upstream.trust: [system, FILE])");
	add_dn(out, "; subject ", X509_get_subject_name(conn->bad));
}

static void say_fault(struct strbuf *out, const struct trust_conn *conn)
{
	switch (conn->error) {
	case X509_V_ERR_CERT_HAS_EXPIRED:
		add_which(out, conn);
		strbuf_adds(out, " expired on ");
		add_date(out, X509_get0_notAfter(conn->bad));
		break;
	case X509_V_ERR_CERT_NOT_YET_VALID:
		add_which(out, conn);
		strbuf_adds(out, " is not valid before ");
		add_date(out, X509_get0_notBefore(conn->bad));
		break;
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH: say_wrong_name(out, conn); return;
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
	case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
	case X509_V_ERR_CERT_UNTRUSTED: say_unknown_issuer(out, conn); return;
	case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT: say_self_signed(out, conn); return;
	case X509_V_ERR_CERT_REVOKED:
		add_which(out, conn);
		strbuf_adds(out, " is revoked");
		break;
	case X509_V_ERR_EE_KEY_TOO_SMALL:
	case X509_V_ERR_CA_KEY_TOO_SMALL:
	case X509_V_ERR_CA_MD_TOO_WEAK:
		add_which(out, conn);
		strbuf_addf(out, " is too weak: %s", X509_verify_cert_error_string(conn->error));
		break;
	default:
		add_which(out, conn);
		strbuf_addf(out, " is refused: %s", X509_verify_cert_error_string(conn->error));
		break;
	}
	add_who(out, conn->bad);
}

static int explain_untrusted(const struct trust_conn *conn, struct err *e)
{
	struct strbuf text;

	if (!conn->bad)
		return err_reason(e, REASON_UPSTREAM_UNTRUSTED, "certificate of %s is refused: %s",
				  conn->host, X509_verify_cert_error_string(conn->error));
	strbuf_init(&text, ERR_TEXT_MAX - 1);
	say_fault(&text, conn);
	err_reason(e, REASON_UPSTREAM_UNTRUSTED, "%s", strbuf_cstr(&text));
	strbuf_clear(&text);
	return -1;
}

/* Alerts with which servers answer the missing certificate. */
static bool is_cert_alert(int alert)
{
	switch (alert) {
	case SSL_AD_HANDSHAKE_FAILURE:
	case SSL_AD_BAD_CERTIFICATE:
	case SSL_AD_UNSUPPORTED_CERTIFICATE:
	case SSL_AD_CERTIFICATE_UNKNOWN:
	case SSL_AD_UNKNOWN_CA:
	case SSL_AD_ACCESS_DENIED:
	case SSL_AD_CERTIFICATE_REQUIRED:
	case 41: /* no_certificate, of SSL 3.0 */ return true;
	default: return false;
	}
}

/* And those with which they answer one that was shown. */
static bool is_shown_alert(int alert)
{
	return alert == SSL_AD_CERTIFICATE_EXPIRED || alert == SSL_AD_CERTIFICATE_REVOKED ||
	       alert == SSL_AD_DECRYPT_ERROR;
}

static bool wants_cert(const SSL *ssl, const struct trust_conn *conn, unsigned long code)
{
	int reason = ERR_GET_REASON(code);

	if (!conn->asked_for_cert)
		return false;
	if (code && ERR_GET_LIB(code) == ERR_LIB_SSL && reason >= ALERT_OFFSET)
		return is_cert_alert(reason - ALERT_OFFSET) ||
		       (conn->shown && is_shown_alert(reason - ALERT_OFFSET));
	/* Some servers just hang up. Once the handshake is done that would be a guess. */
	return !tls_was_up(ssl) && (code == 0 || ERR_SYSTEM_ERROR(code) ||
				    reason == SSL_R_UNEXPECTED_EOF_WHILE_READING);
}

static int explain_failed(const char *host, unsigned long code, struct err *e)
{
	int reason = ERR_GET_REASON(code);

	if (code == 0 ||
	    (ERR_GET_LIB(code) == ERR_LIB_SSL && reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)) {
		ERR_clear_error();
		return err_reason(e, REASON_UPSTREAM_TLS_FAILED,
				  "%s closed the connection in the middle of TLS", host);
	}
	if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason >= ALERT_OFFSET) {
		ERR_clear_error();
		return err_reason(e, REASON_UPSTREAM_TLS_FAILED,
				  "%s refused TLS with the alert \"%s\"", host,
				  SSL_alert_desc_string_long(reason - ALERT_OFFSET));
	}
	if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason == SSL_R_WRONG_VERSION_NUMBER)
		return tls_err(e, REASON_UPSTREAM_TLS_FAILED,
			       "TLS with %s failed (does it speak TLS on this port?)", host);
	return tls_err(e, REASON_UPSTREAM_TLS_FAILED, "TLS with %s failed", host);
}

static int explain_wanted(const struct trust_conn *conn, unsigned long code, struct err *e)
{
	int alert = ERR_GET_REASON(code) - ALERT_OFFSET;

	if (conn->shown)
		return err_reason(
			e, REASON_UPSTREAM_WANTS_CERT,
			"%s does not take the client certificate of the rule's credential%s%s",
			conn->host, code && alert > 0 ? ": " : "",
			code && alert > 0 ? SSL_alert_desc_string_long(alert) : "");
	return err_reason(e, REASON_UPSTREAM_WANTS_CERT,
			  "%s asks for a client certificate, and the rule has none to show (name a "
			  "credential `as: mtls`, or set `tls: passthrough`, so that the client "
			  "shows its own)",
			  conn->host);
}

int trust_explain(SSL *ssl, struct err *e)
{
	struct trust_conn *conn = trust_conn_of(ssl);
	unsigned long code = ERR_peek_error();

	if (!conn)
		return explain_failed("the origin", code, e);
	if (!SSL_is_init_finished(ssl) && conn->key_len > 0)
		session_cache_drop(trust_sessions(conn->trust), str_from(conn->key, conn->key_len));
	if (conn->error != X509_V_OK) {
		ERR_clear_error();
		return explain_untrusted(conn, e);
	}
	if (wants_cert(ssl, conn, code)) {
		ERR_clear_error();
		return explain_wanted(conn, code, e);
	}
	return explain_failed(conn->host, code, e);
}
