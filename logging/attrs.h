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
/* Of a short function whose arguments are mostly literals, so that little of it is left. */
#define ATTR_INLINE inline __attribute__((always_inline))

/* Of a function that is rarely called and has much on its stack, which its caller shall not have.
 */
#define ATTR_NOINLINE __attribute__((noinline))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* The object of which `ptr` is the member `member`. */
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* In such a build no memory is kept for another use, so that a use after free is seen. */
#if defined(__SANITIZE_ADDRESS__)
#define HAS_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef HAS_ADDRESS_SANITIZER
#define HAS_ADDRESS_SANITIZER 0
#endif

#endif
