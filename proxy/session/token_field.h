/*
 * The token in a Proxy-Authorization (RFC 9110 section 11.7.2): Basic, as a proxy URL with user
 * information brings it (RFC 7617), or Bearer (RFC 6750). Pure.
 */
#ifndef STILE_PROXY_SESSION_TOKEN_FIELD_H
#define STILE_PROXY_SESSION_TOKEN_FIELD_H

#include <stddef.h>

#include "logging/attrs.h"
#include "logging/str.h"

/* The password of Basic (whatever the user is called), or what Bearer brings; n bytes in out, which
 * has room for size and is a secret. -1: it is neither, is not spelt strictly, or does not fit. */
int token_field_read(struct str value, char *out, size_t size, size_t *ret_n) ATTR_NODISCARD;

#endif
