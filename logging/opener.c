/*
 * See opener.h. The place of the function is written before there are other threads, and when they
 * are gone.
 */
#include "logging/opener.h"

#include <fcntl.h>
#include <stddef.h>

static int (*open_fn)(void *arg, const char *path, int flags);
static void *open_arg;

void opener_set(int (*fn)(void *arg, const char *path, int flags), void *arg)
{
	open_fn = fn;
	open_arg = arg;
}

bool opener_is_own(void)
{
	return !open_fn;
}

int opener_open(const char *path, int flags)
{
	return open_fn ? open_fn(open_arg, path, flags)
		       : open(path, flags, (flags & O_ACCMODE) == O_RDWR ? 0644 : 0640);
}
