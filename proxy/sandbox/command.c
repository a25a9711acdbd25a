/*
 * From a copy of pid 1 to the command. Only the descriptors 0, 1 and 2 come along; signals are as
 * stile found them. Called by init.c.
 */
#include "proxy/sandbox/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "logging/log.h"

void command_exec(char *const *argv, char *const *envp, const sigset_t *mask)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};
	int sys_errno;

	/* stile ignores it for itself; a command that writes into a closed pipe expects to end. */
	sigaction(SIGPIPE, &dfl, NULL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	if (close_range(3, ~0U, 0) != 0) {
		log_error("cannot close descriptors: %s", strerror(errno));
		_exit(126);
	}
	/* The search for argv[0] goes by the command's PATH, not by stile's. */
	environ = (char **)(uintptr_t)envp;
	execvp(argv[0], argv);
	sys_errno = errno;
	if (sys_errno == ENOENT || sys_errno == ENOTDIR) {
		log_error("%s: no such command", argv[0]);
		_exit(127);
	}
	log_error("%s: cannot be run: %s", argv[0], strerror(sys_errno));
	_exit(126);
}

void command_let_go_of_terminal(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return;
	dup2(fd, STDIN_FILENO);
	dup2(fd, STDOUT_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}
