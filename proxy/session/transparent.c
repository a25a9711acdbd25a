/*
 * See transparent.h.
 */
#include "proxy/session/transparent.h"

#include <string.h>

#include "proxy/net/original_dst.h"

/* Loopback, and "this host": whoever dials those means the machine that it runs on. */
static bool is_nobody_else(const struct ipaddr *a)
{
	static const uint8_t zero[15];

	if (a->family == 4)
		return a->b[0] == 127 || a->b[0] == 0;
	return memcmp(a->b, zero, sizeof(zero)) == 0 && a->b[15] <= 1;
}

const char *transparent_target(const struct entrance *en, int fd, struct host *ret,
			       uint16_t *ret_port)
{
	struct ipaddr a = {.family = 4};

	*ret_port = 0;
	if (original_dst(fd, &a, ret_port) < 0) {
		host_from_ipaddr(&a, ret);
		return "the kernel does not say where it was to go";
	}
	if (en->names && name_map_find(en->names, &a, ret) == 0)
		return NULL;
	host_from_ipaddr(&a, ret);
	if (name_map_is_made_up(&a))
		return "no name has that address (any more)";
	return is_nobody_else(&a) ? "that is the client's own machine" : NULL;
}
