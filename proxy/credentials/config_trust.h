/*
 * Whom a configuration believes: `upstream.trust`, read from its files.
 */
#ifndef STILE_CREDENTIALS_CONFIG_TRUST_H
#define STILE_CREDENTIALS_CONFIG_TRUST_H

#include "certs/trust.h"
#include "policy/config.h"

/* Left out, `upstream.trust` means the system's roots. *ret is the caller's. An error begins with
 * the place of what is at fault, FILE:LINE:COL. */
int config_trust(const struct config *c, struct trust **ret, struct err *e) ATTR_NODISCARD;

#endif
