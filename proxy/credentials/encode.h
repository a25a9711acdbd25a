/*
 * How secrets are spelled in fields, queries and forms. What is appended is a secret as well.
 */
#ifndef STILE_PROXY_CREDENTIALS_ENCODE_H
#define STILE_PROXY_CREDENTIALS_ENCODE_H

#include "logging/strbuf.h"

/* RFC 4648 section 4 of a and then b, as if they were one. */
void encode_base64(struct strbuf *out, struct str a, struct str b);
/* RFC 4648 section 5, without padding. */
void encode_base64url(struct strbuf *out, struct str s);
/* Reads that back. -1: a byte that is not of the alphabet (padding included), a length that none
 * has, or bits behind the end. */
int decode_base64url(struct str s, struct strbuf *out) ATTR_NODISCARD;
/* All but unreserved characters (RFC 3986 section 2.3) escaped. */
void encode_percent(struct strbuf *out, struct str s);
/* One more pair of application/x-www-form-urlencoded; key is written as it is. */
void encode_form_pair(struct strbuf *out, const char *key, struct str value);

#endif
