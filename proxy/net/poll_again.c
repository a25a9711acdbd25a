/*
 * poll(2) that fails; see poll_again.h.
 */
#include "proxy/net/poll_again.h"

#include <errno.h>
#include <time.h>

#include "logging/limits.h"

bool poll_again(unsigned *failures)
{
	const struct timespec pause = {.tv_nsec = LIMIT_MS_ACCEPT_PAUSE * 1000000L};

	if (errno == EINTR)
		return true;
	if (++*failures >= LIMIT_POLL_FAILURES)
		return false;
	nanosleep(&pause, NULL);
	return true;
}

int poll_calmly(struct pollfd *p, nfds_t n, int ms)
{
	unsigned failures = 0;
	int rc = poll(p, n, ms);

	if (rc < 0)
		(void)poll_again(&failures);
	return rc;
}
