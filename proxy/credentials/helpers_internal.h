/*
 * What the keeper and the process of the helpers say to each other; shared by helpers*.c alone. One
 * datagram (SOCK_SEQPACKET) of one size in each direction.
 */
#ifndef STILE_PROXY_CREDENTIALS_HELPERS_INTERNAL_H
#define STILE_PROXY_CREDENTIALS_HELPERS_INTERNAL_H

#include "proxy/credentials/helpers.h"

#define HELPERS_DIGEST 32

enum helpers_kind {
	HELPERS_RUN = 1, /* digest; a socket comes along, which is told what becomes of it */
	HELPERS_READ,	 /* serial; helpers_reading is the answer */
	HELPERS_COMMIT,
	HELPERS_ABORT,
};

struct helpers_ask {
	uint32_t kind;
	uint32_t serial;
	unsigned char digest[HELPERS_DIGEST];
};

struct helpers_reading {
	uint32_t serial;
	uint32_t ok;
	char version_hash[20];
};

/* What tells one entry of the configuration from another: the credential's name, program,
 * arguments and timeout. -1: no memory. */
int helpers_digest(const struct config_credential *c, unsigned char ret[HELPERS_DIGEST]);

/* The process. Does not return. */
void helpers_main(const struct helpers_options *o, int fd) ATTR_NORETURN;

#endif
