/*
 * See handout.h. It is public, all of it: no key is in it.
 */
#include "proxy/sandbox/handout.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/mman.h>

#include <openssl/x509.h>

#include "certs/trust.h"
#include "certs/truststore.h"
#include "logging/thread.h"
#include "proxy/sandbox/channel.h"

#define BUNDLE_MAX (16u << 20)

struct handout {
	/* owned */
	struct strbuf all; /* the three files one behind the other */
	pthread_t thread;
	/* counted */
	struct ca *ca;
	/* plain; the thread's until it is joined */
	struct channel_msg m;
	struct err e;
	int rc;
	bool runs;
};

static int gather(struct handout *h)
{
	struct strbuf ca, bundle;
	int rc = -1;

	strbuf_init(&ca, BUNDLE_MAX);
	strbuf_init(&bundle, BUNDLE_MAX);
	if (ca_add_pem(h->ca, &ca, &h->e) == 0 &&
	    bundle_add(strbuf_str(&ca), &bundle, &h->e) == 0) {
		strbuf_add(&h->all, strbuf_str(&ca));
		strbuf_add(&h->all, strbuf_str(&bundle));
		h->m.number = (uint32_t)ca.len;
		h->m.more = (uint32_t)bundle.len;
		rc = truststore_add(strbuf_str(&bundle), strbuf_str(&ca), &h->all, &h->e);
	}
	strbuf_clear(&ca);
	strbuf_clear(&bundle);
	return rc;
}

static void *gather_beside(void *arg)
{
	struct handout *h = arg;

	h->rc = gather(h);
	return NULL;
}

struct handout *handout_begin(struct ca *ca)
{
	struct handout *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->ca = ca_ref(ca);
	h->m.kind = CHANNEL_TRUST;
	strbuf_init(&h->all, 3 * BUNDLE_MAX);
	h->runs = thread_start(&h->thread, gather_beside, h, "thread of the roots", NULL) == 0;
	if (!h->runs)
		gather_beside(h);
	return h;
}

static void await(struct handout *h)
{
	if (h->runs)
		pthread_join(h->thread, NULL);
	h->runs = false;
}

int handout_send(struct handout *h, int channel, struct err *e)
{
	struct str s;
	int fd, rc = -1;

	await(h);
	if (h->rc != 0)
		return err_set(e, "%s", h->e.text);
	snprintf(h->m.text, sizeof(h->m.text), "%08lx", X509_subject_name_hash(ca_cert(h->ca)));
	s = strbuf_str(&h->all);
	fd = memfd_create("stile-trust", MFD_CLOEXEC);
	if (fd < 0 || write(fd, s.p, s.n) != (ssize_t)s.n)
		err_sys(e, errno, "cannot hand the certificates to the sandbox");
	else if (channel_send(channel, &h->m, fd) != 0)
		err_set(e, "the sandbox's first process ended unexpectedly");
	else
		rc = 0;
	if (fd >= 0)
		close(fd);
	return rc;
}

void handout_free(struct handout *h)
{
	if (!h)
		return;
	await(h);
	strbuf_clear(&h->all);
	ca_unref(h->ca);
	free(h);
}
