/*
 * A client that speaks HTTP/2 to the proxy, over a peer of the rig: nghttp2's own client, which
 * checks all that the proxy sends. What comes collects by stream.
 */
#ifndef STILE_TESTS_REPLAY_H2_PEER_H
#define STILE_TESTS_REPLAY_H2_PEER_H

#include "tests/replay/fake.h"

#define H2_PEER_STREAMS 64

struct h2_peer_stream {
	unsigned status;  /* of the final head; 0: none yet */
	struct bytes got; /* the values of fields, and the body */
	bool ended, reset;
	int tag; /* the asker's own */
};

struct h2_peer;
/* Its preface and settings are there to be taken at once. window: of each stream (0: the usual). */
struct h2_peer *h2_peer_new(unsigned window);
void h2_peer_free(struct h2_peer *h);
/* What the proxy sent. False: it is no HTTP/2, or not for what was asked. */
bool h2_peer_take(struct h2_peer *h, struct str data);
/* What is to be sent to the proxy; empty: nothing. */
struct str h2_peer_out(struct h2_peer *h);
/* The stream, from 0 in the order of asking; -1: no more of them. body: NULL for none; with `open`
 * it does not end. */
int h2_peer_ask(struct h2_peer *h, const char *method, const char *authority, const char *path,
		const char *length, const char *body, bool open, int tag);
void h2_peer_cancel(struct h2_peer *h, int stream);
struct h2_peer_stream *h2_peer_stream(struct h2_peer *h, int stream); /* NULL: there is none */
bool h2_peer_goaway(const struct h2_peer *h);
size_t
h2_peer_heard(const struct h2_peer *h); /* streams that were answered, or reset by the proxy */

#endif
