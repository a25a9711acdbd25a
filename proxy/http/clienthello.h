/*
 * SNI, ALPN and ECH out of the first raw bytes of a connection (RFC 8446 section 4.1.2, RFC 6066
 * section 3), without answering: for the decision before TLS begins and for passthrough. The
 * handshake message may span records of any size.
 */
#ifndef STILE_PROXY_HTTP_CLIENTHELLO_H
#define STILE_PROXY_HTTP_CLIENTHELLO_H

#include "logging/err.h"
#include "logging/str.h"

enum clienthello_result {
	CLIENTHELLO_MORE, /* so far it looks like one */
	CLIENTHELLO_OK,
	CLIENTHELLO_NOT_TLS, /* the first bytes are something else */
	CLIENTHELLO_BAD,     /* TLS, but not a hello that we would act on: e says why */
};

struct clienthello {
	char sni[256]; /* host_name as sent, lower-cased, one trailing dot cut; terminated */
	size_t sni_len;
	bool has_sni;
	bool sni_dotted; /* it came with a dot at its end (RFC 6066 section 3 has none) */
	bool ech;	 /* encrypted_client_hello is offered (0xfe0d), GREASE included */
	char alpn[256];	 /* wire format, as far as it fits */
	size_t alpn_len;
	unsigned version_max; /* 0x0303, 0x0304, ... */
};

/* How far the records were followed, of bytes that come one by one. Zeroed at the beginning. */
struct clienthello_scan {
	size_t at;	  /* behind the last record that is whole */
	size_t len, need; /* of the message up to there; its head, then all of it */
	unsigned char head[4];
};

/* Is the message whole (OK, whatever it says)? `in` is what there was before, and more behind it.
 * It looks at a record that is whole once. */
enum clienthello_result clienthello_scan(struct clienthello_scan *k, struct str in, struct err *e);

/* BAD: two server_name extensions or two names, a name with NUL or bytes outside of host names, an
 * empty or over-long name, an IP address as a name, lengths that disagree, more than
 * LIMIT_CLIENTHELLO_BYTES, SSLv2 framing. */
enum clienthello_result clienthello_parse(struct str in, struct clienthello *ret, struct err *e);

#endif
