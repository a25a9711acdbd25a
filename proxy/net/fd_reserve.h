/*
 * Descriptors that connections may not have: the log's rotation, credential files and DNS must find
 * one even when peers hold all that they can get.
 */
#ifndef STILE_PROXY_NET_FD_RESERVE_H
#define STILE_PROXY_NET_FD_RESERVE_H

#include <stdbool.h>

/* True when fd is one of the last `keep` numbers below RLIMIT_NOFILE: close it. Cheap. */
bool fd_reserve_has(int fd, int keep);
/* Reads the limit anew, after somebody lowered it. */
void fd_reserve_refresh(void);

#endif
