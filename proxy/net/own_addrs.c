/*
 * Asks the kernel for every address of every interface, up or down: an address of an interface that
 * is down may be up by the time the socket connects. Resolves and judges nothing; the worker hands
 * the list to policy_check_addr.
 */
#include "proxy/net/own_addrs.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define FRESH_US 2000000

struct own_addrs {
	/* owned */
	struct ipaddr *addrs;
	/* plain */
	size_t n;
	int64_t read_us; /* of the last attempt */
	bool has_list;
};

int own_addrs_new(struct own_addrs **ret, struct err *e)
{
	struct own_addrs *o = calloc(1, sizeof(*o));

	if (!o)
		return err_set(e, "out of memory");
	*ret = o;
	return 0;
}

void own_addrs_free(struct own_addrs *o)
{
	if (!o)
		return;
	free(o->addrs);
	free(o);
}

/* False for what is no IP address (AF_PACKET, an interface without one). */
static bool to_ipaddr(const struct sockaddr *sa, struct ipaddr *ret)
{
	*ret = (struct ipaddr){0};
	if (!sa)
		return false;
	if (sa->sa_family == AF_INET) {
		struct sockaddr_in in;

		memcpy(&in, sa, sizeof(in));
		ret->family = 4;
		memcpy(ret->b, &in.sin_addr, 4);
		return true;
	}
	if (sa->sa_family == AF_INET6) {
		struct sockaddr_in6 in6;

		memcpy(&in6, sa, sizeof(in6));
		ret->family = 6;
		memcpy(ret->b, &in6.sin6_addr, 16);
		return true;
	}
	return false;
}

static bool has(const struct ipaddr *addrs, size_t n, const struct ipaddr *a)
{
	for (size_t i = 0; i < n; i++)
		if (ipaddr_eq(&addrs[i], a))
			return true;
	return false;
}

/* Replaces the list, or leaves it as it was: a list that lacks an address would let it through. */
static int read_list(struct own_addrs *o, struct err *e)
{
	struct ifaddrs *list, *i;
	struct ipaddr *addrs = NULL;
	size_t n = 0, cap = 0;

	if (getifaddrs(&list) < 0)
		return err_sys(e, errno, "the host's own addresses cannot be read");
	for (i = list; i; i = i->ifa_next) {
		struct ipaddr a;

		if (!to_ipaddr(i->ifa_addr, &a) || has(addrs, n, &a))
			continue;
		if (n == cap) {
			struct ipaddr *grown = realloc(addrs, (cap + 16) * 2 * sizeof(*addrs));

			if (!grown) {
				free(addrs);
				freeifaddrs(list);
				return err_set(e, "out of memory");
			}
			addrs = grown;
			cap = (cap + 16) * 2;
		}
		addrs[n++] = a;
	}
	freeifaddrs(list);
	free(o->addrs);
	o->addrs = addrs;
	o->n = n;
	o->has_list = true;
	return 0;
}

int own_addrs_get(struct own_addrs *o, int64_t now_us, const struct ipaddr **ret, size_t *ret_n,
		  struct err *e)
{
	/* Without a list every call asks again: there is nothing to fall back to. */
	if (!o->has_list || now_us - o->read_us >= FRESH_US || now_us < o->read_us) {
		o->read_us = now_us;
		if (read_list(o, e) < 0 && !o->has_list) {
			if (e)
				e->reason = REASON_INTERNAL_ERROR;
			return -1;
		}
	}
	*ret = o->addrs;
	*ret_n = o->n;
	return 0;
}
