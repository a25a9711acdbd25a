/*
 * See websocket.h.
 */
#include "proxy/http/websocket.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include "proxy/http/h1_text.h"

#define KEY_LEN 24 /* base64 of 16 bytes */

static const struct str GUID = {"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", 36};

/* The value of the field that stands there exactly once; no text otherwise. */
static struct str only(const struct fields *f, struct str name)
{
	struct str found = STR_NONE;
	unsigned n = 0;

	for (size_t i = 0; i < f->n; i++)
		if (str_eq_nocase(f->v[i].name, name)) {
			found = f->v[i].value;
			n++;
		}
	return n == 1 ? found : STR_NONE;
}

static bool is_key(struct str s)
{
	unsigned char mem[KEY_LEN];

	return s.n == KEY_LEN && s.p[KEY_LEN - 1] == '=' && s.p[KEY_LEN - 2] == '=' &&
	       s.p[KEY_LEN - 3] != '=' &&
	       EVP_DecodeBlock(mem, (const unsigned char *)s.p, KEY_LEN) == 18;
}

static int refuse(struct err *e, const char *what)
{
	return err_reason(e, REASON_UPGRADE_REFUSED, "%s", what);
}

int websocket_check_request(const struct request *r, struct err *e)
{
	if (!str_eq(r->method, STR("GET")))
		return refuse(e, "a WebSocket begins with GET");
	if (r->body == BODY_CHUNKED || (r->body == BODY_LENGTH && r->length > 0))
		return refuse(e, "a WebSocket handshake with a body");
	if (!str_eq(only(&r->fields, STR("sec-websocket-version")), STR("13")))
		return refuse(e, "a WebSocket handshake without exactly one version, 13");
	if (!is_key(only(&r->fields, STR("sec-websocket-key"))))
		return refuse(e, "a WebSocket handshake without exactly one key of 16 bytes");
	return 0;
}

int websocket_new_key(char out[WEBSOCKET_KEY_MAX])
{
	unsigned char bytes[16];

	if (RAND_bytes(bytes, sizeof(bytes)) != 1)
		return -1;
	EVP_EncodeBlock((unsigned char *)out, bytes, sizeof(bytes));
	return 0;
}

int websocket_accept(struct str key, char out[WEBSOCKET_ACCEPT_MAX])
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned n = 0;
	bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha1(), NULL) == 1 &&
		  EVP_DigestUpdate(ctx, key.p, key.n) == 1 &&
		  EVP_DigestUpdate(ctx, GUID.p, GUID.n) == 1 &&
		  EVP_DigestFinal_ex(ctx, digest, &n) == 1 && n == 20;

	EVP_MD_CTX_free(ctx);
	if (!ok)
		return -1;
	EVP_EncodeBlock((unsigned char *)out, digest, 20);
	return 0;
}

/* Is the word an element of one of the fields of that name, parameters aside? */
static bool is_offered(const struct fields *f, struct str name, struct str word)
{
	for (size_t i = 0; i < f->n; i++)
		if (str_eq_nocase(f->v[i].name, name) && h1_list_has(f->v[i].value, word))
			return true;
	return false;
}

/* Section 4.1: a client fails such a connection, so no good one misses it. */
static int check_offers(const struct request *r, const struct response *answer, struct str name,
			struct err *e)
{
	for (size_t i = 0; i < answer->fields.n; i++) {
		struct str rest = answer->fields.v[i].value, one;

		if (!str_eq_nocase(answer->fields.v[i].name, name))
			continue;
		while (h1_next_element(&rest, &one))
			if (!is_offered(&r->fields, name, str_trim_ows(str_split(&one, ';'))))
				return err_reason(e, REASON_UPSTREAM_MALFORMED,
						  "the 101 has a %.*s that was not offered",
						  STR_FMT(name));
	}
	return 0;
}

static int check_accept(const struct request *r, const struct response *answer, struct err *e)
{
	struct str key = only(&r->fields, STR("sec-websocket-key"));
	struct str said = only(&answer->fields, STR("sec-websocket-accept"));
	char want[WEBSOCKET_ACCEPT_MAX];

	if (websocket_accept(key, want) < 0)
		return err_reason(e, REASON_INTERNAL_ERROR, "SHA-1 is not to be had");
	return str_eq(said, str_from_c(want))
		       ? 0
		       : err_reason(e, REASON_UPSTREAM_MALFORMED,
				    "the 101 does not answer the WebSocket's key");
}

int websocket_check_response(const struct request *r, const struct response *answer, struct err *e)
{
	/* HTTP/1.0 knows neither 101 nor an upgrade. */
	if (!r->websocket || answer->version == HTTP_10 ||
	    !str_eq_nocase(answer->upgrade, STR("websocket")))
		return err_reason(e, REASON_UPSTREAM_MALFORMED,
				  "101 to another upgrade than was asked for");
	/* RFC 8441 section 5: no server takes part in an extended CONNECT by mistake, so there is
	 * no proof of it. A client of HTTP/1 would miss the one that it waits for. */
	if ((answer->version != HTTP_2 || r->version != HTTP_2) && check_accept(r, answer, e) < 0)
		return -1;
	if (check_offers(r, answer, STR("sec-websocket-protocol"), e) < 0)
		return -1;
	return check_offers(r, answer, STR("sec-websocket-extensions"), e);
}

int websocket_check_refusal(const struct request *r, const struct response *answer, struct err *e)
{
	if (!r->websocket || r->version != HTTP_2 || answer->status / 100 != 2)
		return 0;
	return err_reason(e, REASON_UPSTREAM_MALFORMED,
			  "the WebSocket was answered with %u, which opens none", answer->status);
}
