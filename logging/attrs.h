/*
 * Compiler attributes and three small macros that every file may use.
 * It declares no function; it includes nothing of the project.
 */
#ifndef STILE_LOGGING_ATTRS_H
#define STILE_LOGGING_ATTRS_H

#include <stddef.h>

#define ATTR_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))
#define ATTR_NODISCARD		     __attribute__((warn_unused_result))
#define ATTR_NORETURN		     __attribute__((noreturn))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* The object of which `ptr` is the member `member`. */
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
