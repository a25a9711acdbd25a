/*
 * Reads a ClientHello out of raw bytes (RFC 8446 sections 4.1.2 and 5.1): joins the records into
 * one message, then walks it with a cursor that cannot leave it. It answers nothing. The session
 * calls it while it peeks into a tunnel.
 */
#include "proxy/http/clienthello.h"

#include <string.h>

#include "logging/limits.h"
#include "policy/hostname.h"

#define RECORD_HEAD	 5
#define RECORD_MAX	 16384
#define TYPE_HANDSHAKE	 22
#define MSG_CLIENT_HELLO 1
#define MSG_HEAD	 4

/* Records may be as small as one byte, six times the message then; the bound stays below what a
 * connection buffers, so that the limit is met rather than a full buffer waited upon. */
#define RAW_MAX (4 * LIMIT_CLIENTHELLO_BYTES)

enum extension {
	EXT_SERVER_NAME = 0,
	EXT_ALPN = 16,
	EXT_SUPPORTED_VERSIONS = 43,
	EXT_ECH = 0xfe0d,
	EXT_ESNI = 0xffce, /* what ECH was before: it hides the name just as well */
};

static enum clienthello_result bad(struct err *e, const char *what)
{
	err_reason(e, REASON_MALFORMED_REQUEST, "ClientHello: %s", what);
	return CLIENTHELLO_BAD;
}

/* ---- records ---- */

/* What the first bytes are, if they are no TLS record. */
static enum clienthello_result check_first(struct str in, struct err *e)
{
	const uint8_t *p = (const uint8_t *)in.p;

	if (in.n == 0 || p[0] == TYPE_HANDSHAKE)
		return CLIENTHELLO_OK;
	/* SSLv2 framing: a length with the top bit set, then the message type. */
	if (p[0] & 0x80) {
		if (in.n < 3)
			return CLIENTHELLO_MORE;
		if (p[2] == MSG_CLIENT_HELLO)
			return bad(e, "in the framing of SSLv2");
	}
	return CLIENTHELLO_NOT_TLS;
}

/* Takes the payload that is there of one record, into buf if it is wanted. */
static enum clienthello_result take_payload(struct clienthello_scan *m, uint8_t *buf,
					    const uint8_t *p, size_t n, struct err *e)
{
	while (n > 0 && m->len < m->need) {
		size_t part = n < m->need - m->len ? n : m->need - m->len;

		if (buf)
			memcpy(buf + m->len, p, part);
		if (m->len < MSG_HEAD)
			memcpy(m->head + m->len, p, part);
		m->len += part;
		p += part;
		n -= part;
		if (m->head[0] != MSG_CLIENT_HELLO)
			return bad(e, "another handshake message stands in its place");
		if (m->need == MSG_HEAD && m->len == MSG_HEAD) {
			m->need += (size_t)m->head[1] << 16 | (size_t)m->head[2] << 8 | m->head[3];
			if (m->need > LIMIT_CLIENTHELLO_BYTES)
				return bad(e, "too large");
		}
	}
	return CLIENTHELLO_OK;
}

/* One record at the start of in, of which all or a part is there. OK: it is whole, *ret_used bytes
 * long. */
static enum clienthello_result take_record(struct clienthello_scan *m, uint8_t *buf, struct str in,
					   size_t *ret_used, struct err *e)
{
	const uint8_t *p = (const uint8_t *)in.p;
	size_t size, there, before = m->len;
	enum clienthello_result rc;

	if (in.n >= 1 && p[0] != TYPE_HANDSHAKE)
		return bad(e, "a record of another type in the middle of it");
	if (in.n >= 2 && p[1] != 3)
		return bad(e, "a record version other than 3.x");
	if (in.n < RECORD_HEAD)
		return CLIENTHELLO_MORE;
	size = (size_t)p[3] << 8 | p[4];
	/* RFC 8446 section 5.1: no empty fragments of handshake messages. */
	if (size == 0 || size > RECORD_MAX)
		return bad(e, size == 0 ? "an empty record" : "a record that is too long");
	there = in.n - RECORD_HEAD < size ? in.n - RECORD_HEAD : size;
	rc = take_payload(m, buf, p + RECORD_HEAD, there, e);
	if (rc != CLIENTHELLO_OK)
		return rc;
	/* No other message can follow before the server has answered. */
	if (m->len >= MSG_HEAD && size > m->need - before)
		return bad(e, "bytes behind it in its record");
	*ret_used = RECORD_HEAD + size;
	return there < size ? CLIENTHELLO_MORE : CLIENTHELLO_OK;
}

/* Goes on behind the records that were whole the last time. */
static enum clienthello_result assemble(struct str in, struct clienthello_scan *m, uint8_t *buf,
					struct err *e)
{
	struct str seen = str_head(in, RAW_MAX);

	if (m->need == 0)
		m->need = MSG_HEAD;
	while (m->len < m->need) {
		struct clienthello_scan next = *m;
		size_t used = 0;
		enum clienthello_result rc =
			take_record(&next, buf, str_skip(seen, m->at), &used, e);

		if (rc == CLIENTHELLO_MORE && in.n >= RAW_MAX)
			return bad(e, "cut into too many records");
		if (rc != CLIENTHELLO_OK)
			return rc;
		*m = next;
		m->at += used;
	}
	return CLIENTHELLO_OK;
}

enum clienthello_result clienthello_scan(struct clienthello_scan *k, struct str in, struct err *e)
{
	enum clienthello_result rc = check_first(in, e);

	return rc == CLIENTHELLO_OK ? assemble(in, k, NULL, e) : rc;
}

/* ---- the message ---- */

/* What is left of a vector; every read is checked against it. */
struct cursor {
	const uint8_t *p;
	size_t n;
};

static bool take_u8(struct cursor *c, unsigned *ret)
{
	if (c->n < 1)
		return false;
	*ret = c->p[0];
	c->p++;
	c->n--;
	return true;
}

static bool take_u16(struct cursor *c, unsigned *ret)
{
	if (c->n < 2)
		return false;
	*ret = (unsigned)c->p[0] << 8 | c->p[1];
	c->p += 2;
	c->n -= 2;
	return true;
}

static bool take_bytes(struct cursor *c, size_t n, struct cursor *ret)
{
	if (c->n < n)
		return false;
	*ret = (struct cursor){c->p, n};
	c->p += n;
	c->n -= n;
	return true;
}

/* A vector with a length of one or two bytes before it (RFC 8446 section 3.4). */
static bool take_vec8(struct cursor *c, struct cursor *ret)
{
	unsigned n;

	return take_u8(c, &n) && take_bytes(c, n, ret);
}

static bool take_vec16(struct cursor *c, struct cursor *ret)
{
	unsigned n;

	return take_u16(c, &n) && take_bytes(c, n, ret);
}

/* RFC 6066 section 3: a DNS name in ASCII, no address. host.c knows what others could misread. */
static enum clienthello_result read_name(struct cursor name, struct clienthello *h, struct err *e)
{
	struct host host;
	struct err why = ERR_INIT;

	if (host_parse(str_from(name.p, name.n), &host, &why) < 0) {
		err_reason(e, REASON_MALFORMED_REQUEST, "ClientHello: server name: %s", why.text);
		return CLIENTHELLO_BAD;
	}
	if (host.kind != HOST_NAME)
		return bad(e, "an address as the server name");
	memcpy(h->sni, host.text, host.len);
	h->sni[host.len] = '\0';
	h->sni_len = host.len;
	h->sni_dotted = name.p[name.n - 1] == '.';
	h->has_sni = true;
	return CLIENTHELLO_OK;
}

static enum clienthello_result read_server_name(struct cursor ext, struct clienthello *h,
						struct err *e)
{
	struct cursor list, name;
	unsigned type;

	if (!take_vec16(&ext, &list) || ext.n > 0 || !take_u8(&list, &type) ||
	    !take_vec16(&list, &name))
		return bad(e, "lengths disagree in server_name");
	if (type != 0)
		return bad(e, "a server name of an unknown type");
	if (list.n > 0)
		return bad(e, "more than one server name");
	return read_name(name, h, e);
}

/* Whole entries as far as they fit; the whole list is checked. */
static enum clienthello_result read_alpn(struct cursor ext, struct clienthello *h, struct err *e)
{
	struct cursor list, one;

	if (!take_vec16(&ext, &list) || ext.n > 0 || list.n == 0)
		return bad(e, "lengths disagree in ALPN");
	while (list.n > 0) {
		const uint8_t *start = list.p;

		if (!take_vec8(&list, &one) || one.n == 0)
			return bad(e, "lengths disagree in ALPN");
		if (h->alpn_len + one.n + 1 <= sizeof(h->alpn)) {
			memcpy(h->alpn + h->alpn_len, start, one.n + 1);
			h->alpn_len += one.n + 1;
		}
	}
	return CLIENTHELLO_OK;
}

/* The highest of SSL 3.0 to what comes after TLS 1.3; GREASE (RFC 8701) has other first bytes. */
static enum clienthello_result read_versions(struct cursor ext, struct clienthello *h,
					     struct err *e)
{
	struct cursor list;
	unsigned v;

	if (!take_vec8(&ext, &list) || ext.n > 0 || list.n == 0 || list.n % 2)
		return bad(e, "lengths disagree in supported_versions");
	h->version_max = 0;
	while (take_u16(&list, &v))
		if (v >> 8 == 3 && v > h->version_max)
			h->version_max = v;
	return CLIENTHELLO_OK;
}

/* The bit of an extension that is read here; 0 for the others. */
static unsigned extension_bit(unsigned type)
{
	switch (type) {
	case EXT_SERVER_NAME: return 1;
	case EXT_ALPN: return 2;
	case EXT_SUPPORTED_VERSIONS: return 4;
	case EXT_ECH: return 8;
	case EXT_ESNI: return 16;
	default: return 0;
	}
}

static enum clienthello_result read_extension(unsigned type, struct cursor body,
					      struct clienthello *h, struct err *e)
{
	switch (type) {
	case EXT_SERVER_NAME: return read_server_name(body, h, e);
	case EXT_ALPN: return read_alpn(body, h, e);
	case EXT_SUPPORTED_VERSIONS: return read_versions(body, h, e);
	case EXT_ECH:
	case EXT_ESNI: h->ech = true; return CLIENTHELLO_OK;
	default: return CLIENTHELLO_OK;
	}
}

static enum clienthello_result read_extensions(struct cursor c, struct clienthello *h,
					       struct err *e)
{
	unsigned type, seen = 0;
	struct cursor body;

	while (c.n > 0) {
		enum clienthello_result rc;

		if (!take_u16(&c, &type) || !take_vec16(&c, &body))
			return bad(e, "lengths disagree among the extensions");
		/* RFC 8446 section 4.2: each type once. Two readers may pick different ones. */
		if (seen & extension_bit(type))
			return bad(e, "an extension stands there twice");
		seen |= extension_bit(type);
		rc = read_extension(type, body, h, e);
		if (rc != CLIENTHELLO_OK)
			return rc;
	}
	return CLIENTHELLO_OK;
}

static enum clienthello_result read_hello(struct cursor c, struct clienthello *h, struct err *e)
{
	struct cursor random, session, suites, compression, extensions;

	if (!take_u16(&c, &h->version_max) || !take_bytes(&c, 32, &random) ||
	    !take_vec8(&c, &session) || session.n > 32 || !take_vec16(&c, &suites) ||
	    suites.n == 0 || suites.n % 2 || !take_vec8(&c, &compression) || compression.n == 0)
		return bad(e, "lengths disagree");
	if (h->version_max >> 8 != 3)
		return bad(e, "a version other than 3.x");
	/* Before TLS 1.3 there need not be any extensions. */
	if (c.n == 0)
		return CLIENTHELLO_OK;
	if (!take_vec16(&c, &extensions) || c.n > 0)
		return bad(e, "lengths disagree behind the extensions");
	return read_extensions(extensions, h, e);
}

enum clienthello_result clienthello_parse(struct str in, struct clienthello *ret, struct err *e)
{
	uint8_t message[LIMIT_CLIENTHELLO_BYTES];
	struct clienthello_scan m = {0};
	enum clienthello_result rc = check_first(in, e);

	*ret = (struct clienthello){0};
	if (rc == CLIENTHELLO_OK)
		rc = assemble(in, &m, message, e);
	if (rc != CLIENTHELLO_OK)
		return rc;
	return read_hello((struct cursor){message + MSG_HEAD, m.len - MSG_HEAD}, ret, e);
}
