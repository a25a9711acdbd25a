/*
 * What is counted of which record.
 */
#include "proxy/session/counts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void note(struct counts *c, enum record_event event, enum reason reason, const char *error)
{
	struct record r = {.event = event, .reason = reason, .bytes_out = 3, .bytes_in = 5};

	r.has_bytes = event == RECORD_REQUEST_END || event == RECORD_TUNNEL_END;
	if (error)
		r.error = str_from_c(error);
	counts_note(c, &r);
}

static void each_record_has_its_place(void **state)
{
	struct counts c = {0}, sum = {0};

	(void)state;
	note(&c, RECORD_REQUEST_START, REASON_NONE, NULL);
	note(&c, RECORD_REQUEST_END, REASON_NONE, NULL);
	note(&c, RECORD_REQUEST_START, REASON_NONE, NULL);
	note(&c, RECORD_REQUEST_END, REASON_NONE, "connect_refused");
	note(&c, RECORD_TUNNEL_START, REASON_NONE, NULL);
	note(&c, RECORD_TUNNEL_END, REASON_NONE, "tunnel_idle");
	note(&c, RECORD_REQUEST_DENY, REASON_NO_RULE, NULL);
	note(&c, RECORD_REQUEST_DENY, REASON_NO_RULE, NULL);
	note(&c, RECORD_TUNNEL_DENY, REASON_NOT_TLS, NULL);
	note(&c, RECORD_DNS_DENY, REASON_NO_RULE, NULL);
	/* The word of a process's record may be none of ours, and is no reason. */
	note(&c, RECORD_PROXY_STOP, REASON_NONE, "anything");
	counts_add(&sum, &c);
	counts_add(&sum, &c);
	assert_int_equal(sum.events[RECORD_REQUEST_START], 4);
	assert_int_equal(sum.events[RECORD_REQUEST_DENY], 4);
	assert_int_equal(sum.events[RECORD_DNS_DENY], 2);
	assert_int_equal(sum.requests_denied[REASON_NO_RULE], 4);
	assert_int_equal(sum.tunnels_denied[REASON_NOT_TLS], 2);
	assert_int_equal(sum.failed[REASON_CONNECT_REFUSED], 2);
	assert_int_equal(sum.failed[REASON_TUNNEL_IDLE], 2);
	assert_int_equal(sum.failed[REASON_NONE], 0);
	assert_int_equal(sum.bytes_out, 18);
	assert_int_equal(sum.bytes_in, 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(each_record_has_its_place)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
