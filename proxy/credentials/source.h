/*
 * The sources of secrets. Some are read at once, by the thread that makes and polls the store:
 * files (a secret, a key, a projected token) and variables. All others take time: they are asked on
 * the broker's loop and answer from there. Another one of those is another file and one more line
 * in source.c.
 */
#ifndef STILE_PROXY_CREDENTIALS_SOURCE_H
#define STILE_PROXY_CREDENTIALS_SOURCE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "proxy/credentials/store.h"
#include "proxy/net/loop.h"

/* ---- those that are read at once ---- */

/* What the file was like when it was last read. */
struct source_mark {
	bool set;
	bool settled; /* last changed long before it was read: see source_file.c */
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime, ctime;
	mode_t mode;
};

/* Has `path` changed since mark, or could it have? Does not open it. */
bool source_file_changed(const char *path, const struct source_mark *mark);
/* Reads the file. *mark is set on success and on failure alike. -1: REASON_CREDENTIAL_UNAVAILABLE
 * and what is wrong, without the path, as a client may see it. */
int source_file_read(const char *path, struct source_mark *mark, struct secret **ret,
		     struct err *e) ATTR_NODISCARD;

/* The same of a file of several lines, such as a key: any byte may be in it. */
int source_file_read_lines(const char *path, struct source_mark *mark, struct secret **ret,
			   struct err *e) ATTR_NODISCARD;

/* The token of `kubernetes` without `api`, which the kubelet puts into a file and renews there.
 * *ret_life_us: until its `exp`. */
int source_kubernetes_read(const struct config_credential *c, struct source_mark *mark,
			   struct secret **ret, int64_t *ret_life_us, struct err *e) ATTR_NODISCARD;

/* `jwt`: what is read is the key, checked for its kind and size. */
int source_jwt_read(const struct config_credential *c, struct source_mark *mark,
		    struct secret **ret, struct err *e) ATTR_NODISCARD;

/* Makes tokens of a key, one for each sandbox where the claims name it, and hands one out until
 * half of its life is over. Safe for threads. */
struct jwt_mint;
int jwt_mint_new(const struct config_credential *c, struct jwt_mint **ret,
		 struct err *e) ATTR_NODISCARD;
/* The same where another process has the key, and signs what is not kept here (proxy/keeper/). The
 * key that is given to jwt_mint_get then only has to be another one when that one is. */
typedef int jwt_sign_fn(void *arg, struct str sandbox, struct secret **ret, struct err *e);
int jwt_mint_new_remote(const struct config_credential *c, jwt_sign_fn *sign, void *arg,
			struct jwt_mint **ret, struct err *e) ATTR_NODISCARD;
void jwt_mint_free(struct jwt_mint *m); /* NULL is accepted */
/* One that was not handed out before, for such a process. */
int jwt_mint_make(struct jwt_mint *m, struct secret *key, struct str sandbox, struct secret **ret,
		  struct err *e) ATTR_NODISCARD;
/* key: what source_jwt_read gave. sandbox: empty, unknown. A reference; -1:
 * REASON_CREDENTIAL_UNAVAILABLE. */
int jwt_mint_get(struct jwt_mint *m, struct secret *key, struct str sandbox, struct secret **ret,
		 struct err *e) ATTR_NODISCARD;

/* A reference to what credential_env_capture took. */
int source_env_read(const char *name, struct secret **ret, struct err *e) ATTR_NODISCARD;
int source_env_read_lines(const char *name, struct secret **ret, struct err *e) ATTR_NODISCARD;

/* ---- those that take time ---- */

/* value: the callee's; NULL: there is none, and why says so as a client may see it. life_us: how
 * long it holds from now on; 0: the source does not say; below 0: it has ended already. */
typedef void source_result_fn(void *arg, struct secret *value, int64_t life_us,
			      const struct err *why);

struct fetcher;
struct helpers;

/* What a source works with; all of it outlives it. */
struct source_setting {
	const struct config_credential *c;
	struct loop *loop;
	struct fetcher *fetcher;
	struct helpers *helpers; /* NULL: no program can be started */
	source_result_fn *on_result;
	void *arg; /* of on_result */
};

struct source_ops {
	/* Nothing is asked yet. */
	int (*open)(const struct source_setting *s, void **ret, struct err *e);
	/* on_result follows, once, from the loop and never from inside this call; until then it is
	 * not asked again. -1: it does not follow. */
	int (*ask)(void *self, struct err *e);
	void (*close)(void *self); /* on_result does not follow any more */
	/* Gives back what it holds elsewhere, such as a lease; on_result does not follow any more.
	 * True: done follows from the loop, unless close comes first. NULL, false: nothing to do.
	 */
	bool (*farewell)(void *self, void (*done)(void *arg), void *arg);
};

struct source;

const struct source_ops *source_ops_of(const struct config_credential *c); /* NULL: at once */
/* A source, and the operations of its kind on it, as above. What the setting borrows outlives it.
 */
int source_open(const struct source_setting *setting, struct source **ret,
		struct err *e) ATTR_NODISCARD;
int source_ask(struct source *s, struct err *e) ATTR_NODISCARD;
/* As above; NULL: nothing to do. */
bool source_farewell(struct source *s, void (*done)(void *arg), void *arg);
void source_close(struct source *s); /* NULL is accepted */

/* A secret that a source is told of: a file or a variable, read now. -1 as source_file_read, the
 * text naming the key. */
int source_param_secret(const struct config_credential *c, enum config_param_key key,
			const char *word, struct secret **ret, struct err *e) ATTR_NODISCARD;

extern const struct source_ops source_exec_ops;
extern const struct source_ops source_oauth2_ops;
extern const struct source_ops source_vault_ops;
extern const struct source_ops source_github_app_ops;
extern const struct source_ops source_gcp_ops;
extern const struct source_ops source_kubernetes_ops;
extern const struct source_ops source_aws_ops;

#endif
