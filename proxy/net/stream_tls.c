/*
 * The same stream through OpenSSL. A BIO of our own stands between it and the socket: it feeds
 * bytes that were looked at before TLS began, remembers a short read so that no second one is made,
 * and gathers records in the stream's output so that they leave in one call.
 */
#include <errno.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proxy/net/stream_internal.h"

/* Small records first, so that the other side can act on the first bytes; whole ones in bulk. */
#define BURST_SMALL_BYTES  32768
#define BURST_RECORD_BYTES 4096
#define BURST_IDLE_US	   1000000

#define MESSAGE_COST_US (1000000 / LIMIT_TLS_MESSAGES_PER_S)

static BIO_METHOD *bio_method, *nested_method;
static pthread_once_t bio_once = PTHREAD_ONCE_INIT;

/* Why we end what OpenSSL would go on with. Its queue has the words then, for whoever asks. */
enum refusal {
	FLOODED = 1,
	RENEGOTIATED,
};
static int error_lib;
static ERR_STRING_DATA error_words[] = {
	{ERR_PACK(0, 0, FLOODED), "too many TLS messages that are no data"},
	{ERR_PACK(0, 0, RENEGOTIATED), "a new handshake within the old one"},
	{0, NULL},
};

static int take_pre(struct stream *s, char *buf, size_t n)
{
	size_t have = s->pre_end - s->pre_start;

	if (n > have)
		n = have;
	memcpy(buf, s->pre + s->pre_start, n);
	s->pre_start += n;
	if (s->pre_start == s->pre_end) {
		free(s->pre);
		s->pre = NULL;
		s->pre_start = s->pre_end = 0;
	}
	return (int)n;
}

static int bio_read(BIO *b, char *buf, int size)
{
	struct stream *s = BIO_get_data(b);
	ssize_t n;

	BIO_clear_retry_flags(b);
	if (size <= 0)
		return 0;
	if (s->pre && !s->outer)
		return take_pre(s, buf, (size_t)size);
	if (s->socket_eof)
		return 0;
	/* OpenSSL reads on for as long as nothing of it is data, and we for as long as there is
	 * room for data; the peer may be faster, and say little with much. What is left tells of
	 * itself with an event. */
	if ((s->socket_empty && !s->write_failed) || s->turn_bytes >= LIMIT_TLS_TURN) {
		BIO_set_retry_read(b);
		return -1;
	}
	do
		n = recv(s->fd, buf, (size_t)size, 0);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		s->socket_empty = n < size;
		s->turn_bytes += (uint32_t)n;
		return (int)n;
	}
	if (n == 0) {
		s->socket_eof = true;
		return 0;
	}
	if ((errno == EAGAIN || errno == EWOULDBLOCK) && !s->write_failed) {
		s->socket_empty = true;
		BIO_set_retry_read(b);
	} else {
		s->socket_eof = true;
	}
	return -1;
}

static int bio_write(BIO *b, const char *buf, int n)
{
	struct stream *s = BIO_get_data(b);

	BIO_clear_retry_flags(b);
	if (n <= 0 || s->write_failed)
		return n; /* dropped: the read side says how the connection ended */
	if (s->last_bytes > 0 && (size_t)n > s->last_bytes) {
		s->last_bytes = 0;
		return stream_out_last(s, buf, (size_t)n) < 0 ? -1 : n;
	}
	return stream_out_add(s, buf, (size_t)n) < 0 ? -1 : n;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
	struct stream *s = BIO_get_data(b);

	(void)num;
	(void)ptr;
	if (cmd == BIO_CTRL_FLUSH)
		return 1;
	if (cmd == BIO_CTRL_EOF)
		return s->socket_eof;
	return 0;
}

/* The same two for TLS within TLS. An end of the outer one, however it came, is to the inner one an
 * end of the connection. */
static int nested_read(BIO *b, char *buf, int size)
{
	struct stream *s = BIO_get_data(b);
	size_t got = 0;
	int r;

	BIO_clear_retry_flags(b);
	if (size <= 0)
		return 0;
	if (s->pre)
		return take_pre(s, buf, (size_t)size);
	r = SSL_read_ex(s->outer, buf, (size_t)size, &got);
	if (r == 1)
		return (int)got;
	switch (SSL_get_error(s->outer, r)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE: BIO_set_retry_read(b); return -1;
	case SSL_ERROR_ZERO_RETURN: s->socket_eof = true; return 0;
	default: s->socket_eof = true; return -1;
	}
}

static int nested_write(BIO *b, const char *buf, int n)
{
	struct stream *s = BIO_get_data(b);
	size_t written = 0;

	BIO_clear_retry_flags(b);
	if (n <= 0 || s->write_failed)
		return n;
	return SSL_write_ex(s->outer, buf, (size_t)n, &written) == 1 ? (int)written : -1;
}

static BIO_METHOD *make_method(const char *name, int (*do_read)(BIO *, char *, int),
			       int (*do_write)(BIO *, const char *, int))
{
	BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, name);

	if (m) {
		BIO_meth_set_read(m, do_read);
		BIO_meth_set_write(m, do_write);
		BIO_meth_set_ctrl(m, bio_ctrl);
	}
	return m;
}

static void make_methods(void)
{
	error_lib = ERR_get_next_error_library();
	ERR_load_strings(error_lib, error_words);
	bio_method = make_method("stream", bio_read, bio_write);
	nested_method = make_method("stream within TLS", nested_read, nested_write);
}

/* One more message or alert of TLS's own. False: it is one too many. */
static bool take_message(struct stream *s)
{
	int64_t now = loop_now_us(s->loop);

	if (s->messages_at_us < now)
		s->messages_at_us = now;
	s->messages_at_us += MESSAGE_COST_US;
	return s->messages_at_us - now <= (int64_t)LIMIT_TLS_MESSAGES * MESSAGE_COST_US;
}

/* OpenSSL calls it for each step of a handshake and each alert, and for no record of data. A
 * message that comes when TLS is up is a handshake to it, of which this is the end. */
static void on_step(const SSL *ssl, int where, int what)
{
	struct stream *s = BIO_get_data(SSL_get_rbio(ssl));
	bool is_message = (where & SSL_CB_EXIT) && what == 1;

	if (where == SSL_CB_HANDSHAKE_START && SSL_is_server(ssl) &&
	    SSL_get_state(ssl) == TLS_ST_OK)
		/* TLS 1.2. It would be turned down, but read first: a length is enough for OpenSSL
		 * to have 128 KiB ready. */
		s->tls_refused = RENEGOTIATED;
	else if ((is_message || where == SSL_CB_READ_ALERT) && !take_message(s))
		s->tls_refused = FLOODED;
	else
		return;
	/* Not a record more is looked at, of those that OpenSSL has got already either. */
	SSL_set_shutdown(ssl == s->outer ? s->outer : s->ssl, SSL_RECEIVED_SHUTDOWN);
}

int stream_start_tls(struct stream *s, SSL *ssl, struct err *e)
{
	size_t n = s->in_end - s->in_start;
	BIO *b;

	pthread_once(&bio_once, make_methods);
	b = bio_method && nested_method && !s->outer ? BIO_new(s->ssl ? nested_method : bio_method)
						     : NULL;
	if (n > 0)
		s->pre = malloc(n);
	if (!b || (n > 0 && !s->pre)) {
		BIO_free(b);
		SSL_free(ssl);
		return err_set(e, "out of memory");
	}
	if (n > 0) {
		memcpy(s->pre, s->in + s->in_start, n);
		s->pre_end = n;
		stream_consume(s, n);
	}
	BIO_set_data(b, s);
	BIO_set_init(b, 1);
	SSL_set_bio(ssl, b, b);
	SSL_set_info_callback(ssl, on_step);
	s->outer = s->ssl;
	s->ssl = ssl;
	s->handshaking = true;
	s->tls_up = false;
	s->bytes_in = s->bytes_out = 0;
	s->messages_at_us = 0;
	stream_schedule(s);
	return 0;
}

/* OpenSSL's queue is left as it is: the owner asks certs/ for the words within the callback. */
static unsigned tls_failed(struct stream *s, const char *what)
{
	s->error_is_tls = true;
	if (s->tls_refused) {
		what = error_words[s->tls_refused - 1].string;
		ERR_clear_error();
		ERR_raise(error_lib, s->tls_refused);
	}
	if (!s->failed)
		stream_fail_text(s, what);
	s->corked = false;
	stream_flush(s); /* an alert may be waiting */
	return STREAM_ERROR;
}

/* OpenSSL tells by its queue how a call ended, so that must be empty before. It nearly always is,
 * and to look is cheaper than to clear. */
static void clear_errors(void)
{
	if (ERR_peek_error() != 0)
		ERR_clear_error();
}

unsigned stream_tls_handshake(struct stream *s)
{
	int r;

	s->turn_bytes = 0;
	clear_errors();
	r = SSL_do_handshake(s->ssl);
	if (r == 1) {
		s->handshaking = false;
		s->tls_up = s->tls_more = true;
		stream_flush(s);
		return STREAM_HANDSHAKED;
	}
	switch (SSL_get_error(s->ssl, r)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE: stream_flush(s); return 0;
	default:
		return tls_failed(s, s->socket_eof ? "the connection ended within the TLS handshake"
						   : "the TLS handshake failed");
	}
}

/* Does OpenSSL, or what it reads from, hold bytes that need no event of the socket? */
static bool holds_bytes(const struct stream *s)
{
	return s->pre || SSL_has_pending(s->ssl) || (s->outer && SSL_has_pending(s->outer));
}

unsigned stream_tls_read(struct stream *s)
{
	unsigned events = 0;

	s->tls_more = true;
	s->turn_bytes = 0;
	while (!s->failed) {
		size_t room, got = 0;
		unsigned char *at;
		int r;

		/* The first read gets the lent buffer, the next ones its rest. */
		if (s->in_lent && s->in_end < s->in_cap) {
			at = s->in + s->in_end;
			room = s->in_cap - s->in_end;
		} else if (events && s->in_lent) {
			break; /* full: deliver first */
		} else {
			at = stream_in_space(s, &room);
		}
		if (!at)
			break;
		clear_errors();
		r = SSL_read_ex(s->ssl, at, room, &got);
		if (r == 1) {
			s->in_end += got;
			s->bytes_in += got;
			s->turn_bytes -= got < s->turn_bytes ? (uint32_t)got : s->turn_bytes;
			events |= STREAM_DATA;
			s->tls_more = !s->socket_empty || holds_bytes(s);
			if (!s->tls_more)
				break; /* another read would hear just that */
			continue;
		}
		switch (SSL_get_error(s->ssl, r)) {
		case SSL_ERROR_WANT_READ:
		case SSL_ERROR_WANT_WRITE: s->tls_more = false; break;
		case SSL_ERROR_ZERO_RETURN:
			if (s->tls_refused)
				break;
			s->eof = true;
			events |= STREAM_EOF;
			break;
		default:
			events |=
				tls_failed(s, s->socket_eof
						      ? "the connection ended without close_notify"
						      : "TLS failed while reading");
			break;
		}
		break;
	}
	if (s->tls_refused && !s->failed)
		events |= tls_failed(s, NULL);
	else if (s->failed)
		events |= STREAM_ERROR;
	else if (stream_pending(s) > 0 && !s->corked)
		stream_flush(s); /* tickets, key updates */
	return events;
}

static size_t record_size(const struct stream *s)
{
	return s->burst_bytes < BURST_SMALL_BYTES ? BURST_RECORD_BYTES : LOOP_GATHER_BYTES;
}

/* An idle flow starts with small records again. */
static void note_burst(struct stream *s)
{
	int64_t now = loop_now_us(s->loop);

	if (now - s->burst_at_us > BURST_IDLE_US)
		s->burst_bytes = 0;
	s->burst_at_us = now;
}

/* With SSL_MODE_ENABLE_PARTIAL_WRITE a call makes one record, and that may be shorter than n: the
 * client asks for it (RFC 6066 section 4). */
static int write_record(struct stream *s, const unsigned char *p, size_t n)
{
	while (n > 0) {
		size_t written;

		if (SSL_write_ex(s->ssl, p, n, &written) != 1) {
			/* Mostly it has: there is no room or no memory for a record. */
			if (!s->failed) {
				stream_fail_text(s, "TLS failed while writing");
				s->error_is_tls = true;
			}
			stream_schedule(s);
			return -1;
		}
		s->burst_bytes += s->burst_bytes < BURST_SMALL_BYTES ? (uint32_t)written : 0;
		s->bytes_out += written;
		p += written;
		n -= written;
	}
	return 0;
}

/* What ends a write goes to the kernel out of OpenSSL's own buffer, if it is one record. */
static int write_last(struct stream *s, const unsigned char *p, size_t n, bool flush)
{
	int r;

	s->last_bytes = flush && !s->outer ? n : 0;
	s->took_less = false;
	r = write_record(s, p, n);
	s->last_bytes = 0;
	if (r == 0 && flush && !s->took_less)
		stream_flush(s); /* nothing is left, but where it were more records */
	return r;
}

/* What goes to an origin may hold a credential, of which the loop's buffer keeps no copy. */
static int write_gathered(struct stream *s, unsigned char *gather, size_t n, bool flush)
{
	int r = write_last(s, gather, n, flush);

	if (!SSL_is_server(s->ssl))
		OPENSSL_cleanse(gather, n);
	return r;
}

void stream_tls_writev(struct stream *s, const struct iovec *iov, int n)
{
	unsigned char *gather = loop_buffers(s->loop)->gather;
	size_t held = 0;
	bool flush = !s->corked && stream_pending(s) == 0;

	note_burst(s);
	while (n > 0 && iov[n - 1].iov_len == 0)
		n--;
	for (int i = 0; i < n; i++) {
		const unsigned char *p = iov[i].iov_base;
		size_t left = iov[i].iov_len;

		while (left > 0) {
			size_t max = record_size(s);
			size_t take = max - held < left ? max - held : left;
			bool last = i == n - 1 && take == left;

			if (held == 0 && (take == max || i == n - 1)) {
				/* a whole record in one piece: no copy */
				if (write_last(s, p, take, flush && last) < 0)
					return;
			} else {
				memcpy(gather + held, p, take);
				held += take;
				if (held == max || last) {
					if (write_gathered(s, gather, held, flush && last) < 0)
						return;
					held = 0;
				}
			}
			p += take;
			left -= take;
		}
	}
}

void stream_tls_close_notify(struct stream *s)
{
	ERR_clear_error();
	SSL_shutdown(s->ssl); /* appends the alert to out */
	if (s->outer)
		SSL_shutdown(s->outer);
	ERR_clear_error();
}

bool stream_tls_has_pending(const struct stream *s)
{
	return s->tls_up && s->tls_more && holds_bytes(s);
}
