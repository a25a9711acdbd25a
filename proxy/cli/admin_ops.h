/*
 * What can be asked on the admin socket, and the answers. One JSON object each way, on one line:
 *
 *   {"do":"status"}
 *   {"do":"credentials"}
 *   {"do":"sandbox.new","policy":P,"ttl_ms":N,"name":N,"listener":L}   all but the policy optional
 *   {"do":"sandbox.list"}
 *   {"do":"sandbox.revoke","sandbox":ID_OR_NAME}
 *
 * An answer begins with "ok": true, or it is {"ok":false,"error":TEXT}. No value of a credential is
 * in any; a token is in that of sandbox.new alone.
 */
#ifndef STILE_PROXY_CLI_ADMIN_OPS_H
#define STILE_PROXY_CLI_ADMIN_OPS_H

#include "logging/strbuf.h"
#include "proxy/session/engine.h"

/* On the main thread. request: without its newline, whatever came; out gets a line. uid: who asks,
 * for the operator's log. */
void admin_answer(struct engine *g, struct str request, unsigned uid, struct strbuf *out);

#endif
