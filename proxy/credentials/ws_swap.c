/*
 * See ws_swap.h. It reads frames as far as it must to know where text is, and judges none of them:
 * what is wrong with one is between the client and the origin.
 */
#include "proxy/credentials/ws_swap.h"

#include <string.h>

#include <openssl/crypto.h>

#define PIECE 4096 /* unmasked at a time */

enum { OPCODE_CONTINUATION = 0, OPCODE_TEXT = 1, OPCODE_CONTROL = 8 };

struct out {
	struct ws_swap *w;
	body_swap_sink *sink;
	void *arg;
};

void ws_swap_init(struct ws_swap *w, const struct needles *needles)
{
	memset(w, 0, sizeof(*w));
	body_swap_init(&w->text, needles);
}

void ws_swap_clear(struct ws_swap *w)
{
	body_swap_clear(&w->text);
}

static void apply_mask(const struct ws_swap *w, uint64_t at, struct str in, char *out)
{
	for (size_t i = 0; i < in.n; i++)
		out[i] = (char)((unsigned char)in.p[i] ^ w->mask[(at + i) % 4]);
}

/* Text, masked again on its way. */
static void give_text(void *arg, struct str data)
{
	struct out *o = arg;
	char mem[PIECE];

	while (data.n > 0) {
		struct str now = str_head(data, sizeof(mem));

		apply_mask(o->w, o->w->given, now, mem);
		o->sink(o->arg, str_from(mem, now.n));
		OPENSSL_cleanse(mem, now.n);
		o->w->given += now.n;
		data = str_skip(data, now.n);
	}
}

/* How long the head is, as far as what is there says. */
static size_t head_length(const struct ws_swap *w)
{
	unsigned length = w->head_n > 1 ? w->head[1] & 127 : 0;

	if (w->head_n < 2)
		return 2;
	return 2 + (length == 127 ? 8 : length == 126 ? 2 : 0) + (w->head[1] & 128 ? 4 : 0);
}

static void begin_frame(struct ws_swap *w)
{
	unsigned opcode = w->head[0] & 15, at = 2, extra;
	bool compressed = (w->head[0] & 0x70) != 0;

	extra = (w->head[1] & 127) == 127 ? 8 : (w->head[1] & 127) == 126 ? 2 : 0;
	w->left = extra ? 0 : w->head[1] & 127;
	for (; extra > 0; extra--)
		w->left = w->left << 8 | w->head[at++];
	memset(w->mask, 0, sizeof(w->mask));
	if (w->head[1] & 128)
		memcpy(w->mask, w->head + at, sizeof(w->mask));
	w->given = 0;
	w->in_payload = true;
	w->is_sought = false;
	if (opcode >= OPCODE_CONTROL)
		return;
	if (opcode != OPCODE_CONTINUATION) {
		w->is_text = opcode == OPCODE_TEXT && !compressed;
		w->message = 0;
	}
	w->is_sought = w->is_text;
	w->text.at = w->message;
}

static int feed_text(struct ws_swap *w, struct str part, struct out *o, struct err *e)
{
	char mem[PIECE];
	uint64_t at = w->given + w->text.kept_n;

	while (part.n > 0) {
		struct str now = str_head(part, sizeof(mem));

		apply_mask(w, at, now, mem);
		if (body_swap_feed(&w->text, str_from(mem, now.n), give_text, o, e) < 0)
			return -1;
		at += now.n;
		part = str_skip(part, now.n);
	}
	return 0;
}

static void end_frame(struct ws_swap *w, struct out *o)
{
	if (w->is_sought) {
		body_swap_end(&w->text, give_text, o);
		w->message += w->given;
	}
	w->in_payload = false;
	w->head_n = 0;
}

int ws_swap_feed(struct ws_swap *w, struct str data, body_swap_sink *sink, void *arg, struct err *e)
{
	struct out o = {w, sink, arg};

	while (data.n > 0 || (w->in_payload && w->left == 0)) {
		struct str part;

		if (w->in_payload && w->left == 0) {
			end_frame(w, &o);
			continue;
		}
		if (!w->in_payload) {
			w->head[w->head_n++] = (unsigned char)data.p[0];
			data = str_skip(data, 1);
			if (w->head_n == head_length(w)) {
				sink(arg, str_from(w->head, w->head_n));
				begin_frame(w);
			}
			continue;
		}
		part = str_head(data, w->left < data.n ? (size_t)w->left : data.n);
		if (!w->is_sought)
			sink(arg, part);
		else if (feed_text(w, part, &o, e) < 0)
			return -1;
		w->left -= part.n;
		data = str_skip(data, part.n);
	}
	return 0;
}

void ws_swap_end(struct ws_swap *w, body_swap_sink *sink, void *arg)
{
	struct out o = {w, sink, arg};

	if (w->in_payload && w->is_sought)
		body_swap_end(&w->text, give_text, &o);
	else if (!w->in_payload && w->head_n > 0)
		sink(arg, str_from(w->head, w->head_n));
}
