/*
 * The keeper's side of its sockets: any sequence of messages, over a small configuration. Nothing
 * that no rule in force admits is signed, no value but that of the one credential that a rule names
 * is given, no file but those of the list is opened.
 *
 * Each message of the input: a byte for the socket and the kind, two for the length, the body.
 */
#include <strings.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/x509v3.h>

#include "logging/log.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/slot.h"
#include "proxy/keeper/core.h"
#include "tests/fuzz/fuzz.h"

static const char TEXT[] = "version: 1\n"
			   "listen: [{proxy: '127.0.0.1:0', policy: used}]\n"
			   "credentials:\n"
			   "  named: {from: {env: FUZZ_NAMED}, as: bearer}\n"
			   "  unnamed: {from: {env: FUZZ_UNNAMED}, as: bearer}\n"
			   "  fake: {from: {env: FUZZ_FAKE}, as: {placeholder: {env: X}}}\n"
			   "policies:\n"
			   "  used:\n"
			   "    rules:\n"
			   "      - {allow: 'https://a.test/**', credential: named}\n"
			   "      - allow: '*.b.test'\n"
			   "  idle:\n"
			   "    rules: [{allow: c.test, credential: unnamed}]\n";

static struct config *config;
static struct ca *ca;
static int64_t now = 1;

static int64_t fake_now(void)
{
	return now += 1000;
}

static void set_up(void)
{
	struct faults f;

	if (config)
		return;
	log_set_level(LOG_LEVEL_ERROR);
	setenv("FUZZ_NAMED", "value-of-named", 1);
	setenv("FUZZ_UNNAMED", "value-of-unnamed", 1);
	setenv("FUZZ_FAKE", "value-of-fake", 1);
	faults_init(&f, "fuzz.yaml");
	if (config_load_text("fuzz.yaml", str_from(TEXT, sizeof(TEXT) - 1), &config, &f) < 0 ||
	    ca_new_memory(30, &ca, NULL) < 0 || credential_env_capture(config, NULL) < 0)
		abort();
	faults_clear(&f);
}

static int on_push(void *arg, uint32_t store, size_t i, const struct slot_state *s)
{
	(void)arg;
	(void)store;
	if (strcmp(config->credentials[i].name, "named") != 0 ||
	    (s->value && !str_eq(secret_value(s->value), STR("value-of-named"))))
		abort();
	return 0;
}

static void check_leaf(struct str der)
{
	const unsigned char *p = (const unsigned char *)der.p;
	X509 *x = d2i_X509(NULL, &p, (long)der.n);
	bool admitted;

	if (!x)
		abort();
	admitted = X509_check_host(x, "a.test", 0, 0, NULL) == 1;
	if (!admitted) {
		const GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
		const GENERAL_NAME *n = names ? sk_GENERAL_NAME_value(names, 0) : NULL;
		struct str s = STR_NONE;

		if (n && n->type == GEN_DNS)
			s = str_from((const char *)n->d.dNSName->data,
				     (size_t)n->d.dNSName->length);
		admitted = s.n > 7 && str_eq(str_skip(s, s.n - 7), STR(".b.test"));
		GENERAL_NAMES_free((GENERAL_NAMES *)(uintptr_t)names);
	}
	if (!admitted || X509_check_ca(x))
		abort();
	X509_free(x);
}

/* Names come back in small letters. */
static bool holds_value(struct str s)
{
	for (size_t i = 0; i + 8 <= s.n; i++)
		if (strncasecmp(s.p + i, "value-of", 8) == 0)
			return true;
	return false;
}

/* q: the question, whose own words may come back in a refusal. */
static void check(const struct core_reply *r, bool is_file, struct str q)
{
	if (r->kind == WIRE_LEAF_IS)
		check_leaf(strbuf_str(&r->body));
	if (r->value)
		abort(); /* nothing here is a key of tokens */
	if (r->fd >= 0 && !is_file)
		abort();
	if (!holds_value(q) && holds_value(strbuf_str(&r->body)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct keeper_core *k = NULL;
	struct core_options o = {.now_us = fake_now};
	struct core_reply r = {.fd = -1};
	struct err e;
	int rc = 0;

	set_up();
	o.config = config;
	o.ca = ca;
	if (core_new(&o, &k, NULL) < 0 || core_open(k, NULL) < 0)
		abort();
	strbuf_init(&r.body, LIMIT_KEEPER_MESSAGE + 1);
	while (rc == 0 && size >= 3) {
		struct wire_head h = {.version = WIRE_VERSION,
				      .kind = data[0] & 0x3f,
				      .id = data[0] >> 6 ? data[0] : 1};
		size_t n = ((size_t)data[1] << 8 | data[2]);
		char *body;

		data += 3;
		size -= 3;
		n = n > size ? size : n;
		h.n = (uint32_t)n;
		/* A copy of its own, so that a read beyond is seen. */
		body = malloc(n ? n : 1);
		memcpy(body, data, n);
		strbuf_reset(&r.body);
		e = ERR_INIT;
		rc = core_handle(k,
				 h.kind == WIRE_LEAF			      ? CORE_LEAVES
				 : h.kind == WIRE_OPEN || h.kind == WIRE_MINT ? CORE_FILES
									      : CORE_MAIN,
				 &h, body, &r, &e);
		if (rc == 0)
			check(&r, h.kind == WIRE_OPEN, str_from(body, n));
		if (r.fd >= 0)
			close(r.fd);
		r.fd = -1;
		(void)core_push(k, on_push, NULL);
		free(body);
		data += n;
		size -= n;
	}
	strbuf_clear(&r.body);
	core_free(k);
	return 0;
}
