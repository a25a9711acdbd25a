/*
 * One hexadecimal digit. policy/ and proxy/ read addresses, chunk sizes and escapes by it; a whole
 * percent-encoding is percent.h's.
 */
#ifndef STILE_LOGGING_HEX_H
#define STILE_LOGGING_HEX_H

/* 0 to 15, in either case; -1: it is none. */
static inline int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

#endif
