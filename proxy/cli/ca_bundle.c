/*
 * `stile ca bundle`: what a client must trust, as PEM and for Java, to standard output, a file, or
 * all forms into one folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <sys/stat.h>

#include "certs/ca.h"
#include "certs/trust.h"
#include "certs/truststore.h"
#include "proxy/cli/ca.h"
#include "proxy/cli/cli.h"
#include "proxy/sandbox/client_env.h"

static int write_all(int fd, struct str text, const char *path, struct err *e)
{
	while (text.n > 0) {
		ssize_t n = write(fd, text.p, text.n);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, errno, "%s", path);
		text = str_skip(text, (size_t)n);
	}
	return 0;
}

static int write_out(const char *path, struct str text, struct err *e)
{
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : STDOUT_FILENO;
	int r;

	if (fd < 0)
		return err_sys(e, errno, "%s", path);
	r = write_all(fd, text, path ? path : "standard output", e);
	if (path)
		close(fd);
	return r;
}

/* What clients are to trust, in each form that one of them reads. */
struct trust_files {
	struct strbuf ca, bundle, store;
};

static void trust_files_clear(struct trust_files *t)
{
	strbuf_clear(&t->ca);
	strbuf_clear(&t->bundle);
	strbuf_clear(&t->store);
}

/* trust_files_clear in every case. */
static int trust_files_make(const struct config *c, struct trust_files *t, struct err *e)
{
	struct ca *ca = NULL;
	int r = -1;

	strbuf_init(&t->ca, 65536);
	strbuf_init(&t->bundle, 16 << 20);
	strbuf_init(&t->store, 16 << 20);
	if (ca_load_or_create(cli_ca_dir(c), &ca, e) == 0 && ca_add_pem(ca, &t->ca, e) == 0 &&
	    bundle_add(strbuf_str(&t->ca), &t->bundle, e) == 0)
		r = truststore_add(strbuf_str(&t->bundle), strbuf_str(&t->ca), &t->store, e);
	ca_unref(ca);
	return r;
}

/* Under another name first: a client that reads it just now finds the old one or the new one. */
static int replace_in(int dir_fd, const char *dir, const char *name, struct str text, struct err *e)
{
	char temporary[64], path[4096];
	struct strbuf b;
	int fd, r;

	strbuf_init_fixed(&b, path, sizeof(path));
	strbuf_addf(&b, "%s/%s", dir, name);
	strbuf_init_fixed(&b, temporary, sizeof(temporary));
	strbuf_addf(&b, ".%s.%ld", name, (long)getpid());
	fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_sys(e, errno, "%s", path);
	r = write_all(fd, text, path, e);
	close(fd);
	if (r == 0 && renameat(dir_fd, temporary, dir_fd, name) != 0)
		r = err_sys(e, errno, "%s", path);
	if (r != 0)
		(void)unlinkat(dir_fd, temporary, 0);
	return r;
}

static int write_dir(const char *dir, const struct trust_files *t, struct err *e)
{
	int r, fd;

	if (mkdir(dir, 0755) != 0 && errno != EEXIST)
		return err_sys(e, errno, "%s", dir);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "%s", dir);
	r = replace_in(fd, dir, CLIENT_CA, strbuf_str(&t->ca), e) < 0 ||
			    replace_in(fd, dir, CLIENT_BUNDLE, strbuf_str(&t->bundle), e) < 0 ||
			    replace_in(fd, dir, CLIENT_TRUSTSTORE, strbuf_str(&t->store), e) < 0
		    ? -1
		    : 0;
	close(fd);
	return r;
}

int ca_bundle(const struct config *c, const struct ca_flags *f, struct err *e)
{
	struct trust_files t;
	int r = trust_files_make(c, &t, e);

	if (r == 0 && f->dir)
		r = write_dir(f->dir, &t, e);
	else if (r == 0)
		r = write_out(f->to, strbuf_str(f->java ? &t.store : &t.bundle), e);
	trust_files_clear(&t);
	return r;
}
