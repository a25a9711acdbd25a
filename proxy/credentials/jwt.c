/*
 * See jwt.h. OpenSSL signs. Of a JWT only this is ours: two texts in base64url, and for ES256 the
 * signature's two numbers side by side where OpenSSL gives DER (RFC 7518 section 3.4).
 */
#include "certs/tls_mem.h"
#include "proxy/credentials/jwt.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include "logging/json.h"
#include "logging/limits.h"
#include "proxy/credentials/encode.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/token.h"

#define P256_NUMBER_BYTES 32
#define SIGNATURE_MAX	  (LIMIT_RSA_BITS_MOST / 8)

enum algorithm { RS256, PS256, ES256, EDDSA };

struct jwt_key {
	/* owned */
	EVP_PKEY *pkey;
	/* plain */
	_Atomic unsigned refs;
	enum algorithm algorithm;
};

static const struct {
	const char *name;
	int type; /* of the key */
	const char *wants;
} algorithms[] = {
	[RS256] = {"RS256", EVP_PKEY_RSA, "an RSA key"},
	[PS256] = {"PS256", EVP_PKEY_RSA, "an RSA key"},
	[ES256] = {"ES256", EVP_PKEY_EC, "a key on the curve P-256"},
	[EDDSA] = {"EdDSA", EVP_PKEY_ED25519, "an Ed25519 key"},
};

static int bad(struct err *e, const char *what)
{
	/* OpenSSL's own words may quote the input. */
	ERR_clear_error();
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "%s", what);
}

/* ---- keys ---- */

/* Nobody is there to type one. */
static int no_passphrase(char *buf, int size, int rw, void *arg)
{
	bool *asked = arg;

	(void)buf;
	(void)size;
	(void)rw;
	*asked = true;
	return -1;
}

static bool is_p256(const EVP_PKEY *pkey)
{
	char group[32];
	size_t n = 0;

	return EVP_PKEY_get_group_name(pkey, group, sizeof(group), &n) == 1 &&
	       (strcmp(group, "prime256v1") == 0 || strcmp(group, "P-256") == 0);
}

static int choose(struct jwt_key *k, const char *asked, struct err *e)
{
	int type = EVP_PKEY_get_base_id(k->pkey), bits = EVP_PKEY_get_bits(k->pkey);
	bool found = false;

	for (size_t i = 0; i < ARRAY_LEN(algorithms) && !found; i++) {
		if (asked ? strcmp(asked, algorithms[i].name) != 0 : type != algorithms[i].type)
			continue;
		k->algorithm = (enum algorithm)i;
		found = true;
	}
	if (!found)
		return bad(e, "its key is neither RSA nor P-256 nor Ed25519");
	if (type != algorithms[k->algorithm].type || (type == EVP_PKEY_EC && !is_p256(k->pkey)))
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "its key is of another kind: %s wants %s",
				  algorithms[k->algorithm].name, algorithms[k->algorithm].wants);
	if (type == EVP_PKEY_RSA && (bits < LIMIT_RSA_BITS_LEAST || bits > LIMIT_RSA_BITS_MOST))
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "its RSA key has %d bits (%d to %d are taken)", bits,
				  LIMIT_RSA_BITS_LEAST, LIMIT_RSA_BITS_MOST);
	return 0;
}

int jwt_key_new(struct str pem, const char *algorithm, struct jwt_key **ret, struct err *e)
{
	struct jwt_key *k = calloc(1, sizeof(*k));
	BIO *bio = BIO_new_mem_buf(pem.p, (int)pem.n);
	bool encrypted = false;
	int rc = -1;

	if (!k || !bio) {
		(void)bad(e, "out of memory");
		goto out;
	}
	atomic_init(&k->refs, 1);
	tls_mem_wipe(true);
	k->pkey = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, &encrypted);
	tls_mem_wipe(false);
	if (k->pkey)
		rc = choose(k, algorithm, e);
	else if (encrypted)
		(void)bad(e, "its key is encrypted (keep it in clear, readable by stile alone)");
	else
		(void)bad(e, "its key is no private key in PEM");
out:
	BIO_free(bio);
	if (rc < 0)
		jwt_key_unref(k);
	else
		*ret = k;
	return rc;
}

struct jwt_key *jwt_key_ref(struct jwt_key *k)
{
	atomic_fetch_add_explicit(&k->refs, 1, memory_order_relaxed);
	return k;
}

void jwt_key_unref(struct jwt_key *k)
{
	if (!k || atomic_fetch_sub_explicit(&k->refs, 1, memory_order_acq_rel) > 1)
		return;
	EVP_PKEY_free(k->pkey);
	free(k);
}

/* ---- signing ---- */

/* R and S, each of 32 bytes (RFC 7518 section 3.4). */
static int unpack_ecdsa(unsigned char *sig, size_t *n)
{
	const unsigned char *der = sig;
	ECDSA_SIG *s = d2i_ECDSA_SIG(NULL, &der, (long)*n);
	int rc = -1;

	if (s && BN_bn2binpad(ECDSA_SIG_get0_r(s), sig, P256_NUMBER_BYTES) == P256_NUMBER_BYTES &&
	    BN_bn2binpad(ECDSA_SIG_get0_s(s), sig + P256_NUMBER_BYTES, P256_NUMBER_BYTES) ==
		    P256_NUMBER_BYTES) {
		*n = 2 * (size_t)P256_NUMBER_BYTES;
		rc = 0;
	}
	ECDSA_SIG_free(s);
	return rc;
}

static int set_padding(const struct jwt_key *k, EVP_PKEY_CTX *ctx)
{
	if (k->algorithm != PS256)
		return 0;
	/* RFC 7518 section 3.5: the salt is as long as the hash. */
	return EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_PSS_PADDING) == 1 &&
			       EVP_PKEY_CTX_set_rsa_pss_saltlen(ctx, RSA_PSS_SALTLEN_DIGEST) == 1
		       ? 0
		       : -1;
}

static int sign(const struct jwt_key *k, struct str text, unsigned char *sig, size_t *n)
{
	const EVP_MD *hash = k->algorithm == EDDSA ? NULL : EVP_sha256();
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	EVP_PKEY_CTX *of_key = NULL; /* ctx's */
	int rc = -1;

	if (ctx && EVP_DigestSignInit(ctx, &of_key, hash, NULL, k->pkey) == 1 &&
	    set_padding(k, of_key) == 0 &&
	    EVP_DigestSign(ctx, sig, n, (const unsigned char *)text.p, text.n) == 1)
		rc = k->algorithm == ES256 ? unpack_ecdsa(sig, n) : 0;
	EVP_MD_CTX_free(ctx);
	return rc;
}

static void add_header(const struct jwt_key *k, const char *kid, struct strbuf *out)
{
	struct strbuf text;
	struct json j;

	strbuf_init(&text, LIMIT_CLAIMS_BYTES);
	json_init(&j, &text);
	json_open(&j, '{');
	json_kv_str(&j, "alg", str_from_c(algorithms[k->algorithm].name));
	json_kv_str(&j, "typ", STR("JWT"));
	json_kv_opt(&j, "kid", str_from_c(kid));
	json_close(&j, '}');
	encode_base64url(out, strbuf_str(&text));
	out->overflowed |= text.overflowed;
	strbuf_clear(&text);
}

int jwt_sign(const struct jwt_key *k, const char *kid, struct str claims, struct secret **ret,
	     struct err *e)
{
	unsigned char sig[SIGNATURE_MAX];
	size_t n = sizeof(sig);
	struct strbuf out;
	int rc = -1;

	strbuf_init(&out, LIMIT_SECRET_BYTES);
	add_header(k, kid, &out);
	strbuf_addc(&out, '.');
	encode_base64url(&out, claims);
	if (out.overflowed || sign(k, strbuf_str(&out), sig, &n) < 0) {
		(void)bad(e, "its token cannot be signed");
	} else {
		strbuf_addc(&out, '.');
		encode_base64url(&out, str_from(sig, n));
		*ret = out.overflowed ? NULL : secret_copy(strbuf_str(&out));
		rc = *ret ? 0 : bad(e, "out of memory");
	}
	strbuf_wipe(&out);
	return rc;
}

int64_t jwt_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec;
}

/* ---- reading ---- */

json_t *jwt_payload(struct str token, struct err *e)
{
	struct str rest = token, payload;
	struct strbuf text;
	json_t *o = NULL;

	(void)str_split(&rest, '.');
	payload = str_split(&rest, '.');
	strbuf_init(&text, LIMIT_SECRET_BYTES);
	if (!payload.p || !rest.p || str_find(rest, '.') >= 0 ||
	    decode_base64url(payload, &text) < 0 || text.overflowed)
		(void)bad(e, "its token is no JWT");
	else if (!(o = token_json(strbuf_str(&text), NULL)))
		(void)bad(e, "the payload of its token is not a JSON object");
	strbuf_wipe(&text);
	return o;
}

int jwt_life(const json_t *payload, int64_t *ret_us, struct err *e)
{
	if (!json_is_number(json_object_get(payload, "exp")))
		return bad(e, "its token does not say when it ends (`exp`)");
	return token_json_end(payload, "exp", ret_us, e);
}

static bool is_among(const json_t *list, const json_t *text)
{
	size_t i;
	json_t *v;

	json_array_foreach(list, i, v) if (json_is_string(text) && json_equal(v, text)) return true;
	return false;
}

int jwt_check_audience(const json_t *payload, const char *asked, struct err *e)
{
	const json_t *aud = json_object_get(payload, "aud");
	size_t n = json_is_array(aud) ? json_array_size(aud) : 1;
	json_t *list = token_json_config(asked);
	bool within = !asked || (list && n > 0);

	for (size_t i = 0; asked && i < n && within; i++)
		within = is_among(list, json_is_array(aud) ? json_array_get(aud, i) : aud);
	json_decref(list);
	return within ? 0 : bad(e, "its token is for another audience than was asked for");
}
