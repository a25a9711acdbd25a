/*
 * A thread of stile gets no signal but SIGSYS, from its first instruction on; the mask of whoever
 * starts it stays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <signal.h>

#include <cmocka.h>

#include "logging/thread.h"

static void *read_mask(void *arg)
{
	pthread_sigmask(SIG_SETMASK, NULL, arg);
	return arg;
}

static void no_signal_but_one(void **state)
{
	sigset_t mine, its, after;
	struct err e = ERR_INIT;
	pthread_t t;
	void *ret;

	(void)state;
	pthread_sigmask(SIG_SETMASK, NULL, &mine);
	assert_int_equal(thread_start(&t, read_mask, &its, "thread of a test", &e), 0);
	pthread_join(t, &ret);
	assert_ptr_equal(ret, &its);
	for (int s = 1; s < 32; s++)
		if (s != SIGKILL && s != SIGSTOP)
			assert_int_equal(sigismember(&its, s), s != SIGSYS);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int s = 1; s < 32; s++)
		assert_int_equal(sigismember(&after, s), sigismember(&mine, s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(no_signal_but_one)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
