/*
 * What swap.c (finding, taking out) and swap_put.c (putting in) share: how one spelling is read.
 * Nobody else includes it.
 */
#ifndef STILE_PROXY_CREDENTIALS_SWAP_INTERNAL_H
#define STILE_PROXY_CREDENTIALS_SWAP_INTERNAL_H

#include "proxy/credentials/swap.h"

/* The pair of `Basic ...` (RFC 7617 section 2); false: it is none, or memory is out. The caller
 * frees *ret_mem. */
bool swap_basic_pair(struct str value, char **ret_mem, struct str *ret);
/* Is text one half of the pair, and may the other one be what it is? *ret_user: it is the first. */
bool swap_is_pair(const struct config_placeholder *how, struct str pair, struct str text,
		  bool *ret_user);
bool swap_is_cookie(const struct field *f);
/* `name=VALUE` with nothing around it. */
bool swap_is_cookie_pair(struct str pair, struct str text);
/* The path with `value` for each placeholder; how many there were. */
size_t swap_path(struct str path, struct str text, struct str value, struct strbuf *out);

#endif
