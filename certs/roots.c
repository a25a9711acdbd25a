/*
 * Finds and reads PEM bundles. What they are worth as certificates is seen by whoever parses them
 * (trust.c); what goes to a client is passed on as it stands (bundle.c).
 */
#include "certs/roots.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "certs/file.h"

/* Debian and its kin, Alpine; Fedora and its kin; the BSDs and old distributions. */
static const char *const system_files[] = {
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/cert.pem",
};

static bool has_certificate(struct str pem)
{
	static const char plain[] = "-----BEGIN CERTIFICATE-----";
	static const char trusted[] = "-----BEGIN TRUSTED CERTIFICATE-----";

	return pem.n > 0 && (memmem(pem.p, pem.n, plain, sizeof(plain) - 1) ||
			     memmem(pem.p, pem.n, trusted, sizeof(trusted) - 1));
}

static int add_file_at(int dir_fd, const char *name, struct strbuf *out, struct err *e)
{
	struct file_text t;
	int rc = 0;

	if (file_read(dir_fd, name, ROOTS_BYTES_MAX, &t, e) != 0)
		return -1;
	if (!has_certificate(str_from(t.p, t.n))) {
		rc = err_set(e, "%s: holds no PEM certificate", name);
	} else {
		strbuf_add(out, str_from(t.p, t.n));
		if (t.p[t.n - 1] != '\n')
			strbuf_addc(out, '\n');
	}
	file_text_wipe(&t);
	return rc == 0 && out->overflowed ? err_set(e, "%s: too large", name) : rc;
}

int roots_add_file(const char *path, struct strbuf *out, struct err *e)
{
	return add_file_at(AT_FDCWD, path, out, e);
}

/* The hashed folder of OpenSSL holds each certificate under two names; the names of the form
 * HHHHHHHH.N alone have each once. */
static bool is_hashed_name(const char *name)
{
	return strspn(name, "0123456789abcdef") == 8 && name[8] == '.' && name[9] != '\0' &&
	       strspn(name + 9, "0123456789") == strlen(name + 9);
}

static int add_dir(const char *dir, struct strbuf *out)
{
	DIR *d = opendir(dir);
	struct dirent *at;
	int found = 0;

	if (!d)
		return -1;
	while ((at = readdir(d)))
		if (is_hashed_name(at->d_name) && add_file_at(dirfd(d), at->d_name, out, NULL) == 0)
			found++;
	closedir(d);
	return found ? 0 : -1;
}

int roots_add_from(const char *const *files, size_t files_n, const char *dir, struct strbuf *out,
		   struct err *e)
{
	for (size_t i = 0; i < files_n; i++) {
		if (add_file_at(AT_FDCWD, files[i], out, NULL) == 0)
			return 0;
		if (out->overflowed)
			return err_set(e, "%s: too large", files[i]);
	}
	if (dir && add_dir(dir, out) == 0 && !out->overflowed)
		return 0;
	return err_set(e,
		       "the system has no root certificates, neither %s nor in %s (install the "
		       "package ca-certificates)",
		       files_n ? files[0] : "a bundle", dir ? dir : "a folder");
}

bool roots_is_system_file(const char *path)
{
	for (size_t i = 0; i < ARRAY_LEN(system_files); i++)
		if (strcmp(path, system_files[i]) == 0)
			return true;
	return strcmp(path, X509_get_default_cert_file()) == 0;
}

int roots_add_system(struct strbuf *out, struct err *e)
{
	const char *const compiled[] = {X509_get_default_cert_file()};

	if (roots_add_from(system_files, ARRAY_LEN(system_files), NULL, out, NULL) == 0)
		return 0;
	if (out->overflowed)
		return err_set(e, "the system's root certificates are too large");
	if (roots_add_from(compiled, 1, X509_get_default_cert_dir(), out, NULL) == 0)
		return 0;
	return err_set(e,
		       "the system has no root certificates, neither %s nor in %s (install the "
		       "package ca-certificates)",
		       system_files[0], X509_get_default_cert_dir());
}

int roots_each(struct str pem, int (*f)(struct str der, void *arg, struct err *e), void *arg,
	       struct err *e)
{
	BIO *bio = BIO_new_mem_buf(pem.n > 0 ? pem.p : "", (int)pem.n);
	int rc = bio ? 0 : err_set(e, "out of memory");
	char *name = NULL, *header = NULL;
	unsigned char *data = NULL;
	long n = 0;

	while (rc == 0 && PEM_read_bio(bio, &name, &header, &data, &n) == 1) {
		/* OpenSSL's "trusted" form is a certificate with more behind it. */
		if (strcmp(name, PEM_STRING_X509) == 0 || strcmp(name, PEM_STRING_X509_OLD) == 0 ||
		    strcmp(name, PEM_STRING_X509_TRUSTED) == 0)
			rc = f(str_from((const char *)data, (size_t)n), arg, e);
		OPENSSL_free(name);
		OPENSSL_free(header);
		OPENSSL_free(data);
	}
	if (rc == 0 && ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		rc = err_set(e, "a root certificate cannot be read");
	ERR_clear_error();
	BIO_free(bio);
	return rc;
}
