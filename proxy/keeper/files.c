/*
 * See files.h. Paths are compared as texts with those that the configuration gives: both processes
 * have the same one, so the proxy asks with the very same words.
 */
#include "proxy/keeper/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "certs/roots.h"
#include "logging/limits.h"
#include "logging/str.h"
#include "proxy/keeper/wire.h"

static const char *const always[] = {"/etc/resolv.conf", "/etc/hosts"};

static bool is_log(const struct files_scope *s, const char *path)
{
	const struct config *all[] = {s->config, s->next};

	if (s->log_to)
		return strcmp(s->log_to, path) == 0;
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (all[i] && all[i]->log_to && strcmp(all[i]->log_to, path) == 0)
			return true;
	return false;
}

static bool is_root(const struct config *c, const char *path)
{
	for (size_t i = 0; c && i < c->trust_n; i++)
		if (strcmp(c->trust[i], path) == 0)
			return true;
	return false;
}

/* Whose user namespace the caller on the admin socket is in: nobody can be entered by that
 * descriptor without privileges there, and the proxy's filter knows no setns(2). */
static bool is_user_namespace(const char *path)
{
	struct str s = str_from_c(path);
	uint64_t pid;

	if (!str_starts(s, STR("/proc/")) || !str_ends(s, STR("/ns/user")) || s.n <= 14)
		return false;
	return str_to_u64(str_head(str_skip(s, 6), s.n - 14), &pid) == 0;
}

static bool is_readable(const struct files_scope *s, const char *path)
{
	if (is_user_namespace(path))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(always); i++)
		if (strcmp(always[i], path) == 0)
			return true;
	return roots_is_system_file(path) || is_root(s->config, path) || is_root(s->next, path);
}

/* The same file under another name, too: an admin may well name one file twice. */
static bool is_same_file(const struct stat *st, const char *path)
{
	struct stat other;

	return stat(path, &other) == 0 && other.st_dev == st->st_dev && other.st_ino == st->st_ino;
}

static bool is_of_ca(const struct config *c, const struct stat *st, const char *name)
{
	char path[LIMIT_KEEPER_PATH];

	return c->ca_dir &&
	       snprintf(path, sizeof(path), "%s/%s", c->ca_dir, name) < (int)sizeof(path) &&
	       is_same_file(st, path);
}

static bool is_credential(const struct config *c, const struct stat *st)
{
	for (size_t i = 0; i < c->credentials_n; i++) {
		const char *path;

		for (size_t n = 0; (path = config_credential_file(&c->credentials[i], n)); n++)
			if (is_same_file(st, path))
				return true;
	}
	return false;
}

static bool is_source(const struct config *c, const struct stat *st)
{
	return c && (is_credential(c, st) || is_of_ca(c, st, "ca.key"));
}

static bool is_that_file(const void *st, const char *path)
{
	return is_same_file(st, path);
}

const char *files_spoilt_by_log(const struct config *c, const struct stat *st)
{
	return config_spoilt_by_log(c, is_that_file, st);
}

static bool may_be_open(const struct config *c, const struct stat *st, uint32_t how)
{
	return !c || (!is_source(c, st) && (how != WIRE_TO_APPEND || !files_spoilt_by_log(c, st)));
}

static bool is_placeholder(const struct config *c, const char *path)
{
	for (size_t i = 0; c && i < c->credentials_n; i++) {
		const struct config_placeholder *p = c->credentials[i].placeholder;

		if (p && p->file && strcmp(p->file, path) == 0)
			return true;
	}
	return false;
}

/* The flags beside those that all have; -1: not that path in that way. */
static int flags_of(const struct files_scope *s, const char *path, uint32_t how)
{
	bool placeholder = is_placeholder(s->config, path) || is_placeholder(s->next, path);

	if (how == WIRE_TO_READ && placeholder)
		return O_RDONLY | O_NOFOLLOW;
	if (how == WIRE_TO_READ && (is_log(s, path) || is_readable(s, path)))
		return O_RDONLY;
	if (how == WIRE_TO_APPEND && is_log(s, path))
		return O_WRONLY | O_APPEND | O_CREAT;
	return how == WIRE_TO_CHANGE && placeholder ? O_RDWR | O_CREAT | O_NOFOLLOW : -1;
}

int files_open(const struct files_scope *s, const char *path, uint32_t how)
{
	int flags = flags_of(s, path, how);
	struct stat st;
	int fd;

	if (flags < 0) {
		errno = EACCES;
		return -1;
	}
	fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
		  how == WIRE_TO_CHANGE ? 0644 : 0640);
	if (fd >= 0 && (fstat(fd, &st) != 0 || !may_be_open(s->config, &st, how) ||
			!may_be_open(s->next, &st, how))) {
		close(fd);
		errno = EACCES;
		return -1;
	}
	return fd;
}
