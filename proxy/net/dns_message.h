/*
 * DNS messages as the stub server needs them (RFC 1035 section 4.1): reads one question, writes its
 * answer. No sockets, no decision.
 */
#ifndef STILE_PROXY_NET_DNS_MESSAGE_H
#define STILE_PROXY_NET_DNS_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "logging/err.h"
#include "logging/str.h"
#include "policy/ipaddr.h"

#define DNS_HEADER_BYTES   12
#define DNS_QUESTION_BYTES 259 /* a name of 255 bytes, type, class */
/* Header, question, one AAAA record, OPT. So every answer fits into 512 bytes, the least that UDP
 * has to carry, and none is ever truncated. */
#define DNS_ANSWER_BYTES (DNS_HEADER_BYTES + DNS_QUESTION_BYTES + 28 + 11)
#define DNS_NAME_TEXT	 1026 /* 255 bytes, each as \DDD */

enum dns_rcode {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
	DNS_BADVERS = 16, /* RFC 6891 section 9 */
};

enum { DNS_TYPE_A = 1, DNS_TYPE_AAAA = 28 };

struct dns_question {
	uint16_t id, flags, type;
	bool has_opt; /* RFC 6891: then the answer has one too */
	bool is_mute; /* nothing may be answered: no header, or an answer itself */
	uint16_t wire_n;
	uint8_t wire[DNS_QUESTION_BYTES]; /* as it came, in its case; wire_n 0: unreadable */
	/* Without a trailing dot; a byte that no name of a host has stands as \DDD, a dot within a
	 * label as \. */
	char name[DNS_NAME_TEXT];
};

/* Reads a query of one question in class IN. 0, or -1 with REASON_MALFORMED_REQUEST: then
 * *ret_rcode is what to answer, unless ret->is_mute, and *ret has what could be read. */
int dns_message_read(struct str in, struct dns_question *ret, enum dns_rcode *ret_rcode,
		     struct err *e) ATTR_NODISCARD;
/* An answer to q with at most one record, a or aaaa by its family; NULL: none. The bytes. */
size_t dns_message_write(const struct dns_question *q, enum dns_rcode rcode,
			 const struct ipaddr *addr, uint32_t ttl_secs,
			 uint8_t out[DNS_ANSWER_BYTES]);

#endif
