/*
 * Why a request was refused or failed: one table that gives each reason its word in the log and in
 * answers, its HTTP status, and its error type of RFC 9209 section 2.3. logging/README.md lists the
 * same words with a sentence each; a test compares the two.
 */
#ifndef STILE_LOGGING_REASON_H
#define STILE_LOGGING_REASON_H

#include "logging/str.h"

#define REASON_WORD_MAX 31 /* characters; record.c asks */

/* X(NAME, word, status, rfc 9209 error type). Order is the order of the documentation. */
#define REASON_TABLE(X)                                                                            \
	/* the policy said no */                                                                   \
	X(NO_RULE, "no_rule", 403, "http_request_denied")                                          \
	X(DENIED_BY_RULE, "denied_by_rule", 403, "http_request_denied")                            \
	X(METHOD_REFUSED, "method_refused", 405, "http_request_denied")                            \
	X(ADDRESS_DENIED, "address_denied", 403, "destination_ip_prohibited")                      \
	X(POLICY_REVOKED, "policy_revoked", 403, "http_request_denied")                            \
	X(CLIENT_CREDENTIAL, "client_credential", 403, "http_request_denied")                      \
	X(PLACEHOLDER_MISUSED, "placeholder_misused", 403, "http_request_denied")                  \
	X(UNSIGNABLE, "unsignable", 403, "http_request_denied")                                    \
	X(TOKEN_REQUIRED, "token_required", 407, "http_request_denied")                            \
	X(TOKEN_INVALID, "token_invalid", 407, "http_request_denied")                              \
	X(TOKEN_EXPIRED, "token_expired", 407, "http_request_denied")                              \
	X(TOKEN_REVOKED, "token_revoked", 407, "http_request_denied")                              \
	/* the request is not one we can be sure of */                                             \
	X(MALFORMED_REQUEST, "malformed_request", 400, "http_request_error")                       \
	X(AMBIGUOUS_URL, "ambiguous_url", 400, "http_request_error")                               \
	X(NAME_MISMATCH, "name_mismatch", 421, "http_request_error")                               \
	X(HEAD_TOO_LARGE, "head_too_large", 431, "http_request_error")                             \
	X(TARGET_TOO_LONG, "target_too_long", 414, "http_request_error")                           \
	X(BODY_TOO_LARGE, "body_too_large", 413, "http_request_error")                             \
	X(EXPECTATION_FAILED, "expectation_failed", 417, "http_request_error")                     \
	X(UPGRADE_REFUSED, "upgrade_refused", 403, "http_upgrade_failed")                          \
	X(VERSION_UNSUPPORTED, "version_unsupported", 505, "http_request_error")                   \
	X(NOT_TLS, "not_tls", 403, "http_request_denied")                                          \
	X(CLIENT_TLS_FAILED, "client_tls_failed", 400, "tls_protocol_error")                       \
	X(LEAF_REJECTED, "leaf_rejected", 400, "tls_alert_received")                               \
	X(ECH_REFUSED, "ech_refused", 403, "http_request_denied")                                  \
	/* the client went away or was too slow */                                                 \
	X(CLIENT_TIMEOUT, "client_timeout", 408, "connection_timeout")                             \
	X(CLIENT_CLOSED, "client_closed", 400, "connection_terminated")                            \
	X(RATE_LIMITED, "rate_limited", 429, "connection_limit_reached")                           \
	/* our own side */                                                                         \
	X(CREDENTIAL_UNAVAILABLE, "credential_unavailable", 503, "proxy_internal_error")           \
	X(LOG_UNAVAILABLE, "log_unavailable", 503, "proxy_internal_error")                         \
	X(STATE_UNAVAILABLE, "state_unavailable", 503, "proxy_internal_error")                     \
	X(OVERLOADED, "overloaded", 503, "connection_limit_reached")                               \
	X(SHUTTING_DOWN, "shutting_down", 503, "proxy_internal_error")                             \
	X(INTERNAL_ERROR, "internal_error", 500, "proxy_internal_error")                           \
	/* the way to the origin */                                                                \
	X(DNS_FAILED, "dns_failed", 502, "dns_error")                                              \
	X(DNS_TIMEOUT, "dns_timeout", 504, "dns_timeout")                                          \
	X(CONNECT_REFUSED, "connect_refused", 502, "connection_refused")                           \
	X(CONNECT_UNREACHABLE, "connect_unreachable", 502, "destination_ip_unroutable")            \
	X(CONNECT_TIMEOUT, "connect_timeout", 504, "connection_timeout")                           \
	X(PROXY_UNREACHABLE, "proxy_unreachable", 502, "destination_unavailable")                  \
	X(PROXY_REFUSED, "proxy_refused", 502, "destination_unavailable")                          \
	X(PROXY_MALFORMED, "proxy_malformed", 502, "http_protocol_error")                          \
	X(PROXY_TIMEOUT, "proxy_timeout", 504, "connection_timeout")                               \
	X(UPSTREAM_UNTRUSTED, "upstream_untrusted", 502, "tls_certificate_error")                  \
	X(UPSTREAM_TLS_FAILED, "upstream_tls_failed", 502, "tls_protocol_error")                   \
	X(UPSTREAM_TLS_TIMEOUT, "upstream_tls_timeout", 504, "connection_timeout")                 \
	X(UPSTREAM_WANTS_CERT, "upstream_wants_certificate", 502, "tls_alert_received")            \
	X(UPSTREAM_CLOSED, "upstream_closed", 502, "connection_terminated")                        \
	X(UPSTREAM_TIMEOUT, "upstream_timeout", 504, "http_response_timeout")                      \
	X(UPSTREAM_MALFORMED, "upstream_malformed", 502, "http_protocol_error")                    \
	X(CONTENT_CODING, "content_coding", 502, "http_response_content_coding")                   \
	X(REQUEST_LIFE, "request_life", 504, "connection_timeout")                                 \
	X(TUNNEL_IDLE, "tunnel_idle", 504, "connection_timeout")                                   \
	X(TUNNEL_LIFE, "tunnel_life", 504, "connection_timeout")

enum reason {
	REASON_NONE,
#define X(name, word, status, rfc9209) REASON_##name,
	REASON_TABLE(X)
#undef X
		REASON_COUNT
};

/* The word of the log and of answers; "none" for REASON_NONE. Static text. */
const char *reason_word(enum reason r);
int reason_status(enum reason r);
/* The error type for Proxy-Status (RFC 9209 section 2.3). */
const char *reason_proxy_error(enum reason r);
/* REASON_NONE if no reason has that word. */
enum reason reason_from_word(struct str word);

#endif
