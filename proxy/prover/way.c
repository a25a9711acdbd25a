/*
 * What the ways share.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <netinet/in.h>

#include "logging/str.h"
#include "logging/strbuf.h"
#include "proxy/prover/way.h"

void finding_set(struct finding *f, enum way_state state, const char *fmt, ...)
{
	struct strbuf b;
	va_list ap;

	if (state < f->state || (state == f->state && f->text[0]))
		return;
	f->state = state;
	strbuf_init_fixed(&b, f->text, sizeof(f->text));
	va_start(ap, fmt);
	strbuf_vaddf(&b, fmt, ap);
	va_end(ap);
}

void finding_call(struct finding *f, long result, const char *name)
{
	int err = errno;

	if (result >= 0)
		finding_set(f, WAY_OPEN, "%s: the kernel does it", name);
	else if (err == EPERM || err == EACCES || err == ENOSYS)
		finding_set(f, WAY_SHUT, "%s: %s", name, strerror(err));
	else
		finding_set(f, WAY_OPEN, "%s: it reaches the kernel (%s)", name, strerror(err));
}

int way_connect(const struct sockaddr *to, socklen_t len, int type, int ms)
{
	int fd = socket(to->sa_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int err = 0, r;
	socklen_t n = sizeof(err);

	if (fd < 0)
		return -1;
	r = connect(fd, to, len);
	if (r != 0 && errno == EINPROGRESS) {
		r = poll(&p, 1, ms);
		if (r == 0)
			err = ETIMEDOUT;
		else if (r < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) != 0)
			err = errno;
		r = err ? -1 : 0;
		errno = err;
	}
	err = errno;
	close(fd);
	errno = err;
	return r;
}

const char *way_address(const struct sockaddr_storage *a, char *out, size_t size)
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (a->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)a;

		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(out, size, "%s:%u", host, ntohs(in->sin_port));
	} else {
		const struct sockaddr_in6 *in = (const void *)a;

		inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof(host));
		snprintf(out, size, "[%s]:%u", host, ntohs(in->sin6_port));
	}
	return out;
}

int way_parse(const char *address, unsigned port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *in = (void *)ret;
	struct sockaddr_in6 *in6 = (void *)ret;

	memset(ret, 0, sizeof(*ret));
	if (inet_pton(AF_INET, address, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
		return 0;
	}
	if (inet_pton(AF_INET6, address, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)port);
		return 0;
	}
	return -1;
}

int prover_add_reach(struct prover_options *o, const char *text, struct err *e)
{
	const char *colon = strrchr(text, ':');
	char host[INET6_ADDRSTRLEN + 2];
	size_t n = colon ? (size_t)(colon - text) : 0;
	uint64_t port;

	if (o->reach_n == PROVER_REACH_MAX)
		return err_set(e, "more than %d", PROVER_REACH_MAX);
	if (!colon || n >= sizeof(host) || str_to_u64(str_from_c(colon + 1), &port) != 0 ||
	    port < 1 || port > 65535)
		return err_set(e, "%s: ADDRESS:PORT is wanted, like 192.0.2.7:443", text);
	memcpy(host, text, n);
	host[n] = '\0';
	if (n > 2 && host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		memmove(host, host + 1, n - 1);
	}
	if (way_parse(host, (unsigned)port, &o->reach[o->reach_n]) != 0)
		return err_set(e, "%s: that is no address", text);
	o->reach_n++;
	return 0;
}

void way_each_process(void (*fn)(int pid, void *arg), void *arg)
{
	DIR *d = opendir("/proc");
	struct dirent *entry;
	uint64_t pid;

	while (d && (entry = readdir(d)))
		if (str_to_u64(str_from_c(entry->d_name), &pid) == 0 && pid <= INT32_MAX)
			fn((int)pid, arg);
	if (d)
		closedir(d);
}

long way_read(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t done = 0;
	ssize_t n = 0;

	memset(buf, 0, size);
	if (fd < 0)
		return -1;
	while (done < size - 1 && (n = read(fd, buf + done, size - 1 - done)) > 0)
		done += (size_t)n;
	close(fd);
	return n < 0 && done == 0 ? -1 : (long)done;
}
