/*
 * The text that a test of this folder writes into; a file of tests includes it for its main().
 */
#ifndef STILE_TESTS_UNIT_LOGGING_OUT_FIXTURE_H
#define STILE_TESTS_UNIT_LOGGING_OUT_FIXTURE_H

#include "unit.h"

#include "logging/strbuf.h"

static struct strbuf out;

static int set_up(void **state)
{
	(void)state;
	strbuf_init(&out, 1 << 20);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	strbuf_clear(&out);
	return 0;
}

#endif
