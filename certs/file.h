/*
 * Reads a whole small file: a key, a certificate, a bundle of roots. Nothing else in this layer
 * touches the file system except ca_dir.c, which writes the CA.
 */
#ifndef STILE_CERTS_FILE_H
#define STILE_CERTS_FILE_H

#include <stddef.h>
#include <sys/types.h>

#include "logging/err.h"

struct file_text {
	/* owned; give it to file_text_wipe */
	char *p;
	/* plain */
	size_t n;
	/* of the descriptor that was read, not of the path a moment before */
	mode_t mode;
	uid_t uid;
};

/* dir_fd: AT_FDCWD or the folder that name is relative to. Only a regular file of at most max
 * bytes. On -1 with sys_errno == ENOENT there is no such file. */
int file_read(int dir_fd, const char *name, size_t max, struct file_text *ret,
	      struct err *e) ATTR_NODISCARD;
/* The text may be a key, so it is overwritten before it is freed. */
void file_text_wipe(struct file_text *t);
/* For each of OpenSSL's readers of PEM, of certificates too: without it one whose header says that
 * it is encrypted makes OpenSSL ask for a passphrase on the terminal, and wait. */
int file_no_passphrase(char *buf, int size, int rwflag, void *arg);

#endif
