/*
 * See placeholder.h. The table of the process outlives every configuration, as the variables of
 * source_env.c do: a sandbox goes on with the value that it was started with.
 */
#include "proxy/credentials/placeholder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "logging/log.h"
#include "logging/opener.h"
#include "proxy/credentials/source.h"

#define FILE_MODE 0644

struct entry {
	/* owned; never freed: the process goes on with them */
	char *name; /* of the credential */
	char *text;
};

static struct {
	pthread_mutex_t lock;
	struct entry v[LIMIT_PLACEHOLDERS];
	size_t n;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct placeholders {
	/* owned */
	struct needles *needles;
	/* borrowed from the table */
	const char *names[LIMIT_PLACEHOLDERS];
	/* plain */
	size_t n;
};

static struct entry *find(const char *name)
{
	for (size_t i = 0; i < table.n; i++)
		if (strcmp(table.v[i].name, name) == 0)
			return &table.v[i];
	return NULL;
}

/* The value, where it takes no time to be had. NULL: its shape is not known. */
static struct secret *value_at_hand(const struct config_credential *c)
{
	struct source_mark mark = {0};
	struct secret *s = NULL;
	int rc = -1;

	if (c->source == CREDENTIAL_FROM_FILE)
		rc = source_file_read(c->from, &mark, &s, NULL);
	else if (c->source == CREDENTIAL_FROM_ENV)
		rc = source_env_read(c->from, &s, NULL);
	return rc == 0 ? s : NULL;
}

int placeholder_make(const struct config_credential *c, struct strbuf *out, struct err *e)
{
	struct secret *s = value_at_hand(c);
	int rc = placeholder_shape(c->placeholder, s ? secret_value(s) : STR_NONE, out, e);

	secret_unref(s);
	return rc;
}

static int (*make_fn)(void *arg, const struct config_credential *c, struct strbuf *out,
		      struct err *e);
static void *make_arg;

void placeholders_made_by(int (*fn)(void *arg, const struct config_credential *c,
				    struct strbuf *out, struct err *e),
			  void *arg)
{
	make_fn = fn;
	make_arg = arg;
}

static int make(const struct config_credential *c, struct err *e)
{
	struct entry en = {0};
	struct strbuf b;
	int rc;

	strbuf_init(&b, LIMIT_PLACEHOLDER_BYTES);
	rc = make_fn ? make_fn(make_arg, c, &b, e) : placeholder_make(c, &b, e);
	if (rc == 0) {
		en.name = strdup(c->name);
		en.text = strbuf_take(&b);
	}
	strbuf_clear(&b);
	if (rc == 0 && en.name && en.text) {
		table.v[table.n++] = en;
		return 0;
	}
	free(en.name);
	free(en.text);
	return rc < 0 ? rc : err_set(e, "out of memory");
}

static int make_missing(const struct config *c, struct err *e)
{
	for (size_t i = 0; i < c->credentials_n; i++) {
		const struct config_credential *k = &c->credentials[i];

		if (!k->placeholder || find(k->name))
			continue;
		if (table.n == LIMIT_PLACEHOLDERS)
			return err_set(e, "more than %d placeholders since the start",
				       LIMIT_PLACEHOLDERS);
		if (make(k, e) < 0)
			return err_wrap(e, "placeholder of %s", k->name);
	}
	return 0;
}

static int compile(struct placeholders *p, struct err *e)
{
	struct str *texts = calloc(table.n, sizeof(*texts));

	for (size_t i = 0; texts && i < table.n; i++) {
		texts[i] = str_from_c(table.v[i].text);
		p->names[i] = table.v[i].name;
	}
	p->n = table.n;
	p->needles = texts ? needles_new(texts, table.n) : NULL;
	free(texts);
	return p->needles ? 0 : err_set(e, "out of memory");
}

int placeholders_new(const struct config *c, struct placeholders **ret, struct err *e)
{
	struct placeholders *p = NULL;
	int rc;

	pthread_mutex_lock(&table.lock);
	rc = make_missing(c, e);
	if (rc == 0 && table.n > 0) {
		p = calloc(1, sizeof(*p));
		rc = p ? compile(p, e) : err_set(e, "out of memory");
	}
	pthread_mutex_unlock(&table.lock);
	if (rc < 0)
		placeholders_free(p);
	else
		*ret = p;
	return rc;
}

void placeholders_free(struct placeholders *p)
{
	if (!p)
		return;
	needles_free(p->needles);
	free(p);
}

const struct needles *placeholders_needles(const struct placeholders *p)
{
	return p->needles;
}

bool placeholders_find(const struct placeholders *p, struct str sandbox, const char *credential,
		       size_t *ret)
{
	(void)sandbox;
	for (size_t i = 0; i < p->n; i++)
		if (strcmp(p->names[i], credential) == 0) {
			*ret = i;
			return true;
		}
	return false;
}

const char *placeholders_name(const struct placeholders *p, size_t which)
{
	return p->names[which];
}

/* ---- files ---- */

static bool file_holds(const char *path, struct str text)
{
	int fd = opener_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	char mem[LIMIT_PLACEHOLDER_BYTES + 1];
	struct stat st;
	bool rc = false;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 07777) == FILE_MODE) {
		ssize_t n = pread(fd, mem, sizeof(mem), 0);

		rc = n >= 0 && str_eq(str_from(mem, (size_t)n), text);
	}
	close(fd);
	return rc;
}

/* Written in place: a container that has mounted the file goes on to see it, which it would not if
 * it were replaced. */
static int write_file(const char *path, struct str text, struct err *e)
{
	int fd;
	struct stat st;
	int rc = 0;

	/* At a reload stile may be somebody else, who cannot write it. */
	if (file_holds(path, text))
		return 0;
	fd = opener_open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return err_sys(e, errno, "cannot write the placeholder's file %s", path);
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
		rc = err_set(e, "%s: is no file of its own, so no placeholder is written there",
			     path);
	else if (pwrite(fd, text.p, text.n, 0) != (ssize_t)text.n ||
		 ftruncate(fd, (off_t)text.n) != 0)
		rc = err_sys(e, errno, "cannot write the placeholder's file %s", path);
	/* Whatever the umask: it is no secret, and containers run as anybody. */
	else if ((st.st_mode & 07777) != FILE_MODE && fchmod(fd, FILE_MODE) != 0)
		rc = err_sys(e, errno, "cannot open %s to all readers", path);
	close(fd);
	return rc;
}

int placeholders_write(const struct placeholders *p, const struct config *c, struct err *e)
{
	for (size_t i = 0; p && i < c->credentials_n; i++) {
		const struct config_credential *k = &c->credentials[i];
		size_t which;

		if (!k->placeholder || !placeholders_find(p, STR_NONE, k->name, &which))
			continue;
		if (!k->placeholder->file) {
			log_warn("credential %s: nobody is told its placeholder, as it has no "
				 "`file` (`env` is for `stile run`)",
				 k->name);
			continue;
		}
		if (write_file(k->placeholder->file, needles_text(p->needles, which), e) < 0)
			return -1;
	}
	return 0;
}
