/*
 * Where the system keeps the roots that it trusts, as PEM. The environment (SSL_CERT_FILE and the
 * like) is not asked: it must not be able to change whom stile believes.
 */
#ifndef STILE_CERTS_ROOTS_H
#define STILE_CERTS_ROOTS_H

#include "logging/err.h"
#include "logging/strbuf.h"

/* No bundle comes near this. */
#define ROOTS_BYTES_MAX 16777216

/* Appends the system's bundle. -1 when it has none that holds a certificate. */
int roots_add_system(struct strbuf *out, struct err *e) ATTR_NODISCARD;
/* The same from given places: the first of the files that can be used, else all files of dir. */
int roots_add_from(const char *const *files, size_t files_n, const char *dir, struct strbuf *out,
		   struct err *e) ATTR_NODISCARD;
/* Is it one of the fixed places of a bundle? */
bool roots_is_system_file(const char *path);
/* Appends one PEM file, which must hold a certificate, and a newline. */
int roots_add_file(const char *path, struct strbuf *out, struct err *e) ATTR_NODISCARD;

/* Calls f with each certificate of the text, as DER, until one returns -1. It is not taken apart:
 * of a hundred roots that would cost more than all else at a start. -1: the text is damaged, or f
 * said so. None at all is no error. */
int roots_each(struct str pem, int (*f)(struct str der, void *arg, struct err *e), void *arg,
	       struct err *e) ATTR_NODISCARD;

#endif
