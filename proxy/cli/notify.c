/*
 * See notify.h.
 */
#include "proxy/cli/notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

void notify_send(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char text[128];
	struct timespec now;
	size_t n;
	int fd, len;

	if (!path || (path[0] != '/' && path[0] != '@'))
		return;
	n = strlen(path);
	if (n >= sizeof(a.sun_path))
		return;
	memcpy(a.sun_path, path, n);
	if (a.sun_path[0] == '@')
		a.sun_path[0] = '\0';
	/* Type=notify-reload wants the time beside RELOADING=1. */
	clock_gettime(CLOCK_MONOTONIC, &now);
	len = snprintf(text, sizeof(text), "%s\nMONOTONIC_USEC=%lld", state,
		       (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (len > 0)
		(void)!sendto(fd, text, (size_t)len, MSG_NOSIGNAL, (struct sockaddr *)&a,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
	close(fd);
}
