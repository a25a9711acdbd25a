/*
 * What AWS's Security Token Service says, as XML. Read by expat, without a document type, so
 * without entities; bounded, and wiped.
 */
#ifndef STILE_PROXY_CREDENTIALS_STS_H
#define STILE_PROXY_CREDENTIALS_STS_H

#include "proxy/credentials/store.h"

/* The Credentials of an AssumeRole... answer, joined as sigv4_join_parts does. *ret_life_us: until
 * its Expiration, as token_json_end; 0: it says none. -1: REASON_CREDENTIAL_UNAVAILABLE. */
int sts_read(struct str xml, struct secret **ret, int64_t *ret_life_us,
	     struct err *e) ATTR_NODISCARD;
/* What an answer other than 200 says: its status, and its Error's Code if that is a word. Returns
 * -1. */
int sts_read_error(struct str xml, unsigned status, struct err *e);

#endif
