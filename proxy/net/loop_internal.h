/*
 * What loop.c lends to the other files of net/: the buffers that streams share within a loop turn.
 */
#ifndef STILE_PROXY_NET_LOOP_INTERNAL_H
#define STILE_PROXY_NET_LOOP_INTERNAL_H

#include <stddef.h>

#include "logging/limits.h"
#include "proxy/net/loop.h"

#define LOOP_READ_BYTES	  LIMIT_READ_CHUNK
#define LOOP_GATHER_BYTES 16384 /* one TLS record of plaintext */
#define LOOP_SPARE_BYTES  32768
#define LOOP_SPARE_MAX	  32

struct loop_buffers {
	/* owned by the loop */
	unsigned char *read;		      /* input lies here during a stream's callback */
	unsigned char *gather;		      /* parts of one TLS record */
	unsigned char *spare[LOOP_SPARE_MAX]; /* output buffers not in use, LOOP_SPARE_BYTES each */
	size_t spare_n;
};

struct loop_buffers *loop_buffers(struct loop *l);

#endif
