/*
 * Reads `limits:`: numbers, sizes and times, each with its unit and its range. Called by load.c.
 */
#include <stdio.h>
#include <string.h>

#include "policy/load.h"

enum unit { UNIT_COUNT, UNIT_BYTES, UNIT_TIME };

#define SECOND 1000ULL
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

static const struct row {
	enum config_key key;
	enum unit unit;
	size_t member;
	uint64_t standard, least, most;
} rows[] = {
#define AT(m) offsetof(struct config_limits, m)
	{KEY_LIMITS_CONNECTIONS, UNIT_COUNT, AT(connections), LIMIT_CONNECTIONS, 1, 1 << 20},
	{KEY_LIMITS_CONNECTIONS_PER_ADDRESS, UNIT_COUNT, AT(connections_per_address),
	 LIMIT_CONNECTIONS_PER_ADDR, 1, 1 << 20},
	{KEY_LIMITS_HEAD_BYTES, UNIT_BYTES, AT(head_bytes), LIMIT_HEAD_BYTES, 1024,
	 LIMIT_HEAD_BYTES},
	{KEY_LIMITS_HEAD, UNIT_TIME, AT(head_ms), LIMIT_MS_HEAD, 100, HOUR},
	{KEY_LIMITS_IDLE, UNIT_TIME, AT(client_idle_ms), LIMIT_MS_CLIENT_IDLE, 100, DAY},
	{KEY_LIMITS_PEEK, UNIT_TIME, AT(peek_ms), LIMIT_MS_PEEK, 100, 10 * MINUTE},
	{KEY_LIMITS_DNS, UNIT_TIME, AT(dns_ms), LIMIT_MS_DNS, 100, 10 * MINUTE},
	{KEY_LIMITS_DIAL, UNIT_TIME, AT(dial_ms), LIMIT_MS_DIAL, 100, 10 * MINUTE},
	{KEY_LIMITS_TLS, UNIT_TIME, AT(tls_ms), LIMIT_MS_UPSTREAM_TLS, 100, 10 * MINUTE},
	{KEY_LIMITS_FIRST_BYTE, UNIT_TIME, AT(first_byte_ms), LIMIT_MS_FIRST_BYTE, 100, DAY},
	{KEY_LIMITS_BODY_IDLE, UNIT_TIME, AT(body_idle_ms), LIMIT_MS_BODY_IDLE, 100, DAY},
	{KEY_LIMITS_REQUEST_LIFE, UNIT_TIME, AT(request_life_ms), LIMIT_MS_REQUEST_LIFE, 100,
	 30 * DAY},
	{KEY_LIMITS_TUNNEL_IDLE, UNIT_TIME, AT(tunnel_idle_ms), LIMIT_MS_TUNNEL_IDLE, 100,
	 30 * DAY},
	{KEY_LIMITS_TUNNEL_LIFE, UNIT_TIME, AT(tunnel_life_ms), LIMIT_MS_TUNNEL_LIFE, 100,
	 30 * DAY},
	{KEY_LIMITS_DRAIN, UNIT_TIME, AT(drain_ms), LIMIT_MS_DRAIN, 0, HOUR},
	{KEY_LIMITS_WORKERS, UNIT_COUNT, AT(workers), 0, 1, LIMIT_WORKERS},
#undef AT
};

static const struct scale {
	const char *name;
	uint64_t times;
} times[] = {{"ms", 1}, {"s", SECOND}, {"m", MINUTE}, {"h", HOUR}},
  sizes[] = {{"", 1}, {"KiB", 1024}, {"MiB", 1 << 20}}, counts[] = {{"", 1}};

static void scales_of(enum unit unit, const struct scale **ret, size_t *ret_n)
{
	switch (unit) {
	case UNIT_TIME:
		*ret = times;
		*ret_n = ARRAY_LEN(times);
		return;
	case UNIT_BYTES:
		*ret = sizes;
		*ret_n = ARRAY_LEN(sizes);
		return;
	case UNIT_COUNT:
		*ret = counts;
		*ret_n = ARRAY_LEN(counts);
		return;
	}
}

/* 90000 ms is 90s: the largest unit that divides it. */
static void add_amount(struct strbuf *out, enum unit unit, uint64_t n)
{
	const struct scale *v = counts;
	size_t count = 1;

	scales_of(unit, &v, &count);
	while (count > 1 && (n == 0 || n % v[count - 1].times != 0))
		count--;
	strbuf_addf(out, "%llu%s", (unsigned long long)(n / v[count - 1].times), v[count - 1].name);
}

static const char *example(enum unit unit)
{
	switch (unit) {
	case UNIT_TIME: return "a time with a unit: 500ms, 15s, 2m, 1h";
	case UNIT_BYTES: return "a size: 16384, 16KiB";
	case UNIT_COUNT: return "a number";
	}
	return "";
}

static int read_amount(struct str s, enum unit unit, uint64_t *ret)
{
	const struct scale *v = counts;
	size_t count = 1, digits = 0;
	uint64_t n;

	while (digits < s.n && s.p[digits] >= '0' && s.p[digits] <= '9')
		digits++;
	if (str_to_u64(str_head(s, digits), &n) < 0)
		return -1;
	s = str_skip(s, digits);
	scales_of(unit, &v, &count);
	for (size_t i = 0; i < count; i++)
		if (str_eq(s, str_from_c(v[i].name))) {
			*ret = n > UINT64_MAX / v[i].times ? UINT64_MAX : n * v[i].times;
			return 0;
		}
	return -1;
}

static int load_amount(struct loader *l, const struct yaml_node *node, const char *what,
		       const struct row *row, uint64_t *ret)
{
	char least[32], most[32];
	struct strbuf a, b;
	uint64_t n, digits;
	struct str s;

	if (load_plain(l, node, what, &s) < 0)
		return -1;
	if (read_amount(s, row->unit, &n) < 0) {
		if (row->unit == UNIT_TIME && str_to_u64(s, &digits) == 0)
			fault_add(l->f, node->line, node->col,
				  "%s: `%.*s` has no unit (write %.*ss, or ms, m, h)", what,
				  SHOW(s), SHOW(s));
		else
			fault_add(l->f, node->line, node->col, "%s: `%.*s` is not %s", what,
				  SHOW(s), example(row->unit));
		return -1;
	}
	strbuf_init_fixed(&a, least, sizeof(least));
	strbuf_init_fixed(&b, most, sizeof(most));
	add_amount(&a, row->unit, row->least);
	add_amount(&b, row->unit, row->most);
	if (n < row->least || n > row->most) {
		fault_add(l->f, node->line, node->col, "%s: `%.*s` is not within %s and %s", what,
			  SHOW(s), strbuf_cstr(&a), strbuf_cstr(&b));
		return -1;
	}
	*ret = n;
	return 0;
}

int load_count(struct loader *l, const struct yaml_node *node, const char *what, uint64_t least,
	       uint64_t most, uint64_t *ret)
{
	struct row row = {.unit = UNIT_COUNT, .least = least, .most = most};

	return load_amount(l, node, what, &row, ret);
}

int load_bytes(struct loader *l, const struct yaml_node *node, const char *what, uint64_t least,
	       uint64_t most, uint64_t *ret)
{
	struct row row = {.unit = UNIT_BYTES, .least = least, .most = most};

	return load_amount(l, node, what, &row, ret);
}

int load_time(struct loader *l, const struct yaml_node *node, const char *what, uint64_t least_ms,
	      uint64_t most_ms, uint64_t *ret_ms)
{
	struct row row = {.unit = UNIT_TIME, .least = least_ms, .most = most_ms};

	return load_amount(l, node, what, &row, ret_ms);
}

static void read_row(struct loader *l, const struct yaml_node *node, const struct row *row,
		     const char *name)
{
	char what[48];
	uint64_t n;

	snprintf(what, sizeof(what), "`%s`", name);
	if (load_amount(l, node, what, row, &n) == 0)
		memcpy((char *)&l->c->limits + row->member, &n, sizeof(n));
}

void load_limits_defaults(struct config_limits *c)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		memcpy((char *)c + rows[i].member, &rows[i].standard, sizeof(rows[i].standard));
}

void load_limits(struct loader *l, const struct yaml_node *node)
{
	struct section_values v;

	if (load_section(l, node, "`limits`", SECTION_LIMITS, &v) < 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct yaml_node *value = section_value(&v, rows[i].key);

		if (value)
			read_row(l, value, &rows[i], section_key(&v, rows[i].key)->text.p);
	}
	if (l->c->limits.connections_per_address > l->c->limits.connections &&
	    section_value(&v, KEY_LIMITS_CONNECTIONS_PER_ADDRESS))
		fault_warn(l->f, section_key(&v, KEY_LIMITS_CONNECTIONS_PER_ADDRESS)->line,
			   section_key(&v, KEY_LIMITS_CONNECTIONS_PER_ADDRESS)->col,
			   "`connections_per_address` is more than `connections` (%llu) admits",
			   (unsigned long long)l->c->limits.connections);
}
