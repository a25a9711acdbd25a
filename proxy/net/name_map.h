/*
 * The addresses that names are given by the stub DNS, and the way back: a client that knows no
 * proxy dials such an address, and the name that it meant is found again. The addresses are made up
 * (198.18.0.0/15 and one ULA /64), so they say nothing of where the name's server is, and no origin
 * has one. Shared by all threads.
 */
#ifndef STILE_PROXY_NET_NAME_MAP_H
#define STILE_PROXY_NET_NAME_MAP_H

#include "policy/hostname.h"

/* RFC 2544's range, and a ULA prefix whose global ID spells "stile" (RFC 4193). The judgement of
 * addresses refuses both as upstreams unless a rule names them. */
#define NAME_MAP_V4 "198.18.0.0/15"
#define NAME_MAP_V6 "fd73:7469:6c65::/64"

struct name_map;

int name_map_new(struct name_map **ret, struct err *e) ATTR_NODISCARD;
struct name_map *name_map_ref(struct name_map *m);
void name_map_unref(struct name_map *m); /* NULL is accepted */

/* The two addresses of host, a HOST_NAME, which it keeps: the first name that is asked for gets
 * 198.18.0.1, the next 198.18.0.2, and the IPv6 address has the IPv4 one as its last 32 bits. A
 * name is forgotten only when LIMIT_NAMES others were used later, and never within
 * LIMIT_NAME_TTL_SECS of now_us (a monotonic clock), the time of its last call here; its addresses
 * are given to another name as late as the range allows. A name that a rule spells out (is_spelt)
 * finds LIMIT_NAMES_SPELT places, however many names were made up that a pattern admits. -1 with
 * REASON_OVERLOADED: full of names that may not be forgotten yet, or no memory. */
int name_map_give(struct name_map *m, const struct host *host, bool is_spelt, int64_t now_us,
		  struct ipaddr *ret_v4, struct ipaddr *ret_v6, struct err *e) ATTR_NODISCARD;
/* The same, and the name is never forgotten: for a socket that is bound to its address. At most
 * LIMIT_NAMES_KEPT. */
int name_map_keep(struct name_map *m, const struct host *host, struct ipaddr *ret_v4,
		  struct ipaddr *ret_v6, struct err *e) ATTR_NODISCARD;
/* The name that has the address, of either family; it counts as used. -1: none has. */
int name_map_find(struct name_map *m, const struct ipaddr *a, struct host *ret) ATTR_NODISCARD;
/* Is it an address of those ranges, whether a name has it or not? */
bool name_map_is_made_up(const struct ipaddr *a);

#endif
