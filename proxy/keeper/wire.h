/*
 * What the proxy and its keeper say to each other: one message a datagram (SOCK_SEQPACKET), of a
 * version, a kind and a length that must be its own. Both ends check all of it. It knows no
 * meaning.
 */
#ifndef STILE_PROXY_KEEPER_WIRE_H
#define STILE_PROXY_KEEPER_WIRE_H

#include "logging/err.h"
#include "logging/limits.h"
#include "logging/str.h"

#define WIRE_VERSION 1

enum wire_kind {
	/* proxy to keeper, main socket */
	WIRE_KEY = 1,	  /* the public half of the key of leaves: a point of P-256; once */
	WIRE_STORE,	  /* id: a number for the store of the configuration at hand: fill it */
	WIRE_NUDGE,	  /* id: the store; wire_nudge */
	WIRE_RELOAD,	  /* read the configuration file again */
	WIRE_COMMIT,	  /* what was read is in force from now on */
	WIRE_ABORT,	  /* it is not */
	WIRE_PLACEHOLDER, /* the credential's name: a made-up value in the shape of its own */
	/* proxy to keeper, a worker's socket */
	WIRE_LEAF, /* id: the worker's; wire_leaf and the name */
	/* proxy to keeper, the socket for files */
	WIRE_OPEN, /* wire_open and the path */
	WIRE_MINT, /* wire_mint and the name of the sandbox */
	/* keeper to proxy */
	WIRE_READY = 64, /* the CA as PEM */
	WIRE_FAILED,	 /* id: as asked; a byte for the reason and why, in words */
	WIRE_CREDENTIAL, /* id: the store; wire_credential, the value, the words */
	WIRE_RELOADED,	 /* wire_reloaded; its text as a descriptor */
	WIRE_LEAF_IS,	 /* id: as asked; the DER */
	WIRE_OPENED,	 /* id: as asked; errno or 0 in 4 bytes; the descriptor */
	WIRE_MINTED,	 /* id: as asked; the token */
};

struct wire_head {
	uint32_t version;
	uint32_t kind;
	uint32_t id;
	uint32_t n; /* bytes behind the head */
};

struct wire_nudge {
	uint32_t index;
};

struct wire_leaf {
	uint32_t port;
	/* the host as it stands in a URL follows */
};

enum wire_how { WIRE_TO_READ, WIRE_TO_APPEND, WIRE_TO_CHANGE };

struct wire_open {
	uint32_t how;
	/* the path follows */
};

struct wire_mint {
	uint32_t store, index;
};

struct wire_credential {
	int64_t life_us, next_us; /* as in slot.h */
	uint32_t index;
	uint32_t has_value;
	uint32_t value_n;
	uint32_t why_n;
};

struct wire_reloaded {
	uint32_t ok; /* the keeper could read it, and found no fault */
	char version_hash[20];
};

/* A message as it came. */
struct wire_msg {
	struct wire_head head;
	char *body; /* LIMIT_KEEPER_MESSAGE bytes, the receiver's; head.n of them are filled */
	int fd;	    /* -1: none came; else the receiver's to close */
};

/* Two pairs of ends that close on exec. */
int wire_pair(int ret_fds[2], struct err *e) ATTR_NODISCARD;
/* Up to three parts one behind the other. -1 with errno: EAGAIN when fd does not block. */
int wire_send(int fd, enum wire_kind kind, uint32_t id, const struct str *parts, size_t parts_n,
	      int pass_fd);
/* 1: *m is filled; 0: the other end is closed; -1 with errno, EPROTO for what is no message. */
int wire_recv(int fd, struct wire_msg *m);
/* Is what came a message at all? For wire_recv, and for what reads bytes that never were on a
 * socket. */
bool wire_check(const struct wire_head *h, size_t n);

#endif
