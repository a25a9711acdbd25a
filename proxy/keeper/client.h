/*
 * What start.c, client.c and files_client.c share of the proxy's side.
 */
#ifndef STILE_PROXY_KEEPER_CLIENT_H
#define STILE_PROXY_KEEPER_CLIENT_H

#include <pthread.h>

#include "proxy/keeper/keeper.h"
#include "proxy/keeper/wire.h"

#define CLIENT_STORES 2 /* the one in force and the one to come */

struct fed {
	struct credential_store *store; /* counted; NULL: a free place */
	uint32_t id;
};

/* An answer to what the main thread asked. */
struct client_answer {
	char *body; /* owned */
	size_t n;
	enum wire_kind kind; /* 0: none yet */
	int fd;
};

struct keeper {
	/* owned */
	char *in;	/* LIMIT_KEEPER_MESSAGE bytes, wiped after each value */
	char *files_in; /* the same for the files' socket */
	int main_fd, files_fd, pid_fd;
	int *leaves; /* leaves_n */
	/* counted */
	struct ca *ca; /* NULL until it is ready */
	/* plain */
	size_t leaves_n;
	unsigned poll_failures; /* in a row, of who reads main_fd */
	pid_t pid;
	pthread_t thread;
	const char *policy_name;
	const char *weakness; /* static text, or NULL */
	bool is_attended;     /* the thread runs */
	bool is_stopping;     /* atomic */
	bool is_gone;	      /* atomic */
	pthread_mutex_t lock;
	pthread_cond_t answered;
	pthread_mutex_t files_lock;
	uint32_t files_id;
	uint32_t last_store, last_question;
	/* under the lock */
	uint32_t asked; /* the id of the question at hand: what answers another one came too late */
	struct fed fed[CLIENT_STORES];
	struct client_answer answer;
};

/* Between keeper_start and keeper_stop: everything but the process. */
struct keeper *client_new(size_t workers, struct err *e);
void client_free(struct keeper *k);
/* For placeholders_made_by; arg is the keeper. */
/* For a feed: arg is the keeper. */
int client_mint(void *arg, uint32_t store, size_t i, struct str sandbox, struct secret **ret,
		struct err *e);
int client_placeholder(void *arg, const struct config_credential *c, struct strbuf *out,
		       struct err *e);

#endif
