/*
 * The stub DNS: names that a rule could admit get an address of name_map.h, all others do not
 * exist. It asks nobody, so nothing can leave by way of a question; a refused one is a record
 * (dns.deny).
 */
#ifndef STILE_PROXY_SESSION_STUB_DNS_H
#define STILE_PROXY_SESSION_STUB_DNS_H

#include "logging/err.h"

struct stub_dns;
struct worker;
struct entrance;

/* Serves fd on w's loop, by its kind: bound (UDP) or listening (TCP). fd is borrowed until
 * stub_dns_free. */
int stub_dns_new(struct worker *w, const struct entrance *en, int fd, struct stub_dns **ret,
		 struct err *e) ATTR_NODISCARD;
/* Closes what is open at once: a question is answered as soon as it is here, so none is in flight.
 * NULL is accepted. */
void stub_dns_free(struct stub_dns *d);

#endif
