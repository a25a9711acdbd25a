/*
 * Every numeric limit of the program, by name. A number that bounds what a peer can make stile
 * hold, wait for or do belongs here and nowhere else. Sizes are bytes, times milliseconds unless
 * the name says otherwise. Those that an admin may change are defaults of `limits:` in the YAML
 * (policy/config.h).
 */
#ifndef STILE_LOGGING_LIMITS_H
#define STILE_LOGGING_LIMITS_H

/* HTTP/1 heads (431 and 414 beyond these). */
#define LIMIT_HEAD_BYTES	65536
#define LIMIT_HEAD_FIELDS	256
#define LIMIT_FIELD_NAME_BYTES	256
#define LIMIT_TARGET_BYTES	16384
#define LIMIT_METHOD_BYTES	32
#define LIMIT_INTERIM_RESPONSES 64
#define LIMIT_CHUNK_LINE_BYTES	4096  /* a chunk-size line with its extensions */
#define LIMIT_CHUNK_EXT_BYTES	16384 /* extension bytes in one body */
#define LIMIT_TRAILER_BYTES	16384
#define LIMIT_CHUNK_OVERHEAD	65536 /* framing bytes beyond the data allowance, see body.h */
#define LIMIT_EMPTY_LINES	4     /* blank lines forgiven before a request line */

/* HTTP/2, for each connection. A rate has its burst beside it; beyond, the connection ends. */
#define LIMIT_H2_STREAMS 100 /* at a time, either side */
/* On a connection to an origin whose SETTINGS did not come yet: the others wait in the session. Who
 * sends more than the origin takes may lose the connection. */
#define LIMIT_H2_STREAMS_UNTOLD	  1
#define LIMIT_H2_STREAM_WINDOW	  131072  /* what a peer may send on a stream before it is taken */
#define LIMIT_H2_CONN_WINDOW	  1048576 /* and on all streams together */
#define LIMIT_H2_STREAM_OUT_BYTES 131072  /* waiting for the peer's window, on a stream */
#define LIMIT_H2_CONN_OUT_BYTES	  1048576 /* and on all, but for the next one's */
#define LIMIT_H2_STREAM_OUT_MIN	  32768	  /* a stream with nothing waiting always gets so much */
#define LIMIT_H2_HEAD_DECODED	  (4 * LIMIT_HEAD_BYTES) /* HPACK may unfold a head to so much */
#define LIMIT_H2_CONTINUATIONS	  8			 /* in one head */
#define LIMIT_H2_SETTINGS	  32			 /* entries in one frame */
#define LIMIT_H2_RESETS		  200 /* streams that the client resets, or makes us reset */
#define LIMIT_H2_RESETS_PER_S	  20
#define LIMIT_H2_CONTROL	  500 /* PING, SETTINGS, PRIORITY, unknown types, empty DATA, ... */
#define LIMIT_H2_CONTROL_PER_S	  50
#define LIMIT_H2_WINDOWS	  1000 /* WINDOW_UPDATE, beyond those that data pays for: */
#define LIMIT_H2_WINDOWS_PER_DATA 16   /* for each DATA frame that was sent */
#define LIMIT_H2_WINDOWS_PER_S	  100
#define LIMIT_H2_DATA_CUT	  256 /* a DATA frame cut shorter by the peer's window pays nothing */
#define LIMIT_H2_PADDING	  65536 /* bytes of padding ahead of the data that pays for it: */
#define LIMIT_H2_PADDING_PER_BYTE 8	/* for each byte of DATA */
#define LIMIT_H2_STRAY		  65536 /* of frames for streams that are over, with nothing reset */
#define LIMIT_MS_H2_STALL	  30000 /* an answer is whole and the client takes none of it */
#define LIMIT_MS_H2_REFUSED	  1000 /* an origin's connection that refused a stream gets no other */
#define LIMIT_H2_RETRY_BODY	  65536 /* of a request's body, kept until the origin answers */
#define LIMIT_MS_H2_TICK	  2000	/* how often that is looked at while there are streams */
#define LIMIT_H2_LATE_FRAME_BYTES 1024	/* what a frame counts at least, of LIMIT_LINGER_BYTES */
/* Requests that wait for what another one's TLS settles on, instead of dialling for themselves. */
#define LIMIT_MS_SHARE_UNKNOWN 250    /* of an origin of which nothing is known */
#define LIMIT_MS_SHARE	       1000   /* of one that spoke HTTP/2 not long ago: */
#define LIMIT_MS_SHARE_KNOWN   600000 /* so long */

/* Content codings of answers that are looked into. Nothing is bounded by how far bytes unfold,
 * since an image full of zeros is a thousand times its coding, but by what a step gives and a
 * client takes. */
#define LIMIT_DECODE_CODINGS 3	       /* on top of each other */
#define LIMIT_DECODE_IN	     65536     /* coded bytes that wait */
#define LIMIT_DECODE_STEP    16384     /* bytes that one step makes of them */
#define LIMIT_DECODE_TURN    32768     /* and an exchange, before others have their turn */
#define LIMIT_DECODE_BYTES   268435456 /* memory for it, of the whole process */

/* Names and URLs. */
#define LIMIT_HOST_BYTES  253
#define LIMIT_LABEL_BYTES 63
#define LIMIT_URL_BYTES	  (LIMIT_TARGET_BYTES + LIMIT_HOST_BYTES + 64)
/* Deny rules: how often a path is decoded, and the room for all its forms. Beyond: it is denied. */
#define LIMIT_PATH_DECODES     4
#define LIMIT_PATH_FORMS_BYTES (16 * LIMIT_TARGET_BYTES)
#define LIMIT_PATH_SEGMENTS    512   /* of one of them */
#define LIMIT_PATH_TEXTS       16384 /* of segments that differ, in all of them */
/* Texts and places that a decision compares for patterns, and more for each pattern. Beyond: a deny
 * matches and an allow does not. */
#define LIMIT_PATH_STEPS	  250000 /* a millisecond */
#define LIMIT_PATH_STEPS_PER_RULE 256
/* Other methods and targets that a request's fields may ask for: the rules are asked about each. */
#define LIMIT_OVERRIDES 16

/* TLS. */
#define LIMIT_CLIENTHELLO_BYTES 16384
#define LIMIT_LEAF_CACHE	1024
/* The certificates that an origin shows: each costs 0.1 ms to read, and all are read in one turn.
 */
#define LIMIT_CHAIN_BYTES 65536
#define LIMIT_EXPLAINED_PER_SEC                                                                    \
	64 /* CONNECTs refused within TLS, a worker, at 1.4 ms of CPU; then at once */
#define LIMIT_SESSION_CACHE 1024 /* upstream TLS sessions kept, one a destination */
/* One of them, its ticket and the origin's certificates together; a larger one is not kept. */
#define LIMIT_SESSION_BYTES	  32768
#define LIMIT_SESSION_CERTIFICATE 2048 /* what a certificate is in memory, besides its bytes */
/* Of TLS's own, on a connection that is up: handshake messages and alerts, of which a peer has need
 * of a few (tickets, new keys). A rate with its burst; beyond, the connection ends. */
#define LIMIT_TLS_MESSAGES	 100
#define LIMIT_TLS_MESSAGES_PER_S 10
/* Bytes of a connection that are no data, before others have their turn. */
#define LIMIT_TLS_TURN	  32768
#define LIMIT_LEAF_BLANKS 4 /* certificates with their key set, ahead of a new host */
#define LIMIT_LEAF_DAYS	  7
#define LIMIT_CA_DAYS	  825
#define LIMIT_CA_RUN_DAYS 30

/* Buffers of one connection side. A direction never holds more than its own. */
#define LIMIT_STREAM_IN_BYTES  (LIMIT_HEAD_BYTES + 1024)
#define LIMIT_STREAM_OUT_BYTES 131072
#define LIMIT_READ_CHUNK       65536
#define LIMIT_PIPE_BYTES       262144 /* one splice pipe; only while bytes move */

/* Connections. */
#define LIMIT_CONNECTIONS	   16384 /* per listener */
#define LIMIT_CONNECTIONS_PER_ADDR 8192	 /* per client address and listener */
#define LIMIT_POOL_IDLE		   1024	 /* idle upstream connections per worker */
#define LIMIT_POOL_IDLE_PER_ORIGIN 512	 /* a burst of HTTP/2 streams to an HTTP/1.1 origin */
#define LIMIT_DESCRIPTOR_RESERVE   16
#define LIMIT_POLL_FAILURES	   50  /* of poll(2) in a row, LIMIT_MS_ACCEPT_PAUSE apart */
#define LIMIT_GRAVES_RESERVED	   256 /* objects that end in one turn without memory for it */
#define LIMIT_WORKERS		   64
#define LIMIT_ACCEPT_BATCH	   64

/* Timers, one for each state that waits. */
#define LIMIT_MS_HEAD		 15000 /* from the first byte of a head to its end */
#define LIMIT_MS_CLIENT_IDLE	 60000 /* a kept connection without a request */
#define LIMIT_MS_FIRST_REQUEST	 30000 /* a new connection without a byte */
#define LIMIT_MS_PEEK		 10000 /* after CONNECT: up to the end of the ClientHello */
#define LIMIT_MS_CLIENT_TLS	 10000
#define LIMIT_MS_DNS		 10000
#define LIMIT_MS_DIAL		 10000
#define LIMIT_MS_UPSTREAM_TLS	 10000
#define LIMIT_MS_FIRST_BYTE	 300000	  /* request sent, no answer yet (models think long) */
#define LIMIT_MS_BODY_IDLE	 300000	  /* no byte either way in the middle of an exchange */
#define LIMIT_MS_CONTINUE	 3000	  /* 100-continue not answered by the origin */
#define LIMIT_MS_REQUEST_LIFE	 86400000 /* from its head to its end, however busy */
#define LIMIT_MS_TUNNEL_IDLE	 3600000
#define LIMIT_MS_TUNNEL_LIFE	 86400000
#define LIMIT_MS_LINGER		 2000
#define LIMIT_MS_WEBSOCKET_END	 2000 /* a client's end is kept from an origin of HTTP/1.1 */
#define LIMIT_MS_POOL_IDLE	 55000
#define LIMIT_MS_LOG_WAIT	 5000  /* a start record not written by then: 503 */
#define LIMIT_MS_DRAIN		 10000 /* shutdown: requests in flight may end */
#define LIMIT_MS_ACCEPT_PAUSE	 100   /* out of descriptors */
#define LIMIT_MS_ATTEMPT_DELAY	 250   /* RFC 8305 section 8, Connection Attempt Delay */
#define LIMIT_MS_CONFIG_READ	 2000  /* all of a configuration, through a pipe */
#define LIMIT_MS_CONFIG_LOOK	 500   /* `reload: watch`: is it still the same file? */
#define LIMIT_MS_RESOLUTION_WAIT 50    /* RFC 8305 section 8, Resolution Delay */
#define LIMIT_LINGER_BYTES	 4194304 /* of a refused upload that are dropped before it is held up */

/* DNS. */
#define LIMIT_DNS_ADDRESSES  32	  /* judged per name */
#define LIMIT_DNS_CACHE	     4096 /* names per worker */
#define LIMIT_DNS_TTL_SECS   300  /* a longer TTL is cut to this */
#define LIMIT_DIAL_ATTEMPTS  6
#define LIMIT_PARENT_INTERIM 4 /* 1xx heads of upstream.proxy in front of its answer */

/* The stub DNS, and the addresses that it gives to names. */
#define LIMIT_NAMES		       16384 /* that have one at a time, a policy */
#define LIMIT_NAMES_KEPT	       256   /* of them, for good: sockets are bound to theirs */
#define LIMIT_NAMES_SPELT	       2048  /* of them, that no name of a pattern takes */
#define LIMIT_NAME_TTL_SECS	       60    /* of an answer; a name has its address for longer */
#define LIMIT_DNS_QUERY_BYTES	       2048  /* over TCP; a question has 271 at most */
#define LIMIT_DNS_CONNECTIONS	       256   /* of TCP, a listener */
#define LIMIT_DNS_CONNECTIONS_PER_ADDR 64    /* of them, of one client's address */
/* Refused questions, a socket and worker; beyond, nothing is read for so long as it takes. */
#define LIMIT_DNS_REFUSED	2000
#define LIMIT_DNS_REFUSED_PER_S 500
#define LIMIT_MS_DNS_CLIENT	5000 /* a connection without a whole question */
#define LIMIT_DATAGRAM_BYTES	2048
#define LIMIT_DATAGRAM_BATCH	64 /* read in a turn */

/* The audit log. */
#define LIMIT_RECORD_BYTES    16384   /* one line; longer values are cut and marked */
#define LIMIT_RECORD_VALUE    4096    /* one value within a record */
#define LIMIT_RECORD_FRAME    1024    /* what a line may have besides its values */
#define LIMIT_RECORD_QUICK    3072    /* all its values together, of one that is written at a go */
#define LIMIT_RECORD_SAME     1024    /* what the end of a request repeats of its start */
#define LIMIT_RECORD_RULE     512     /* what is kept of a rule, as it stands in a line */
#define LIMIT_LOG_QUEUE_BYTES 8388608 /* waiting for the disk; beyond: log_unavailable */
#define LIMIT_MS_LOG_RETRY    200

/* Configuration files. */
#define LIMIT_CONFIG_BYTES     33554432
#define LIMIT_YAML_DEPTH       32
#define LIMIT_YAML_NODES       2000000
#define LIMIT_YAML_ALIASED     100000 /* nodes that aliases may add */
#define LIMIT_YAML_ANCHORS     1024
#define LIMIT_YAML_FAULTS      100 /* reported in one run; the rest are counted */
#define LIMIT_YAML_SCALAR      65536
#define LIMIT_LISTENERS	       64
#define LIMIT_RULES	       500000
#define LIMIT_RULE_RANGES      64
#define LIMIT_RULE_METHODS     32
#define LIMIT_NO_PROXY_ENTRIES 1024

/* Tokens of sandboxes. */
#define LIMIT_SANDBOXES		  10000 /* at a time, with those that ended not long ago */
#define LIMIT_MS_SANDBOX_LEAST	  1000	/* a token's life */
#define LIMIT_MS_SANDBOX	  3600000
#define LIMIT_MS_SANDBOX_MOST	  2592000000LL
#define LIMIT_MS_SANDBOX_KEPT	  3600000 /* so long a token that ended is told from a wrong one */
#define LIMIT_MS_TOKEN_LOOK	  5000 /* a worker looks at least so often whose token has ended */
#define LIMIT_TOKEN_WRONG_PER_SEC 10   /* wrong tokens of one address, a worker; beyond: */
#define LIMIT_MS_TOKEN_HELD	  1000 /* the answer comes so much later */
#define LIMIT_TOKEN_FIELD_BYTES	  1024 /* a longer Proxy-Authorization holds no token of ours */

/* The state that several stiles share (proxy/state/). */
#define LIMIT_MS_STATE_POLL	  250  /* what changed is asked for so often */
#define LIMIT_MS_STATE_PRIMARY	  1000 /* whether it is a replica is looked at so often */
#define LIMIT_MS_STATE_GAP	  10 /* and for a token that is not known here, at most so often */
#define LIMIT_MS_STATE_ANSWER	  1000 /* for one answer */
#define LIMIT_MS_STATE_CONNECT	  5000 /* name, connection, TLS and password together */
#define LIMIT_MS_STATE_RETRY	  200  /* after a failure; doubled by each, up to: */
#define LIMIT_MS_STATE_RETRY_MOST 3000
#define LIMIT_MS_STATE_GRACE	  10000 /* `state.grace` unless it is said */
#define LIMIT_MS_STATE_ASK	  3000	/* a request whose token is not known here waits for it */
#define LIMIT_MS_STATE_ORDER	  3000	/* a token is made or ended */
#define LIMIT_STATE_PAGE	  200	/* records asked for at once */
#define LIMIT_STATE_RECORD_BYTES  1024
#define LIMIT_STATE_ANSWER_BYTES  1048576
#define LIMIT_STATE_ELEMENTS	  (2 * LIMIT_STATE_PAGE)
#define LIMIT_STATE_ASKED	  16 /* commands under way */
#define LIMIT_STATE_OWED	  64 /* ends that could not be told of yet */
#define LIMIT_STATE_ADDRESSES	  32 /* that its name has had: no request is let there */

/* The admin socket and the metrics: a connection without a whole question keeps its place for so
 * long where others wait. */
#define LIMIT_MS_ONESHOT_SILENT 100

/* The admin socket. */
#define LIMIT_ADMIN_CONNECTIONS	  16
#define LIMIT_ADMIN_REQUEST_BYTES 8192
#define LIMIT_ADMIN_ANSWER_BYTES  8388608
#define LIMIT_MS_ADMIN		  5000	/* from accept to the end of the answer */
#define LIMIT_MS_ADMIN_CLIENT	  30000 /* a reload may come before: LIMIT_MS_SOURCES_FIRST */

/* The metrics: who may connect is not asked. */
#define LIMIT_METRICS_CONNECTIONS   8
#define LIMIT_METRICS_REQUEST_BYTES 8192
#define LIMIT_METRICS_ANSWER_BYTES  131072
#define LIMIT_MS_METRICS	    5000 /* from accept to the end of the answer */

/* Credentials. */
#define LIMIT_PLACEHOLDER_BYTES	 256 /* of a made-up value, however long the real one is */
#define LIMIT_PLACEHOLDER_PREFIX 64
#define LIMIT_PLACEHOLDERS	 1024	  /* a process makes; of reloads, too */
#define LIMIT_PLACEHOLDER_BODY	 67108864 /* the most that `body_bytes` may say */
#define LIMIT_SECRET_BYTES	 65536
#define LIMIT_MS_SECRET_REREAD	 500
#define LIMIT_SOURCE_BYTES	 (2 * LIMIT_SECRET_BYTES) /* what a source may say at once */
#define LIMIT_SOURCE_ARGS	 64
#define LIMIT_HELPERS		 256  /* programs of `exec` that run at the same time */
#define LIMIT_MS_HELPERS_READ	 5000 /* the process that starts them reads a configuration */
#define LIMIT_MS_HELPER_WORD	 2000 /* behind `timeout`, for the word that it was over */
#define LIMIT_SOURCE_JSON_DEPTH	 8
#define LIMIT_SOURCE_WORDS	 500
#define LIMIT_CLAIMS_BYTES	 16384 /* of a JWT, and each other list or map that a source has */
#define LIMIT_RSA_BITS_LEAST	 2048  /* of a key that signs */
#define LIMIT_RSA_BITS_MOST	 8192
#define LIMIT_MS_JWT_LIFE	 300000 /* unless `ttl` says otherwise */
#define LIMIT_JWT_BACK_SECS	 30	/* a verifier's clock may be so much behind */
/* An endpoint that hands out installation tokens describes each repository that was asked for. */
#define LIMIT_GITHUB_REPOSITORY_BYTES 16384
/* Sandboxes whose tokens are kept; another one's takes the place of the oldest. */
#define LIMIT_JWT_SANDBOXES 256
#define LIMIT_MS_SOURCE	    10000 /* for one answer, unless `timeout` says otherwise */
/* A start and a reload wait so long for the first answers of new sources, all together. */
#define LIMIT_MS_SOURCES_FIRST 15000
/* What a source gives back at its end, such as a lease, may take so long. */
#define LIMIT_MS_SOURCE_FAREWELL 3000
#define LIMIT_MS_VAULT_REREAD	 300000 /* a secret without a lease, unless `ttl` says otherwise */
#define LIMIT_MS_VAULT_RELOGIN                                                                     \
	600000			  /* a token that nothing was ever read with is tried so long      \
				   */
#define LIMIT_VAULT_DEBTS	8 /* leases and tokens that were replaced, to be given back */
#define LIMIT_VAULT_LEASE_BYTES 1024
/* A value is renewed at most so long before its end. */
#define LIMIT_MS_CREDENTIAL_EARLY      600000
#define LIMIT_MS_CREDENTIAL_RETRY      1000
#define LIMIT_MS_CREDENTIAL_RETRY_MOST 60000
#define LIMIT_MS_CREDENTIAL_LIFE       2592000000LL /* 30 days: longer is no short life */
/* AWS Signature Version 4. */
#define LIMIT_SIGV4_SCOPE_WORD	64	 /* a service's or a region's name */
#define LIMIT_SIGV4_KEYS	16	 /* derived keys kept, a worker */
#define LIMIT_SIGV4_QUERY_PAIRS 1024	 /* of a query that is signed */
#define LIMIT_SIGV4_BODY	16777216 /* a body that is held until its hash is known */
#define LIMIT_SIGV4_BODIES	67108864 /* all of them, a worker */
#define LIMIT_MS_AWS_STATIC	30000	 /* keys in files are read again within that */
#define LIMIT_XML_DEPTH		16
#define LIMIT_XML_ELEMENTS	256

/* A credential's value that is looked for in answers. */
#define LIMIT_REDACT_MIN   8	 /* a shorter one would be found everywhere, and is not */
#define LIMIT_REDACT_PIECE 4096	 /* a longer one is looked for in pieces */
#define LIMIT_REDACT_SPAN  65536 /* that one of them may fill, with all its characters escaped */
/* What may be the beginning of a match waits so long for what follows, and goes on then: a few
 * characters, which many a message ends with, and less than half of it. Half of it and more stays.
 */
#define LIMIT_REDACT_FEW     2
#define LIMIT_MS_REDACT_FEW  20
#define LIMIT_MS_REDACT_HALF 500

/* `stile run`: each of its folders in memory, of which there are five at most. */
#define LIMIT_RUN_TMPFS_PERCENT 15 /* of the machine's memory */
#define LIMIT_RUN_TMPFS_INODES	200000

/* And the sockets in it, by which programs are carried that know no proxy. */
#define LIMIT_RUN_DOORS	     56 /* addresses and ports, for each an IPv4 and an IPv6 socket */
#define LIMIT_RUN_PORT_RANGE 16 /* a wider range of a rule has none */

/* `stile run --timeout`. */
#define LIMIT_MS_RUN_GRACE  10000 /* between SIGTERM and SIGKILL */
#define LIMIT_RUN_TIMEOUT_S 31536000

/* `stile run`: what the command may use. */
#define LIMIT_RUN_PIDS		  4096	   /* processes and threads, unless --pids says otherwise */
#define LIMIT_RUN_PIDS_MOST	  4194000  /* that --pids may say; the kernel has little more */
#define LIMIT_RUN_MEMORY_LEAST	  16777216 /* the certificates alone are one of them */
#define LIMIT_RUN_MILLICPUS_LEAST 10
#define LIMIT_RUN_CPUS		  8192
#define LIMIT_RUN_DESCRIPTORS	  524288 /* a process */
#define LIMIT_MS_RUN_CGROUP	  5000	 /* until a group whose processes were killed is empty */

/* `stile export`. The first two unless the command line says otherwise. */
#define LIMIT_EXPORT_FILES    10000
#define LIMIT_EXPORT_BYTES    1073741824
#define LIMIT_EXPORT_NAME     255
#define LIMIT_EXPORT_PATH     1024
#define LIMIT_EXPORT_DEPTH    64
#define LIMIT_EXPORT_SEEN     1000000 /* names that are looked at */
#define LIMIT_EXPORT_PATTERNS 64
#define LIMIT_EXPORT_FAULTS   20 /* printed; the rest are counted */

/* `stile doctor --escape`. */
#define LIMIT_MS_PROVER_WAY	20000 /* for one way */
#define LIMIT_MS_PROVER_CONNECT 2000

/* The keeper (proxy/keeper/), which takes the proxy for hostile. */
#define LIMIT_KEEPER_MESSAGE	     (2 * LIMIT_SECRET_BYTES) /* one message, either way */
#define LIMIT_KEEPER_PATH	     4096
#define LIMIT_LEAVES_ASKED	     64	  /* by a worker at a time; more wait in the worker */
#define LIMIT_LEAVES		     4096 /* that rules admit, signed at once, and then */
#define LIMIT_LEAVES_PER_S	     1000 /* at 0.3 ms of CPU each */
#define LIMIT_LEAVES_EXPLAINED	     256 /* for names that no rule admits (`deny: explain`), and then */
#define LIMIT_LEAVES_EXPLAINED_PER_S 128
#define LIMIT_LEAF_EXPLAINED_SECS    10800 /* what such a leaf holds, an hour ago included */
#define LIMIT_MS_KEEPER_START	     30000 /* CA made or read, sources opened */
#define LIMIT_MS_KEEPER_ANSWER	     10000 /* a file opened, a configuration read */
#define LIMIT_MS_KEEPER_STOP	     5000  /* its sources end in order; then it is killed */

#endif
