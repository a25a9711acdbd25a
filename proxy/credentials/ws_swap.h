/*
 * The placeholder in what a client sends through a WebSocket (RFC 6455): in the payload of text
 * frames, which are unmasked for the search and masked again with their own key. As the real value
 * is of the same length, no frame changes but in these bytes.
 */
#ifndef STILE_PROXY_CREDENTIALS_WS_SWAP_H
#define STILE_PROXY_CREDENTIALS_WS_SWAP_H

#include "proxy/credentials/body_swap.h"

#define WS_HEAD_MAX 14 /* section 5.2 */

struct ws_swap {
	/* owned */
	struct body_swap text;
	/* plain */
	unsigned char head[WS_HEAD_MAX];
	unsigned char mask[4];
	size_t head_n;
	uint64_t left;	  /* of the frame's payload */
	uint64_t given;	  /* of it, that went on */
	uint64_t message; /* of the message so far, in frames before this one */
	bool in_payload;
	bool is_text;	/* the message */
	bool is_sought; /* the frame is one of it */
};

/* text is for the caller to fill by body_swap_give. */
void ws_swap_init(struct ws_swap *w, const struct needles *needles);
void ws_swap_clear(struct ws_swap *w);
/* As body_swap_feed. Binary, control and compressed frames go on as they are. */
int ws_swap_feed(struct ws_swap *w, struct str data, body_swap_sink *sink, void *arg,
		 struct err *e) ATTR_NODISCARD;
/* The client says no more, be it in the middle of a frame. */
void ws_swap_end(struct ws_swap *w, body_swap_sink *sink, void *arg);

#endif
