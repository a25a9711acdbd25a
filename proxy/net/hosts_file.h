/*
 * The system's hosts file: a name that stands in it is never asked of DNS, for either family. Read
 * again when it changes, looked at once in five seconds at most.
 */
#ifndef STILE_PROXY_NET_HOSTS_FILE_H
#define STILE_PROXY_NET_HOSTS_FILE_H

#include "logging/err.h"
#include "logging/str.h"
#include "policy/ipaddr.h"

struct hosts_file;

/* path is borrowed and must outlive it. A file that is not there is an empty one. */
int hosts_file_new(const char *path, struct hosts_file **ret, struct err *e) ATTR_NODISCARD;
void hosts_file_free(struct hosts_file *h); /* NULL is accepted */
/* Reads the file if it has changed, looking at most once in five seconds: call it before a find.
 * True when the text is another than before. */
bool hosts_file_look(struct hosts_file *h, int64_t now_us);
/* The addresses of name in the order of the file, max at most; the result is how many. */
size_t hosts_file_find(const struct hosts_file *h, struct str name, struct ipaddr *ret, size_t max);

#endif
