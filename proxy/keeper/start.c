/*
 * The birth and the end of the keeper, as the proxy sees them. It is a fork and not an exec, for it
 * needs what this process has read already (the configuration, the command line's rules, variables)
 * and nothing of that has to be written down anywhere for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "logging/log.h"
#include "logging/opener.h"
#include "proxy/credentials/placeholder.h"
#include "proxy/keeper/client.h"
#include "proxy/keeper/server.h"

static int make_pairs(struct keeper *k, struct server_fds *theirs, struct err *e)
{
	int fds[2];

	for (size_t i = 0; i < k->leaves_n + 2; i++) {
		if (wire_pair(fds, e) < 0)
			return -1;
		*(i == 0 ? &k->main_fd : i == 1 ? &k->files_fd : &k->leaves[i - 2]) = fds[0];
		*(i == 0   ? &theirs->main
		  : i == 1 ? &theirs->files
			   : &theirs->leaves[i - 2]) = fds[1];
		/* The files' socket is waited on; nothing may wait on the others. */
		if (i != 1 && fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
			return err_sys(e, errno, "sockets of the keeper");
	}
	return 0;
}

static void close_theirs(const struct server_fds *t)
{
	if (t->main >= 0)
		close(t->main);
	if (t->files >= 0)
		close(t->files);
	for (size_t i = 0; t->leaves && i < t->n; i++)
		if (t->leaves[i] >= 0)
			close(t->leaves[i]);
	free(t->leaves);
}

int keeper_start(const struct keeper_options *o, struct keeper **ret, struct err *e)
{
	struct server_fds theirs = {.main = -1, .files = -1, .n = o->workers};
	struct keeper *k = client_new(o->workers, e);

	if (!k)
		return -1;
	k->policy_name = o->policy_name;
	theirs.leaves = calloc(o->workers ? o->workers : 1, sizeof(*theirs.leaves));
	for (size_t i = 0; theirs.leaves && i < theirs.n; i++)
		theirs.leaves[i] = -1;
	if (!theirs.leaves) {
		err_set(e, "out of memory");
		goto fail;
	}
	if (make_pairs(k, &theirs, e) < 0)
		goto fail;
	/* What is in stdio's buffers is written once. */
	(void)fflush(NULL);
	k->pid = fork();
	if (k->pid == 0)
		server_main(o, &theirs);
	if (k->pid < 0) {
		err_sys(e, errno, "cannot make the keeper's process");
		goto fail;
	}
	credential_env_forget(o->config);
	placeholders_made_by(client_placeholder, k);
	close_theirs(&theirs);
	k->pid_fd = pidfd_open(k->pid, 0);
	if (k->pid_fd < 0) {
		err_sys(e, errno, "cannot watch the keeper");
		keeper_stop(k);
		return -1;
	}
	*ret = k;
	return 0;
fail:
	close_theirs(&theirs);
	client_free(k);
	return -1;
}

/* It ends its sources first; one that does not come to an end is not waited for. */
static void reap(struct keeper *k)
{
	struct pollfd p = {.fd = k->pid_fd, .events = POLLIN};
	siginfo_t si;

	if (k->pid_fd < 0 || poll(&p, 1, LIMIT_MS_KEEPER_STOP) == 0) {
		log_warn("the keeper does not end by itself and is killed");
		(void)kill(k->pid, SIGKILL);
	}
	while (waitid(P_PID, (id_t)k->pid, &si, WEXITED) < 0 && errno == EINTR)
		;
}

void keeper_stop(struct keeper *k)
{
	if (!k)
		return;
	opener_set(NULL, NULL);
	placeholders_made_by(NULL, NULL);
	__atomic_store_n(&k->is_stopping, true, __ATOMIC_RELEASE);
	/* Either wakes the thread that reads its answers. */
	if (shutdown(k->main_fd, SHUT_RDWR) < 0)
		(void)kill(k->pid, SIGKILL);
	if (k->is_attended)
		pthread_join(k->thread, NULL);
	reap(k);
	client_free(k);
}

void keeper_leave(struct keeper *k)
{
	k->is_stopping = true;
	client_free(k);
}

pid_t keeper_pid(const struct keeper *k)
{
	return k->pid;
}

int keeper_leaves_fd(const struct keeper *k, size_t n)
{
	return k->leaves[n];
}
