/*
 * The keeper's own process, from its birth to its end.
 */
#ifndef STILE_PROXY_KEEPER_SERVER_H
#define STILE_PROXY_KEEPER_SERVER_H

#include "proxy/keeper/keeper.h"

struct server_fds {
	int main, files;
	int *leaves; /* n of them */
	size_t n;
};

/* Does not return. */
void server_main(const struct keeper_options *o, const struct server_fds *fds) ATTR_NORETURN;

#endif
