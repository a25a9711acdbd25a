/*
 * The soft limit of descriptors, read once and again only when a number comes close to it: numbers
 * are handed out lowest first, so the number itself tells how full the table is.
 */
#include "proxy/net/fd_reserve.h"

#include <limits.h>
#include <stdatomic.h>
#include <sys/resource.h>

static atomic_int soft; /* 0: not read yet */

void fd_reserve_refresh(void)
{
	struct rlimit r;
	int n = INT_MAX;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < INT_MAX)
		n = (int)r.rlim_cur;
	atomic_store_explicit(&soft, n > 0 ? n : 1, memory_order_relaxed);
}

bool fd_reserve_has(int fd, int keep)
{
	if (fd < atomic_load_explicit(&soft, memory_order_relaxed) - keep)
		return false;
	fd_reserve_refresh();
	return fd >= atomic_load_explicit(&soft, memory_order_relaxed) - keep;
}
