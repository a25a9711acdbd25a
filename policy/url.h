/*
 * The canonical URL: what a rule is compared with, what is logged and what is sent upstream are
 * written from this one form (RFC 3986 section 6.2.2, stricter). Refused as ambiguous_url: dot
 * segments in any spelling, backslashes, control characters, NUL, userinfo, fragments, broken
 * escapes, odd spellings of addresses. Unreserved escapes are decoded, the others get upper-case
 * hex; %2F stays one character of its segment; empty segments stay. A fixed point: parsing the
 * canonical text gives the same text.
 */
#ifndef STILE_POLICY_URL_H
#define STILE_POLICY_URL_H

#include "logging/err.h"
#include "logging/strbuf.h"
#include "policy/hostname.h"

enum scheme {
	SCHEME_NONE,
	SCHEME_HTTP,
	SCHEME_HTTPS,
	SCHEME_TCP,
	/* A WebSocket (RFC 6455), which begins as a request: of rules and decisions. The URL of the
	 * request itself is http or https. */
	SCHEME_WS,
	SCHEME_WSS
};

struct url {
	/* owned, unless lent */
	char *mem; /* holds path and query */
	/* plain; slices point into mem */
	bool lent; /* mem is that of a struct url_room */
	enum scheme scheme;
	uint16_t port;	  /* never 0 */
	bool has_query;	  /* `/x?` keeps its empty query */
	struct str path;  /* starts with '/'; for `OPTIONS *` it is "*" */
	struct str query; /* without the '?' */
	struct host host;
};

/* Memory of the caller's that lives as long as the URL. */
struct url_room {
	char *p;
	size_t n;
};

/* "http", "https", "tcp", "ws", "wss"; "" for SCHEME_NONE. Static. */
const char *scheme_word(enum scheme s);
/* 80, 443; 0 for SCHEME_TCP, which has none. */
uint16_t scheme_default_port(enum scheme s);
/* What a WebSocket over a request of that scheme is: ws of http, wss of https. */
enum scheme scheme_of_websocket(enum scheme s);

/* absolute-form (RFC 9112 section 3.2.2): http://host[:port][/path][?query]; no path becomes "/".
 * 0, or -1 with REASON_MALFORMED_REQUEST, REASON_AMBIGUOUS_URL or REASON_TARGET_TOO_LONG (path and
 * query, as they would be sent, beyond LIMIT_TARGET_BYTES). Everything that could be read is in
 * *ret even on failure, for the log alone: path and query are then the bytes as they came. Call
 * url_clear in both cases. */
int url_parse_absolute(struct str in, struct url *ret, struct err *e) ATTR_NODISCARD;
/* The same with ws:// and wss://, which stand in no request: for what people ask. */
int url_parse_asked(struct str in, struct url *ret, struct err *e) ATTR_NODISCARD;
/* origin-form (section 3.2.1) within a known scheme, host and port. `*` is taken too (path "*"):
 * that it stands with OPTIONS alone is for the caller to check. Failure as above. */
int url_parse_origin_form(enum scheme scheme, const struct host *host, uint16_t port, struct str in,
			  struct url *ret, struct err *e) ATTR_NODISCARD;
/* The two of a request, which has room for path and query; where it might be too small, they get
 * memory of their own as above. */
int url_parse_asked_into(struct url_room room, struct str in, struct url *ret,
			 struct err *e) ATTR_NODISCARD;
int url_parse_origin_form_into(struct url_room room, enum scheme scheme, const struct host *host,
			       uint16_t port, struct str in, struct url *ret,
			       struct err *e) ATTR_NODISCARD;
/* authority-form of CONNECT (section 3.2.3): host:port, the port spelled out, 1 to 65535. */
int url_parse_authority(struct str in, struct host *ret_host, uint16_t *ret_port,
			struct err *e) ATTR_NODISCARD;
/* The value of Host or :authority: host[:port]; without a port it is default_port. Userinfo is
 * refused. */
int url_parse_host_field(struct str in, uint16_t default_port, struct host *ret_host,
			 uint16_t *ret_port, struct err *e) ATTR_NODISCARD;
void url_clear(struct url *u);

/* The value for Host: host, with the port unless it is the scheme's default. */
void url_add_authority(const struct url *u, struct strbuf *out);
/* path and query as sent upstream. */
void url_add_target(const struct url *u, struct strbuf *out);
/* The whole: scheme://authority/path?query. */
void url_add(const struct url *u, struct strbuf *out);

#endif
