/*
 * See rig.h.
 */
#include "tests/replay/rig.h"

#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "certs/ca.h"
#include "certs/signer.h"

#define DEFAULT_RULES                                                                              \
	"      - allow: http://a.test/**\n"                                                        \
	"      - deny: http://a.test/secret/**\n"                                                  \
	"      - allow: https://a.test/**\n"                                                       \
	"      - allow: http://b.test/**\n"                                                        \
	"      - {allow: db.test, tls: passthrough}\n"                                             \
	"      - allow: tcp://t.test:22\n"

struct rig rig;
bool rig_keeps, rig_keeps_no_policy;

/* Made once: nothing in a scenario depends on which keys these are. */
static struct ca *own_ca, *origin_ca;
static struct signer *origin_signer;
static struct signer *kept_signer;
static struct snapshot *kept_snapshot;
static SSL_CTX *client_ctx, *stranger_ctx;
static char trust_path[32];

static void make_trust_file(void)
{
	struct strbuf pem;
	int fd = memfd_create("trust", 0);

	strbuf_init(&pem, 65536);
	if (fd < 0 || ca_add_pem(origin_ca, &pem, NULL) < 0 ||
	    write(fd, pem.data, pem.len) != (ssize_t)pem.len)
		abort();
	strbuf_clear(&pem);
	snprintf(trust_path, sizeof(trust_path), "/proc/self/fd/%d", fd);
}

static void make_once(void)
{
	struct err e;

	if (own_ca)
		return;
	if (ca_new_memory(30, &own_ca, &e) < 0 || ca_new_memory(30, &origin_ca, &e) < 0 ||
	    signer_new(origin_ca, 16, &origin_signer, &e) < 0)
		abort();
	make_trust_file();
	client_ctx = SSL_CTX_new(TLS_client_method());
	stranger_ctx = SSL_CTX_new(TLS_client_method());
	if (!client_ctx || !stranger_ctx)
		abort();
	X509_STORE_add_cert(SSL_CTX_get_cert_store(client_ctx), ca_cert(own_ca));
	SSL_CTX_set_verify(client_ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_verify(stranger_ctx, SSL_VERIFY_PEER, NULL);
}

/* ---- the proxy ---- */

static int make_snapshot(const char *rules, const char *config, struct snapshot **ret,
			 struct err *e)
{
	struct faults f;
	struct config *c = NULL;
	struct strbuf text;
	int r = -1;

	fake_memory.paused++;
	strbuf_init(&text, 65536);
	strbuf_addf(&text,
		    "version: 1\nupstream: {trust: [%s]}\n%spolicies:\n  default:\n    rules:\n%s",
		    trust_path, config ? config : "", rules ? rules : DEFAULT_RULES);
	faults_init(&f, "replay.yaml");
	if (config_load_text("replay.yaml", strbuf_str(&text), &c, &f) == 0) {
		r = 0;
	} else {
		struct strbuf said;

		strbuf_init(&said, 4096);
		faults_print(&f, &said);
		(void)err_set(e, "%s", strbuf_cstr(&said));
		strbuf_clear(&said);
	}
	faults_clear(&f);
	strbuf_clear(&text);
	fake_memory.paused--;
	if (r == 0)
		r = snapshot_new(c, NULL, ret, e);
	config_unref(c);
	return r;
}

static void on_kept_leaf(void *arg, struct leaf *leaf, const struct err *e)
{
	(void)arg;
	(void)e;
	if (!leaf)
		abort();
	leaf_unref(leaf);
}

/* With the leaf that tunnels to a.test are answered with: a run that made it would not free it. */
static void keep_signer(struct err *e)
{
	struct leaf_name name = {.text = STR("a.test")};

	if (kept_signer)
		return;
	if (signer_new(own_ca, 16, &kept_signer, e) < 0)
		abort();
	signer_get(kept_signer, &name, on_kept_leaf, NULL);
}

/* Its own reference to each for the rig. */
static int make_parts(const char *rules, const char *config, struct err *e)
{
	if (rig_keeps) {
		fake_memory.paused++;
		keep_signer(e);
		if (!kept_snapshot && make_snapshot(NULL, NULL, &kept_snapshot, e) < 0)
			abort();
		fake_memory.paused--;
		fake_memory.live = 0;
		rig.signer = kept_signer;
		if (rig_keeps_no_policy)
			return make_snapshot(NULL, NULL, &rig.snapshot, e);
		rig.snapshot = snapshot_ref(kept_snapshot);
		return 0;
	}
	if (signer_new(own_ca, 16, &rig.signer, e) < 0)
		return -1;
	return make_snapshot(rules, config, &rig.snapshot, e);
}

int rig_start(const char *rules, const char *config, struct err *e)
{
	static char name[] = "proxy-0", policy[] = "default";
	struct log_writer *writer;
	struct worker_socket socket = {.entrance = &rig.entrance, .fd = -1};

	rig = (struct rig){0};
	fake_memory.paused++;
	make_once();
	fake_memory.live = 0; /* what was made once stays */
	writer = fake_log_begin();
	fake_memory.paused--;
	rig.entrance = (struct entrance){.name = name, .policy_name = policy};
	if (make_parts(rules, config, e) < 0)
		return -1;
	rig.entrance.counts =
		listener_counts_new(rig.snapshot->config->limits.connections,
				    rig.snapshot->config->limits.connections_per_address);
	if (!rig.entrance.counts)
		return err_set(e, "out of memory");
	return worker_new(&(struct worker_options){.signer = rig.signer,
						   .writer = writer,
						   .snapshot = rig.snapshot,
						   .sockets = &socket,
						   .sockets_n = 1,
						   .leaves_fd = -1},
			  &rig.worker, e);
}

int rig_reload(const char *rules, const char *config, struct err *e)
{
	struct snapshot *fresh = NULL;

	if (make_snapshot(rules, config, &fresh, e) < 0)
		return -1;
	/* A worker that cannot hear of a new policy ends the process, on purpose. */
	fake_memory.paused++;
	worker_set_snapshot(rig.worker, fresh);
	fake_memory.paused--;
	snapshot_unref(rig.snapshot);
	rig.snapshot = fresh;
	return 0;
}

static void end_peers(struct peer *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		SSL_free(v[i].ssl);
		h2_peer_free(v[i].h2);
		bytes_clear(&v[i].got);
	}
}

/* No request is answered, or given up, without a record; but with its connection, which has one. */
static void look_at_streams(void)
{
	size_t heard = 0;

	for (size_t i = 0; i < rig.clients_n; i++) {
		const struct peer *p = &rig.clients[i];

		if (p->h2 && !p->h2_failed && !p->k->closed && !p->k->fin && !h2_peer_goaway(p->h2))
			heard += h2_peer_heard(p->h2);
	}
	if (fake_log_took_all() && heard > fake_log.streams)
		fake_fault("%zu streams were heard of, and %zu requests recorded", heard,
			   fake_log.streams);
}

static void let_everything_end(void)
{
	rig_settle();
	look_at_streams();
	fake_log.fail_at = 0;
	fake_log_set(LOG_WRITES);
	rig_settle();
	fake_clock(72LL * 3600 * 1000000);
	rig_settle();
	if (rig.worker->clients || rig.worker->clients_n > 0)
		fake_fault("%zu connections never end", rig.worker->clients_n);
	if (rig.worker->tunnels)
		fake_fault("a tunnel never ends");
	if (rig.worker->waiters)
		fake_fault("somebody still waits for the log");
	worker_drain(rig.worker, 0);
	rig_settle();
	if (!fake_loop.stopped)
		fake_fault("the drain does not end");
}

void rig_transparent(const char *host, uint16_t port)
{
	struct host h;
	struct ipaddr a, v6;

	fake_memory.paused++;
	if (host_parse(str_from_c(host), &h, NULL) < 0)
		abort();
	if (!rig.entrance.names && name_map_new(&rig.entrance.names, NULL) < 0)
		abort();
	rig.entrance.kind = CONFIG_LISTEN_TRANSPARENT;
	if (h.kind != HOST_NAME)
		a = h.addr;
	else if (name_map_give(rig.entrance.names, &h, true, 0, &a, &v6, NULL) < 0)
		abort();
	fake_meant(&a, port);
	fake_memory.paused--;
}

void rig_end(void)
{
	fake_memory.paused++;
	if (rig.worker)
		let_everything_end();
	worker_free(rig.worker);
	snapshot_unref(rig.snapshot);
	listener_counts_unref(rig.entrance.counts);
	name_map_unref(rig.entrance.names);
	if (!rig_keeps)
		signer_free(rig.signer);
	end_peers(rig.clients, rig.clients_n);
	end_peers(rig.origins, rig.origins_n);
	fake_log_write();
	fake_log_balance();
	fake_end();
	rig = (struct rig){0};
	fake_memory.paused--;
	if (fake_memory.live != 0)
		fake_fault("%ld allocations were not freed", fake_memory.live);
}

/* ---- peers ---- */

static void flush_tls(struct peer *p)
{
	char buf[16384];
	int n;

	while ((n = BIO_read(SSL_get_wbio(p->ssl), buf, sizeof(buf))) > 0)
		bytes_add(&p->k->in, buf, (size_t)n);
}

void peer_send(struct peer *p, struct str data)
{
	if (!p->ssl) {
		bytes_add(&p->k->in, data.p, data.n);
		return;
	}
	ERR_clear_error();
	if (data.n > 0 && SSL_write(p->ssl, data.p, (int)data.n) <= 0)
		p->tls_failed = true;
	flush_tls(p);
}

/* What came before is the beginning of the handshake. */
static void start_tls(struct peer *p, SSL *ssl)
{
	SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
	p->ssl = ssl;
	if (p->got.n > 0)
		BIO_write(SSL_get_rbio(ssl), p->got.p, (int)p->got.n);
	bytes_drop(&p->got, p->got.n);
	ERR_clear_error();
	(void)SSL_do_handshake(ssl);
	flush_tls(p);
}

static void start_client_tls(struct peer *p, const char *sni, bool trusting, bool h2)
{
	SSL *ssl = SSL_new(trusting ? client_ctx : stranger_ctx);

	if (!ssl || (h2 && SSL_set_alpn_protos(ssl, (const unsigned char *)"\x02h2", 3) != 0))
		abort();
	SSL_set_connect_state(ssl);
	if (*sni)
		SSL_set_tlsext_host_name(ssl, sni);
	start_tls(p, ssl);
}

void peer_start_client_tls(struct peer *p, const char *sni, bool trusting)
{
	start_client_tls(p, sni, trusting, false);
}

void peer_start_client_h2(struct peer *p, const char *sni, unsigned window)
{
	start_client_tls(p, sni, true, true);
	p->h2 = h2_peer_new(window);
}

static void on_leaf(void *arg, struct leaf *leaf, const struct err *e)
{
	static const struct str alpn = {"\x08http/1.1", 9};
	SSL *ssl;

	(void)e;
	if (!leaf || signer_server_new(origin_signer, leaf, alpn, &ssl, NULL) < 0)
		abort();
	leaf_unref(leaf);
	start_tls(arg, ssl);
}

void peer_start_origin_tls(struct peer *p, const char *name)
{
	struct leaf_name n = {.text = str_from_c(name)};

	long live = fake_memory.live;

	fake_memory.paused++;
	signer_get(origin_signer, &n, on_leaf, p);
	fake_memory.paused--;
	fake_memory.live = live; /* the origins' signer keeps its leaves */
}

void peer_close_notify(struct peer *p)
{
	if (p->ssl) {
		(void)SSL_shutdown(p->ssl);
		flush_tls(p);
	}
}

/* True: it has said something. */
static bool pump_h2(struct peer *p)
{
	struct str out;
	bool any = false;

	if (!p->h2 || !SSL_is_init_finished(p->ssl) || p->tls_failed)
		return false;
	if (!h2_peer_take(p->h2, bytes_str(&p->got)))
		p->h2_failed = true;
	bytes_drop(&p->got, p->got.n);
	while ((out = h2_peer_out(p->h2)).n > 0) {
		peer_send(p, out);
		any = true;
	}
	return any;
}

static bool pump(struct peer *p)
{
	char buf[16384];
	int n;

	if (p->k->out.n == 0)
		return false;
	if (!p->ssl) {
		bytes_add(&p->got, p->k->out.p, p->k->out.n);
	} else {
		BIO_write(SSL_get_rbio(p->ssl), p->k->out.p, (int)p->k->out.n);
		ERR_clear_error();
		while ((n = SSL_read(p->ssl, buf, sizeof(buf))) > 0)
			bytes_add(&p->got, buf, (size_t)n);
		if (SSL_get_error(p->ssl, n) == SSL_ERROR_SSL)
			p->tls_failed = true;
		flush_tls(p);
	}
	bytes_drop(&p->k->out, p->k->out.n);
	return true;
}

static void find_origins(void)
{
	for (struct fake_socket *k = fake_sockets; k; k = k->next) {
		bool is_known = !k->upstream;

		for (size_t i = 0; i < rig.origins_n; i++)
			is_known = is_known || rig.origins[i].k == k;
		if (!is_known && rig.origins_n < RIG_PEERS_MAX)
			rig.origins[rig.origins_n++] = (struct peer){.k = k};
	}
}

bool rig_pump(void)
{
	bool any = false;

	fake_memory.paused++;
	find_origins();
	for (size_t i = 0; i < rig.clients_n; i++) {
		any = pump(&rig.clients[i]) || any;
		any = pump_h2(&rig.clients[i]) || any;
	}
	for (size_t i = 0; i < rig.origins_n; i++)
		any = pump(&rig.origins[i]) || any;
	fake_memory.paused--;
	return any;
}

void rig_settle(void)
{
	unsigned n = 0;

	do
		fake_settle();
	while (rig_pump() && ++n < 10000);
}

struct peer *rig_connect(unsigned n)
{
	struct fake_socket *k;

	if (rig.clients_n == RIG_PEERS_MAX)
		return NULL;
	k = fake_accept(0, n);
	if (!k)
		return NULL;
	rig.clients[rig.clients_n] = (struct peer){.k = k};
	return &rig.clients[rig.clients_n++];
}
