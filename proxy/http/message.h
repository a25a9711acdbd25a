/*
 * The canonical request and response: what every wire format is read into and written from. Fields
 * that belong to one hop (RFC 9110 section 7.6.1) are not in here: framing, connection and upgrade
 * are members, and each side writes its own.
 */
#ifndef STILE_PROXY_HTTP_MESSAGE_H
#define STILE_PROXY_HTTP_MESSAGE_H

#include "policy/url.h"

enum http_version { HTTP_VERSION_NONE, HTTP_10, HTTP_11, HTTP_2 };

struct field {
	struct str name, value; /* value without surrounding OWS */
};

struct fields {
	/* owned, unless lent */
	struct field *v; /* slices point into the message's mem, or are static */
	/* plain */
	size_t n, cap;
	bool lent; /* v lies in the message's mem */
};

enum body_kind {
	BODY_NONE,
	BODY_LENGTH,  /* exactly `length` bytes; may be 0 where the message said so */
	BODY_CHUNKED, /* unknown length with an end */
	BODY_CLOSE,   /* responses only: until the connection ends */
};

enum target_form { TARGET_ORIGIN, TARGET_ABSOLUTE, TARGET_AUTHORITY };

struct request {
	/* owned */
	char *mem;    /* the head's bytes; slices below point here */
	char *joined; /* the same of a field that came in pieces */
	struct fields fields;
	/* plain */
	enum http_version version;
	enum target_form form;
	struct str method;
	enum body_kind body;
	uint64_t length;
	bool spare;	 /* mem is one that message_new_mem keeps */
	bool keep_alive; /* the client wants the connection kept */
	bool expect_continue;
	bool te_trailers;
	struct str upgrade; /* the Upgrade value when Connection names it; empty: none */
	/* It asks to become a WebSocket and nothing else (websocket.h). In HTTP/2 it came as an
	 * extended CONNECT, and is a GET here as in HTTP/1; the key is then the caller's to add. */
	bool websocket;
	struct str accept;     /* for the form of our own answers */
	struct str raw_target; /* as it came, for the record of a request that could not be read */
	struct str raw_host;
	/* Proxy-Authorization, for finding out who is calling; never forwarded. Empty when it is
	 * missing or stands there more than once: so often. */
	struct str proxy_authorization;
	unsigned n_proxy_authorization;
	/* owned; last, as request_init leaves out the name at its end */
	struct url url; /* CONNECT: host and port alone */
};

struct response {
	/* owned */
	char *mem;
	struct fields fields;
	/* plain */
	enum http_version version;
	unsigned status;
	struct str reason;
	enum body_kind body;
	uint64_t length;	 /* BODY_LENGTH */
	bool has_content_length; /* for HEAD and 304: `content_length` is told on, no body follows
				  */
	uint64_t content_length;
	bool spare;	 /* as of a request */
	bool keep_alive; /* the origin's connection may be used again */
	uint32_t idle_s; /* the origin closes it when it has idled so long; 0: it does not say */
	/* Of a 101. In HTTP/2 it came as the 200 of an extended CONNECT, and is a 101 here too. */
	struct str upgrade;
};

void request_init(struct request *r);
void request_clear(struct request *r);
void response_init(struct response *r);
void response_clear(struct response *r);

/* Memory for a message with room for `bytes` bytes, which *ret_bytes points to; f, which must be
 * empty, begins with it. The message owns it as its mem. *ret_spare: whether the message is gone
 * soon. Then it has room for as many fields as most heads have, and may come from what the thread
 * keeps for heads of usual size, in blocks larger than most need; afterwards *ret_spare says
 * whether it did, and goes back there. NULL when memory is out. */
char *message_new_mem(size_t bytes, struct fields *f, char **ret_bytes,
		      bool *ret_spare) ATTR_NODISCARD;
/* Frees what the calling thread has kept. */
void message_free_spares(void);

/* -1 when memory is out or LIMIT_HEAD_FIELDS is reached. */
static inline int fields_add(struct fields *f, struct str name, struct str value) ATTR_NODISCARD;
/* The first of that name (ASCII case folded), or NULL. */
const struct field *fields_get(const struct fields *f, struct str name);
/* Removes all of that name; how many there were. */
size_t fields_remove(struct fields *f, struct str name);
void fields_clear(struct fields *f);

/* Has it content where many servers expect none and read none, so that they take it for the next
 * request? Then no next request may follow. */
bool request_has_odd_body(const struct request *r);

/* Does it say that git asks? Two things are done otherwise for it, none of them a decision: the
 * form of our own answers, and which HTTP it is offered. */
bool request_is_git(const struct request *r);

/* For fields_add alone. */
int fields_grow(struct fields *f) ATTR_NODISCARD;
static inline int fields_add(struct fields *f, struct str name, struct str value)
{
	if (f->n == f->cap && fields_grow(f) < 0)
		return -1;
	f->v[f->n++] = (struct field){name, value};
	return 0;
}

bool method_is_safe(struct str method);	      /* RFC 9110 section 9.2.1 */
bool method_is_idempotent(struct str method); /* section 9.2.2 */

/* The origin-form target of u with `extra` ("key=value", may be empty) behind its query. */
void request_add_target(const struct url *u, struct str extra, struct strbuf *out);

#endif
