/*
 * See sts.h. Of all that an answer holds, five texts are kept: those of Credentials, and the Code
 * of an Error. Each may stand there once.
 */
#include "proxy/credentials/sts.h"

#include <expat.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "logging/limits.h"
#include "proxy/credentials/sigv4.h"
#include "proxy/credentials/token.h"

#define CODE_MAX 64
#define TIME_MAX 64

enum text { TEXT_ID, TEXT_KEY, TEXT_TOKEN, TEXT_END, TEXT_CODE, TEXT_COUNT, TEXT_NONE };

static const struct {
	const char *parent, *name;
	size_t max;
} texts[TEXT_COUNT] = {
	[TEXT_ID] = {"Credentials", "AccessKeyId", 128},
	[TEXT_KEY] = {"Credentials", "SecretAccessKey", 256},
	[TEXT_TOKEN] = {"Credentials", "SessionToken", LIMIT_SECRET_BYTES},
	[TEXT_END] = {"Credentials", "Expiration", TIME_MAX},
	[TEXT_CODE] = {"Error", "Code", CODE_MAX},
};

struct sts {
	/* borrowed */
	XML_Parser parser;
	/* owned; wiped */
	struct strbuf text[TEXT_COUNT];
	/* plain */
	bool found[TEXT_COUNT];
	enum text now; /* the element that we are in, if it is one of them */
	size_t depth, elements;
	char parents[LIMIT_XML_DEPTH][16]; /* local names, cut */
	bool refused;
};

/* ---- memory that is wiped ---- */

static void free_wiped(void *p)
{
	if (p)
		OPENSSL_cleanse(p, malloc_usable_size(p));
	free(p);
}

static void *realloc_wiped(void *p, size_t n)
{
	size_t had = p ? malloc_usable_size(p) : 0;
	void *fresh = malloc(n);

	if (!fresh)
		return NULL;
	if (p)
		memcpy(fresh, p, had < n ? had : n);
	free_wiped(p);
	return fresh;
}

/* ---- reading ---- */

static void refuse(struct sts *s)
{
	s->refused = true;
	(void)XML_StopParser(s->parser, XML_FALSE);
}

static void on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct sts *s = arg;
	const char *local = strrchr(name, '|');

	(void)attributes;
	local = local ? local + 1 : name;
	/* An element within one whose text is kept, or more of them than any answer has. */
	if (s->now != TEXT_NONE || s->depth == LIMIT_XML_DEPTH ||
	    ++s->elements > LIMIT_XML_ELEMENTS) {
		refuse(s);
		return;
	}
	for (size_t i = 0; i < TEXT_COUNT && s->depth > 0; i++)
		if (strcmp(local, texts[i].name) == 0 &&
		    strcmp(s->parents[s->depth - 1], texts[i].parent) == 0) {
			if (s->found[i])
				refuse(s);
			s->found[i] = true;
			s->now = (enum text)i;
		}
	/* A name that is cut is none of ours. */
	memset(s->parents[s->depth], 0, sizeof(s->parents[0]));
	strncpy(s->parents[s->depth], local, sizeof(s->parents[0]) - 1);
	s->depth++;
}

static void on_end(void *arg, const XML_Char *name)
{
	struct sts *s = arg;

	(void)name;
	s->now = TEXT_NONE;
	s->depth--;
}

static void on_text(void *arg, const XML_Char *p, int n)
{
	struct sts *s = arg;

	if (s->now != TEXT_NONE)
		strbuf_add(&s->text[s->now], str_from(p, (size_t)n));
}

static void on_doctype(void *arg, const XML_Char *name, const XML_Char *sysid,
		       const XML_Char *pubid, int internal)
{
	(void)name;
	(void)sysid;
	(void)pubid;
	(void)internal;
	refuse(arg);
}

static void sts_init(struct sts *s)
{
	*s = (struct sts){.now = TEXT_NONE};
	for (size_t i = 0; i < TEXT_COUNT; i++)
		strbuf_init(&s->text[i], texts[i].max);
}

static void sts_clear(struct sts *s)
{
	for (size_t i = 0; i < TEXT_COUNT; i++)
		strbuf_wipe(&s->text[i]);
}

/* -1: it is no XML that we read. */
static int parse(struct sts *s, struct str xml)
{
	static const XML_Memory_Handling_Suite memory = {malloc, realloc_wiped, free_wiped};
	bool whole = false;

	s->parser = XML_ParserCreate_MM("UTF-8", &memory, "|");
	if (!s->parser)
		return -1;
	/* At once: what grows leaves copies behind. */
	for (size_t i = 0; i < TEXT_COUNT; i++)
		(void)strbuf_reserve(&s->text[i], xml.n < texts[i].max ? xml.n : texts[i].max);
	XML_SetUserData(s->parser, s);
	XML_SetElementHandler(s->parser, on_start, on_end);
	XML_SetCharacterDataHandler(s->parser, on_text);
	XML_SetStartDoctypeDeclHandler(s->parser, on_doctype);
	if (xml.n <= LIMIT_SOURCE_BYTES)
		whole = XML_Parse(s->parser, xml.p, (int)xml.n, XML_TRUE) == XML_STATUS_OK;
	XML_ParserFree(s->parser);
	for (size_t i = 0; i < TEXT_COUNT; i++)
		whole = whole && !s->text[i].overflowed;
	return whole && !s->refused ? 0 : -1;
}

static int read_life(const struct sts *s, int64_t *ret_us, struct err *e)
{
	json_t *o;
	int rc;

	*ret_us = 0;
	if (!s->found[TEXT_END])
		return 0;
	o = json_pack("{s:s}", "Expiration", strbuf_cstr(&s->text[TEXT_END]));
	if (!o)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "`Expiration` of its answer is no time");
	rc = token_json_end(o, "Expiration", ret_us, e);
	json_decref(o);
	return rc;
}

int sts_read(struct str xml, struct secret **ret, int64_t *ret_life_us, struct err *e)
{
	struct sigv4_parts p;
	struct sts s;
	int rc = -1;

	sts_init(&s);
	if (parse(&s, xml) < 0) {
		(void)err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				 "its answer is not the XML of a token service");
	} else if (!s.found[TEXT_ID] || !s.found[TEXT_KEY] || !s.found[TEXT_TOKEN]) {
		(void)err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its answer has no Credentials");
	} else if (read_life(&s, ret_life_us, e) == 0) {
		p = (struct sigv4_parts){strbuf_str(&s.text[TEXT_ID]),
					 strbuf_str(&s.text[TEXT_KEY]),
					 strbuf_str(&s.text[TEXT_TOKEN])};
		rc = sigv4_join_parts(&p, ret, e);
	}
	sts_clear(&s);
	return rc;
}

int sts_read_error(struct str xml, unsigned status, struct err *e)
{
	const char *code;
	struct sts s;
	bool plain;

	sts_init(&s);
	plain = parse(&s, xml) == 0 && s.text[TEXT_CODE].len > 0;
	code = strbuf_cstr(&s.text[TEXT_CODE]);
	for (size_t i = 0; plain && i < s.text[TEXT_CODE].len; i++)
		plain = code[i] > 0x20 && code[i] < 0x7f;
	(void)err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its endpoint answers %u%s%s", status,
			 plain ? " " : "", plain ? code : "");
	sts_clear(&s);
	return -1;
}
