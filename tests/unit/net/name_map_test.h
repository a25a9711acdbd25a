/*
 * What the tests of the name map share. Time is a number that they make up.
 */
#ifndef STILE_TESTS_NAME_MAP_TEST_H
#define STILE_TESTS_NAME_MAP_TEST_H

#include "net_test.h"

#include "logging/limits.h"
#include "proxy/net/name_map.h"

#define TTL_US ((int64_t)LIMIT_NAME_TTL_SECS * 1000000)

static UNUSED struct host name(const char *fmt, unsigned n)
{
	struct host h;
	char text[64];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(text, sizeof(text), fmt, n);
#pragma GCC diagnostic pop
	assert_int_equal(host_parse(str_from_c(text), &h, NULL), 0);
	return h;
}

/* The IPv4 address as a number of its range. */
static UNUSED uint32_t give(struct name_map *m, const struct host *h, int64_t now)
{
	struct ipaddr v4, v6;

	assert_int_equal(name_map_give(m, h, true, now, &v4, &v6, NULL), 0);
	assert_int_equal(v4.family, 4);
	assert_int_equal(v6.family, 6);
	assert_memory_equal(v6.b + 12, v4.b, 4);
	return (uint32_t)(v4.b[1] - 18) << 16 | (uint32_t)v4.b[2] << 8 | v4.b[3];
}

#endif
