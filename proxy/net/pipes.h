/*
 * Empty pipes for splice.c, kept for reuse by each thread. No other file includes it.
 */
#ifndef STILE_PROXY_NET_PIPES_H
#define STILE_PROXY_NET_PIPES_H

struct pipe_pair {
	int out, in; /* read from out, write to in */
};

/* 0, or -1 with errno: descriptors are out. */
int pipes_take(struct pipe_pair *ret);
/* The pair must be empty, unless it is to be closed. */
void pipes_give(struct pipe_pair p);
void pipes_close(struct pipe_pair p);

#endif
