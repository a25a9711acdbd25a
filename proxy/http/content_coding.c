/*
 * See content_coding.h. zlib and Brotli do the work; what is theirs to hold is counted for the
 * whole process, since a Brotli stream alone may ask for 16 MiB.
 */
#include "proxy/http/content_coding.h"

#include <brotli/decode.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "logging/limits.h"
#include "logging/strbuf.h"
#include "proxy/http/h1_text.h"

enum coding { CODING_GZIP, CODING_DEFLATE, CODING_BROTLI };

struct stage {
	/* owned */
	unsigned char *out; /* what it gave, and the next one has not taken yet */
	BrotliDecoderState *brotli;
	z_stream z;
	/* plain */
	size_t out_at, out_n;
	enum coding coding;
	bool z_ready;
	bool begun; /* a byte was taken */
	bool ended; /* the coding's own end came; what follows is dropped */
	bool full;  /* it may have more to give without another byte */
};

struct content_decoder {
	/* owned */
	unsigned char *in;			   /* LIMIT_DECODE_IN */
	struct stage stages[LIMIT_DECODE_CODINGS]; /* the outermost first */
	/* plain */
	size_t in_at, in_n;
	size_t n;
};

/* ---- memory ---- */

static _Atomic size_t held;

/* The size stands in front, aligned as malloc's memory is. */
#define FRONT 16

static void *take(size_t n)
{
	char *p;

	if (n > LIMIT_DECODE_BYTES ||
	    atomic_fetch_add_explicit(&held, n, memory_order_relaxed) + n > LIMIT_DECODE_BYTES) {
		if (n <= LIMIT_DECODE_BYTES)
			atomic_fetch_sub_explicit(&held, n, memory_order_relaxed);
		return NULL;
	}
	p = malloc(n + FRONT);
	if (!p) {
		atomic_fetch_sub_explicit(&held, n, memory_order_relaxed);
		return NULL;
	}
	memcpy(p, &n, sizeof(n));
	return p + FRONT;
}

static void give_back(void *p)
{
	size_t n;

	if (!p)
		return;
	memcpy(&n, (char *)p - FRONT, sizeof(n));
	atomic_fetch_sub_explicit(&held, n, memory_order_relaxed);
	free((char *)p - FRONT);
}

static void *brotli_take(void *opaque, size_t n)
{
	(void)opaque;
	return take(n);
}

static void brotli_give_back(void *opaque, void *p)
{
	(void)opaque;
	give_back(p);
}

static void *z_take(void *opaque, unsigned items, unsigned size)
{
	void *p = take((size_t)items * size);

	(void)opaque;
	/* inflate reads no more of it than it wrote, but says so nowhere. */
	if (p)
		memset(p, 0, (size_t)items * size);
	return p;
}

static void z_give_back(void *opaque, void *p)
{
	(void)opaque;
	give_back(p);
}

static int no_memory(struct err *e)
{
	return err_reason(e, REASON_OVERLOADED, "there is no memory to decode the answer");
}

static int broken(struct err *e)
{
	return err_reason(e, REASON_CONTENT_CODING,
			  "the answer is not what its Content-Encoding says");
}

/* ---- birth and end ---- */

static void stage_clear(struct stage *s)
{
	if (s->brotli)
		BrotliDecoderDestroyInstance(s->brotli);
	if (s->z_ready)
		inflateEnd(&s->z);
	give_back(s->out);
}

void content_decoder_free(struct content_decoder *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->n; i++)
		stage_clear(&d->stages[i]);
	give_back(d->in);
	free(d);
}

static int stage_init(struct stage *s, enum coding coding, struct err *e)
{
	s->coding = coding;
	s->out = take(LIMIT_DECODE_STEP);
	if (!s->out)
		return no_memory(e);
	if (coding == CODING_BROTLI) {
		s->brotli = BrotliDecoderCreateInstance(brotli_take, brotli_give_back, NULL);
		return s->brotli ? 0 : no_memory(e);
	}
	/* Of deflate the first bytes tell which of two things it is: begin() looks. */
	s->z.zalloc = z_take;
	s->z.zfree = z_give_back;
	if (coding == CODING_DEFLATE)
		return 0;
	if (inflateInit2(&s->z, 15 + 16) != Z_OK)
		return no_memory(e);
	s->z_ready = true;
	return 0;
}

/* 1: known, in *ret; 0: identity; -1: not known. */
static int coding_of(struct str word, enum coding *ret)
{
	if (str_eq_nocase(word, STR("identity")))
		return 0;
	if (str_eq_nocase(word, STR("gzip")) || str_eq_nocase(word, STR("x-gzip")))
		*ret = CODING_GZIP;
	else if (str_eq_nocase(word, STR("deflate")))
		*ret = CODING_DEFLATE;
	else if (str_eq_nocase(word, STR("br")))
		*ret = CODING_BROTLI;
	else
		return -1;
	return 1;
}

static int unknown(struct err *e)
{
	return err_reason(e, REASON_CONTENT_CODING,
			  "the answer has a Content-Encoding that cannot be looked into");
}

/* In the order in which they were applied (RFC 9110 section 8.4). */
static int read_codings(const struct fields *f, enum coding *v, size_t *ret_n, struct err *e)
{
	for (size_t i = 0; i < f->n; i++) {
		struct str rest = f->v[i].value, one;

		if (!str_eq_nocase(f->v[i].name, STR("content-encoding")))
			continue;
		while (h1_next_element(&rest, &one)) {
			enum coding c;
			int rc = coding_of(one, &c);

			if (rc < 0 || (rc > 0 && *ret_n == LIMIT_DECODE_CODINGS))
				return unknown(e);
			if (rc > 0)
				v[(*ret_n)++] = c;
		}
	}
	return 0;
}

int content_decoder_new(const struct fields *f, struct content_decoder **ret, struct err *e)
{
	enum coding v[LIMIT_DECODE_CODINGS];
	struct content_decoder *d;
	size_t n = 0;

	*ret = NULL;
	if (read_codings(f, v, &n, e) < 0)
		return -1;
	if (n == 0)
		return 0;
	d = calloc(1, sizeof(*d));
	if (!d)
		return no_memory(e);
	d->in = take(LIMIT_DECODE_IN);
	if (!d->in)
		goto fail;
	for (size_t i = n; i-- > 0;)
		if (stage_init(&d->stages[d->n++], v[i], e) < 0) {
			content_decoder_free(d);
			return -1;
		}
	*ret = d;
	return 0;
fail:
	content_decoder_free(d);
	return no_memory(e);
}

/* ---- one stage ---- */

/* `deflate` is zlib's format (RFC 9110 section 8.4.1.2), but some send what is within it bare. */
static int begin(struct stage *s, unsigned char first)
{
	bool zlib = (first & 15) == 8 && first >> 4 <= 7;

	s->begun = true;
	if (s->coding != CODING_DEFLATE)
		return 0;
	if (inflateInit2(&s->z, zlib ? 15 : -15) != Z_OK)
		return -1;
	s->z_ready = true;
	return 0;
}

/* zlib's turn: takes of *in, writes into s->out. */
static int run_zlib(struct stage *s, const unsigned char **in, size_t *n, size_t max, struct err *e)
{
	int rc;

	s->z.next_in = (unsigned char *)(uintptr_t)*in;
	s->z.avail_in = (unsigned)*n;
	s->z.next_out = s->out;
	s->z.avail_out = (unsigned)max;
	rc = inflate(&s->z, Z_SYNC_FLUSH);
	s->out_n = max - s->z.avail_out;
	s->full = s->z.avail_out == 0;
	*in = s->z.next_in;
	*n = s->z.avail_in;
	if (rc == Z_MEM_ERROR)
		return no_memory(e);
	if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
		return broken(e);
	if (rc == Z_STREAM_END) {
		s->ended = true;
		s->full = false;
	}
	return 0;
}

static int run_brotli(struct stage *s, const unsigned char **in, size_t *n, size_t max,
		      struct err *e)
{
	unsigned char *out = s->out;
	size_t room = max;
	BrotliDecoderResult rc = BrotliDecoderDecompressStream(s->brotli, n, in, &room, &out, NULL);

	s->out_n = max - room;
	s->full = rc == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT;
	if (rc == BROTLI_DECODER_RESULT_ERROR) {
		int code = (int)BrotliDecoderGetErrorCode(s->brotli);

		return code <= BROTLI_DECODER_ERROR_ALLOC_CONTEXT_MODES &&
				       code >= BROTLI_DECODER_ERROR_ALLOC_BLOCK_TYPE_TREES
			       ? no_memory(e)
			       : broken(e);
	}
	s->ended = rc == BROTLI_DECODER_RESULT_SUCCESS;
	return 0;
}

/* Members of gzip may follow each other (RFC 1952 section 2.2); what else does is dropped. */
static int next_member(struct stage *s, const unsigned char *in, size_t n)
{
	if (s->coding != CODING_GZIP || !s->ended || n == 0 || in[0] != 0x1f)
		return 0;
	s->ended = false;
	return inflateReset(&s->z) == Z_OK ? 0 : -1;
}

static int run_stage(struct stage *s, const unsigned char **in, size_t *n, size_t max,
		     struct err *e)
{
	s->out_at = s->out_n = 0;
	if (max > LIMIT_DECODE_STEP)
		max = LIMIT_DECODE_STEP;
	if (*n > 0 && !s->begun && begin(s, (*in)[0]) < 0)
		return no_memory(e);
	if (next_member(s, *in, *n) < 0)
		return broken(e);
	if (s->ended) {
		*in += *n;
		*n = 0;
		return 0;
	}
	if (*n == 0 && !s->full)
		return 0;
	return s->coding == CODING_BROTLI ? run_brotli(s, in, n, max, e)
					  : run_zlib(s, in, n, max, e);
}

/* ---- all of them ---- */

bool content_decoder_hungry(const struct content_decoder *d)
{
	if (d->in_at < d->in_n)
		return false;
	for (size_t i = 0; i < d->n; i++)
		if (d->stages[i].full || d->stages[i].out_at < d->stages[i].out_n)
			return false;
	return true;
}

int content_decoder_feed(struct content_decoder *d, struct str in, struct err *e)
{
	if (d->in_at == d->in_n)
		d->in_at = d->in_n = 0;
	if (in.n > LIMIT_DECODE_IN - d->in_n)
		return err_reason(e, REASON_INTERNAL_ERROR, "the decoder was fed too much");
	if (in.n > 0)
		memcpy(d->in + d->in_n, in.p, in.n);
	d->in_n += in.n;
	return 0;
}

/* What stage i has to read. */
static size_t waiting(const struct content_decoder *d, size_t i)
{
	return i > 0 ? d->stages[i - 1].out_n - d->stages[i - 1].out_at : d->in_n - d->in_at;
}

/* Stage i reads of what the one before it made. */
static int run_at(struct content_decoder *d, size_t i, size_t max, struct err *e)
{
	struct stage *from = i > 0 ? &d->stages[i - 1] : NULL;
	const unsigned char *in = from ? from->out + from->out_at : d->in + d->in_at;
	size_t left = waiting(d, i), had = left;

	if (run_stage(&d->stages[i], &in, &left, max, e) < 0)
		return -1;
	if (from)
		from->out_at += had - left;
	else
		d->in_at += had - left;
	return 0;
}

/* Has the last stage make something, the stages before it as far as that takes. Ends: a round in
 * which no stage took or gave a byte is the last. */
static int make_more(struct content_decoder *d, size_t max, struct err *e)
{
	struct stage *last = &d->stages[d->n - 1];
	size_t i = d->n - 1;

	while (last->out_n == 0) {
		size_t had = waiting(d, i);

		/* Upwards to one that has something to read or to give. */
		if (had == 0 && !d->stages[i].full) {
			if (i == 0)
				break;
			i--;
			continue;
		}
		if (run_at(d, i, i == d->n - 1 ? max : LIMIT_DECODE_STEP, e) < 0)
			return -1;
		if (waiting(d, i) == had && d->stages[i].out_n == 0)
			break;
		if (i < d->n - 1 && d->stages[i].out_n > 0)
			i++;
	}
	return 0;
}

int content_decode(struct content_decoder *d, size_t max, struct str *ret, struct err *e)
{
	struct stage *s = &d->stages[d->n - 1];

	*ret = STR_NONE;
	if (max == 0)
		return 0;
	s->out_at = s->out_n = 0;
	if (make_more(d, max, e) < 0)
		return -1;
	*ret = str_from((const char *)s->out, s->out_n);
	s->out_at = s->out_n;
	return 0;
}

/* No content at all is none in any coding. */
int content_decoder_end(const struct content_decoder *d, struct err *e)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->stages[i].begun && !d->stages[i].ended)
			return err_reason(e, REASON_CONTENT_CODING,
					  "the answer ended in the middle of its coding");
	return 0;
}

/* ---- heads ---- */

void content_forget_digests(struct fields *f)
{
	(void)fields_remove(f, STR("content-md5"));
	(void)fields_remove(f, STR("digest"));
	(void)fields_remove(f, STR("content-digest"));
	(void)fields_remove(f, STR("repr-digest"));
}

int content_forget_coding(struct response *r, struct strbuf *mem)
{
	struct field *tag = NULL;

	(void)fields_remove(&r->fields, STR("content-encoding"));
	(void)fields_remove(&r->fields, STR("accept-ranges"));
	content_forget_digests(&r->fields);
	if (r->body == BODY_LENGTH)
		r->body = BODY_CHUNKED;
	r->has_content_length = false;
	for (size_t i = 0; i < r->fields.n; i++)
		if (str_eq_nocase(r->fields.v[i].name, STR("etag")))
			tag = &r->fields.v[i];
	if (!tag || tag->value.n == 0 || tag->value.p[0] != '"')
		return 0;
	strbuf_add(mem, STR("W/"));
	strbuf_add(mem, tag->value);
	tag->value = strbuf_str(mem);
	return mem->overflowed ? -1 : 0;
}
