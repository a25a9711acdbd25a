/*
 * One question is read, or it is said what to answer; answers are short and echo the question byte
 * by byte. The messages are written by hand here.
 */
#include "net_test.h"

#include <arpa/nameser.h>

#include "proxy/net/dns_message.h"

/* Raw bytes as a string literal, whose own NUL at the end does not count. */
#define RAW(s)                                                                                     \
	{                                                                                          \
		(s), sizeof(s) - 1                                                                 \
	}
#define BYTES(s) ((struct str)RAW(s))
/* id 7, RD, one question and `more` additional records */
#define HEAD(more) "\0\7\1\0\0\1\0\0\0\0\0" more
#define OPT	   "\0\0\x29\x10\0\0\0\0\0\0\0"

static int read_it(struct str in, struct dns_question *q, enum dns_rcode *rcode)
{
	/* In memory of its own size, so that a read past the end is seen. */
	char *copy = malloc(in.n ? in.n : 1);
	struct err e = ERR_INIT;
	int rc;

	assert_non_null(copy);
	if (in.n)
		memcpy(copy, in.p, in.n);
	rc = dns_message_read(str_from(copy, in.n), q, rcode, &e);
	free(copy);
	if (rc != 0) {
		assert_int_equal(e.reason, REASON_MALFORMED_REQUEST);
		assert_true(e.text[0] != '\0');
	}
	return rc;
}

static void test_question_is_read_as_it_came(void **state)
{
	struct dns_question q;
	enum dns_rcode rcode;

	(void)state;
	assert_int_equal(read_it(BYTES(HEAD("\0") "\3wWw\7eXample\4TEST\0\0\1\0\1"), &q, &rcode),
			 0);
	assert_string_equal(q.name, "wWw.eXample.TEST");
	assert_int_equal(q.type, DNS_TYPE_A);
	assert_int_equal(q.id, 7);
	assert_false(q.has_opt);
	assert_int_equal(read_it(BYTES(HEAD("\1") "\5a_b-c\4test\0\0\x1c\0\1" OPT), &q, &rcode), 0);
	assert_string_equal(q.name, "a_b-c.test");
	assert_int_equal(q.type, DNS_TYPE_AAAA);
	assert_true(q.has_opt);
}

static void test_odd_bytes_are_escaped(void **state)
{
	struct dns_question q;
	enum dns_rcode rcode;

	(void)state;
	assert_int_equal(read_it(BYTES(HEAD("\0") "\5a.b\0c\4te\x1bt\0\0\1\0\1"), &q, &rcode), 0);
	assert_string_equal(q.name, "a\\.b\\000c.te\\027t");
	assert_int_equal(read_it(BYTES(HEAD("\0") "\0\0\2\0\1"), &q, &rcode), 0);
	assert_string_equal(q.name, ".");
}

static void test_what_is_no_single_question(void **state)
{
	static const struct {
		const char *what;
		struct str in;
		enum dns_rcode rcode;
		bool is_mute;
	} cases[] = {
		{"nothing", RAW(""), DNS_FORMERR, true},
		{"half a header", RAW("\0\7\1\0\0\1"), DNS_FORMERR, true},
		{"an answer", RAW("\0\7\x81\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1"), DNS_FORMERR, true},
		{"a header alone", RAW(HEAD("\0")), DNS_FORMERR, false},
		{"no question", RAW("\0\7\1\0\0\0\0\0\0\0\0\0"), DNS_FORMERR, false},
		{"two questions", RAW("\0\7\1\0\0\2\0\0\0\0\0\0\1a\0\0\1\0\1\1b\0\0\1\0\1"),
		 DNS_FORMERR, false},
		{"65535 questions", RAW("\0\7\1\0\xff\xff\0\0\0\0\0\0\1a\0\0\1\0\1"), DNS_FORMERR,
		 false},
		{"an opcode NOTIFY", RAW("\0\7\x21\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1"), DNS_NOTIMP,
		 false},
		{"an opcode UPDATE", RAW("\0\7\x28\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1"), DNS_NOTIMP,
		 false},
		{"a truncated one", RAW("\0\7\3\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1"), DNS_FORMERR,
		 false},
		{"class CH", RAW(HEAD("\0") "\7version\4bind\0\0\x10\0\3"), DNS_REFUSED, false},
		{"class ANY", RAW(HEAD("\0") "\1a\0\0\1\0\xff"), DNS_REFUSED, false},
		{"an answer in the query",
		 RAW("\0\7\1\0\0\1\0\1\0\0\0\0\1a\0\0\1\0\1\xc0\x0c\0\1\0\1\0\0\0\0\0\4aaaa"),
		 DNS_FORMERR, false},
		{"bytes behind it", RAW(HEAD("\0") "\1a\0\0\1\0\1x"), DNS_FORMERR, false},
		{"a type cut off", RAW(HEAD("\0") "\1a\0\0"), DNS_FORMERR, false},
		{"a label cut off",
		 RAW(HEAD("\0") "\x3f"
				"aaa"),
		 DNS_FORMERR, false},
		{"a label of 64",
		 RAW(HEAD("\0") "\x40"
				"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
				"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\0\0\1\0\1"),
		 DNS_FORMERR, false},
		{"a pointer to itself", RAW(HEAD("\0") "\xc0\x0c\0\1\0\1"), DNS_FORMERR, false},
		{"a pointer behind a label", RAW(HEAD("\0") "\1a\xc0\x0c\0\1\0\1"), DNS_FORMERR,
		 false},
		{"a pointer into the header", RAW(HEAD("\0") "\1a\xc0\0\0\1\0\1"), DNS_FORMERR,
		 false},
		{"two OPT", RAW(HEAD("\2") "\1a\0\0\1\0\1" OPT OPT), DNS_FORMERR, false},
		{"an OPT of a name", RAW(HEAD("\1") "\1a\0\0\1\0\1\1a\0\0\x29\x10\0\0\0\0\0\0\0"),
		 DNS_FORMERR, false},
		{"another record behind it",
		 RAW(HEAD("\1") "\1a\0\0\1\0\1\0\0\x10\0\1\0\0\0\0\0\2\1x"), DNS_FORMERR, false},
		{"EDNS version 1", RAW(HEAD("\1") "\1a\0\0\1\0\1\0\0\x29\x10\0\0\1\0\0\0\0"),
		 DNS_BADVERS, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		enum dns_rcode rcode = DNS_NOERROR;
		uint8_t out[DNS_ANSWER_BYTES];
		struct dns_question q;

		if (read_it(cases[i].in, &q, &rcode) == 0)
			fail_msg("%s is read", cases[i].what);
		if (rcode != cases[i].rcode || q.is_mute != cases[i].is_mute)
			fail_msg("%s: %d, %d", cases[i].what, rcode, q.is_mute);
		assert_true(dns_message_write(&q, rcode, NULL, 0, out) <= sizeof(out));
	}
}

static void test_names_of_all_lengths(void **state)
{
	uint8_t m[12 + 300] = {0, 7, 1, 0, 0, 1};
	struct dns_question q;
	enum dns_rcode rcode;

	(void)state;
	/* Labels of one byte and then a longer one: wire lengths of 3 to 290. */
	for (size_t want = 3; want < 290; want++) {
		size_t at = 12, left = want - 1;

		while (left > 0) {
			size_t n = left > 64 ? 63 : left - 1;

			if (left - n - 1 == 1)
				n--;
			m[at] = (uint8_t)n;
			memset(m + at + 1, '\1', n);
			at += 1 + n;
			left -= 1 + n;
		}
		memcpy(m + at, "\0\0\1\0\1", 5);
		int rc = read_it(str_from(m, at + 5), &q, &rcode);
		if (rc != (want <= 255 ? 0 : -1))
			fail_msg("a name of %zu bytes: %d", want, rc);
	}
}

static void check_answer(const struct dns_question *q, enum dns_rcode rcode, const struct ipaddr *a,
			 bool has_record)
{
	uint8_t out[DNS_ANSWER_BYTES];
	size_t n = dns_message_write(q, rcode, a, 60, out);
	ns_msg m;
	ns_rr rr;

	assert_true(n <= 512);
	assert_int_equal(ns_initparse(out, (int)n, &m), 0);
	assert_int_equal(ns_msg_id(m), q->id);
	assert_int_equal(ns_msg_getflag(m, ns_f_qr), 1);
	assert_int_equal(ns_msg_getflag(m, ns_f_ra), 1);
	assert_int_equal(ns_msg_getflag(m, ns_f_rcode), rcode & 0xf);
	assert_int_equal(ns_msg_count(m, ns_s_an), has_record);
	assert_int_equal(ns_msg_count(m, ns_s_ar), q->has_opt);
	assert_int_equal(ns_msg_count(m, ns_s_qd), q->wire_n > 0);
	if (q->wire_n > 0)
		assert_memory_equal(out + 12, q->wire, q->wire_n);
	if (has_record) {
		assert_int_equal(ns_parserr(&m, ns_s_an, 0, &rr), 0);
		assert_string_equal(ns_rr_name(rr), q->name);
		assert_int_equal(ns_rr_ttl(rr), 60);
		assert_int_equal(ns_rr_rdlen(rr), a->family == 4 ? 4 : 16);
		assert_memory_equal(ns_rr_rdata(rr), a->b, ns_rr_rdlen(rr));
	}
	if (q->has_opt) {
		assert_int_equal(ns_parserr(&m, ns_s_ar, 0, &rr), 0);
		assert_int_equal(ns_rr_type(rr), ns_t_opt);
		assert_int_equal(ns_rr_ttl(rr) >> 24, rcode >> 4);
	}
}

static void test_answers_parse_back(void **state)
{
	static const struct str queries[] = {
		RAW(HEAD("\0") "\1A\4tEst\0\0\1\0\1"),
		RAW(HEAD("\1") "\1A\4tEst\0\0\x1c\0\1" OPT),
	};
	struct ipaddr v4 = ip("198.18.0.1"), v6 = ip("fd73:7469:6c65::c612:1");
	struct dns_question q;
	enum dns_rcode rcode;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
		assert_int_equal(read_it(queries[i], &q, &rcode), 0);
		check_answer(&q, DNS_NOERROR, i ? &v6 : &v4, true);
		check_answer(&q, DNS_NOERROR, NULL, false);
		check_answer(&q, DNS_NXDOMAIN, NULL, false);
	}
	check_answer(&q, DNS_BADVERS, NULL, false);
	/* Without a question that can be echoed there is no record either. */
	assert_int_equal(read_it(BYTES(HEAD("\0") "\1a\0\0"), &q, &rcode), -1);
	check_answer(&q, rcode, &v4, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_question_is_read_as_it_came),
		cmocka_unit_test(test_odd_bytes_are_escaped),
		cmocka_unit_test(test_what_is_no_single_question),
		cmocka_unit_test(test_names_of_all_lengths),
		cmocka_unit_test(test_answers_parse_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
