/*
 * The shared credentials file of AWS's tools: sections of `key = value`, a section a profile.
 */
#ifndef STILE_PROXY_CREDENTIALS_PROFILE_H
#define STILE_PROXY_CREDENTIALS_PROFILE_H

#include "proxy/credentials/sigv4.h"

/* The three parts of that profile, as slices of text. -1: REASON_CREDENTIAL_UNAVAILABLE: there is
 * no such profile, it stands there twice, or it holds no key; the text names the line, never a
 * value. */
int profile_read(struct str text, struct str profile, struct sigv4_parts *ret,
		 struct err *e) ATTR_NODISCARD;

#endif
