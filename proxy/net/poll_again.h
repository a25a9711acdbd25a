/*
 * What to do when poll(2) fails, for the processes and threads that wait by it for as long as they
 * live.
 */
#ifndef STILE_PROXY_NET_POLL_AGAIN_H
#define STILE_PROXY_NET_POLL_AGAIN_H

#include <poll.h>
#include <stdbool.h>

/* Behind a poll that returned -1, with errno as it left it: true: poll again. Out of memory the
 * kernel may be for a moment: that is waited for, LIMIT_POLL_FAILURES times in a row. *failures is
 * the caller's to set to 0 when a poll goes well. */
bool poll_again(unsigned *failures);

/* poll(2) for a loop that goes on whatever it returns: a failure takes its time too. */
int poll_calmly(struct pollfd *p, nfds_t n, int ms);

#endif
