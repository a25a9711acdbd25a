/*
 * The proxy's side of the socket for files: one question at a time, from any thread, and a wait for
 * the answer, which takes no longer than the opening did.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "logging/log.h"
#include "logging/opener.h"
#include "proxy/credentials/secret.h"
#include "proxy/keeper/client.h"
#include "proxy/keeper/confine.h"
#include "proxy/net/pass_fd.h"

/* Under the lock: the answer of that number. 0, or -1 with errno. Those to questions that were
 * given up on are passed over. */
static int hear(struct keeper *k, uint32_t id, struct wire_msg *m)
{
	struct pollfd p = {.fd = k->files_fd, .events = POLLIN};

	*m = (struct wire_msg){.body = k->files_in, .fd = -1};
	for (;;) {
		int n = poll(&p, 1, LIMIT_MS_KEEPER_ANSWER);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = ETIMEDOUT;
			return -1;
		}
		if (wire_recv(k->files_fd, m) <= 0) {
			errno = EPIPE;
			return -1;
		}
		if (m->head.id == id)
			return 0;
		if (m->fd >= 0)
			close(m->fd);
	}
}

static int ask(struct keeper *k, enum wire_kind kind, const struct str parts[2],
	       struct wire_msg *ret)
{
	k->files_id++;
	if (wire_send(k->files_fd, kind, k->files_id, parts, 2, -1) < 0)
		return -1;
	return hear(k, k->files_id, ret);
}

static int open_by_keeper(void *arg, const char *path, int flags)
{
	struct keeper *k = arg;
	struct wire_open q = {.how = (flags & O_ACCMODE) == O_RDONLY ? WIRE_TO_READ
				     : (flags & O_ACCMODE) == O_RDWR ? WIRE_TO_CHANGE
								     : WIRE_TO_APPEND};
	struct str parts[] = {str_from((const char *)&q, sizeof(q)), str_from_c(path)};
	uint32_t theirs = EACCES;
	struct wire_msg m;
	int fd = -1, sys_errno;

	pthread_mutex_lock(&k->files_lock);
	if (ask(k, WIRE_OPEN, parts, &m) == 0) {
		if (m.head.kind == WIRE_OPENED && m.head.n == sizeof(theirs))
			memcpy(&theirs, m.body, sizeof(theirs));
		fd = m.fd >= 0 ? m.fd : -1;
		errno = m.fd == PASS_FD_LOST ? EMFILE : theirs ? (int)theirs : EACCES;
	}
	sys_errno = errno;
	pthread_mutex_unlock(&k->files_lock);
	errno = sys_errno;
	return fd;
}

int client_mint(void *arg, uint32_t store, size_t i, struct str sandbox, struct secret **ret,
		struct err *e)
{
	struct keeper *k = arg;
	struct wire_mint q = {.store = store, .index = (uint32_t)i};
	struct str parts[] = {str_from((const char *)&q, sizeof(q)), sandbox};
	struct secret *token = NULL;
	struct err why = ERR_INIT;
	struct wire_msg m;

	(void)err_reason(&why, REASON_CREDENTIAL_UNAVAILABLE, "its keeper does not answer");
	pthread_mutex_lock(&k->files_lock);
	if (ask(k, WIRE_MINT, parts, &m) == 0) {
		if (m.fd >= 0)
			close(m.fd);
		if (m.head.kind == WIRE_MINTED && m.head.n <= LIMIT_SECRET_BYTES)
			token = secret_copy(str_from(m.body, m.head.n));
		else if (m.head.kind == WIRE_FAILED && m.head.n > 0)
			(void)err_reason(&why, REASON_CREDENTIAL_UNAVAILABLE, "%.*s",
					 (int)m.head.n - 1, m.body + 1);
		OPENSSL_cleanse(m.body, m.head.n);
	}
	pthread_mutex_unlock(&k->files_lock);
	if (!token) {
		if (e)
			*e = why;
		return -1;
	}
	*ret = token;
	return 0;
}

int keeper_confine(struct keeper *k, const struct config *c, struct err *e)
{
	credential_env_reduce();
	opener_set(open_by_keeper, k);
	if (confine_proxy(c, &k->weakness, e) < 0)
		return -1;
	if (k->weakness)
		log_warn("%s", k->weakness);
	return 0;
}

const char *keeper_weakness(const struct keeper *k)
{
	return k->weakness;
}
