/*
 * OpenSSL's memory: a thread keeps a few of the buffers of records and no more, hands them out
 * again for any size of their kind, and wipes what it must before it keeps it.
 */
#include "pki.h"

#include <openssl/crypto.h>

#include "certs/tls_mem.h"
#include "logging/attrs.h"

#define RECORD 16716 /* what OpenSSL asks for to read one */
#define KEPT   4

static void kept(void **state)
{
	void *all[KEPT + 2], *last;
	char *p;

	(void)state;
	if (HAS_ADDRESS_SANITIZER)
		skip();
	for (size_t i = 0; i < KEPT + 2; i++)
		all[i] = OPENSSL_malloc(RECORD);
	for (size_t i = 0; i < KEPT + 2; i++)
		OPENSSL_free(all[i]);
	/* The last that was kept comes first, larger than it was asked for before. */
	for (size_t i = KEPT; i-- > 0;) {
		p = OPENSSL_malloc(RECORD + 500);
		assert_ptr_equal(p, all[i]);
		memset(p, 'x', RECORD + 500);
		all[i] = p;
	}
	/* No smaller and no larger piece is one of them. */
	last = all[0];
	OPENSSL_free(last);
	all[0] = OPENSSL_malloc(16384);
	all[1] = OPENSSL_realloc(all[1], 20000);
	assert_ptr_not_equal(all[0], last);
	p = OPENSSL_malloc(RECORD);
	assert_ptr_equal(p, last);
	OPENSSL_free(p);
	for (size_t i = 0; i < KEPT; i++)
		OPENSSL_free(all[i]);
}

static void wiped(void **state)
{
	char *p = OPENSSL_malloc(RECORD), *again;

	(void)state;
	if (HAS_ADDRESS_SANITIZER) {
		OPENSSL_free(p);
		skip();
	}
	memset(p, 's', RECORD);
	tls_mem_wipe(true);
	OPENSSL_free(p);
	tls_mem_wipe(false);
	again = OPENSSL_malloc(RECORD);
	assert_ptr_equal(again, p);
	for (size_t i = 0; i < RECORD; i++)
		assert_int_equal(again[i], 0);
	OPENSSL_free(again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kept),
		cmocka_unit_test(wiped),
	};

	tls_mem_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
