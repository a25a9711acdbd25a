/*
 * The proxy's side of the main socket: values come by themselves and go into stores; one question
 * at a time is asked by the main thread. A thread of its own hears both, from keeper_attend on.
 */
#include "proxy/keeper/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "logging/log.h"
#include "logging/thread.h"
#include "proxy/credentials/secret.h"
#include "proxy/net/pass_fd.h"
#include "proxy/net/poll_again.h"

#define QUESTION_BIT 0x80000000u

struct keeper *client_new(size_t workers, struct err *e)
{
	struct keeper *k = calloc(1, sizeof(*k));
	pthread_condattr_t attr;

	if (!k) {
		err_set(e, "out of memory");
		return NULL;
	}
	k->main_fd = k->files_fd = k->pid_fd = k->answer.fd = -1;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&k->lock, NULL);
	pthread_mutex_init(&k->files_lock, NULL);
	pthread_cond_init(&k->answered, &attr);
	pthread_condattr_destroy(&attr);
	k->in = malloc(LIMIT_KEEPER_MESSAGE);
	k->files_in = malloc(LIMIT_KEEPER_MESSAGE);
	k->leaves = calloc(workers ? workers : 1, sizeof(*k->leaves));
	if (k->in && k->files_in && k->leaves) {
		k->leaves_n = workers;
		for (size_t i = 0; i < workers; i++)
			k->leaves[i] = -1;
		/* As far as the system grants it; values pass through here. */
		(void)mlock(k->in, LIMIT_KEEPER_MESSAGE);
		(void)mlock(k->files_in, LIMIT_KEEPER_MESSAGE);
		return k;
	}
	err_set(e, "out of memory");
	client_free(k);
	return NULL;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void drop_answer(struct client_answer *a)
{
	free(a->body);
	close_fd(a->fd);
	*a = (struct client_answer){.fd = -1};
}

void client_free(struct keeper *k)
{
	for (size_t i = 0; i < CLIENT_STORES; i++)
		credential_store_unref(k->fed[i].store);
	drop_answer(&k->answer);
	ca_unref(k->ca);
	close_fd(k->main_fd);
	close_fd(k->files_fd);
	close_fd(k->pid_fd);
	for (size_t i = 0; k->leaves && i < k->leaves_n; i++)
		close_fd(k->leaves[i]);
	if (k->in) {
		OPENSSL_cleanse(k->in, LIMIT_KEEPER_MESSAGE);
		(void)munlock(k->in, LIMIT_KEEPER_MESSAGE);
	}
	if (k->files_in)
		(void)munlock(k->files_in, LIMIT_KEEPER_MESSAGE);
	free(k->in);
	free(k->files_in);
	free(k->leaves);
	pthread_cond_destroy(&k->answered);
	pthread_mutex_destroy(&k->lock);
	pthread_mutex_destroy(&k->files_lock);
	free(k);
}

bool keeper_is_gone(const struct keeper *k)
{
	return __atomic_load_n(&k->is_gone, __ATOMIC_ACQUIRE);
}

/* ---- what comes ---- */

static struct credential_store *store_of(struct keeper *k, uint32_t id)
{
	struct credential_store *found = NULL;

	pthread_mutex_lock(&k->lock);
	for (size_t i = 0; i < CLIENT_STORES; i++)
		if (k->fed[i].store && k->fed[i].id == id)
			found = credential_store_ref(k->fed[i].store);
	pthread_mutex_unlock(&k->lock);
	return found;
}

static int on_credential(struct keeper *k, const struct wire_msg *m)
{
	struct credential_store *s;
	struct secret *value = NULL;
	struct wire_credential c;
	struct err why = ERR_INIT;
	struct str rest = str_from(m->body, m->head.n);

	if (rest.n < sizeof(c))
		return -1;
	memcpy(&c, rest.p, sizeof(c));
	rest = str_skip(rest, sizeof(c));
	if (c.value_n > rest.n || c.why_n != rest.n - c.value_n || c.why_n >= ERR_TEXT_MAX ||
	    c.value_n > LIMIT_SECRET_BYTES)
		return -1;
	s = store_of(k, m->head.id);
	if (!s)
		return 0;
	(void)err_reason(&why, REASON_CREDENTIAL_UNAVAILABLE, "%.*s", (int)c.why_n,
			 rest.p + c.value_n);
	if (c.has_value)
		value = secret_copy(str_head(rest, c.value_n));
	if (c.has_value && !value)
		(void)err_reason(&why, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
	credential_store_put(s, c.index, value, c.life_us, c.next_us, why.text[0] ? &why : NULL);
	credential_store_unref(s);
	return 0;
}

/* One to a question that was given up is not taken for that to the next: each would be late by one
 * from then on, and no reload would ever succeed again. */
static int on_answer(struct keeper *k, struct wire_msg *m)
{
	char *copy = malloc(m->head.n + 1);

	if (!copy)
		return -1;
	memcpy(copy, m->body, m->head.n);
	copy[m->head.n] = '\0';
	pthread_mutex_lock(&k->lock);
	if (m->head.id != k->asked) {
		pthread_mutex_unlock(&k->lock);
		free(copy);
		return 0;
	}
	drop_answer(&k->answer);
	k->answer = (struct client_answer){.body = copy,
					   .n = m->head.n,
					   .kind = m->head.kind,
					   .fd = m->fd};
	m->fd = -1;
	pthread_cond_broadcast(&k->answered);
	pthread_mutex_unlock(&k->lock);
	return 0;
}

/* Nothing of what was handed out counts any more. */
static void lose(struct keeper *k)
{
	bool is_stopping = __atomic_load_n(&k->is_stopping, __ATOMIC_ACQUIRE);
	struct err why = ERR_INIT;

	if (!is_stopping)
		log_error("the keeper of keys and credentials has ended");
	(void)err_reason(&why, REASON_CREDENTIAL_UNAVAILABLE, "its keeper has ended");
	__atomic_store_n(&k->is_gone, true, __ATOMIC_RELEASE);
	pthread_mutex_lock(&k->lock);
	for (size_t i = 0; i < CLIENT_STORES; i++)
		if (k->fed[i].store && !is_stopping)
			credential_store_lose(k->fed[i].store, &why);
	pthread_cond_broadcast(&k->answered);
	pthread_mutex_unlock(&k->lock);
}

/* One message, if one comes within ms (-1: however long it takes). False: there will be none. */
static bool hear(struct keeper *k, int ms)
{
	struct pollfd p = {.fd = k->main_fd, .events = POLLIN};
	struct wire_msg m = {.body = k->in};
	int n = poll(&p, 1, ms), got;

	if (n < 0) {
		if (poll_again(&k->poll_failures))
			return true;
		lose(k);
		return false;
	}
	k->poll_failures = 0;
	if (n == 0)
		return true;
	got = wire_recv(k->main_fd, &m);
	if (got < 0 && errno == EAGAIN)
		return true;
	if (got > 0) {
		got = m.head.kind == WIRE_CREDENTIAL ? on_credential(k, &m) : on_answer(k, &m);
		got = got < 0 ? 0 : 1;
		OPENSSL_cleanse(k->in, m.head.n);
		close_fd(m.fd);
	}
	if (got <= 0)
		lose(k);
	return got > 0;
}

static void *run(void *arg)
{
	struct keeper *k = arg;

	(void)pthread_setname_np(pthread_self(), "stile-kept");
	while (hear(k, -1))
		;
	return NULL;
}

int keeper_attend(struct keeper *k, struct err *e)
{
	if (thread_start(&k->thread, run, k, "thread of the keeper", e) < 0)
		return -1;
	k->is_attended = true;
	return 0;
}

/* ---- asking ---- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Under the lock. */
static void wait_attended(struct keeper *k, int64_t until_ms)
{
	struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
				 .tv_nsec = (long)(until_ms % 1000) * 1000000};

	while (!k->answer.kind && !keeper_is_gone(k) &&
	       pthread_cond_timedwait(&k->answered, &k->lock, &until) == 0)
		;
}

/* The answer is the caller's; its kind is the one wanted. */
static int await(struct keeper *k, enum wire_kind wanted, uint64_t ms, struct client_answer *ret,
		 struct err *e)
{
	int64_t until = now_ms() + (int64_t)ms, left;
	struct client_answer a;

	while (!k->is_attended && !k->answer.kind && (left = until - now_ms()) > 0 &&
	       hear(k, (int)left))
		;
	pthread_mutex_lock(&k->lock);
	if (k->is_attended)
		wait_attended(k, until);
	a = k->answer;
	k->answer = (struct client_answer){.fd = -1};
	pthread_mutex_unlock(&k->lock);
	if (a.kind == wanted) {
		*ret = a;
		return 0;
	}
	if (a.kind == WIRE_FAILED && a.n > 0)
		(void)err_reason(e, (enum reason)(unsigned char)a.body[0], "%s", a.body + 1);
	else
		(void)err_set(e, "the keeper %s",
			      keeper_is_gone(k) ? "has ended" : "does not answer");
	drop_answer(&a);
	return -1;
}

static int say(struct keeper *k, enum wire_kind kind, uint32_t id, struct str body, struct err *e)
{
	if (wire_send(k->main_fd, kind, id, &body, 1, -1) == 0)
		return 0;
	return err_sys(e, errno, "the keeper cannot be reached");
}

/* One question at a time; the answer is of the kind wanted. */
static int question(struct keeper *k, enum wire_kind kind, uint32_t id, struct str body,
		    enum wire_kind wanted, struct client_answer *ret, struct err *e)
{
	pthread_mutex_lock(&k->lock);
	drop_answer(&k->answer);
	k->asked = id;
	pthread_mutex_unlock(&k->lock);
	if (say(k, kind, id, body, e) < 0)
		return -1;
	return await(k, wanted, LIMIT_MS_KEEPER_ANSWER, ret, e);
}

/* Of what is no store's: never the number of one. */
static uint32_t next_question(struct keeper *k)
{
	return ++k->last_question | QUESTION_BIT;
}

/* Its first message, once. */
static int await_ready(struct keeper *k, struct err *e)
{
	struct client_answer a;
	int rc;

	if (k->ca)
		return 0;
	if (await(k, WIRE_READY, LIMIT_MS_KEEPER_START, &a, e) < 0)
		return -1;
	rc = ca_new_public(str_from(a.body, a.n), &k->ca, e);
	drop_answer(&a);
	return rc;
}

int keeper_await(struct keeper *k, struct ca **ret, struct err *e)
{
	if (await_ready(k, e) < 0)
		return -1;
	*ret = ca_ref(k->ca);
	return 0;
}

int client_placeholder(void *arg, const struct config_credential *c, struct strbuf *out,
		       struct err *e)
{
	struct keeper *k = arg;
	struct client_answer a;

	if (await_ready(k, e) < 0 || question(k, WIRE_PLACEHOLDER, next_question(k),
					      str_from_c(c->name), WIRE_PLACEHOLDER, &a, e) < 0)
		return -1;
	strbuf_add(out, str_from(a.body, a.n));
	drop_answer(&a);
	return 0;
}

int keeper_give_key(struct keeper *k, const struct signer *s, struct err *e)
{
	unsigned char point[SIGNER_POINT_LEN];

	if (signer_public_key(s, point, e) < 0)
		return -1;
	return say(k, WIRE_KEY, 0, str_from((const char *)point, sizeof(point)), e);
}

/* ---- stores ---- */

static void nudge(void *arg, uint32_t id, size_t i)
{
	struct wire_nudge n = {.index = (uint32_t)i};

	/* If it does not fit, the next request that misses the value says it again. */
	(void)say(arg, WIRE_NUDGE, id, str_from((const char *)&n, sizeof(n)), NULL);
}

/* Under the lock: what comes for s goes there from now on. */
static void feed(struct keeper *k, uint32_t id, struct credential_store *s)
{
	struct fed *f = &k->fed[0];

	/* One of an earlier reload that was given up is the one to go. */
	if (f->store)
		f = &k->fed[1];
	credential_store_unref(f->store);
	*f = (struct fed){.store = credential_store_ref(s), .id = id};
}

int keeper_store(struct keeper *k, struct config *c, struct credential_store **ret, struct err *e)
{
	struct credential_feed f = {.nudge = nudge,
				    .mint = client_mint,
				    .arg = k,
				    .id = k->last_store + 1};
	bool *wanted = calloc(c->credentials_n ? c->credentials_n : 1, sizeof(*wanted));
	struct credential_store *s = NULL;
	struct client_answer a;

	if (!wanted)
		return err_set(e, "out of memory");
	credentials_wanted(c, k->policy_name, wanted);
	if (credential_store_new_fed(c, wanted, &f, &s, e) < 0) {
		free(wanted);
		return -1;
	}
	free(wanted);
	k->last_store++;
	pthread_mutex_lock(&k->lock);
	feed(k, f.id, s);
	pthread_mutex_unlock(&k->lock);
	if (question(k, WIRE_STORE, f.id, STR_NONE, WIRE_STORE, &a, e) < 0) {
		credential_store_unref(s);
		return -1;
	}
	drop_answer(&a);
	*ret = s;
	return 0;
}

/* ---- reload ---- */

static int read_text(int fd, struct keeper_reading *r, struct err *e)
{
	struct stat st;
	size_t done = 0;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < 0 ||
	    st.st_size > (off_t)LIMIT_CONFIG_BYTES + 1 || !(fcntl(fd, F_GET_SEALS) & F_SEAL_WRITE))
		return err_set(e, "the keeper gave no configuration");
	r->n = (size_t)st.st_size;
	r->text = malloc(r->n + 1);
	if (!r->text)
		return err_set(e, "out of memory");
	while (done < r->n) {
		ssize_t got = pread(fd, r->text + done, r->n - done, (off_t)done);

		if (got <= 0) {
			free(r->text);
			return err_set(e, "the keeper's configuration cannot be read");
		}
		done += (size_t)got;
	}
	return 0;
}

int keeper_reload(struct keeper *k, struct keeper_reading *ret, struct err *e)
{
	struct keeper_reading r = {0};
	struct wire_reloaded said;
	struct client_answer a;
	int rc = -1;

	if (question(k, WIRE_RELOAD, next_question(k), STR_NONE, WIRE_RELOADED, &a, e) < 0)
		return -1;
	if (a.n != sizeof(said)) {
		err_set(e, "the keeper's answer cannot be read");
	} else if (a.fd == PASS_FD_LOST) {
		keeper_abort(k);
		err_set(e, "too many open files: the keeper has read it, and cannot hand it over");
	} else {
		memcpy(&said, a.body, sizeof(said));
		rc = read_text(a.fd, &r, e);
		r.ok = said.ok != 0;
		memcpy(r.version_hash, said.version_hash, sizeof(r.version_hash));
		r.version_hash[sizeof(r.version_hash) - 1] = '\0';
	}
	drop_answer(&a);
	if (rc == 0)
		*ret = r;
	return rc;
}

int keeper_commit(struct keeper *k, struct err *e)
{
	if (say(k, WIRE_COMMIT, 0, STR_NONE, e) < 0)
		return -1;
	pthread_mutex_lock(&k->lock);
	credential_store_unref(k->fed[0].store);
	k->fed[0] = k->fed[1];
	k->fed[1] = (struct fed){0};
	pthread_mutex_unlock(&k->lock);
	return 0;
}

void keeper_abort(struct keeper *k)
{
	(void)say(k, WIRE_ABORT, 0, STR_NONE, NULL);
	pthread_mutex_lock(&k->lock);
	credential_store_unref(k->fed[1].store);
	k->fed[1] = (struct fed){0};
	pthread_mutex_unlock(&k->lock);
}
