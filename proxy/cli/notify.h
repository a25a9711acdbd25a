/*
 * Readiness for a service manager: the sd_notify protocol, by hand (one datagram).
 */
#ifndef STILE_PROXY_CLI_NOTIFY_H
#define STILE_PROXY_CLI_NOTIFY_H

/* "READY=1", "RELOADING=1", "STOPPING=1"; nothing happens without NOTIFY_SOCKET. */
void notify_send(const char *state);

#endif
