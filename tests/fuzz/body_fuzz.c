/*
 * Message bodies: body_read, body_eof, body_chunk_head, body_chunk_end. The first byte of the input
 * is the kind (c: chunked, l: a length, in the next byte, e: until the end); the rest is the body.
 * - Any cut of the bytes gives the same data, the same verdict, the same count of bytes consumed
 *   (unless the body is refused) and the same trailers.
 * - Never more data than bytes; exactly the length where there is one.
 * - The end of the connection is the end of the body only where it may be.
 * - No trailer frames or routes the message.
 * - Data and trailers, written as chunks of any sizes, read back the same.
 */
#include "logging/limits.h"
#include "proxy/http/body.h"
#include "proxy/http/field_kind.h"
#include "tests/fuzz/fuzz.h"

struct outcome {
	struct body_reader reader;
	struct strbuf data;
	size_t consumed;
	int rc;
};

/* Reads `in` as it arrives, each piece together with what was left over, in memory of its own. */
static void read_pieces(struct str in, enum body_kind kind, uint64_t length, struct fuzz_random *r,
			struct outcome *o)
{
	struct err e = ERR_INIT;
	size_t have = 0;

	*o = (struct outcome){0};
	body_reader_init(&o->reader, kind, length);
	strbuf_init(&o->data, in.n + 1);
	while (o->rc == 0 && have < in.n && !o->reader.done) {
		size_t used = 1;

		have = r ? have + fuzz_piece(r, in.n - have) : in.n;
		while (o->rc == 0 && used > 0 && !o->reader.done) {
			struct str seen = str_from(in.p + o->consumed, have - o->consumed), data;
			char *copy = fuzz_copy(seen);

			o->rc = body_read(&o->reader, str_from(copy, seen.n), &used, &data, &e);
			CHECK(used <= seen.n && data.n <= used);
			strbuf_add(&o->data, data);
			o->consumed += used;
			free(copy);
		}
	}
	if (o->rc < 0) {
		fuzz_check_err(&e);
		CHECK(e.reason != REASON_NONE);
	}
	CHECK(!o->data.overflowed);
	CHECK(o->reader.data_bytes == o->data.len);
}

static void outcome_clear(struct outcome *o)
{
	body_reader_clear(&o->reader);
	strbuf_clear(&o->data);
}

static void check_trailers(const struct fields *a, const struct fields *b)
{
	CHECK(a->n == b->n);
	for (size_t i = 0; i < a->n; i++) {
		CHECK(str_eq(a->v[i].name, b->v[i].name));
		CHECK(str_eq(a->v[i].value, b->v[i].value));
		CHECK(field_may_trail(a->v[i].name));
	}
}

static void check_cuts(struct str in, enum body_kind kind, uint64_t length, struct fuzz_random *r,
		       const struct outcome *whole)
{
	for (int way = 0; way < 2; way++) {
		struct outcome cut;

		read_pieces(in, kind, length, r, &cut);
		CHECK(cut.rc == whole->rc);
		CHECK(cut.reader.done == whole->reader.done);
		/* Where a broken body was given up is nobody's business. */
		CHECK(cut.rc < 0 || cut.consumed == whole->consumed);
		fuzz_check_same(&whole->data, &cut.data);
		check_trailers(&whole->reader.trailers, &cut.reader.trailers);
		outcome_clear(&cut);
	}
}

static void check_written(const struct outcome *o, struct fuzz_random *r)
{
	struct str rest = strbuf_str(&o->data);
	struct strbuf out;
	struct outcome again;
	char head[BODY_CHUNK_HEAD_MAX];
	size_t end;

	strbuf_init(&out, 8 * rest.n + 2 * LIMIT_TRAILER_BYTES);
	while (rest.n > 0) {
		size_t n = fuzz_piece(r, rest.n);

		strbuf_add(&out, str_from(head, body_chunk_head(n, head)));
		strbuf_add(&out, str_head(rest, n));
		strbuf_add(&out, STR("\r\n"));
		rest = str_skip(rest, n);
	}
	end = out.len;
	body_chunk_end(&o->reader.trailers, &out);
	CHECK(!out.overflowed);
	/* A blank behind each colon may be more than came in. */
	if (out.len - end < LIMIT_TRAILER_BYTES) {
		read_pieces(strbuf_str(&out), BODY_CHUNKED, 0, NULL, &again);
		CHECK(again.rc == 0 && again.reader.done && again.consumed == out.len);
		fuzz_check_same(&o->data, &again.data);
		check_trailers(&o->reader.trailers, &again.reader.trailers);
		outcome_clear(&again);
	}
	strbuf_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_random r = fuzz_random(data, size);
	struct str in = str_from(data, size);
	struct err e = ERR_INIT;
	enum body_kind kind = BODY_CHUNKED;
	uint64_t length = 0;
	struct outcome o;
	bool done;

	switch (fuzz_u8(&in)) {
	case 'l':
		kind = BODY_LENGTH;
		length = fuzz_u8(&in);
		break;
	case 'e': kind = BODY_CLOSE; break;
	case 'n': kind = BODY_NONE; break;
	default: break;
	}
	read_pieces(in, kind, length, NULL, &o);
	check_cuts(in, kind, length, &r, &o);
	done = o.reader.done;
	if (kind == BODY_LENGTH)
		CHECK(o.rc == 0 && o.data.len == (in.n < length ? in.n : length) &&
		      done == (in.n >= length));
	if (kind == BODY_CLOSE)
		CHECK(o.rc == 0 && o.data.len == in.n && !done);
	if (kind == BODY_NONE)
		CHECK(o.rc == 0 && o.consumed == 0 && done);
	CHECK(!done || o.rc == 0);
	if (done)
		check_written(&o, &r);
	CHECK((body_eof(&o.reader, &e) == 0) == (done || kind == BODY_CLOSE));
	outcome_clear(&o);
	return 0;
}
