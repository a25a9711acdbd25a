/*
 * Keeps the credentials fresh whose sources take time: one thread with a loop of its own, on which
 * every such source is asked before its value ends. A source that stays as it is across reloads
 * goes on with its value; nobody waits for it but the start and the reload that first names it.
 */
#ifndef STILE_PROXY_CREDENTIALS_BROKER_H
#define STILE_PROXY_CREDENTIALS_BROKER_H

#include "certs/trust.h"
#include "proxy/credentials/slot.h"

struct broker;
struct kept; /* a slot that is kept fresh; counted by its broker */

/* h starts the programs of `exec`, outlives the broker; NULL: none can be started. */
struct helpers;
int broker_new(struct helpers *h, struct broker **ret, struct err *e) ATTR_NODISCARD;
/* Starts the thread: after privileges are dropped, before anybody waits for a slot. */
int broker_start(struct broker *b, struct err *e) ATTR_NODISCARD;
/* Whatever is under way is cancelled. All that was taken has been given back. NULL is accepted. */
void broker_free(struct broker *b);

/* Does c's source take time, and so belong here? */
bool broker_keeps(const struct config_credential *c);
/* Keeps the i-th credential of config fresh, or goes on with one of the same definition. Endpoints
 * are found and verified by config and t from the next question on; takes references to both. From
 * any thread. */
int broker_take(struct broker *b, struct config *config, size_t i, struct trust *t,
		struct kept **ret, struct err *e) ATTR_NODISCARD;
struct slot *kept_slot(const struct kept *k); /* borrowed */
void broker_give_back(struct broker *b, struct kept *k);
/* The value has ended although it was to be renewed before (the machine slept): ask now. */
void broker_nudge(struct kept *k);

#endif
