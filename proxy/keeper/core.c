/*
 * See core.h. Every question is answered from the keeper's own copy of the configuration; of what
 * the proxy says only names, ports and numbers count, each checked here. There are two
 * configurations for a moment, while a reload is under way: the one in force and the one to come.
 */
#include "proxy/keeper/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "certs/notary.h"
#include "logging/log.h"
#include "proxy/credentials/config_trust.h"
#include "proxy/credentials/helpers.h"
#include "proxy/credentials/placeholder.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/slot.h"
#include "proxy/credentials/store.h"
#include "proxy/keeper/files.h"

/* The credentials of one configuration, as far as the proxy has been told of them. */
struct view {
	/* counted */
	struct config *config; /* NULL: there is none */
	struct credential_store *store;
	/* owned */
	bool *wanted;
	uint64_t *told; /* the version of each that was sent last */
	/* plain */
	uint32_t id;
	bool is_asked; /* the proxy has given it a number: pushes may go */
};

/* So many at once, and so many a second. */
struct rate {
	int64_t tokens, since_us;
	int64_t burst, per_s;
};

struct keeper_core {
	/* owned */
	struct notary *notary; /* NULL: no key came yet */
	struct view now, next;
	/* counted */
	struct ca *ca;
	/* borrowed */
	struct broker *broker;
	struct helpers *helpers;
	const char *policy_name, *log_to;
	/* plain */
	bool reloads;
	int64_t (*now_us)(void);
	struct rate leaves, explained;
	int64_t said_us; /* when a refusal was written to stderr last */
};

static int64_t clock_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- views ---- */

static void view_clear(struct view *v)
{
	credential_store_unref(v->store);
	config_unref(v->config);
	free(v->wanted);
	free(v->told);
	*v = (struct view){0};
}

/* Takes a count of c. Nothing is read yet. */
static int view_set(struct keeper_core *k, struct view *v, struct config *c, struct err *e)
{
	size_t n = c->credentials_n ? c->credentials_n : 1;

	view_clear(v);
	v->wanted = calloc(n, sizeof(*v->wanted));
	v->told = calloc(n, sizeof(*v->told));
	if (!v->wanted || !v->told) {
		view_clear(v);
		return err_set(e, "out of memory");
	}
	v->config = config_ref(c);
	credentials_wanted(c, k->policy_name, v->wanted);
	return 0;
}

/* Roots are read only for whom an endpoint has to be verified. */
static bool needs_trust(const struct view *v)
{
	for (size_t i = 0; i < v->config->credentials_n; i++) {
		const struct config_credential *c = &v->config->credentials[i];

		if (v->wanted[i] && broker_keeps(c) && c->source != CREDENTIAL_FROM_EXEC)
			return true;
	}
	return false;
}

static int view_open(struct keeper_core *k, struct view *v, struct err *e)
{
	struct trust *trust = NULL;
	int rc;

	if (v->store)
		return 0;
	if (needs_trust(v) && config_trust(v->config, &trust, e) < 0)
		return -1;
	rc = credential_store_new_of(v->config, v->wanted, k->broker, trust, &v->store, e);
	trust_unref(trust);
	return rc;
}

int core_new(const struct core_options *o, struct keeper_core **ret, struct err *e)
{
	struct keeper_core *k = calloc(1, sizeof(*k));

	if (!k)
		return err_set(e, "out of memory");
	k->ca = ca_ref(o->ca);
	k->broker = o->broker;
	k->helpers = o->helpers;
	k->policy_name = o->policy_name;
	k->log_to = o->log_to;
	k->reloads = o->reloads;
	k->now_us = o->now_us ? o->now_us : clock_us;
	k->leaves = (struct rate){.tokens = LIMIT_LEAVES,
				  .since_us = k->now_us(),
				  .burst = LIMIT_LEAVES,
				  .per_s = LIMIT_LEAVES_PER_S};
	k->explained = (struct rate){.tokens = LIMIT_LEAVES_EXPLAINED,
				     .since_us = k->now_us(),
				     .burst = LIMIT_LEAVES_EXPLAINED,
				     .per_s = LIMIT_LEAVES_EXPLAINED_PER_S};
	if (view_set(k, &k->now, o->config, e) < 0) {
		core_free(k);
		return -1;
	}
	*ret = k;
	return 0;
}

void core_free(struct keeper_core *k)
{
	if (!k)
		return;
	view_clear(&k->next);
	view_clear(&k->now);
	notary_free(k->notary);
	ca_unref(k->ca);
	free(k);
}

int core_open(struct keeper_core *k, struct err *e)
{
	return view_open(k, &k->now, e);
}

void core_tick(struct keeper_core *k, int64_t *last)
{
	int64_t now = k->now_us();

	if (now - *last < LIMIT_MS_SECRET_REREAD * 1000LL)
		return;
	*last = now;
	if (k->now.store)
		credential_store_poll(k->now.store);
	if (k->next.store)
		credential_store_poll(k->next.store);
}

/* In place of a key goes a word that is another one when the key is. */
static void hide_key(struct slot_state *s)
{
	struct secret *word = s->value ? secret_new(32) : NULL;
	struct strbuf b;

	if (word) {
		strbuf_init_fixed(&b, secret_room(word), 32);
		strbuf_addf(&b, "key %020llu", (unsigned long long)s->version);
		secret_trim(word, b.len);
	} else if (s->value) {
		(void)snprintf(s->why, sizeof(s->why), "out of memory");
	}
	secret_unref(s->value);
	s->value = word;
}

static int push_view(struct view *v,
		     int (*fn)(void *arg, uint32_t store, size_t i, const struct slot_state *s),
		     void *arg)
{
	if (!v->store || !v->is_asked)
		return 0;
	for (size_t i = 0; i < v->config->credentials_n; i++) {
		struct slot *slot = credential_store_slot(v->store, i);
		struct slot_state s;
		int rc = 0;

		if (!slot)
			continue;
		slot_read(slot, &s);
		if (s.version != v->told[i] && credential_store_is_key(v->store, i))
			hide_key(&s);
		if (s.version != v->told[i])
			rc = fn(arg, v->id, i, &s);
		if (rc == 0)
			v->told[i] = s.version;
		secret_unref(s.value);
		if (rc < 0)
			return -1;
	}
	return 0;
}

int core_push(struct keeper_core *k,
	      int (*fn)(void *arg, uint32_t store, size_t i, const struct slot_state *s), void *arg)
{
	return push_view(&k->now, fn, arg) < 0 ? -1 : push_view(&k->next, fn, arg);
}

/* ---- leaves ---- */

static bool rate_take(struct rate *r, int64_t now_us)
{
	int64_t more = (now_us - r->since_us) * r->per_s / 1000000;

	if (more > 0) {
		r->tokens = r->tokens + more > r->burst ? r->burst : r->tokens + more;
		r->since_us = now_us;
	}
	if (r->tokens <= 0)
		return false;
	r->tokens--;
	return true;
}

/* Does a rule in force have TLS to that host and port opened? */
static bool is_inspected(const struct keeper_core *k, const struct host *h, uint16_t port)
{
	const struct config *c = k->now.config;

	for (size_t i = 0; i < c->policies_n; i++) {
		struct policy_connect may;

		if (!policy_is_in_force(c, c->policies[i], k->policy_name))
			continue;
		policy_decide_connect(c->policies[i], h, port, &may);
		if (may.inspect)
			return true;
	}
	return false;
}

/* Refusals are told within TLS: by the configuration, or in `run`, which does so unless told
 * otherwise. */
static bool explains(const struct keeper_core *k)
{
	switch (k->now.config->deny) {
	case CONFIG_DENY_UNSAID: return k->policy_name != NULL;
	case CONFIG_DENY_EXPLAIN: return true;
	case CONFIG_DENY_REFUSE: return false;
	}
	return false;
}

/* 0: sign, with *ret_life_secs. */
static int admit(struct keeper_core *k, const struct host *h, uint16_t port,
		 unsigned *ret_life_secs, struct err *e)
{
	int64_t now = k->now_us();
	bool inspected = is_inspected(k, h, port);
	char at[HOST_PORT_ROOM];

	*ret_life_secs = inspected ? 0 : LIMIT_LEAF_EXPLAINED_SECS;
	if (!inspected && !explains(k)) {
		if (now - k->said_us >= 1000000) {
			k->said_us = now;
			log_warn("keeper: no certificate for %s, which no rule in force admits",
				 host_port(h, port, at));
		}
		return err_reason(e, REASON_NO_RULE, "no rule in force admits %s",
				  host_port(h, port, at));
	}
	if (!rate_take(inspected ? &k->leaves : &k->explained, now))
		return err_reason(e, REASON_OVERLOADED, "too many certificates are asked for");
	return 0;
}

static int sign(struct keeper_core *k, const struct host *h, unsigned life_secs, struct strbuf *out,
		struct err *e)
{
	struct leaf_name name = {.text = host_str(h)};

	if (h->kind != HOST_NAME) {
		name.ip = h->addr.b;
		name.ip_len = h->kind == HOST_IPV4 ? 4 : 16;
	}
	return notary_sign(k->notary, &name, life_secs, out, e);
}

static void refuse(struct core_reply *r, const struct err *e)
{
	r->kind = WIRE_FAILED;
	strbuf_reset(&r->body);
	strbuf_addc(&r->body, (char)e->reason);
	strbuf_adds(&r->body, e->text);
}

static int on_leaf(struct keeper_core *k, struct str body, struct core_reply *r, struct err *e)
{
	struct err why = ERR_INIT;
	struct wire_leaf q;
	unsigned life_secs = 0;
	struct host h;

	if (body.n <= sizeof(q) || body.n > sizeof(q) + LIMIT_HOST_BYTES + 2)
		return err_set(e, "a question for a leaf of %zu bytes", body.n);
	memcpy(&q, body.p, sizeof(q));
	if (q.port > 65535 || !k->notary)
		return err_set(e, "a question for a leaf that cannot be meant");
	if (host_parse(str_skip(body, sizeof(q)), &h, &why) < 0 ||
	    admit(k, &h, (uint16_t)q.port, &life_secs, &why) < 0 ||
	    sign(k, &h, life_secs, &r->body, &why) < 0)
		refuse(r, &why);
	else
		r->kind = WIRE_LEAF_IS;
	return 0;
}

static int on_key(struct keeper_core *k, struct str body, struct err *e)
{
	if (body.n != SIGNER_POINT_LEN || k->notary)
		return err_set(e, "a second key, or one of %zu bytes", body.n);
	return notary_new(k->ca, (const unsigned char *)body.p, &k->notary, e);
}

/* ---- credentials ---- */

/* The proxy has made a store for the configuration that it was given last. */
static int on_store(struct keeper_core *k, uint32_t id, struct core_reply *r, struct err *e)
{
	struct view *v = k->next.config ? &k->next : &k->now;
	struct err why = ERR_INIT;

	if (v->is_asked || id == 0 || id == k->now.id)
		return err_set(e, "a store that is there already");
	if (view_open(k, v, &why) < 0) {
		refuse(r, &why);
		return 0;
	}
	v->id = id;
	v->is_asked = true;
	r->kind = WIRE_STORE;
	return 0;
}

static int on_nudge(struct keeper_core *k, uint32_t id, struct str body, struct err *e)
{
	struct wire_nudge q;

	if (body.n != sizeof(q))
		return err_set(e, "a nudge of %zu bytes", body.n);
	memcpy(&q, body.p, sizeof(q));
	/* A store that is gone meanwhile is nobody's fault; an index beyond is checked there. */
	if (k->now.store && k->now.id == id)
		credential_store_nudge(k->now.store, q.index);
	return 0;
}

/* A value of nobody's, for a credential of the configuration that the proxy was given last. */
static int on_placeholder(struct keeper_core *k, struct str body, struct core_reply *r,
			  struct err *e)
{
	const struct config *c = k->next.config ? k->next.config : k->now.config;
	const struct config_credential *found;
	struct err why = ERR_INIT;
	char name[LIMIT_KEEPER_PATH];

	if (body.n == 0 || body.n >= sizeof(name))
		return err_set(e, "a name of %zu bytes", body.n);
	memcpy(name, body.p, body.n);
	name[body.n] = '\0';
	found = config_credential(c, name);
	if (!found || !found->placeholder)
		(void)err_set(&why, "no such placeholder");
	else if (placeholder_make(found, &r->body, &why) == 0)
		r->kind = WIRE_PLACEHOLDER;
	if (!r->kind)
		refuse(r, &why);
	return 0;
}

/* ---- reload ---- */

/* Sealed: what the proxy reads is what was read here. */
static int make_memfd(const char *text, size_t n, struct err *e)
{
	int fd = memfd_create("stile-config", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t done = 0;

	while (fd >= 0 && done < n) {
		ssize_t put = write(fd, text + done, n - done);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			break;
		done += (size_t)put;
	}
	if (fd >= 0 && done == n &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0)
		return fd;
	err_sys(e, errno, "the configuration cannot be handed over");
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Why the file could not even be read, as it is told. */
static void say_unread(const struct faults *f, const char *file, struct err *e)
{
	(void)err_set(e, "%s: %s", file, f->n > 0 ? f->v[0].text : "cannot be read");
}

/* Who starts programs reads for itself which ones there are. */
static int read_helpers(struct keeper_core *k, const char *file, const struct config *fresh,
			struct err *e)
{
	if (!k->helpers || helpers_read(k->helpers, fresh->version_hash, e) == 0)
		return 0;
	return err_wrap(e, "%s", file);
}

/* What was to come does not. */
static void forget_next(struct keeper_core *k)
{
	view_clear(&k->next);
	if (k->helpers)
		helpers_abort(k->helpers);
}

static void reload(struct keeper_core *k, struct core_reply *r, struct err *e)
{
	const char *file = k->now.config->file;
	struct wire_reloaded said = {0};
	struct config *fresh = NULL;
	char *text = NULL;
	struct faults f;
	size_t n = 0;

	view_clear(&k->next);
	faults_init(&f, file);
	if (config_read_file(file, &text, &n, &f) < 0) {
		say_unread(&f, file, e);
		goto out;
	}
	said.ok = config_load_text(file, str_from(text, n), &fresh, &f) == 0;
	if (said.ok) {
		memcpy(said.version_hash, fresh->version_hash, sizeof(fresh->version_hash));
		if (view_set(k, &k->next, fresh, e) < 0 || read_helpers(k, file, fresh, e) < 0)
			goto out;
	}
	r->fd = make_memfd(text, n, e);
	if (r->fd >= 0) {
		r->kind = WIRE_RELOADED;
		strbuf_add(&r->body, str_from((const char *)&said, sizeof(said)));
	}
out:
	if (r->fd < 0) {
		forget_next(k);
		refuse(r, e);
	}
	config_unref(fresh);
	free(text);
	faults_clear(&f);
}

static int on_reload(struct keeper_core *k, struct core_reply *r, struct err *e)
{
	struct err why = ERR_INIT;

	if (!k->reloads)
		return err_set(e, "a reload where there is none");
	reload(k, r, &why);
	return 0;
}

static int on_commit(struct keeper_core *k, struct err *e)
{
	if (!k->next.config || !k->next.is_asked)
		return err_set(e, "a reload is to end that did not begin");
	view_clear(&k->now);
	k->now = k->next;
	k->next = (struct view){0};
	if (k->helpers)
		helpers_commit(k->helpers);
	return 0;
}

/* ---- all of them ---- */

static int on_open(struct keeper_core *k, struct str body, struct core_reply *r, struct err *e)
{
	const struct files_scope scope = {.config = k->now.config,
					  .next = k->next.config,
					  .log_to = k->log_to};
	char path[LIMIT_KEEPER_PATH];
	uint32_t sys_errno = 0;
	struct wire_open q;

	if (body.n <= sizeof(q) || body.n - sizeof(q) >= sizeof(path))
		return err_set(e, "a path of %zu bytes", body.n);
	memcpy(&q, body.p, sizeof(q));
	memcpy(path, body.p + sizeof(q), body.n - sizeof(q));
	path[body.n - sizeof(q)] = '\0';
	r->kind = WIRE_OPENED;
	r->fd = files_open(&scope, path, q.how);
	if (r->fd < 0)
		sys_errno = (uint32_t)errno;
	strbuf_add(&r->body, str_from((const char *)&sys_errno, sizeof(sys_errno)));
	return 0;
}

static struct view *view_of(struct keeper_core *k, uint32_t id)
{
	if (k->now.is_asked && k->now.id == id)
		return &k->now;
	return k->next.is_asked && k->next.id == id ? &k->next : NULL;
}

static int on_mint(struct keeper_core *k, struct str body, struct core_reply *r, struct err *e)
{
	struct secret *token = NULL;
	struct err why = ERR_INIT;
	struct wire_mint q;
	struct view *v;

	if (body.n < sizeof(q) || body.n > sizeof(q) + LIMIT_KEEPER_PATH)
		return err_set(e, "a question for a token of %zu bytes", body.n);
	memcpy(&q, body.p, sizeof(q));
	v = view_of(k, q.store);
	if (!v)
		(void)err_reason(&why, REASON_CREDENTIAL_UNAVAILABLE, "a reload took it back");
	else if (!rate_take(&k->leaves, k->now_us()))
		(void)err_reason(&why, REASON_OVERLOADED, "too many tokens are asked for");
	else if (credential_store_mint(v->store, q.index, str_skip(body, sizeof(q)), &token,
				       &why) == 0) {
		r->kind = WIRE_MINTED;
		r->value = token;
	}
	if (!r->kind)
		refuse(r, &why);
	return 0;
}

static int on_main(struct keeper_core *k, const struct wire_head *h, struct str body,
		   struct core_reply *r, struct err *e)
{
	switch (h->kind) {
	case WIRE_KEY: return on_key(k, body, e);
	case WIRE_STORE: return on_store(k, h->id, r, e);
	case WIRE_NUDGE: return on_nudge(k, h->id, body, e);
	case WIRE_RELOAD: return on_reload(k, r, e);
	case WIRE_COMMIT: return on_commit(k, e);
	case WIRE_ABORT: forget_next(k); return 0;
	case WIRE_PLACEHOLDER: return on_placeholder(k, body, r, e);
	default: return err_set(e, "a message of kind %u", h->kind);
	}
}

int core_handle(struct keeper_core *k, enum core_channel ch, const struct wire_head *h,
		const char *body, struct core_reply *reply, struct err *e)
{
	struct str b = str_from(body, h->n);

	reply->kind = 0;
	reply->id = h->id;
	reply->fd = -1;
	reply->value = NULL;
	if (ch == CORE_MAIN)
		return on_main(k, h, b, reply, e);
	if (ch == CORE_LEAVES && h->kind == WIRE_LEAF)
		return on_leaf(k, b, reply, e);
	if (ch == CORE_FILES && h->kind == WIRE_OPEN)
		return on_open(k, b, reply, e);
	if (ch == CORE_FILES && h->kind == WIRE_MINT)
		return on_mint(k, b, reply, e);
	return err_set(e, "a message of kind %u", h->kind);
}
