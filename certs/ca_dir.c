/*
 * The CA in its folder: ca.key and ca.pem. Two processes may start at once in an empty folder, and
 * one may die at any point. So each file is written under a name of its own, synced, and then
 * linked to its real name, which fails if that exists; the key comes first, and a key without a
 * certificate gets one. Whoever comes second thus finishes with what the first has made, without a
 * lock.
 */
#include "certs/ca.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/pem.h>
#include <openssl/rand.h>

#include "certs/ca_build.h"
#include "certs/file.h"
#include "certs/tls_err.h"
#include "logging/limits.h"

#define KEY_FILE      "ca.key"
#define CERT_FILE     "ca.pem"
#define OLD_CERT_FILE "ca.pem.old"
#define FILE_MAX      65536

static int cannot_make(const char *dir, int error, struct err *e)
{
	err_sys(e, error, "%s: cannot make the folder", dir);
	return err_hint(e, error == EACCES || error == EROFS
				   ? "become root, or name another one with `ca: {dir: DIR}`"
				   : NULL);
}

static int make_parents(const char *dir, struct err *e)
{
	char path[4096];
	size_t n = strlen(dir);

	if (n == 0 || n >= sizeof(path))
		return err_set(e, "%s: not a usable name for a folder", dir);
	memcpy(path, dir, n + 1);
	while (n > 1 && path[n - 1] == '/')
		n--;
	for (size_t i = 1; i < n; i++) {
		if (path[i] != '/')
			continue;
		path[i] = '\0';
		if (mkdir(path, 0755) != 0 && errno != EEXIST)
			return cannot_make(path, errno, e);
		path[i] = '/';
	}
	return 0;
}

/* The descriptor, or -1. */
static int open_dir(const char *dir, bool make, struct err *e)
{
	struct stat s;
	int fd;

	if (make) {
		if (make_parents(dir, e) != 0)
			return -1;
		if (mkdir(dir, 0700) != 0 && errno != EEXIST)
			return cannot_make(dir, errno, e);
	}
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* Who can rename what is in it can put a CA there whose key they know. */
	if (fd >= 0 && fstat(fd, &s) == 0 && (s.st_mode & S_IWOTH)) {
		(void)close(fd);
		return err_set(e, "%s: everybody can write to the folder (chmod o-w %s)", dir, dir);
	}
	if (fd >= 0)
		return fd;
	err_sys(e, errno, "%s: cannot open the folder", dir);
	return err_hint(e,
			e && e->sys_errno == ENOENT
				? "no CA was made yet: `stile ca bundle` and `stile serve` make one"
				: NULL);
}

static int write_all(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t put = write(fd, p, n);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -1;
		p += put;
		n -= (size_t)put;
	}
	return 0;
}

/* Gives tmp its real name unless that is taken (errno EEXIST). Some file systems have no links. */
static int link_new(int dir_fd, const char *tmp, const char *name)
{
	if (linkat(dir_fd, tmp, dir_fd, name, 0) == 0)
		return 0;
	if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK)
		return -1;
	return renameat2(dir_fd, tmp, dir_fd, name, RENAME_NOREPLACE);
}

/* 0: the file is there now, ours or another's. */
static int publish(int dir_fd, const char *name, mode_t mode, const char *p, size_t n,
		   struct err *e)
{
	char tmp[64];
	uint64_t r;
	int fd, rc = -1;

	if (RAND_bytes((unsigned char *)&r, sizeof(r)) != 1)
		return tls_err(e, REASON_NONE, "%s", name);
	snprintf(tmp, sizeof(tmp), ".%s.%016llx", name, (unsigned long long)r);
	fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, errno, "%s: cannot make it", name);
	if (write_all(fd, p, n) != 0 || fchmod(fd, mode) != 0 || fsync(fd) != 0)
		err_sys(e, errno, "%s: cannot write it", name);
	else if (link_new(dir_fd, tmp, name) != 0 && errno != EEXIST)
		err_sys(e, errno, "%s: cannot put it in place", name);
	else
		rc = 0;
	close(fd);
	unlinkat(dir_fd, tmp, 0);
	if (rc == 0 && fsync(dir_fd) != 0 && errno != EINVAL)
		rc = err_sys(e, errno, "%s: cannot sync the folder", name);
	return rc;
}

/* Root's file that we read as members of its group: the way in which a Secret of Kubernetes is lent
 * to who is not root, with no other way to do it. Ours could be chmod 600. */
static bool is_lent(const struct file_text *t)
{
	return t->uid == 0 && geteuid() != 0 && (t->mode & 077) == 040;
}

static int read_key(int dir_fd, const char *dir, EVP_PKEY **ret, struct err *e)
{
	struct file_text t;
	BIO *bio;
	int rc = 0;

	if (file_read(dir_fd, KEY_FILE, FILE_MAX, &t, e) != 0)
		return -1;
	if ((t.mode & 077) && !is_lent(&t)) {
		rc = err_set(e,
			     KEY_FILE
			     ": others can read it, its mode is %04o (chmod 600 %s/" KEY_FILE ")",
			     (unsigned)(t.mode & 07777), dir);
		goto out;
	}
	bio = BIO_new_mem_buf(t.p, (int)t.n);
	*ret = bio ? PEM_read_bio_PrivateKey(bio, NULL, file_no_passphrase, NULL) : NULL;
	if (!*ret)
		rc = tls_err(e, REASON_NONE,
			     KEY_FILE ": no private key without a passphrase can be read");
	BIO_free(bio);
out:
	file_text_wipe(&t);
	return rc;
}

static int write_key(int dir_fd, struct err *e)
{
	EVP_PKEY *key = ca_make_key();
	/* Wiped when freed. */
	BIO *bio = BIO_new(BIO_s_secmem());
	char *p = NULL;
	long n;
	int rc;

	if (!key || !bio || PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) != 1) {
		rc = tls_err(e, REASON_NONE, "cannot make the CA's key");
	} else {
		n = BIO_get_mem_data(bio, &p);
		rc = publish(dir_fd, KEY_FILE, 0600, p, (size_t)n, e);
	}
	BIO_free(bio);
	EVP_PKEY_free(key);
	return rc;
}

static int write_cert(int dir_fd, EVP_PKEY *key, struct err *e)
{
	X509 *x = ca_make_cert(key, LIMIT_CA_DAYS, e);
	BIO *bio = BIO_new(BIO_s_mem());
	char *p = NULL;
	long n;
	int rc = -1;

	if (x && bio && PEM_write_bio_X509(bio, x) == 1) {
		n = BIO_get_mem_data(bio, &p);
		rc = publish(dir_fd, CERT_FILE, 0644, p, (size_t)n, e);
	} else if (x) {
		tls_err(e, REASON_NONE, CERT_FILE ": cannot make it");
	}
	BIO_free(bio);
	X509_free(x);
	return rc;
}

static int read_pair(int dir_fd, const char *dir, struct ca **ret, struct err *e)
{
	struct file_text t = {0};
	EVP_PKEY *key = NULL;
	int rc = -1;

	/* The certificate first: see make_missing. */
	if (file_read(dir_fd, CERT_FILE, FILE_MAX, &t, e) != 0)
		return -1;
	if (read_key(dir_fd, dir, &key, e) == 0) {
		rc = ca_from_pem(str_from(t.p, t.n), key, ret, e);
		if (rc != 0)
			err_wrap(e, CERT_FILE);
	}
	EVP_PKEY_free(key);
	file_text_wipe(&t);
	return rc;
}

/* Makes what is not there. A certificate is looked for before the key: the key is always made
 * first, so a certificate that is there without one means that the key was lost, and making another
 * would silently replace the CA that clients trust. */
static int make_missing(int dir_fd, const char *dir, struct err *e)
{
	EVP_PKEY *key = NULL;
	int rc;

	if (faccessat(dir_fd, CERT_FILE, F_OK, 0) == 0) {
		if (faccessat(dir_fd, KEY_FILE, F_OK, 0) == 0)
			return 0;
		return err_set(e, CERT_FILE " is there and " KEY_FILE
					    " is not (bring the key back, or remove " CERT_FILE
					    " to have a new CA made)");
	}
	if (faccessat(dir_fd, KEY_FILE, F_OK, 0) != 0 && write_key(dir_fd, e) != 0)
		return -1;
	/* Whoever's key it is now. */
	if (read_key(dir_fd, dir, &key, e) != 0)
		return -1;
	rc = write_cert(dir_fd, key, e);
	EVP_PKEY_free(key);
	return rc;
}

static int load(const char *dir, bool make, struct ca **ret, struct err *e)
{
	int dir_fd = open_dir(dir, make, e);
	int rc;

	if (dir_fd < 0)
		return -1;
	rc = make ? make_missing(dir_fd, dir, e) : 0;
	if (rc == 0)
		rc = read_pair(dir_fd, dir, ret, e);
	if (rc != 0)
		err_wrap(e, "%s", dir);
	close(dir_fd);
	return rc;
}

int ca_load(const char *dir, struct ca **ret, struct err *e)
{
	return load(dir, false, ret, e);
}

int ca_load_or_create(const char *dir, struct ca **ret, struct err *e)
{
	return load(dir, true, ret, e);
}

int ca_rotate(const char *dir, struct ca **ret, struct err *e)
{
	int dir_fd = open_dir(dir, true, e);
	int rc = 0;

	if (dir_fd < 0)
		return -1;
	/* Dying between the two leaves a key without a certificate; running it again mends that. */
	if (renameat(dir_fd, CERT_FILE, dir_fd, OLD_CERT_FILE) != 0 && errno != ENOENT)
		rc = err_sys(e, errno, "%s/" CERT_FILE ": cannot set it aside", dir);
	else if (unlinkat(dir_fd, KEY_FILE, 0) != 0 && errno != ENOENT)
		rc = err_sys(e, errno, "%s/" KEY_FILE ": cannot remove it", dir);
	close(dir_fd);
	return rc == 0 ? load(dir, true, ret, e) : -1;
}
