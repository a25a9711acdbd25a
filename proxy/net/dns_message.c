/*
 * See dns_message.h. The C library's libresolv takes messages apart (ns_initparse(3) and the rest
 * of <arpa/nameser.h>): it checks all counts and lengths against the message's end, follows no
 * compression loop and escapes names. What it has no function for, an answer of one record, is
 * written here. Called by session/stub_dns.c.
 */
#include "proxy/net/dns_message.h"

#include <arpa/nameser.h>
#include <string.h>

#define FLAG_QR	    0x8000
#define FLAG_OPCODE 0x7800
#define FLAG_TC	    0x0200
#define FLAG_RD	    0x0100
#define FLAG_RA	    0x0080
#define FLAG_CD	    0x0010
/* What we tell that may be sent to us over UDP (the DNS flag day of 2020). */
#define OUR_UDP_BYTES 1232

static int refuse(enum dns_rcode rcode, enum dns_rcode *ret_rcode, const char *why, struct err *e)
{
	*ret_rcode = rcode;
	return err_reason(e, REASON_MALFORMED_REQUEST, "%s", why);
}

static uint16_t get16(const char *p)
{
	return (uint16_t)((uint8_t)p[0] << 8 | (uint8_t)p[1]);
}

/* The question as it stands in the message: nothing lies before it that its name could point to, so
 * no length of a label is a pointer. 0: it is none. */
static size_t wire_length(struct str in)
{
	size_t at = DNS_HEADER_BYTES;

	while (at < in.n && in.p[at] != 0) {
		if ((uint8_t)in.p[at] > NS_MAXLABEL)
			return 0;
		at += 1u + (uint8_t)in.p[at];
	}
	at += 1 + 4;
	return at <= in.n && at - DNS_HEADER_BYTES <= DNS_QUESTION_BYTES ? at - DNS_HEADER_BYTES
									 : 0;
}

static int read_question(ns_msg *m, struct str in, struct dns_question *q, uint16_t *ret_class)
{
	size_t n = wire_length(in);
	ns_rr rr;

	if (n == 0 || ns_parserr(m, ns_s_qd, 0, &rr) != 0 ||
	    strlen(ns_rr_name(rr)) >= sizeof(q->name))
		return -1;
	memcpy(q->wire, in.p + DNS_HEADER_BYTES, n);
	q->wire_n = (uint16_t)n;
	memcpy(q->name, ns_rr_name(rr), strlen(ns_rr_name(rr)) + 1);
	q->type = (uint16_t)ns_rr_type(rr);
	*ret_class = (uint16_t)ns_rr_class(rr);
	return 0;
}

static bool is_root(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "") == 0;
}

/* RFC 6891 section 6.1: at most one, of the root. */
static int read_opt(ns_msg *m, struct dns_question *q, enum dns_rcode *ret_rcode, struct err *e)
{
	ns_rr rr;

	if (ns_msg_count(*m, ns_s_ar) == 0)
		return 0;
	if (ns_msg_count(*m, ns_s_ar) > 1 || ns_parserr(m, ns_s_ar, 0, &rr) != 0 ||
	    ns_rr_type(rr) != ns_t_opt || !is_root(ns_rr_name(rr)))
		return refuse(DNS_FORMERR, ret_rcode,
			      "a query with more than one OPT record behind it", e);
	q->has_opt = true;
	if ((ns_rr_ttl(rr) >> 16 & 0xff) != 0)
		return refuse(DNS_BADVERS, ret_rcode, "an unknown version of EDNS", e);
	return 0;
}

int dns_message_read(struct str in, struct dns_question *q, enum dns_rcode *ret_rcode,
		     struct err *e)
{
	uint16_t class = 0;
	ns_msg m;

	memset(q, 0, offsetof(struct dns_question, wire));
	q->name[0] = '\0';
	q->is_mute = true;
	if (in.n < DNS_HEADER_BYTES)
		return refuse(DNS_FORMERR, ret_rcode, "a DNS message without a whole header", e);
	q->id = get16(in.p);
	q->flags = get16(in.p + 2);
	if (q->flags & FLAG_QR)
		return refuse(DNS_FORMERR, ret_rcode, "a DNS answer, not a query", e);
	q->is_mute = false;
	if (q->flags & FLAG_OPCODE)
		return refuse(DNS_NOTIMP, ret_rcode, "a DNS message that is no query", e);
	if (in.n > NS_MAXMSG || ns_initparse((const u_char *)in.p, (int)in.n, &m) != 0)
		return refuse(DNS_FORMERR, ret_rcode, "not a DNS message", e);
	if (q->flags & FLAG_TC || ns_msg_count(m, ns_s_qd) != 1 ||
	    ns_msg_count(m, ns_s_an) + ns_msg_count(m, ns_s_ns) != 0 ||
	    read_question(&m, in, q, &class) != 0)
		return refuse(DNS_FORMERR, ret_rcode, "not one whole question", e);
	if (read_opt(&m, q, ret_rcode, e) != 0)
		return -1;
	if (class != ns_c_in)
		return refuse(DNS_REFUSED, ret_rcode, "a class other than IN", e);
	return 0;
}

/* ---- writing ---- */

static uint8_t *put16(uint8_t *p, unsigned v)
{
	*p++ = (uint8_t)(v >> 8);
	*p++ = (uint8_t)v;
	return p;
}

static uint8_t *put_record(uint8_t *p, const struct ipaddr *a, uint32_t ttl_secs)
{
	size_t n = a->family == 4 ? 4 : 16;

	p = put16(p, 0xc000 | DNS_HEADER_BYTES); /* the question's name */
	p = put16(p, a->family == 4 ? DNS_TYPE_A : DNS_TYPE_AAAA);
	p = put16(p, ns_c_in);
	p = put16(p, ttl_secs >> 16);
	p = put16(p, ttl_secs & 0xffff);
	p = put16(p, (unsigned)n);
	memcpy(p, a->b, n);
	return p + n;
}

static uint8_t *put_opt(uint8_t *p, enum dns_rcode rcode)
{
	*p++ = 0;
	p = put16(p, ns_t_opt);
	p = put16(p, OUR_UDP_BYTES);
	p = put16(p, ((unsigned)rcode >> 4) << 8); /* the upper bits; version 0 */
	p = put16(p, 0);			   /* no DO: nothing here is signed */
	return put16(p, 0);
}

size_t dns_message_write(const struct dns_question *q, enum dns_rcode rcode,
			 const struct ipaddr *addr, uint32_t ttl_secs,
			 uint8_t out[DNS_ANSWER_BYTES])
{
	uint8_t *p = out;

	p = put16(p, q->id);
	/* RA: resolvers take an empty answer without it for a referral, and go on asking others. */
	p = put16(p, FLAG_QR | FLAG_RA | (q->flags & (FLAG_OPCODE | FLAG_RD | FLAG_CD)) |
			     ((unsigned)rcode & 0xf));
	p = put16(p, q->wire_n > 0);
	p = put16(p, addr && q->wire_n > 0);
	p = put16(p, 0);
	p = put16(p, q->has_opt);
	memcpy(p, q->wire, q->wire_n);
	p += q->wire_n;
	if (addr && q->wire_n > 0)
		p = put_record(p, addr, ttl_secs);
	if (q->has_opt)
		p = put_opt(p, rcode);
	return (size_t)(p - out);
}
