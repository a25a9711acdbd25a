/*
 * OpenSSL's memory. What it decodes a private key with, it gives back without wiping it; while one
 * is read, every piece that this thread gives back is wiped. And each thread keeps a few of the
 * buffers of records, which connections give back as soon as they are empty.
 */
#ifndef STILE_CERTS_TLS_MEM_H
#define STILE_CERTS_TLS_MEM_H

#include <stdbool.h>

/* Before anything of OpenSSL is called. Without it, nothing but the wiping and some speed is
 * missing. */
void tls_mem_install(void);
/* For this thread, until it is switched off. Does not nest. */
void tls_mem_wipe(bool on);

#endif
