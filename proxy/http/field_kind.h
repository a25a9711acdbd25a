/*
 * What a field is to a proxy, by its name alone: the one table that both HTTP versions, both
 * directions and the trailers go by. It reads no value.
 */
#ifndef STILE_PROXY_HTTP_FIELD_KIND_H
#define STILE_PROXY_HTTP_FIELD_KIND_H

#include "logging/str.h"

enum field_kind {
	FIELD_PLAIN, /* the origin's and the client's business */
	/* those that become members of a message */
	FIELD_HOST,
	FIELD_CONTENT_LENGTH,
	FIELD_TRANSFER_ENCODING,
	FIELD_CONNECTION,
	FIELD_TE,
	FIELD_UPGRADE,
	FIELD_HTTP2_SETTINGS,
	FIELD_EXPECT,
	FIELD_PROXY_AUTHORIZATION,
	/* of one hop, or not to be told on: dropped */
	FIELD_HOP,	  /* Proxy-* */
	FIELD_KEEP_ALIVE, /* an origin's is heeded */
	FIELD_ALT_SVC,	  /* an invitation to leave by another way (RFC 7838) */
	/* forwarded */
	FIELD_ACCEPT,
	FIELD_TRAILER,
	FIELD_CONTROL, /* decides how the message is read, routed, answered or who sent it */
};

/* Case does not matter. */
enum field_kind field_kind(struct str name);
/* The same for a reader who takes `_` and other marks for `-`, as CGI and what descends from it
 * does (str_name_fold). */
enum field_kind field_kind_folded(struct str name);
/* May a field of that name be a trailer (RFC 9110 section 6.5.1)? */
bool field_may_trail(struct str name);
/* Is it one that the writers write themselves, so that it must not be among the other fields? */
static inline bool field_is_framing(enum field_kind k)
{
	return k == FIELD_HOST || k == FIELD_CONTENT_LENGTH || k == FIELD_TRANSFER_ENCODING ||
	       k == FIELD_CONNECTION || k == FIELD_EXPECT;
}
/* Can it be one of these, going by its length and first byte? Nearly no other is called so. */
static inline bool field_may_be_framing(struct str name)
{
	char first = name.n > 0 ? (char)(name.p[0] | 0x20) : '\0';

	switch (name.n) {
	case 4: return first == 'h';
	case 6: return first == 'e';
	case 10:
	case 14: return first == 'c';
	case 17: return first == 't';
	default: return false;
	}
}

#endif
