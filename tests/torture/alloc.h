/*
 * Which allocation fails, for those who run code under test again and again (unit.c, leaks.c).
 */
#ifndef STILE_TESTS_TORTURE_ALLOC_H
#define STILE_TESTS_TORTURE_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#define REPORT_EXIT 99 /* of a process with a report of the sanitizer */

extern struct alloc_control {
	unsigned long *count;  /* so far; shared with child processes */
	unsigned long fail_at; /* from 1; 0: none */
	bool fail_on;	       /* and all behind it */
	bool counting;	       /* otherwise nothing is counted, and nothing fails */
	/* Instead of fail_at, of each that is counted: does it fail? `stack` is a hash of the
	 * places that it comes from, the same for the whole of a process and its children. */
	bool (*choose)(unsigned long n, uint64_t stack);
} alloc_control;

/* Once: what is counted beside the program itself, by parts of libraries' names, NULL at the end.
 * Call it from the frame below which everything happens. */
void alloc_begin(const char *const *libraries);

#endif
