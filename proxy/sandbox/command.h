/*
 * The last steps before the command: descriptors, signals, exec.
 */
#ifndef STILE_PROXY_SANDBOX_COMMAND_H
#define STILE_PROXY_SANDBOX_COMMAND_H

#include <signal.h>

#include "logging/attrs.h"

/* In a fresh child of pid 1. Ends with 127 (no such command) or 126 (it cannot be run) and a line
 * on stderr, as a shell does. */
ATTR_NORETURN void command_exec(char *const *argv, char *const *envp, const sigset_t *mask);
/* Puts /dev/null in place of stdin and stdout, so that the command alone holds them: a pipe that it
 * closes is closed. */
void command_let_go_of_terminal(void);

#endif
