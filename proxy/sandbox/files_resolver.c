/*
 * The files by which programs find out who to ask for names (resolv.conf(5), hosts(5)), over the
 * system's own: its name servers cannot be reached, and what its list of hosts says is stile's to
 * know, outside. Called by files.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mount.h>
#include <sys/stat.h>

#include "proxy/sandbox/env.h"
#include "proxy/sandbox/files.h"
#include "proxy/sandbox/namespace.h"

#define RESOLV_CONF   "/etc/resolv.conf"
#define HOSTS	      "/etc/hosts"
#define RESOLV_TEXT   "# by stile: answers names that a rule could admit\nnameserver 127.0.0.1\n"
#define HOST_NAME_LEN 64

static int cover(const char *with, const char *path, struct err *e)
{
	int sys_errno;

	if (mount(with, path, NULL, MS_BIND, NULL) == 0)
		return 0;
	sys_errno = errno;
	err_sys(e, sys_errno, "cannot put %s over %s in the sandbox", with, path);
	if (sys_errno == EPERM || sys_errno == EACCES)
		namespace_explain(sys_errno, e);
	return -1;
}

/* Where a link leads that was cut off with the old /run, as that of systemd-resolved is. NULL: not
 * there. */
static char *place_in_run(const char *link)
{
	char target[1024];
	ssize_t n = readlink(link, target, sizeof(target) - 1);
	const char *at;

	if (n <= 0)
		return NULL;
	target[n] = '\0';
	at = strncmp(target, "../run/", 7) == 0	    ? target + 2
	     : strncmp(target, "/var/run/", 9) == 0 ? target + 4
						    : target;
	return strncmp(at, "/run/", 5) == 0 && !strstr(at, "/../") ? strdup(at) : NULL;
}

static int cover_resolv_conf(struct err *e)
{
	struct stat st;
	char *place;
	int rc = 0;

	if (stat(RESOLV_CONF, &st) == 0 && S_ISREG(st.st_mode))
		return cover(SANDBOX_RESOLV_CONF, RESOLV_CONF, e);
	/* Without the file, resolvers ask 127.0.0.1 by themselves. */
	place = place_in_run(RESOLV_CONF);
	if (place)
		rc = files_write(place, str_from_c(RESOLV_TEXT), e);
	free(place);
	return rc;
}

/* The host's own name, that programs look up at their start, is loopback. */
static int write_hosts(struct err *e)
{
	char name[HOST_NAME_LEN + 1] = "", text[2 * HOST_NAME_LEN + 128];
	struct stat st;

	if (gethostname(name, HOST_NAME_LEN) != 0 ||
	    name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._")])
		name[0] = '\0';
	snprintf(text, sizeof(text), "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n%s%s%s",
		 name[0] ? "127.0.1.1\t" : "", name, name[0] ? "\n" : "");
	if (files_write(SANDBOX_HOSTS, str_from_c(text), e) != 0)
		return -1;
	if (stat(HOSTS, &st) != 0 || !S_ISREG(st.st_mode))
		return 0;
	return cover(SANDBOX_HOSTS, HOSTS, e);
}

int files_cover_resolver(struct err *e)
{
	if (files_write(SANDBOX_RESOLV_CONF, str_from_c(RESOLV_TEXT), e) != 0)
		return -1;
	return cover_resolv_conf(e) != 0 ? -1 : write_hosts(e);
}
