/*
 * An opaque relay: `tls: passthrough` after the SNI agreed, and `tcp://`. It judges the addresses,
 * writes tunnel.start, dials, hands both sockets to splice(2), and writes tunnel.end. Revoked
 * tunnels are closed when the policy changes.
 */
#ifndef STILE_PROXY_SESSION_TUNNEL_H
#define STILE_PROXY_SESSION_TUNNEL_H

#include "proxy/net/stream.h"
#include "proxy/session/exchange.h"

struct tunnel;

struct tunnel_options {
	struct worker *worker;
	const struct caller *caller; /* stays until the tunnel has ended */
	struct snapshot *snapshot;   /* the tunnel takes its own reference */
	const struct rule *rule;
	const struct host *host;
	uint16_t port;
	enum scheme scheme; /* https: passthrough; tcp */
	const char *id;
	struct str sni;
	bool ech;
	/* Called when the origin is connected, before the first byte is relayed: the caller answers
	 * CONNECT if it has not done so; the client's stream becomes the tunnel's. */
	struct stream *(*on_ready)(void *arg);
	/* The tunnel is over. e: NULL when it ended by itself; `opened`: on_ready had been called,
	 * so there is nobody left to answer. The record is written. */
	void (*on_end)(void *arg, bool opened, const struct err *e);
	void *arg;
};

/* NULL only when memory is out. Nothing happens before tunnel_start, which may call on_end itself.
 */
struct tunnel *tunnel_new(const struct tunnel_options *o);
void tunnel_start(struct tunnel *t);
/* Ends it with its record, without on_end. */
void tunnel_close(struct tunnel *t, enum reason why, const char *detail);
/* The policy has changed: does s still admit it? If not it ends (policy_revoked). */
void tunnel_recheck(struct tunnel *t, struct snapshot *s);
struct tunnel *tunnel_next(const struct tunnel *t); /* in worker->tunnels */

#endif
