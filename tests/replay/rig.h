/*
 * One worker of the real proxy on the fake network, and the peers that talk to it: clients and
 * origins, in clear or over TLS. Used by the scenarios and by the fuzz target.
 */
#ifndef STILE_TESTS_REPLAY_RIG_H
#define STILE_TESTS_REPLAY_RIG_H

#include <openssl/ssl.h>

#include "proxy/session/worker.h"
#include "tests/replay/fake.h"
#include "tests/replay/h2_peer.h"

#define RIG_PEERS_MAX 64

struct peer {
	struct fake_socket *k;
	SSL *ssl;	    /* owned; NULL: in clear */
	struct h2_peer *h2; /* owned; NULL: what it speaks is the test's */
	struct bytes got;   /* what the proxy sent, decrypted */
	bool tls_failed;
	bool h2_failed; /* what the proxy sent is no HTTP/2 */
};

struct rig {
	struct worker *worker; /* NULL: it could not be made */
	struct snapshot *snapshot;
	struct signer *signer;
	struct entrance entrance;
	struct peer clients[RIG_PEERS_MAX], origins[RIG_PEERS_MAX];
	size_t clients_n, origins_n;
};
extern struct rig rig;
/* The signer and the default policy's snapshot are made once and used again: for many short runs.
 */
extern bool rig_keeps;
/* But the snapshot is made anew: it remembers TLS sessions of origins. */
extern bool rig_keeps_no_policy;

/* What an empty file would not say: the origins' CA, and the policy below. rules and config are
 * YAML with their indentation, NULL: the default ones. -1: e says why. */
int rig_start(const char *rules, const char *config, struct err *e) ATTR_NODISCARD;
int rig_reload(const char *rules, const char *config, struct err *e) ATTR_NODISCARD;
/* Clients that connect from now on know no proxy: they dial an address that was made up for that
 * name (or is that address). */
void rig_transparent(const char *host, uint16_t port);
/* Lets everything end by its timers, closes, and looks whether all is as it must be. */
void rig_end(void);

struct peer *rig_connect(unsigned n);
/* Turns until neither the proxy nor a peer has anything to do. */
void rig_settle(void);
/* Takes what the proxy sent and notices new origins, without a turn. True: there was something. */
bool rig_pump(void);

void peer_send(struct peer *p, struct str data);
void peer_start_client_tls(struct peer *p, const char *sni, bool trusting);
/* The same, with HTTP/2 inside. */
void peer_start_client_h2(struct peer *p, const char *sni, unsigned window);
void peer_start_origin_tls(struct peer *p, const char *name);
void peer_close_notify(struct peer *p);

#endif
