/*
 * listener.h without sockets: the test says that somebody connects. The counts are the real ones.
 * Beside it the addresses of the host itself, which are one here.
 */
#include "proxy/net/datagrams.h"
#include "proxy/net/listener.h"

#include <stdio.h>
#include <stdlib.h>

#include "proxy/net/listener_counts.h"
#include "proxy/net/netns.h"
#include "proxy/net/original_dst.h"
#include "proxy/net/own_addrs.h"
#include "tests/replay/fake.h"

#define LISTENERS_MAX 4

struct listener {
	struct listener_counts *counts;
	void (*on_accept)(void *arg, int fd, const struct listener_peer *peer);
	void (*on_refused)(void *arg, int fd, const struct listener_peer *peer, enum reason why);
	void *arg;
};

struct own_addrs {
	struct ipaddr addr;
};

static struct listener *listeners[LISTENERS_MAX];
static size_t listeners_n;

int listener_new(struct loop *l, int fd, struct listener_counts *counts,
		 void (*on_accept)(void *arg, int fd, const struct listener_peer *peer),
		 void (*on_refused)(void *arg, int fd, const struct listener_peer *peer,
				    enum reason why),
		 void *arg, struct listener **ret, struct err *e)
{
	struct listener *li = calloc(1, sizeof(*li));

	(void)l;
	(void)fd;
	if (!li)
		return err_set(e, "out of memory");
	if (listeners_n == LISTENERS_MAX)
		abort();
	*li = (struct listener){listener_counts_ref(counts), on_accept, on_refused, arg};
	listeners[listeners_n++] = li;
	*ret = li;
	return 0;
}

void listener_free(struct listener *li)
{
	size_t k = 0;

	if (!li)
		return;
	for (size_t i = 0; i < listeners_n; i++)
		if (listeners[i] != li)
			listeners[k++] = listeners[i];
	listeners_n = k;
	listener_counts_unref(li->counts);
	free(li);
}

/* No scenario has datagrams. */
int datagrams_new(struct loop *l, int fd,
		  size_t (*on_datagram)(void *arg, struct str in, const struct listener_peer *from,
					uint8_t *out, size_t room),
		  void *arg, struct datagrams **ret, struct err *e)
{
	(void)l;
	(void)fd;
	(void)on_datagram;
	(void)arg;
	(void)ret;
	return err_set(e, "no datagrams here");
}

void datagrams_free(struct datagrams *d)
{
	(void)d;
}

void datagrams_pause(struct datagrams *d)
{
	(void)d;
}

void datagrams_resume(struct datagrams *d)
{
	(void)d;
}

static struct ipaddr meant;
static uint16_t meant_port;

void fake_meant(const struct ipaddr *a, uint16_t port)
{
	meant = *a;
	meant_port = port;
}

int original_dst(int fd, struct ipaddr *ret, uint16_t *ret_port)
{
	(void)fd;
	*ret = meant;
	*ret_port = meant_port;
	return 0;
}

struct fake_socket *fake_accept(size_t i, unsigned n)
{
	struct listener_peer peer = {.addr = {.family = 4, .b = {192, 0, 2, (uint8_t)n}},
				     .port = 40000};
	struct fake_socket *k;
	enum reason why;

	if (i >= listeners_n)
		return NULL;
	snprintf(peer.text, sizeof(peer.text), "192.0.2.%u:40000", n & 0xff);
	k = fake_socket_new(false);
	why = listener_counts_enter(listeners[i]->counts, &peer);
	if (why == REASON_NONE)
		listeners[i]->on_accept(listeners[i]->arg, k->fd, &peer);
	else
		listeners[i]->on_refused(listeners[i]->arg, k->fd, &peer, why);
	return k;
}

int own_addrs_new(struct own_addrs **ret, struct err *e)
{
	struct own_addrs *o = calloc(1, sizeof(*o));

	if (!o)
		return err_set(e, "out of memory");
	o->addr = (struct ipaddr){.family = 4, .b = {9, 8, 7, 6}};
	*ret = o;
	return 0;
}

void own_addrs_free(struct own_addrs *o)
{
	free(o);
}

int own_addrs_get(struct own_addrs *o, int64_t now_us, const struct ipaddr **ret, size_t *ret_n,
		  struct err *e)
{
	(void)now_us;
	(void)e;
	*ret = &o->addr;
	*ret_n = 1;
	return 0;
}
