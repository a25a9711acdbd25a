/*
 * From a file to a config: reads it, hands each part of the tree to its reader, and decides at the
 * end, by the number of errors, whether there is a config. **Start reading here.** The parts: see
 * load.h.
 */
#include "policy/load.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/evp.h>

/* ---- the file ---- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A pipe may have nobody at its other end, or somebody who says nothing, or a byte now and then: a
 * reload must not wait for ever, since who reads this has the log to open and leaves to sign
 * meanwhile. -1 with errno ETIMEDOUT, at until_ms or behind it. */
static int wait_readable(int fd, int64_t until_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int r;

	do {
		int64_t left = until_ms - now_ms();

		r = left > 0 ? poll(&p, 1, (int)left) : 0;
	} while (r < 0 && errno == EINTR);
	if (r == 0)
		errno = ETIMEDOUT;
	return r > 0 ? 0 : -1;
}

static int read_all(int fd, size_t size, char *to, size_t *ret_n)
{
	int64_t until_ms = now_ms() + LIMIT_MS_CONFIG_READ;
	size_t n = 0;

	*ret_n = 0;
	while (n < size) {
		ssize_t got;

		if (wait_readable(fd, until_ms) < 0)
			return -1;
		got = read(fd, to + n, size - n);
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (got < 0)
			return -1;
		if (got == 0)
			break;
		n += (size_t)got;
		*ret_n = n;
	}
	return 0;
}

/* Of a file that could not be read to its end; n bytes of it were. */
static const char *why_unread(size_t n)
{
	if (errno != ETIMEDOUT)
		return strerror(errno);
	return n > 0 ? "this pipe does not come to its end" : "nothing comes through this pipe";
}

/* The text of a regular file or of a pipe, one byte past the limit at most. NULL after a fault. */
static char *read_file(const char *path, size_t *ret_n, struct faults *f)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	size_t room = (size_t)LIMIT_CONFIG_BYTES + 1;
	char *text = NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		fault_add(f, 0, 0, "cannot be read: %s", strerror(errno));
		goto out;
	}
	if (S_ISDIR(st.st_mode)) {
		fault_add(f, 0, 0, "is a directory (name the file in it)");
		goto out;
	}
	if (S_ISREG(st.st_mode) && st.st_size > LIMIT_CONFIG_BYTES) {
		fault_add(f, 0, 0, "the file is larger than %d MiB (the limit)",
			  LIMIT_CONFIG_BYTES >> 20);
		goto out;
	}
	if (S_ISREG(st.st_mode))
		room = (size_t)st.st_size + 1;
	text = malloc(room);
	if (!text) {
		fault_add(f, 0, 0, "out of memory");
	} else if (read_all(fd, room, text, ret_n) < 0) {
		fault_add(f, 0, 0, "cannot be read: %s", why_unread(*ret_n));
		free(text);
		text = NULL;
	} else if (S_ISREG(st.st_mode) && *ret_n == room) {
		fault_add(f, 0, 0, "the file grew while it was read (try again)");
		free(text);
		text = NULL;
	}
out:
	if (fd >= 0)
		close(fd);
	return text;
}

/* ---- the whole ---- */

static void check_version(struct loader *l, const struct section_values *v,
			  const struct yaml_node *root)
{
	const struct yaml_node *node = section_value(v, KEY_TOP_VERSION);
	struct str s;

	if (!node) {
		if (!l->partial)
			fault_add(l->f, root->line, root->col,
				  "`version` is missing (write `version: 1`)");
		return;
	}
	if (load_plain(l, node, "`version`", &s) == 0 && !str_eq(s, STR("1")))
		fault_add(l->f, node->line, node->col, "unknown version `%.*s` (write 1)", SHOW(s));
}

/* One of a path that is more than "." or nothing; empty behind the last. */
static struct str next_segment(struct str *rest)
{
	struct str one = STR("");

	while (rest->p && (one.n == 0 || str_eq(one, STR("."))))
		one = str_split(rest, '/');
	return str_eq(one, STR(".")) ? STR("") : one;
}

/* Do they name one file, as far as can be told without looking? */
static bool is_same_path(const char *a, const char *b)
{
	struct str x = str_from_c(a), y = str_from_c(b), one;

	if ((a[0] == '/') != (b[0] == '/'))
		return false;
	do {
		one = next_segment(&x);
		if (!str_eq(one, next_segment(&y)))
			return false;
	} while (one.n > 0);
	return true;
}

static bool is_log(const void *log, const char *path)
{
	return is_same_path(log, path);
}

static void load_top(struct loader *l, const struct yaml_node *root)
{
	/* Credentials before what names them, policies before the listeners. */
	static const struct {
		enum config_key key;
		void (*load)(struct loader *, const struct yaml_node *);
	} parts[] = {
		{KEY_TOP_CA, load_ca},
		{KEY_TOP_LOG, load_log},
		{KEY_TOP_LIMITS, load_limits},
		{KEY_TOP_USER, load_user},
		{KEY_TOP_DENY, load_deny},
		{KEY_TOP_RELOAD, load_reload},
		{KEY_TOP_CREDENTIALS, load_credentials},
		{KEY_TOP_UPSTREAM, load_upstream},
		{KEY_TOP_POLICIES, load_policies},
		{KEY_TOP_ADMIN, load_admin},
		{KEY_TOP_STATE, load_state},
		{KEY_TOP_METRICS, load_metrics},
		{KEY_TOP_LISTEN, load_listen},
	};
	struct section_values v;
	const char *spoilt;

	section_read(root, SECTION_TOP, &v, l->f);
	check_version(l, &v, root);
	l->policies_node = section_value(&v, KEY_TOP_POLICIES);
	if (!l->policies_node && !v.has_unknown && !l->partial)
		fault_add(l->f, root->line, root->col,
			  "`policies` is missing: nothing would be allowed");
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		const struct yaml_node *node = section_value(&v, parts[i].key);

		if (node)
			parts[i].load(l, node);
	}
	load_unused_credentials(l);
	spoilt = l->c->log_to ? config_spoilt_by_log(l->c, is_log, l->c->log_to) : NULL;
	if (spoilt) {
		const struct yaml_node *log = section_value(&v, KEY_TOP_LOG);

		fault_add(l->f, log->line, log->col,
			  "`to` is %s, and each line would be added to it (name another file)",
			  spoilt);
	}
}

static void load_tree(struct loader *l, const struct yaml_node *root)
{
	static const char missing[] = "the file is empty: a policy needs `version: 1` and "
				      "`policies:`";

	if (root && root->kind == YAML_MAP && root->n > 0)
		load_top(l, root);
	else if (root && (root->kind == YAML_SCALAR || root->kind == YAML_SEQ))
		fault_add(l->f, root->line, root->col,
			  "the file must be a map (`version: 1` and so on), not %s",
			  root->kind == YAML_SEQ ? "a list" : "a text");
	else if (!l->partial)
		fault_add(l->f, root ? root->line : 1, root ? root->col : 1, "%s", missing);
}

/* ---- making a config ---- */

/* What names this state of the rules in the log: of the text, and of what the command line adds. */
static int hash_version(struct loader *l)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned char digest[EVP_MAX_MD_SIZE];
	bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 &&
		  EVP_DigestUpdate(ctx, l->c->text, l->c->text_n) == 1;

	for (size_t i = 0; ok && i < l->allows_n; i++)
		ok = EVP_DigestUpdate(ctx, l->allows[i], strlen(l->allows[i]) + 1) == 1;
	ok = ok && EVP_DigestFinal_ex(ctx, digest, NULL) == 1;
	EVP_MD_CTX_free(ctx);
	if (!ok) {
		fault_add(l->f, 0, 0, "SHA-256 is not to be had");
		return -1;
	}
	for (size_t i = 0; i < sizeof(l->c->version_hash) / 2; i++)
		snprintf(l->c->version_hash + 2 * i, 3, "%02x", digest[i]);
	return 0;
}

/* The folder of the file, which relative paths start from. */
static struct str folder_of(const char *file)
{
	const char *slash = strrchr(file, '/');

	return slash ? str_from(file, (size_t)(slash - file) + 1) : STR("");
}

static void join_policies(struct config *c)
{
	for (size_t i = 0; i < c->listeners_n; i++)
		c->listeners[i].policy = config_policy(c, c->listeners[i].policy_name);
}

/* Takes `text` over. Errors that f held before do not count. ret_admin (or NULL): the path of
 * `admin`, whatever else is wrong. */
static int load_owned(const char *file, char *text, size_t n, const struct loader *with,
		      struct config **ret, char **ret_admin, struct faults *f)
{
	struct config *c = calloc(1, sizeof(*c));
	struct loader l = {
		.f = f,
		.c = c,
		.allows = with ? with->allows : NULL,
		.allows_n = with ? with->allows_n : 0,
		.allows_for = with ? with->allows_for : NULL,
		.errors_before = f->errors,
	};
	struct yaml_doc *doc = NULL;

	if (!c) {
		free(text);
		fault_add(f, 0, 0, "out of memory");
		return -1;
	}
	c->refs = 1;
	c->text = text;
	c->text_n = n;
	c->file = load_keep(&l, str_from_c(file));
	load_limits_defaults(&c->limits);
	if (!c->file || hash_version(&l) < 0)
		goto out;
	l.dir = folder_of(c->file);
	if (text) {
		doc = yaml_parse(str_from(text, n), f);
		l.partial = !yaml_complete(doc);
		if (doc)
			load_tree(&l, yaml_root(doc));
	} else {
		load_allows_only(&l);
	}
	join_policies(c);
out:
	yaml_doc_free(doc);
	free(l.used);
	if (f->errors > l.errors_before) {
		if (ret_admin) {
			*ret_admin = c->admin_path;
			c->admin_path = NULL;
		}
		config_unref(c);
		return -1;
	}
	*ret = c;
	return 0;
}

int config_load_file(const char *path, struct config **ret, struct faults *f)
{
	size_t n = 0;
	char *text = read_file(path, &n, f);

	return text ? load_owned(path, text, n, NULL, ret, NULL, f) : -1;
}

int config_find_admin(const char *path, char **ret, struct faults *f)
{
	size_t n = 0;
	char *text = read_file(path, &n, f), *admin = NULL;
	struct config *c = NULL;
	int r = text ? load_owned(path, text, n, NULL, &c, &admin, f) : -1;

	if (c) {
		admin = c->admin_path;
		c->admin_path = NULL;
	}
	config_unref(c);
	*ret = admin;
	return r;
}

int config_read_file(const char *path, char **ret, size_t *ret_n, struct faults *f)
{
	char *text = read_file(path, ret_n, f);

	if (!text)
		return -1;
	*ret = text;
	return 0;
}

int config_load_text(const char *file, struct str text, struct config **ret, struct faults *f)
{
	char *copy = malloc(text.n + 1);

	if (!copy) {
		fault_add(f, 0, 0, "out of memory");
		return -1;
	}
	if (text.n > 0)
		memcpy(copy, text.p, text.n);
	return load_owned(file, copy, text.n, NULL, ret, NULL, f);
}

/* Policies are immutable, so the text is read once more, with the rules of the command line. */
int config_with_allows(struct config *c, const char *policy, const char *const *targets,
		       size_t targets_n, struct config **ret, struct faults *f)
{
	const struct loader with = {.allows = targets, .allows_n = targets_n, .allows_for = policy};
	char *copy = NULL;

	if (c && c->text) {
		copy = malloc(c->text_n + 1);
		if (!copy) {
			fault_add(f, 0, 0, "out of memory");
			return -1;
		}
		memcpy(copy, c->text, c->text_n);
	}
	return load_owned(c ? c->file : "--allow", copy, c ? c->text_n : 0, &with, ret, NULL, f);
}
