/*
 * The table of field names that mean something to a proxy, ordered by length so that most names are
 * dismissed at one look. Called for each field that is read or written.
 */
#include "proxy/http/field_kind.h"

#include "logging/attrs.h"
#include "logging/bytes16.h"

struct row {
	const char *name;
	enum field_kind kind;
};

static const struct row len_2[] = {{"te", FIELD_TE}};
static const struct row len_3[] = {{"age", FIELD_CONTROL}};
static const struct row len_4[] = {{"host", FIELD_HOST},
				   {"date", FIELD_CONTROL},
				   {"vary", FIELD_CONTROL}};
/* To a CGI program `Proxy` becomes HTTP_PROXY, where its own requests go. */
static const struct row len_5[] = {{"range", FIELD_CONTROL}, {"proxy", FIELD_HOP}};
static const struct row len_6[] = {{"accept", FIELD_ACCEPT},
				   {"x-host", FIELD_CONTROL},
				   {"expect", FIELD_EXPECT},
				   {"cookie", FIELD_CONTROL},
				   {"pragma", FIELD_CONTROL}};
static const struct row len_7[] = {{"upgrade", FIELD_UPGRADE},
				   {"trailer", FIELD_TRAILER},
				   {"alt-svc", FIELD_ALT_SVC},
				   {"expires", FIELD_CONTROL},
				   {"warning", FIELD_CONTROL}};
static const struct row len_8[] = {{"if-match", FIELD_CONTROL},
				   {"if-range", FIELD_CONTROL},
				   {"location", FIELD_CONTROL}};
static const struct row len_9[] = {{"forwarded", FIELD_CONTROL}};
static const struct row len_10[] = {{"connection", FIELD_CONNECTION},
				    {"keep-alive", FIELD_KEEP_ALIVE},
				    {"set-cookie", FIELD_CONTROL}};
static const struct row len_11[] = {{"retry-after", FIELD_CONTROL},
				    {"destination", FIELD_CONTROL},
				    {"x-http-host", FIELD_CONTROL},
				    {"script-name", FIELD_CONTROL},
				    {"x-real-host", FIELD_CONTROL}};
static const struct row len_12[] = {{"content-type", FIELD_CONTROL},
				    {"max-forwards", FIELD_CONTROL}};
static const struct row len_13[] = {
	{"authorization", FIELD_CONTROL}, {"cache-control", FIELD_CONTROL},
	{"content-range", FIELD_CONTROL}, {"if-none-match", FIELD_CONTROL},
	{"x-http-method", FIELD_CONTROL}, {"x-rewrite-url", FIELD_CONTROL},
	{"x-script-name", FIELD_CONTROL}, {"x-rewrite-uri", FIELD_CONTROL}};
static const struct row len_14[] = {{"content-length", FIELD_CONTENT_LENGTH},
				    {"http2-settings", FIELD_HTTP2_SETTINGS},
				    {"x-original-url", FIELD_CONTROL},
				    {"x-original-uri", FIELD_CONTROL},
				    {"x-override-url", FIELD_CONTROL}};
static const struct row len_15[] = {{"x-original-host", FIELD_CONTROL},
				    {"x-host-override", FIELD_CONTROL},
				    {"x-original-path", FIELD_CONTROL},
				    {"x-forwarded-uri", FIELD_CONTROL}};
static const struct row len_16[] = {{"content-encoding", FIELD_CONTROL},
				    {"content-location", FIELD_CONTROL},
				    {"x-forwarded-host", FIELD_CONTROL},
				    {"x-forwarded-path", FIELD_CONTROL},
				    {"proxy-connection", FIELD_HOP},
				    {"www-authenticate", FIELD_CONTROL}};
static const struct row len_17[] = {{"transfer-encoding", FIELD_TRANSFER_ENCODING},
				    {"if-modified-since", FIELD_CONTROL},
				    {"x-method-override", FIELD_CONTROL},
				    {"x-original-method", FIELD_CONTROL}};
static const struct row len_19[] = {{"proxy-authorization", FIELD_PROXY_AUTHORIZATION},
				    {"if-unmodified-since", FIELD_CONTROL},
				    {"authentication-info", FIELD_CONTROL}};
static const struct row len_18[] = {{"x-forwarded-server", FIELD_CONTROL},
				    {"x-forwarded-prefix", FIELD_CONTROL},
				    {"x-forwarded-method", FIELD_CONTROL}};
static const struct row len_20[] = {{"x-http-host-override", FIELD_CONTROL}};
static const struct row len_21[] = {{"x-http-destinationurl", FIELD_CONTROL}};
static const struct row len_22[] = {{"x-http-method-override", FIELD_CONTROL}};
static const struct row len_25[] = {{"x-original-forwarded-host", FIELD_CONTROL}};

#define LEN(n) [n] = {len_##n, ARRAY_LEN(len_##n)}
static const struct {
	const struct row *rows;
	size_t n;
} by_len[] = {LEN(2),  LEN(3),	LEN(4),	 LEN(5),  LEN(6),  LEN(7),  LEN(8),  LEN(9),
	      LEN(10), LEN(11), LEN(12), LEN(13), LEN(14), LEN(15), LEN(16), LEN(17),
	      LEN(18), LEN(19), LEN(20), LEN(21), LEN(22), LEN(25)};

static ATTR_INLINE bytes16 lower_any(const char *p, size_t n)
{
	return bytes16_lower(bytes16_load_any(p, n));
}

static ATTR_INLINE bool same16(bytes16 a, bytes16 b)
{
	return bytes16_bits((bytes16)(a == b)) == 0xffff;
}

/* As str_eq_nocase, of a name of the table, which is in lower case, and as long. */
static ATTR_INLINE bool is_row(const char *name, const char *row, size_t n)
{
	if (n < 16)
		return same16(lower_any(name, n), bytes16_load_any(row, n));
	return same16(bytes16_lower(bytes16_load(name)), bytes16_load(row)) &&
	       same16(bytes16_lower(bytes16_load(name + n - 16)), bytes16_load(row + n - 16));
}

enum field_kind field_kind(struct str name)
{
	char first;

	if (name.n == 0)
		return FIELD_PLAIN;
	first = (char)(name.p[0] | 0x20);
	if (name.n < ARRAY_LEN(by_len)) {
		const struct row *rows = by_len[name.n].rows;

		for (size_t i = 0; i < by_len[name.n].n; i++)
			if (first == rows[i].name[0] && is_row(name.p, rows[i].name, name.n))
				return rows[i].kind;
	}
	/* Whatever speaks to or for a proxy ends here. An origin's Proxy-Status would pass for
	 * ours. */
	if (name.n > 6 && first == 'p' && str_eq_nocase(str_head(name, 6), STR("proxy-")))
		return FIELD_HOP;
	return FIELD_PLAIN;
}

enum field_kind field_kind_folded(struct str name)
{
	char mem[ARRAY_LEN(by_len)];
	bool differs = false;

	for (size_t i = 0; i < name.n && i < sizeof(mem); i++) {
		mem[i] = str_name_fold(name.p[i]);
		differs |= mem[i] != name.p[i];
	}
	/* Of a long name the first bytes say enough: Proxy- and no more. */
	return field_kind(differs ? str_from(mem, name.n < sizeof(mem) ? name.n : sizeof(mem))
				  : name);
}

bool field_may_trail(struct str name)
{
	return field_kind_folded(name) == FIELD_PLAIN;
}
