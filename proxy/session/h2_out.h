/*
 * What an HTTP/2 connection has to send, into its socket's stream. Shared by both sides of an
 * exchange: client_h2.c and upstream_h2.c.
 */
#ifndef STILE_PROXY_SESSION_H2_OUT_H
#define STILE_PROXY_SESSION_H2_OUT_H

#include "proxy/http/h2_conn.h"
#include "proxy/net/stream.h"

/* Writes until there is nothing more to send, or the stream has no room: then STREAM_DRAINED
 * follows. Small frames leave as one TLS record. True: something went. */
bool h2_out(struct h2_conn *c, struct stream *s);

#endif
