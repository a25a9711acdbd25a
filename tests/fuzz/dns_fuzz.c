/*
 * What a sandbox says to the stub DNS: dns_message_read and dns_message_write.
 * - What is not read says why, and what to answer.
 * - What is read has one question in class IN, whose bytes are those of the message.
 * - Every answer fits, parses back, and has the id and the question as they came, in their case.
 * - A name that a rule could speak of has the same letters on the wire.
 */
#include <arpa/nameser.h>

#include "policy/hostname.h"
#include "proxy/net/dns_message.h"
#include "tests/fuzz/fuzz.h"

static void check_answer(const struct dns_question *q, struct str in, enum dns_rcode rcode,
			 const struct ipaddr *a)
{
	uint8_t out[DNS_ANSWER_BYTES];
	size_t n = dns_message_write(q, rcode, a, 60, out);
	ns_msg m;

	CHECK(n >= DNS_HEADER_BYTES && n <= sizeof(out) && n <= 512);
	CHECK(ns_initparse(out, (int)n, &m) == 0);
	CHECK(memcmp(out, in.p, 2) == 0);
	CHECK(ns_msg_getflag(m, ns_f_qr) == 1);
	CHECK(ns_msg_getflag(m, ns_f_rcode) == (rcode & 0xf));
	CHECK(ns_msg_count(m, ns_s_qd) == (q->wire_n > 0));
	CHECK(ns_msg_count(m, ns_s_an) == (a && q->wire_n > 0));
	CHECK(q->wire_n <= in.n - DNS_HEADER_BYTES);
	CHECK(memcmp(out + DNS_HEADER_BYTES, in.p + DNS_HEADER_BYTES, q->wire_n) == 0);
}

/* A host's text has a dot where the wire has a length, and nowhere else. */
static void check_name(const struct dns_question *q)
{
	char text[DNS_QUESTION_BYTES + 1];
	size_t n = 0;
	struct host h;

	if (host_parse(str_from_c(q->name), &h, NULL) != 0 || h.kind != HOST_NAME)
		return;
	for (size_t at = 0; q->wire[at] != 0; at += 1u + q->wire[at]) {
		if (n > 0)
			text[n++] = '.';
		for (size_t i = 1; i <= q->wire[at]; i++) {
			char c = (char)q->wire[at + i];

			text[n++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
		}
	}
	CHECK(str_eq(host_str(&h), str_from(text, n)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct ipaddr v4 = {.family = 4, .b = {198, 18, 0, 1}};
	static const struct ipaddr v6 = {.family = 6, .b = {0xfd, 0x73, [15] = 1}};
	char *copy = fuzz_copy(str_from(data, n));
	struct str in = str_from(copy, n);
	enum dns_rcode rcode = DNS_NOERROR;
	struct err e = ERR_INIT;
	struct dns_question q;

	if (dns_message_read(in, &q, &rcode, &e) == 0) {
		CHECK(q.wire_n > 0 && !q.is_mute);
		CHECK(memcmp(q.wire + q.wire_n - 2, "\0\1", 2) == 0);
		check_answer(&q, in, DNS_NOERROR, &v4);
		check_answer(&q, in, DNS_NOERROR, &v6);
		check_answer(&q, in, DNS_NXDOMAIN, NULL);
		check_name(&q);
	} else {
		fuzz_check_err(&e);
		CHECK(rcode != DNS_NOERROR);
		if (!q.is_mute)
			check_answer(&q, in, rcode, NULL);
	}
	free(copy);
	return 0;
}
