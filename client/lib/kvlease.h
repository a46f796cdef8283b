/*
 * libkvlease: lease, share and find KV-cache pages owned by kvleased.
 *
 * A worker connects, opens a namespace (one model context), leases pages, writes K and V into the
 * mapped pages, and publishes them under a key. A key names a page's contents and everything before
 * it. Any worker of the same tenant that looks up the key gets the same memory, pinned.
 *
 *   lease -> (write) -> publish -> (read, pinned) -> release
 *         \-> free                lookup -> (read, pinned) -> release
 *
 * Ownership: *borrows* (yours, used during the call only), *returns owned* (you free it), *shares*.
 *
 * Returns. 0: success. Negative: an errno; the operation failed and changed nothing, unless stated
 * otherwise. Positive: a KVL_* condition, listed at the function. kvl_last_error() has a sentence
 * for each failure.
 *
 * ret_ parameters are set if 0 is returned, and otherwise left untouched, unless stated otherwise.
 * So after KVL_MISS *ret_n_pages is unchanged. Exception: the contents of arrays (ret_pages) may
 * change in any case. NULL for a connection, namespace, session or window is -EINVAL, unless stated
 * otherwise. Functions that return no code then return NULL, "" or 0, or do nothing.
 *
 * After -ETIMEDOUT the outcome is unknown: the daemon may still execute the request. The library
 * itself gives back the pages of a late answer to a lookup or lease, and the pins of a late
 * publish. After -ENOTCONN, -ESTALE, -ECONNRESET or -EPROTO the connection is over. The daemon
 * can't be told anything through it, so pages stay leased and pinned until the process exits.
 * Mapped pages stay readable until kvl_disconnect().
 *
 * Restarts. If kvleased keeps its state (`kvleased --keep`, or a service manager), a hang-up
 * doesn't end the connection. The connection is away until the daemon is back and knows it by its
 * secret. Then it goes on with all its namespaces, addresses, leases, pins and sessions. No call
 * fails because of the restart. Blocking calls wait, up to their timeout; started ones complete
 * later. Requests that the daemon may have executed already aren't executed twice. Threads in
 * blocking calls reconnect, or kvl_dispatch() does. KVL_EVENT_AWAY and KVL_EVENT_BACK report it.
 * These don't survive a restart:
 *
 * - Announcements: call kvl_announce() again if others should wait.
 *
 * - Recalls (KVL_EVENT_REVOKE): the event is sent again if the memory is still wanted.
 *
 * - Hints and ends of requests that were on their way.
 *
 * Pins of a kvl_session_pages(), or a kvl_lookup() over the socket, that was under way may stay
 * until the namespace is closed.
 *
 * The connection is over with -ENOTCONN if the daemon was away for too long (reconnect_msec). It is
 * over with -ESTALE if the daemon came back without its state, or without one of its namespaces. A
 * namespace is lost if GPU memory was lost (a reset), or was handed over by cudaipc, which ends
 * with the daemon. Lookups there return KVL_STALE. After either code call kvl_disconnect() and
 * begin anew: cached pages must be computed again, and sessions are new.
 *
 * Memory mapped by cudaipc is invalid from the end of the daemon on: finish no step on it. Lookups
 * return KVL_STALE only once kvl_dispatch(), or a blocking call, has noticed the end.
 *
 * Threads. Every function may be called from any thread, also concurrently on one connection,
 * unless stated otherwise. Calls on one connection wait for each other. Callbacks run in the thread
 * that calls kvl_dispatch() or waits in a blocking call, without any lock held. The library starts
 * no threads, installs no signal handlers, prints nothing and never ends the process.
 *
 * Shared memory. If the daemon offers it, hits, releases and most leases are made in memory that is
 * shared with the daemon, without a system call. They go on while the daemon is busy, stopped or
 * away. Once the connection is over, hits and releases still go on. Exception: host memory that
 * this process finds or leases for the first time takes one system call for 64 KiB. That call
 * replaces the page faults of its first use. Publishes and frees are queued in shared memory, and
 * complete once the daemon is back. kvl_uses_shm() tells whether a namespace is shared. Differences
 * from the socket:
 *
 * - kvl_release(), -EINVAL: no page of the call is released. Exception: if a page is named more
 *   often than it is pinned, the pages before it are.
 *
 * - kvl_free(), -EINVAL: pages are freed in batches of KVL_SHM_FREE_PAGES. A batch with a wrong
 *   page frees nothing; the others are freed.
 *
 * - kvl_*_start(): a lookup, release or lease may be done at once. Its callback waits for
 *   kvl_dispatch(), for which kvl_fd() is ready.
 *
 * - Lookups and releases don't return -ENOTCONN: they are made all the same.
 *
 * - A thread that only makes hits never reads the socket. Events wait for kvl_dispatch() or a
 *   blocking call, and are dropped if too many wait.
 *
 * Fork. A child must not use a connection of its parent (-ECHILD). Mapped pages aren't inherited.
 * Functions that can't return -ECHILD do nothing, or return the same as for NULL. kvl_disconnect()
 * in the child closes the child's descriptor and leaves the parent's connection alone.
 *
 * All functions: since 0.1.
 */
#ifndef KVLEASE_H
#define KVLEASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default) /* the library itself is built with everything else hidden */
#endif

#define KVL_KEY_BYTES         32
#define KVL_GROUP_TOKEN_BYTES 16
/*
 * Limits of the protocol: pages in one lease, release or free; keys in one lookup; pages in one
 * publish.
 */
#define KVL_MAX_LEASE_PAGES   4096
#define KVL_MAX_LOOKUP_KEYS   1536
#define KVL_MAX_PUBLISH_PAGES 1024
#define KVL_SHM_FREE_PAGES    8
#define KVL_PAGE_NONE         UINT32_MAX
/* Limit on the started calls of one connection that are under way: see kvl_done_fn. */
#define KVL_MAX_STARTED 2048
/* Limit on the keys of one kvl_import_start(). */
#define KVL_MAX_IMPORT_KEYS 256

/* Longest time for which a request may be expected: see kvl_expect(). */
#define KVL_MAX_EXPECT_MSEC 600000

/* Conditions: they aren't errors, and are listed at the functions that return them. */
enum kvl_condition {
        KVL_MISS = 1,        /* not cached */
        KVL_DUPLICATE = 2,   /* another client published the key first; its page is returned */
        KVL_QUOTA = 3,       /* the tenant's limit is reached */
        KVL_FULL = 4,        /* the device has no memory left to lease */
        KVL_NO_PARENT = 5,   /* the parent page is not cached (any more) */
        KVL_STALE = 6,       /* the namespace was invalidated, or changed its version */
        KVL_DRAINING = 7,    /* the daemon is draining: nothing new is granted */
        KVL_LAYOUT = 8,      /* the namespace exists with another layout */
        KVL_VERSION = 9,     /* library and daemon have no protocol version in common */
        KVL_TIMEOUT = 10,    /* the wait lasted as long as allowed */
        KVL_PENDING = 11,    /* another client is computing the key */
        KVL_RESERVATION = 12 /* the reservation is used up, and the tenant may not exceed it */
};

/* Why a lease was refused, waited, or got fewer pages than it asked for. Newer daemons may add
 * reasons. */
enum kvl_reason {
        KVL_REASON_NONE = 0,
        KVL_REASON_QUOTA = 1,            /* the tenant's limit */
        KVL_REASON_RESERVATION_FULL = 2, /* a tenant limited to its reservation */
        KVL_REASON_POOL_FULL = 3,        /* the memory that all tenants share */
        KVL_REASON_DEADLINE = 4,         /* the wait lasted as long as allowed */
        KVL_REASON_DEGRADED = 5,         /* fewer pages than asked for, by the tenant's policy */
        KVL_REASON_DRAINING = 6,         /* the daemon grants nothing new */
        KVL_REASON_DEVICE = 7,           /* memory was being made; the device failed */
        KVL_REASON_NO_RUN = 8            /* KVL_LEASE_CONTIGUOUS: no such pages are free */
};

enum kvl_dtype {
        KVL_DTYPE_F32 = 1,
        KVL_DTYPE_F16 = 2,
        KVL_DTYPE_BF16 = 3,
        KVL_DTYPE_F8_E4M3 = 4,
        KVL_DTYPE_F8_E5M2 = 5,
        KVL_DTYPE_I8 = 6,
        KVL_DTYPE_OTHER = 255
};

struct kvl_conn; /* a connection to the daemon */
struct kvl_ns;   /* a namespace open on a connection */

/* Version of the library, "0.1.0". Static. */
const char *kvl_version(void);

/* Returns a sentence for any return value of this library ("ok", "the tenant's limit is reached").
 * Static or thread-local. */
const char *kvl_strerror(int code);

/* ---- connection ------------------------------------------------------------------------------ */

enum kvl_connect_flags {
        KVL_CONNECT_METADATA_ONLY =
                1 << 0,              /* never maps: kvl_page_ptr() is NULL (a scheduler process) */
        KVL_CONNECT_NO_SHM = 1 << 1, /* everything over the socket; also with $KVLEASE_NO_SHM,
                                      * neither empty nor 0 */
        /*
         * The engine promises to call kvl_safepoint() between steps, and to release the pages that
         * KVL_EVENT_REVOKE names. If all processes of a tenant promise it, their mapped memory can
         * move to tenants that are entitled to it. In return the tenant may use memory that others
         * have reserved and don't need. The memory of a process that breaks the promise is
         * quarantined.
         */
        KVL_CONNECT_SAFEPOINTS = 1 << 2
};

struct kvl_connect_options {
        size_t size;                /* sizeof(struct kvl_connect_options): lets the struct grow */
        const char *socket_path;    /* NULL: $KVLEASE_SOCKET, else /run/kvlease/sock */
        const char *client_name;    /* <= 64 bytes, for `kvleasectl clients`; NULL: program name */
        const uint8_t *group_token; /* KVL_GROUP_TOKEN_BYTES of a group to join; NULL: new group */
        unsigned flags;             /* enum kvl_connect_flags */
        int timeout_msec;           /* of every blocking call; < 0: for ever; 0: 30 s */
        /* Longest absence of the daemon (KVL_EVENT_AWAY) before the connection is over; < 0: for
         * ever; 0: the default, 60 s. Counted from when the library notices the absence. */
        int reconnect_msec;
        /*
         * Instead of group_token: joins the group that this secret names, or makes it. For the
         * processes of an engine (tensor-parallel ranks) that share nothing else. 16..256 bytes
         * that no other process can guess, different each time the engine starts. The secret never
         * leaves the process. NULL, 0: none.
         */
        const void *group_secret;
        size_t group_secret_bytes;
};

/*
 * Connects to the daemon. Blocks up to the timeout. options may be NULL. Borrows the memory that it
 * points to. On failure the sentence is in kvl_last_error().
 *
 * Returns 0: *ret_conn is owned (kvl_disconnect()). KVL_VERSION; KVL_DRAINING. -ENOENT: no such
 * socket, or (with a token) no such group. -ECONNREFUSED: no daemon listens there. -EMFILE: too
 * many clients, or descriptors of this process. -EINVAL: wrong options, or a socket for
 * administration. -ECONNRESET: the daemon hung up meanwhile. -EACCES; -ENAMETOOLONG; -EPROTO;
 * -ETIMEDOUT; -ENOMEM.
 */
int kvl_connect(const struct kvl_connect_options *options, struct kvl_conn **ret_conn);

/*
 * Unmaps everything, and frees the connection and its namespaces. Its pins and unpublished pages
 * end; published pages stay. No other call on them may be running or follow; not from a callback.
 * Waits up to 1 s for a daemon that is away or doesn't answer; the daemon then drops the pins and
 * pages when the process exits. NULL is ignored.
 */
void kvl_disconnect(struct kvl_conn *conn);

/* Returns why the calling thread's last call of this library failed. Never NULL, valid until its
 * next call. */
const char *kvl_last_error(void);

/* Returns the tenant of the socket. Valid as long as the connection. */
const char *kvl_tenant(const struct kvl_conn *conn);

/* Returns the id by which the daemon and kvleasectl know this connection. */
uint64_t kvl_client_id(const struct kvl_conn *conn);

/* Writes the token for other processes of this engine to join the group. Keep it secret. */
void kvl_group_token(const struct kvl_conn *conn, uint8_t ret_token[KVL_GROUP_TOKEN_BYTES]);

/* ---- events and use from an event loop ------------------------------------------------------- */

enum kvl_event_type {
        KVL_EVENT_DRAIN = 1, /* leases are refused from now on: finish and disconnect */
        KVL_EVENT_DRAIN_END = 2,
        KVL_EVENT_PRESSURE = 3,     /* no room in `ns`: release and free idle pages */
        KVL_EVENT_STALE = 4,        /* `ns` was invalidated as a whole */
        KVL_EVENT_MEMBER_LEFT = 5,  /* member `client_id` of the group left or died */
        KVL_EVENT_DISCONNECTED = 6, /* the connection is over; sent once */
        KVL_EVENT_SHUTDOWN = 7,     /* the daemon stops: AWAY or DISCONNECTED follows */
        /*
         * The daemon recalls memory. Within timeout_msec, release and free the pages of `ns` from
         * `first_page` to first_page + n_pages - 1, then call kvl_safepoint(). After that time the
         * memory is quarantined at the tenant's expense, and the administrator may have the process
         * killed. Sent once for a set, and again (is_idle) once no page of it is held: then only
         * the safe point is missing.
         */
        KVL_EVENT_REVOKE = 8,
        /* The daemon went away, and may come back ("Restarts" above): BACK or DISCONNECTED follows.
         * Short absences may be reported as one. */
        KVL_EVENT_AWAY = 9,
        KVL_EVENT_BACK = 10
};

struct kvl_event {
        enum kvl_event_type type;
        struct kvl_ns *ns; /* NULL if it concerns all; borrowed */
        uint64_t client_id;
        const char *detail;           /* a sentence; valid during the callback */
        uint32_t first_page, n_pages; /* REVOKE */
        uint32_t timeout_msec;        /* REVOKE */
        int is_idle;                  /* REVOKE: no page there is held any more */
};

typedef void (*kvl_event_fn)(struct kvl_conn *conn, const struct kvl_event *event, void *data);

/* Sets the event handler of the connection (NULL: none). Not while another thread dispatches. */
void kvl_set_event_handler(struct kvl_conn *conn, kvl_event_fn fn, void *data);

/*
 * Returns the descriptor to poll for reading. It is ready while kvl_dispatch() has work, so a loop
 * needs no timeout for it:
 *
 * - The daemon sent something, or has room for unsent data.
 *
 * - A started call is done, in whichever thread it was started.
 *
 * - It is time to try again to reach a daemon that is away.
 *
 * The descriptor stays the same as long as the connection lasts, then it is -1. Level- or
 * edge-triggered; an edge-triggered user calls kvl_dispatch() until it returns 0. Borrowed: don't
 * read, write or close it.
 */
int kvl_fd(const struct kvl_conn *conn);

/* Returns 1 if data is unsent, or a callback waits for kvl_dispatch(), else 0. Not needed in a
 * loop: kvl_fd() becomes ready for it. */
int kvl_wants_write(const struct kvl_conn *conn);

/* Returns 1 if a daemon serves this connection; 0: the daemon is away, or the connection is over
 * (then kvl_fd() is -1). */
int kvl_is_connected(const struct kvl_conn *conn);

/* Sends, receives, and runs callbacks of finished calls and events, as far as it can without
 * blocking. Returns the number of callbacks run (>= 0). Once the connection is over: -ENOTCONN,
 * -ESTALE, -ECONNRESET or -EPROTO; callbacks of its calls have run with that error by then. */
int kvl_dispatch(struct kvl_conn *conn);

/* ---- namespaces and memory ------------------------------------------------------------------- */

struct kvl_layout {
        size_t size;         /* sizeof(struct kvl_layout) */
        const char *model;   /* 1..128 bytes */
        const char *version; /* of the weights, 0..128 bytes; a new one retires the contents */
        enum kvl_dtype dtype;
        uint32_t n_layers;    /* >= 1 */
        uint32_t n_kv_heads;  /* >= 1 */
        uint32_t head_size;   /* elements, >= 1 */
        uint32_t page_tokens; /* tokens, 1..1024 */
        uint32_t n_planes; /* 1 (block-major) .. 1024 (a tensor per layer, or per layer and K/V) */
        uint64_t plane_page_bytes; /* bytes of one page in one plane, a multiple of 64; times
                                      n_planes at least 4096, or kvl_ns_open() refuses it */
        uint32_t tp_rank, tp_size; /* tensor parallelism; 0 of 1: none */
        uint32_t layer_group;      /* 0 unless groups of layers have caches of their own */
        const void *salt;          /* keeps equal prompts apart; 0..64 bytes */
        size_t salt_bytes;
        /* Describes how kernels lay out K and V inside a page, in the engine's own words: engine,
         * version, attention backend, inner layout. 0..64 opaque bytes. A part of root keys and of
         * the namespace: engines with different formats never read each other's pages. */
        const void *format;
        size_t format_bytes;
};

enum kvl_ns_flags {
        /*
         * Page 0 is never granted: an engine's null block. It can be used as long as the namespace
         * is open, and holds zeros until it is written. This process or other processes of the
         * tenant may see writes there, and the data may be lost again. On a GPU this process takes
         * its memory from the device: a page of one plane, rounded up to the device's unit (2 MiB).
         * No limit of kvleased counts it. All planes share it, so data written in one plane shows
         * in all. No other page of its set is ever granted there. Older daemons and namespaces map
         * page 0 only with other pages of its set, which may be never.
         */
        KVL_NS_KEEP_PAGE_ZERO = 1 << 0,
        /* Pages have the same addresses in every process that asks for it. Not with cudaipc. */
        KVL_NS_SAME_ADDRESS = 1 << 1,
        /*
         * Unmapped parts of the planes can be read as zeros; writing there is SIGSEGV. For engines
         * that have a tensor over a whole plane. A mapped set replaces the zeros, and they return
         * when it is unmapped; readers never fault in between. Reading zeros takes memory for page
         * tables only: 1/512 of the bytes read. Host memory only: -EOPNOTSUPP on a GPU, whose
         * mappings can't be exchanged in one step. A metadata-only connection may set it, and maps
         * nothing.
         */
        KVL_NS_BACK_HOLES = 1 << 2
};

#define KVL_NS_NAME_BYTES 129 /* the longest name, and its NUL */

/*
 * Writes the name that follows from a layout, the same on every host and with every version of this
 * library. It is the model as far as there is room ('_' for characters that a name may not have),
 * '@', and 12 hexadecimal digits. The digits are of a SHA-256 over the whole layout except its
 * version. A reader of the name can test guesses of the salt against them.
 *
 * Returns 0; -EINVAL; -EIO: libcrypto failed.
 */
int kvl_layout_name(const struct kvl_layout *layout, char ret_name[KVL_NS_NAME_BYTES]);

/*
 * Opens a namespace of the connection's tenant, creates it if it doesn't exist, and reserves its
 * whole address range. Addresses never change, and are backed as pages are leased or found. Borrows
 * the arguments. name: 1..128 of A-Z a-z 0-9 . _ - @, not beginning with one of . - @; NULL or "":
 * kvl_layout_name(). device: UUID, "host", or NULL for the daemon's default.
 *
 * Returns 0: *ret_ns is owned by the connection (kvl_ns_close() or kvl_disconnect()). KVL_LAYOUT:
 * the sentence has both layouts. KVL_DRAINING. -EEXIST: this connection has it open. -ENOENT: no
 * such device, or this process can't use it (no driver, a wrong version, not visible). -EBUSY: with
 * KVL_NS_SAME_ADDRESS, its addresses are in use here. -EOPNOTSUPP: the transport, or the device,
 * can't do that. -EIO: with KVL_NS_KEEP_PAGE_ZERO, the GPU failed. -EINVAL; -ENOMEM: also of the
 * GPU, with that flag.
 */
int kvl_ns_open(struct kvl_conn *conn, const char *name, const struct kvl_layout *layout,
        const char *device, unsigned flags, struct kvl_ns **ret_ns);

/* Unmaps the namespace. Drops its pins and grants if no other member of the group has it open. No
 * other call on it may run. Started calls end with -ECANCELED. Waits for its callbacks in other
 * threads; one of its own callbacks may close it. NULL is ignored. */
void kvl_ns_close(struct kvl_ns *ns);

/* The tier of a page's bytes. */
enum kvl_tier {
        KVL_TIER_DEVICE = 0,
        KVL_TIER_HOST = 1, /* host memory */
        KVL_TIER_DISK = 2
};
#define KVL_TIERS 3

/* A tier has page numbers of its own: a page that moves to another tier gets a number of that tier,
 * and keeps its key. */
struct kvl_tier_info {
        enum kvl_tier tier;
        uint32_t first_page; /* first page number; the device: 0 */
        uint32_t n_pages;
        uint64_t page_bytes; /* bytes of a page there, over all planes */
        uint8_t is_readable; /* HOST: kvl_page_ptr() works (pages aren't encoded) */
};

struct kvl_ns_info {
        size_t size;             /* set by the caller: sizeof(struct kvl_ns_info) */
        uint32_t capacity_pages; /* page numbers of all tiers are below it */
        uint32_t set_pages;      /* pages per extent set */
        uint32_t page_tokens;
        uint32_t n_planes;
        uint64_t plane_page_bytes;
        uint64_t epoch;  /* when opened */
        char device[65]; /* UUID or "host" */
        /* 1: kvl_page_ptr() returns CPU addresses; 0: GPU addresses. */
        uint8_t is_cpu_memory;
        /* 1: kvl_plane_base() + i * stride_bytes is page i. 0 (cudaipc): ask kvl_page_ptr(). */
        uint8_t is_contiguous;
        uint32_t n_tiers; /* in order of page numbers; the first is the device */
        struct kvl_tier_info tiers[KVL_TIERS];
        /* Bytes from a page to the next one in a plane on the device: plane_page_bytes, or at most
         * 4 % of the stride more. The gap makes extent sets of a good size. kvleased neither reads
         * nor copies the gap. */
        uint64_t stride_bytes;
        /* The device with the planes that this connection maps: the namespace's device, or its
         * member if it spans several. "": the planes are on several members, or nothing is mapped
         * (metadata-only). */
        char member[65];
        /* 1: kvl_publish.token_ids are of use, as followers may learn them. Since 0.2. */
        uint8_t takes_token_ids;
};

/* Fills `info` as far as info->size goes. */
void kvl_ns_info(const struct kvl_ns *ns, struct kvl_ns_info *info);

/* Returns the name by which the namespace was opened. Valid as long as the namespace is open. */
const char *kvl_ns_name(const struct kvl_ns *ns);

/* How pages are stored in lower tiers. */
enum kvl_codec {
        KVL_CODEC_NONE = 0, /* unchanged */
        KVL_CODEC_INT8 = 1, /* 8 bits a number, scaled per channel: slight loss */
        KVL_CODEC_FP8 = 2,  /* E4M3: slight loss */
        KVL_CODEC_INT4 = 3  /* 4 bits a number, scaled per channel and 32 tokens: more loss */
};

struct kvl_ns_options {
        size_t size;        /* sizeof(struct kvl_ns_options) */
        const char *device; /* as in kvl_ns_open() */
        unsigned flags;     /* enum kvl_ns_flags */
        /* The namespace's set (a name with the same rules), and the number of namespaces in the
         * set: 2..64. The first client that opens the namespace fixes both. NULL, 0: none. Keys are
         * evicted in all of them together: kvl_lookup_set(). */
        const char *set;
        uint32_t set_size;
        /* Cached pages unused for this many seconds are evicted. The last client that sets it
         * decides. 0: as the tenant is configured. */
        uint32_t expire_sec;
        /* Compression of pages in lower tiers: host_codec, and disk_codec for a disk below that.
         * The first client that opens the namespace fixes it; a later different one is KVL_LAYOUT.
         * NONE accepts the existing codec; a new namespace then gets the tenant's configured one.
         * Only with dtype F32, F16 and BF16 (-EINVAL). With a remote, pages of other hosts come in
         * host_codec, too, and only from hosts with the same codec. */
        enum kvl_codec host_codec, disk_codec;
        /*
         * The required kvl_ns_info.stride_bytes: a multiple of 64, from plane_page_bytes (no gap
         * between pages) to at most 4 % of the stride more. The first client that opens the
         * namespace fixes it; a later different one is KVL_LAYOUT. -EINVAL: its extent sets would
         * be too large; the sentence has their size and the limit. 0: kvleased chooses, or accepts
         * the existing stride.
         */
        uint64_t stride_bytes;
        /*
         * Alternatives to host_codec and disk_codec with a codec for each range of layers, as a
         * string: "0-7:none,8-23:int8,24-:int4". At most 16 ranges, from layer 0 to the last layer
         * without gaps; the last range may omit its end. All layers' pages must be equally large,
         * and ordered by layer, in planes and within a plane (kvl_layout). A codec's name alone is
         * for all layers; "none" stores pages unchanged, however the tenant is configured. NULL:
         * host_codec, disk_codec. -EINVAL: combined with such a codec other than KVL_CODEC_NONE, or
         * a wrong string. Borrowed for the call. Daemons without such codecs refuse it.
         */
        const char *host_layer_codecs, *disk_layer_codecs;
        /*
         * The planes that this connection maps, n_planes from first_plane on: those of one rank of
         * an engine. n_planes 0: all from first_plane on. Other planes have no address here: NULL,
         * and -EINVAL for copies of their bytes. If a device spans several GPUs (kvleased's option
         * "members"), only the GPUs of these planes are opened. With planes on several GPUs, calls
         * with a stream and kvl_window_open() return -EINVAL. Exception: kvl_safepoint() waits for
         * all of them.
         */
        uint32_t first_plane, n_planes;
};

/* Opens a namespace as kvl_ns_open() does, and returns the same. options NULL: all defaults.
 * -EINVAL also: the set has another size, or is full; the layout can't have the codec; wrong
 * stride_bytes; no such planes; KVL_NS_KEEP_PAGE_ZERO with planes on several GPUs. */
int kvl_ns_open_with(struct kvl_conn *conn, const char *name, const struct kvl_layout *layout,
        const struct kvl_ns_options *options, struct kvl_ns **ret_ns);

/* Returns 1: the namespace uses shared memory; 0: the socket. */
int kvl_uses_shm(const struct kvl_ns *ns);

/* Returns the first byte of a plane: page i is at base + i * stride_bytes (kvl_ns_info). Each
 * process has its own base. NULL for a metadata-only connection, a plane out of range, or if pages
 * aren't contiguous (kvl_ns_info). Doesn't block. */
void *kvl_plane_base(const struct kvl_ns *ns, uint32_t plane);

/*
 * Returns the address of a page, valid while the page is leased or pinned. kvl_lease(),
 * kvl_lookup() and kvl_publish() have mapped the pages that they return. Write only to leased pages
 * that aren't published yet. A page in host memory (kvl_find()) has a CPU address and is read-only.
 * Doesn't block, takes no lock.
 *
 * NULL: metadata-only; out of range; encoded, or on a disk; or not mapped (for a page that another
 * member leased, call kvl_map_pages() first).
 */
void *kvl_page_ptr(const struct kvl_ns *ns, uint32_t page, uint32_t plane);

/* Maps pages that another member of the group leased or pinned (any number); in lower tiers as far
 * as possible. Returns 0; -ENOENT: a page is neither leased by the group nor pinned by one of its
 * members, and nothing was mapped for it; -EACCES: metadata-only. */
int kvl_map_pages(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/*
 * Copies between one plane of a page, in any tier, and memory of this process. Done when it
 * returns. The page must be mapped, and leased (to write) or pinned (to read). On a GPU the copy
 * isn't ordered with work on streams.
 *
 * Returns 0; -EACCES: metadata-only; -ENOENT: not mapped; -EIO. -EINVAL: out of range, offset +
 * bytes is beyond plane_page_bytes, or the page to be written is published. Over the socket that
 * isn't checked: the write changes the page for all that find it.
 */
int kvl_page_read(const struct kvl_ns *ns, uint32_t page, uint32_t plane, uint64_t offset,
        void *dst, uint64_t bytes);
int kvl_page_write(const struct kvl_ns *ns, uint32_t page, uint32_t plane, uint64_t offset,
        const void *src, uint64_t bytes);

/* The bytes to copy of many pages: in each page and plane, `bytes` at `offset`. */
struct kvl_page_io {
        size_t size; /* sizeof(struct kvl_page_io) */
        const uint32_t *pages;
        uint32_t n_pages;               /* >= 1 */
        uint32_t first_plane, n_planes; /* n_planes 0: from first_plane to the last */
        uint64_t offset, bytes;         /* bytes 0: from offset to the end of the page */
        /* One of the two, the other NULL: memory for all pages, one after the other, or a buffer
         * for each page (n_pages of them). The planes of a page are contiguous. */
        void *memory;
        void *const *buffers;
        uint64_t memory_bytes; /* of memory, or of each buffer: exactly the bytes copied */
};

/*
 * kvl_page_read() and kvl_page_write() of many pages and planes at once, in the order of `pages`.
 * kvl_pages_write() only reads `memory` and `buffers`. All arguments are checked before anything is
 * copied.
 *
 * Returns as kvl_page_read(); nothing was copied after an error. Exception: after -EIO a part may
 * be copied. -EINVAL also: memory_bytes isn't the number of bytes to copy.
 */
int kvl_pages_read(const struct kvl_ns *ns, const struct kvl_page_io *io);
int kvl_pages_write(const struct kvl_ns *ns, const struct kvl_page_io *io);

/* ---- keys ------------------------------------------------------------------------------------ */

/* Writes the root of chain keys, for engines without keys of their own, by SHA-256
 * (docs/reference/PROTOCOL.md, "Keys"). The root binds model, version, dtype, geometry, rank, salt
 * and format. Returns 0; -EINVAL; -EIO: libcrypto failed. */
int kvl_key_root(const struct kvl_layout *layout, uint8_t ret_key[KVL_KEY_BYTES]);

/*
 * Computes the keys of all pages of a sequence of n_tokens token ids. Each page has page_tokens (1
 * to 1,024, as in the layout); the last has the rest. `parent`: the root key, or the key of the
 * page before the first, so that only new pages are computed. ret_keys: KVL_KEY_BYTES for each
 * page, n_tokens / page_tokens of them, rounded up; it must not overlap parent or tokens.
 * Thread-safe.
 *
 * Returns 0, also for no tokens, which have no keys; -EINVAL: nothing is written.
 */
int kvl_keys(const uint8_t parent[KVL_KEY_BYTES], const uint32_t *tokens, uint32_t n_tokens,
        uint32_t page_tokens, uint8_t *ret_keys);

/* Computes the key of one page of n_tokens (1 to 1,024) after the page with key `parent`, as
 * kvl_keys(). */
int kvl_key_chain(const uint8_t parent[KVL_KEY_BYTES], const uint32_t *tokens, uint32_t n_tokens,
        uint8_t ret_key[KVL_KEY_BYTES]);

/*
 * A memo of keys, for prompts that begin like earlier ones, for example the turns of a
 * conversation. kvl_key_memo_keys() compares the tokens with those of earlier calls, and hashes
 * only the pages after the first new one. A memo belongs to the process that made it, and to no
 * connection. Its calls wait for each other, but not while pages are hashed.
 */
struct kvl_key_memo;

/*
 * page_tokens: 1 to 1,024, as in the layout. max_bytes: limit on the memo's memory, 1 MiB to 1 TiB.
 * Each page takes 4 * page_tokens + 104 bytes, from when it comes. If the memo is full, the pages
 * that were hashed longest ago are dropped.
 *
 * Returns 0: *ret_memo is owned (kvl_key_memo_free()). -EINVAL; -ENOMEM; -EIO: the kernel gave no
 * random numbers.
 */
int kvl_key_memo_new(uint32_t page_tokens, uint64_t max_bytes, struct kvl_key_memo **ret_memo);

/* No call may be under way. NULL is ignored. */
void kvl_key_memo_free(struct kvl_key_memo *memo);

/*
 * Does kvl_keys() with the memo's page_tokens, and writes the same keys. *ret_n_hashed (may be
 * NULL): pages whose key was hashed, the others were known. A last page that isn't full is always
 * hashed. After fork() a child hashes all pages, and the memo learns none.
 *
 * Returns as kvl_keys().
 */
int kvl_key_memo_keys(struct kvl_key_memo *memo, const uint8_t parent[KVL_KEY_BYTES],
        const uint32_t *tokens, uint32_t n_tokens, uint8_t *ret_keys, uint32_t *ret_n_hashed);

/* ---- pages ----------------------------------------------------------------------------------- */

/*
 * A request ties together the lookups, leases and publishes for one prompt; the eviction policy
 * uses it. kvl_request_begin() returns an id > 0, unique in the connection. 0 means "no request"
 * everywhere.
 *
 * kvl_request_end() tells the daemon that the request is over, without waiting; for request 0 it
 * does nothing. It returns 0; -EAGAIN: the daemon doesn't read, or the ring is full. Then the
 * daemon isn't told. This is a hint: drop it, or repeat it once any call of the connection is done.
 * -EINVAL; -ENOTCONN; -EPROTO; -ENOMEM; -ECHILD.
 *
 * kvl_request_end_as() also says how the generation ended: 1 to 2^32 - 1; 0: unknown. Equal ends
 * have one number in all processes that use the namespace, such as a CRC of the reason and of the
 * last two tokens. The eviction policy learns how soon texts with this ending are used again. The
 * text is the one that lookups and publishes with this request's id used before; an ending without
 * them says nothing. A hint of a session counts before an ending.
 */
uint64_t kvl_request_begin(struct kvl_ns *ns);
int kvl_request_end(struct kvl_ns *ns, uint64_t request);
int kvl_request_end_as(struct kvl_ns *ns, uint64_t request, uint32_t ending);

/*
 * Finds the longest run of cached pages for keys[0..n_keys-1] (n_keys * 32 bytes, from the first
 * page on; any number), and pins and maps them. Pages in lower tiers are brought to the device
 * first, within the connection's timeout. The run ends before a page that can't be, or isn't in
 * time. ret_pages: n_keys entries.
 *
 * Returns 0: *ret_n_pages > 0 pages with *ret_n_tokens tokens; release each. KVL_MISS: none.
 * KVL_STALE. KVL_QUOTA: over the socket, more pins than a client of the tenant may have
 * (kvl_last_error() has the limit). -EINVAL; -ENOMEM; -EIO.
 */
int kvl_lookup(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens);

/* Does kvl_lookup(), but moves nothing: each page is pinned in its tier (kvl_page_tier()), and
 * mapped if possible. */
int kvl_find(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens);

/*
 * Counts how many of keys[0..n_keys-1] (any number, in order of the sequence) are cached, from the
 * first on. ret_tiers: the tier of each (n_keys entries, enum kvl_tier; may be NULL). Pins nothing,
 * moves nothing and doesn't count as use of the pages, so the result may be outdated at once. In
 * shared memory it makes no system call.
 *
 * Returns 0: *ret_n_keys > 0; KVL_MISS: not even the first is cached (*ret_n_keys is unchanged);
 * KVL_STALE; -EINVAL; over the socket also -ENOTCONN, -ETIMEDOUT, -EPROTO.
 */
int kvl_probe(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint8_t *ret_tiers,
        uint32_t *ret_n_keys);

/*
 * kvl_probe() that also counts pages that other hosts share (tenant option `remote`): for routers
 * and schedulers. keys[0..n_keys-1] (n_keys >= 1) are in order of the sequence. This host has the
 * first *ret_n_here of them cached. This host and others together have *ret_n_keys without a gap: 0
 * <= *ret_n_here <= *ret_n_keys <= n_keys. *ret_would_load (may be NULL): 1 if kvl_import_start()
 * would load some of the KVL_MAX_IMPORT_KEYS keys after *ret_n_here, because that is quicker than
 * computing them; else 0. Keys that are being computed don't count, as with kvl_probe(). It pins,
 * loads and changes nothing on any host, and doesn't count as use, so the result may be outdated at
 * once. Read-only clients may call it, too.
 *
 * Other hosts are asked only if some keys aren't cached here. That takes at most timeout_msec
 * (1..600000): a round trip to the servers for each KVL_MAX_IMPORT_KEYS keys, each at most the
 * remote's `probe_timeout`. The result is the number found so far if:
 *
 * - The servers don't answer.
 *
 * - Too much is under way: 16 imports and probes of the connection, 32 of the tenant.
 *
 * - The namespace takes no part, or the daemon is too old.
 *
 * Blocks. Returns 0, also if both numbers are 0; KVL_STALE; -EINVAL; -ENOTCONN, -EPROTO, -ECHILD;
 * over the socket also -ETIMEDOUT and -ENOMEM. The results are set only with 0.
 */
int kvl_probe_hosts(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, int timeout_msec,
        uint32_t *ret_n_here, uint32_t *ret_n_keys, int *ret_would_load);

/*
 * Hints that a request for keys[0..n_keys-1] (any number, in order of the sequence) will come soon,
 * as it waits in the engine's queue. For ttl_msec (0: 30,000; at most KVL_MAX_EXPECT_MSEC), or
 * until a lookup finds the sequence, its cached pages are spared by eviction. Those in lower tiers
 * are brought to the device. No promise: at most a quarter of a namespace's pages is spared, the
 * earliest hints first, and they are evicted if nothing else can be.
 *
 * Call it once for each request, when it begins to wait. A cancelled request needs no call. Pages
 * published later aren't spared. Doesn't wait for an answer. In shared memory it finds the pages
 * itself, and rings the daemon if that sleeps.
 *
 * Returns 0, also if nothing of the sequence is cached, or the daemon is too old for it; -EAGAIN:
 * the daemon isn't told, as it doesn't read, many submissions wait for it, or another thread is
 * submitting. KVL_STALE; -EINVAL; -ENOTCONN; -ENOMEM; -EPROTO; -ECHILD.
 */
int kvl_expect(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint32_t ttl_msec);

/* Returns the tier of a page number (enum kvl_tier), or -EINVAL: no such page. Doesn't block. */
int kvl_page_tier(const struct kvl_ns *ns, uint32_t page);

/*
 * Brings pinned pages to the device (any number). ret_pages[i] (n_pages entries; may be `pages`) is
 * the mapped page that now has the contents of pages[i], and the pin moves to it. Pages on the
 * device stay. A page that can't be brought up stays, too: ret_pages[i] is pages[i], still pinned.
 * ret_pages is filled in any case, except for -EINVAL of an argument.
 *
 * Returns 0: all are on the device. KVL_FULL: no room for a page. KVL_MISS: a page was evicted or
 * damaged. KVL_QUOTA: as kvl_lookup(). -ETIMEDOUT: some weren't brought up in time. -EINVAL: a page
 * isn't pinned. -ENOMEM; -ENOTCONN; -EIO.
 */
int kvl_fetch(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, uint32_t *ret_pages);

/*
 * Leases n_pages (1..KVL_MAX_LEASE_PAGES) for writing, all or none, mapped. Contents are undefined,
 * but never another tenant's. If there is no room, it waits if the tenant has when_full = queue, or
 * if the tenant's own memory is lent to others. The connection's timeout ends the wait, too
 * (-ETIMEDOUT).
 *
 * Returns 0; KVL_QUOTA, KVL_RESERVATION, KVL_FULL, KVL_DRAINING, KVL_STALE; KVL_TIMEOUT; -EINVAL;
 * -ENOMEM; -EIO.
 */
int kvl_lease(struct kvl_ns *ns, uint64_t request, uint32_t n_pages, uint32_t *ret_pages);

/*
 * Returns how many pages leases would get now without waiting, and without taking memory from other
 * tenants. It counts the namespace's free pages, its cached pages that no client holds, and pages
 * granted to this connection ahead. It also counts device memory that the tenant may still take,
 * except memory reserved for others.
 *
 * A hint that may be outdated at once, and reserves nothing. Pages released in shared memory count
 * only after the daemon has looked, some 10 ms or more after the next request to it. 0 is no
 * refusal: other tenants may be made to give memory back. A number is no promise: if a sequence's
 * end is in use, nothing before it can be evicted. In shared memory it costs a few loads and no
 * system call, also while the daemon is stopped or away.
 *
 * Returns pages (>= 0). 0: limit or memory are used up and all of it is held, the daemon drains, or
 * the namespace is stale. -EINVAL; -ECHILD; over the socket also -ENOTCONN, -ETIMEDOUT, -EPROTO.
 */
int kvl_leasable_pages(struct kvl_ns *ns);

/*
 * Checks whether n_pages (> 0) of the namespace could be held together if all memory not reserved
 * for others were available. Pages that the connection holds count among them. An engine uses it to
 * refuse a sequence that needs too many pages instead of waiting.
 *
 * Returns 0: they could, once there is room; always with a daemon that is too old. KVL_QUOTA,
 * KVL_RESERVATION, KVL_FULL: limit, reservation or device are too small; kvl_last_error() has the
 * bytes needed, the bound and the remedy. -EINVAL; -ECHILD; -ENOTCONN; -ETIMEDOUT; -EPROTO.
 */
int kvl_check_room(struct kvl_ns *ns, uint32_t n_pages);

/* For pages with consecutive numbers, which are adjacent in memory if kvl_ns_info says that pages
 * are contiguous. */
enum kvl_lease_flags {
        /*
         * All pages of the lease are consecutive, in ascending order. KVL_FULL with
         * KVL_REASON_NO_RUN: enough pages are free, but no such run. The lease neither waits nor
         * evicts for a run. If the tenant is degraded when it is full, and min_pages is set: as
         * many as there are. -EOPNOTSUPP: the daemon is too old.
         */
        KVL_LEASE_CONTIGUOUS = 1 << 0,
        /* Prefers few long runs of consecutive pages, each ascending, found without much searching.
         * Never a reason for a refusal. */
        KVL_LEASE_PREFER_CONTIGUOUS = 1 << 1
};

struct kvl_lease_options {
        size_t size;        /* sizeof(struct kvl_lease_options) */
        uint32_t min_pages; /* fewest pages of use, if when_full = degrade; 0: n_pages */
        /* Longest wait for room. The tenant allows max_wait if when_full = queue, else (the
         * default) no wait. < 0: no wait; 0: as the tenant allows, in a blocking call at most the
         * connection's timeout. */
        int max_wait_msec;
        unsigned flags; /* enum kvl_lease_flags: one of them, or 0 */
};

struct kvl_lease_result {
        size_t size;            /* set by the caller: sizeof(struct kvl_lease_result) */
        uint32_t n_pages;       /* granted */
        enum kvl_reason reason; /* why it was refused, waited or got fewer; else NONE */
        uint64_t waited_usec;   /* for room, in the daemon */
};

/*
 * Does kvl_lease(), with options for a lack of room, and a result. options NULL: all defaults. ret
 * (may be NULL) is filled in any case, with zeros if the daemon wasn't asked or didn't answer. The
 * connection's timeout starts after the longest wait that was asked for. The call holds no pages
 * while it waits.
 *
 * Returns as kvl_lease(). 0: ret->n_pages pages, at least min_pages. KVL_TIMEOUT: the wait was in
 * vain.
 *
 * Safe points. A lease may wait for memory that this process must give back. A thread that waits in
 * here runs the event handler (KVL_EVENT_REVOKE), but reaches no safe point itself. So an engine
 * that declares safe points uses kvl_lease_with_start(). Or it calls kvl_safepoint() from another
 * thread, or from the event handler if its leasing thread is between two steps.
 */
int kvl_lease_with(struct kvl_ns *ns, uint64_t request, uint32_t n_pages,
        const struct kvl_lease_options *options, uint32_t *ret_pages, struct kvl_lease_result *ret);

struct kvl_publish {
        size_t size;               /* sizeof(struct kvl_publish) */
        const uint32_t *pages;     /* leased, written, in order of the sequence */
        const uint8_t *keys;       /* n_pages * 32 bytes */
        uint32_t n_pages;          /* any number */
        const uint8_t *parent_key; /* key of the page before these; NULL: they begin the sequence */
        uint32_t last_tokens;      /* tokens in the last page, 1..page_tokens; others are full */
        uint64_t request;
        /* The session that these pages extend, of the same namespace. NULL: none. -ENOENT: another
         * client dropped it, and nothing is published. */
        const struct kvl_session *session;
        uint64_t tag; /* document of these pages, for kvl_invalidate_tag(); 0: none */
        /* Not 0: these are pages of layers with a window of attention, and the sequence goes on
         * beyond the window. Only a sequence that begins where one of these pages ends needs that
         * page. The page is evicted before pages without this flag, until a lookup finds it. An
         * older daemon ignores the flag. Since 0.2. */
        int window_passed;
        /*
         * The token ids of all these pages, for followers (kvl_follow_open()): n_pages - 1 times
         * page_tokens, then last_tokens. NULL: unknown. Ignored if the tenant has no events, if
         * another client was first with ids, and by older daemons. Without shared memory a started
         * publish sends no ids that make its message longer than 64 KiB. Since 0.2.
         */
        const uint32_t *token_ids;
        /*
         * The name of the text's LoRA adapter, and its cache salt. NULL: none. By these followers
         * tell texts with equal token_ids apart. Ignored if parent_key isn't NULL: a page belongs
         * to the text of its parent. If both have more than 78 bytes together, token_ids count as
         * unknown. Since 0.2.
         */
        const char *lora_name, *cache_salt;
};

/*
 * Publishes pages. They are immutable from now on, and all workers of the tenant can find them.
 * This client has a pin on each until it releases it. ret_pages (n_pages entries; may be NULL if no
 * other client publishes these keys): the page that has each key. It may be in a lower tier if
 * another client was first. *ret_n_pages (may be NULL): how many were handled, set in any case but
 * -EINVAL before the first.
 *
 * Returns 0: all. KVL_DUPLICATE: all were handled, and another client was first with some: there
 * ret_pages[i] != pages[i], and pages[i] is still leased; free it. KVL_NO_PARENT, KVL_STALE,
 * KVL_QUOTA (pins, as kvl_lookup()), -EINVAL: stopped there; the rest is still leased. -EINVAL
 * also: a page would end beyond token 2^32 - 1 of its sequence, truncated parts of the session
 * included. A sequence can't be longer: begin another session.
 */
int kvl_publish(struct kvl_ns *ns, const struct kvl_publish *publish, uint32_t *ret_pages,
        uint32_t *ret_n_pages);

/* Drops one pin of each page, in the order of the sequence (any number). Returns 0; -EINVAL: a page
 * isn't pinned, and none of its batch of KVL_MAX_LEASE_PAGES is dropped. */
int kvl_release(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/*
 * Adds a pin to pages that this connection has pinned already (any number, in any order, repeated
 * or not): for a sequence that forks. Each pin needs a kvl_release() of its own. In shared memory
 * it makes no system call.
 *
 * Returns 0; -EINVAL: a page isn't pinned by this connection; -EOVERFLOW: a page is pinned some
 * 2^31 times; KVL_QUOTA: over the socket, more pins than the tenant allows a client. After an error
 * no page has another pin. Exception: over the socket earlier batches of KVL_MAX_LEASE_PAGES may.
 */
int kvl_pin(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/* Gives leased, unpublished pages back (any number). Returns 0; -EINVAL as kvl_release(). */
int kvl_free(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/*
 * Drops the page with `key` and everything after it; NULL: the whole namespace. Afterwards no
 * client finds any of it. Meanwhile lookups of other clients find less and less (of a whole
 * namespace: all or nothing). Pinned pages stay readable. It takes some 1 s for a million pages,
 * and other calls of this connection that need kvleased wait for it. Other hosts that share the
 * tenant's pages (docs/measure/REMOTE.md) drop the same a second later, if they reach the servers.
 * They load nothing written before. *ret_n_pages (may be NULL): pages dropped.
 *
 * Returns 0; -EAGAIN: some 60 are under way in the namespace, or on this connection. This one
 * wasn't begun: repeat it once another has returned.
 */
int kvl_invalidate(struct kvl_ns *ns, const uint8_t *key, uint64_t *ret_n_pages);

/* Does kvl_invalidate() for pages published with a tag, by any client, and everything after them.
 * Neither function reaches pages that a truncated session keeps after its gap: drop the session.
 * -EINVAL also: tag is 0. */
int kvl_invalidate_tag(struct kvl_ns *ns, uint64_t tag, uint64_t *ret_n_pages);

/* Does kvl_invalidate() with NULL, because a found page held other numbers than the caller computed
 * for its key. kvleased counts it for the tenant (kvlease_verify_failures_total), and logs an event
 * if pages were dropped. Older daemons drop the pages and don't count. */
int kvl_invalidate_mismatch(struct kvl_ns *ns, uint64_t *ret_n_pages);

/*
 * Copies the contents of a pinned page into a leased one, in the planes that are mapped, within the
 * device. For a partly filled last page, which can't be written any more. The caller fills the rest
 * of the copy, and publishes it under the longer sequence's key. Done when it returns. On a GPU the
 * copy isn't ordered with work on streams. Returns 0; -EINVAL; -EACCES: metadata-only; -ENOENT: a
 * page isn't mapped; -EIO.
 */
int kvl_page_copy(struct kvl_ns *ns, uint32_t from_page, uint32_t to_page);

/*
 * Reports which leased, unpublished pages this connection still holds (any number; none: pages may
 * be NULL), after it lost track of them. All others that its group has leased in the namespace are
 * freed. *ret_n_freed (may be NULL): how many. Returns 0; -EBUSY: other members of the group have
 * the namespace open.
 */
int kvl_report(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, uint64_t *ret_n_freed);

/* ---- single flight --------------------------------------------------------------------------- */

/*
 * Announces a computation before it begins: page pages[i] (leased by this connection's group) is
 * about to get keys[i], in order of the sequence. n_pages: at most KVL_MAX_PUBLISH_PAGES. Clients
 * that ask for one of these keys meanwhile can wait for its publish. An announcement ends with the
 * page's publish or kvl_free(), with this connection, and with the daemon, also in a restart.
 * *ret_n_pages: how many were announced, set in any case; 0 if the daemon didn't answer.
 *
 * Returns 0: all. KVL_PENDING: another client is computing keys[*ret_n_pages]: free the rest of the
 * pages, and kvl_wait() for that key. KVL_DUPLICATE: that key is cached: look it up. -EINVAL: a
 * page isn't leased, or is announced already. -ENOSPC: the index is full there: go on without
 * announcing. KVL_STALE.
 */
int kvl_announce(struct kvl_ns *ns, const uint32_t *pages, const uint8_t *keys, uint32_t n_pages,
        uint32_t *ret_n_pages);

/*
 * Waits until the client that announced `key` has published it, or gave up. Pins nothing. In shared
 * memory it doesn't ask the daemon: while that is stopped or away, cached keys are found, and
 * others waited for until the timeout. Events wait for the next call.
 *
 * Returns 0: the key is cached: look it up. KVL_MISS: no client computes it: announce and compute
 * it. KVL_TIMEOUT after timeout_msec (1..600000; over the socket a restarted daemon counts anew):
 * clients that wait for each other end so. KVL_STALE. -EBUSY: over the socket, some 250 waits of
 * the connection are under way.
 */
int kvl_wait(struct kvl_ns *ns, const uint8_t *key, int timeout_msec);

/* Does kvl_wait() without blocking, like other kvl_*_start(); code is kvl_wait()'s result. -EBUSY:
 * some 250 of these wait on the connection already. done may be NULL. */
int kvl_wait_start(struct kvl_ns *ns, const uint8_t *key, int timeout_msec,
        void (*done)(struct kvl_ns *ns, int code, void *data), void *data);

/*
 * Does kvl_lookup(), and waits, up to timeout_msec in all, for keys that other clients are
 * computing. It also waits for pages that the daemon imports from other hosts (tenant option
 * `remote`). The question to other hosts takes at most a quarter of the time left. It ends once a
 * key is neither cached nor being computed, or the time is over, with the longest run found.
 * *ret_is_pending (may be NULL; set with KVL_MISS, too): 1 if the key after the last found one is
 * still being computed. Returns as kvl_lookup().
 */
int kvl_lookup_wait(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        int timeout_msec, uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens,
        int *ret_is_pending);

/*
 * Has the daemon import pages of a sequence from other hosts (tenant option `remote`), if that is
 * quicker than computing them. It doesn't block, like other kvl_*_start(), so engines schedule
 * other requests meanwhile. keys[0..n_keys-1] (n_keys >= 1; only the first KVL_MAX_IMPORT_KEYS
 * count) are in order of the sequence. parent_key is the key before them (NULL: they begin the
 * sequence); it is cached here, and keys[0] isn't. timeout_msec: 1..600000, kept by the daemon. The
 * question to other hosts takes at most a quarter of it, and the remote's `probe_timeout`. Pins
 * nothing.
 *
 * Returns as other kvl_*_start(), or KVL_MISS: the namespace takes no part, nothing was started,
 * and done (may be NULL) isn't called.
 *
 * code: 0: keys[0] is cached by now, and the following ones as far as they came: look them up.
 * KVL_MISS: no other host has it, or not in time, or computing is quicker. KVL_TIMEOUT: another
 * client of this host computes it, and hasn't published it yet. KVL_STALE. -EBUSY: 16 of these are
 * under way on the connection: try later. -EACCES: the connection is read-only. -ENOMEM; -ENOTCONN;
 * -ECANCELED.
 */
int kvl_import_start(struct kvl_ns *ns, const uint8_t *parent_key, const uint8_t *keys,
        uint32_t n_keys, int timeout_msec, void (*done)(struct kvl_ns *ns, int code, void *data),
        void *data);

/*
 * Reports that this engine has computed n_tokens (>= 1) prompt tokens (prefill) in nsec nanoseconds
 * (1 to an hour). Both may be sums over all requests of several steps. kvl_import_start() and
 * kvl_lookup_wait() use it to load only pages that arrive sooner than this engine computes them.
 * Recent steps count most. The tenant's option `remote_prefill` overrides the measurement.
 *
 * Steps that also decode count with all their time, as a prompt waits for them. Ten calls a second
 * are plenty: sum steps up. Doesn't wait. Returns 0, also if the namespace takes no part and
 * nothing is done; -EINVAL; -EAGAIN, -ENOTCONN, -EPROTO, -ENOMEM, -ECHILD: as kvl_request_end().
 */
int kvl_note_prefill(struct kvl_ns *ns, uint32_t n_tokens, uint64_t nsec);

/*
 * Does kvl_lookup() in all n_ns (1..64) namespaces of a set: finds the longest run that is cached
 * in every one. The namespaces are open on this process's connections and use the same keys for the
 * same sequence. ret_pages: n_ns * n_keys entries, those of nss[i] from ret_pages[i * n_keys] on.
 * Pages beyond the common run aren't pinned.
 */
int kvl_lookup_set(struct kvl_ns *const *nss, uint32_t n_ns, uint64_t request, const uint8_t *keys,
        uint32_t n_keys, uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens);

/* ---- sessions -------------------------------------------------------------------------------- */

/* A session is a named chain of pages (a conversation) that the daemon keeps. It outlives the
 * worker, and any worker of the tenant opens it again by its id. It ends at the last page published
 * to it (struct kvl_publish). Its pages can be evicted like any others, from its end. */
struct kvl_session;

enum kvl_hint {
        KVL_HINT_UNKNOWN = 0,
        KVL_HINT_CONTINUES = 1, /* another turn will come */
        KVL_HINT_DONE = 2,      /* no turn will come */
        KVL_HINT_RETURNS = 3    /* a turn will come, in about after_msec (a tool call) */
};

#define KVL_SESSION_ID_MAX 64

struct kvl_session_options {
        size_t size;         /* sizeof(struct kvl_session_options) */
        int must_exist;      /* -ENOENT instead of creating one */
        uint32_t expire_sec; /* dropped after this long without use; 0: the tenant's value */
        uint32_t load_msec;  /* time limit for loading it from another host first, up to 600,000; 0:
                              * isn't loaded */
};

struct kvl_session_info {
        size_t size; /* set by the caller: sizeof(struct kvl_session_info) */
        int is_new;
        uint32_t n_pages;                /* cached now */
        uint64_t n_tokens;               /* up to its end, with truncated and lost ones */
        uint64_t lost_tokens;            /* at its end: evicted, must be computed again */
        uint8_t last_key[KVL_KEY_BYTES]; /* of its last page, if n_pages > 0 */
};

/*
 * Opens the session with this id (1..KVL_SESSION_ID_MAX opaque bytes), or creates it. Several
 * clients may have it open. options and info may be NULL; info is a snapshot. Returns 0:
 * *ret_session is owned by the namespace (kvl_session_close(), kvl_ns_close()). -ENOENT; -EMFILE:
 * too many sessions; KVL_STALE; -EINVAL; -ENOMEM.
 *
 * load_msec applies if the namespace's pages are exchanged with other hosts. The session is then as
 * on the host that last finished a turn of it. A turn is finished when all clients there have
 * closed the session, or by a hint other than KVL_HINT_DONE. Pages that can't be loaded in time are
 * lost at its end (lost_tokens). A failure to load is no error.
 *
 * Exception: the session is opened as it is here if it is open on this host, was truncated, or has
 * turns unknown to other hosts. So if two hosts continue a session at the same time, each has its
 * own. Further hosts follow the one that finished last.
 */
int kvl_session_open(struct kvl_ns *ns, const void *id, size_t id_bytes,
        const struct kvl_session_options *options, struct kvl_session_info *info,
        struct kvl_session **ret_session);

struct kvl_session_page {
        uint32_t page;
        uint32_t n_tokens;
        uint64_t first_token; /* position in the sequence: gaps are pages given up */
        uint8_t key[KVL_KEY_BYTES];
};

/*
 * Finds the session's pages in order of the sequence, from index `from` on, at most `max` (any
 * number). Each is pinned and mapped: release it. Pages in lower tiers are brought to the device as
 * in kvl_lookup(). Exception: pages that a truncation left in a lower tier stay there: read them
 * through a window (kvl_window_open()).
 *
 * Returns 0: *ret_n_pages > 0; KVL_MISS: none; -ENOENT: another client dropped the session;
 * KVL_STALE; KVL_QUOTA: as kvl_lookup().
 */
int kvl_session_pages(struct kvl_session *session, uint32_t from, uint32_t max,
        struct kvl_session_page *ret_pages, uint32_t *ret_n_pages);

/*
 * Keeps the pages with the first first_tokens and the last last_tokens tokens, and gives up those
 * between. Pages stay whole and in place; a partial last page belongs to the last tokens. Pages
 * after the gap, and those published to the session later, can be found only through the session.
 * In another context their keys would be wrong. A publish continues one of the last 256 pages after
 * the gap (parent_key); the pages after that one leave the session. *ret_n_pages (may be NULL):
 * pages given up.
 *
 * Returns 0; -EINVAL; -ENOENT; -ENOMEM; -EAGAIN: nothing changed, as another client published to
 * the session meanwhile or is truncating it, or many other sessions of the namespace are being
 * truncated.
 */
int kvl_session_truncate(struct kvl_session *session, uint64_t first_tokens, uint64_t last_tokens,
        uint32_t *ret_n_pages);

#define KVL_SESSION_RANGES_MAX 1024
#define KVL_TEXT_END           UINT64_MAX /* the end of the sequence */

/* Positions in a sequence: the tokens from first_token on, before end_token. */
struct kvl_token_range {
        uint64_t first_token;
        uint64_t end_token;
};

/*
 * Keeps the pages that have a token of one of the ranges, and gives up all others, anywhere in the
 * sequence. Can be repeated. Ranges: 1..KVL_SESSION_RANGES_MAX, ascending, without common tokens.
 * Pages stay whole and in place: see first_token. Only the last range may end in KVL_TEXT_END. If
 * it ends before the sequence does, the sequence ends with the last page kept, and is continued
 * there. Pages after the first one given up are as after kvl_session_truncate(): found only through
 * the session. Lost (evicted) tokens aren't kept; tokens given up before can't be asked for.
 * Sessions of a set's namespaces are independent: each keeps its own ranges. *ret_n_pages (may be
 * NULL): pages given up.
 *
 * Returns 0; -EINVAL: wrong ranges, or their tokens are beyond the sequence or given up. All else
 * as kvl_session_truncate(); -EAGAIN also if the session lost pages after a gap meanwhile.
 */
int kvl_session_keep(struct kvl_session *session, const struct kvl_token_range *ranges,
        uint32_t n_ranges, uint32_t *ret_n_pages);

/* Tells the eviction policy about the session's next turn; after_msec: for RETURNS. Doesn't wait.
 * Returns 0; -EINVAL; -EAGAIN: as kvl_request_end(); -ENOTCONN. */
int kvl_session_hint(struct kvl_session *session, enum kvl_hint hint, uint32_t after_msec);

/* Closes the session. drop: also drops it for all clients, with the pages that only it uses. The
 * handle is invalid afterwards in any case. NULL is ignored. Returns 0; -ENOENT: drop was set, and
 * another client had dropped it. */
int kvl_session_close(struct kvl_session *session, int drop);

/* ---- page tables ----------------------------------------------------------------------------- */

/*
 * The block table of one sequence, for an engine. It has page numbers in order of the sequence, as
 * a flat array and as two levels (groups of group_pages). Updated in place as the sequence grows.
 * An append costs O(1) on average: the flat array moves when it outgrows its allocation, which
 * doubles; groups never move. A truncation costs O(pages that move or are removed). Memory isn't
 * given back before the table is freed. Plain memory of this process; one thread at a time.
 */
struct kvl_page_table;

/* Makes a table. group_pages: a power of two, 16..4096; max_pages: the table's limit, 0: none.
 * Returns 0; -EINVAL; -ENOMEM. */
int kvl_page_table_new(uint32_t group_pages, uint32_t max_pages, struct kvl_page_table **ret_table);
void kvl_page_table_free(struct kvl_page_table *table); /* NULL is ignored */

/* Appends pages. Returns 0; -EINVAL; -ENOSPC: max_pages; -ENOMEM (both views unchanged; the array
 * of groups may have moved). */
int kvl_page_table_append(struct kvl_page_table *table, const uint32_t *pages, uint32_t n_pages);

/* Replaces the page at this index: for a partial page that was extended. Returns 0; -EINVAL: beyond
 * the end. */
int kvl_page_table_replace(struct kvl_page_table *table, uint32_t index, uint32_t page);

/* Keeps the first n_first and the last n_last pages; the last ones move up behind the first.
 * Returns 0; -EINVAL: more than there are. */
int kvl_page_table_truncate(struct kvl_page_table *table, uint32_t n_first, uint32_t n_last);

/* Returns the number of pages. */
uint32_t kvl_page_table_n_pages(const struct kvl_page_table *table);

/* Returns all pages; valid until the next append that moves the table. NULL if there are none. */
const uint32_t *kvl_page_table_flat(const struct kvl_page_table *table);

/* Returns the groups of group_pages entries each. Unused entries of the last one are KVL_PAGE_NONE.
 * Groups stay in place; the array of groups is valid until the next append that makes it grow. */
const uint32_t *const *kvl_page_table_groups(
        const struct kvl_page_table *table, uint32_t *ret_n_groups);

/* ---- followers of the cache ------------------------------------------------------------------ */

/*
 * A follower learns of the cached pages of all namespaces whose tenant has events (kvleased's
 * option `events` of a tenant): for routers. On a tenant's socket it sees that tenant. On
 * monitor.sock it sees all tenants.
 *
 * kvleased writes the events of a namespace to memory that followers only read, and waits for no
 * follower. A follower that falls behind gets KVL_FOLLOW_RESET and the pages that are cached then.
 * Order within a namespace; none between namespaces:
 *
 *   NAMESPACE -> RESET -> STORED... -> SYNCED -> {STORED, MOVED, REMOVED, CLEARED}... -> GONE
 *                  ^------------------------------------------/
 *
 * - A page is stored after its parent, and removed before its parent.
 *
 * - Each STORED, MOVED and REMOVED is true of its time. STORED of a page that is stored already, in
 *   the same tier, adds token ids.
 *
 * - A page has one tier at a time.
 *
 * The connection is the follower's own. After a hang-up it connects again by itself, and goes on
 * with namespaces that kvleased still has. One thread at a time uses a follower. A forked child
 * may only close it. Since 0.2.
 */
struct kvl_follower;

struct kvl_follow_options {
        size_t size;             /* sizeof(struct kvl_follow_options) */
        const char *socket_path; /* NULL: $KVLEASE_SOCKET, else /run/kvlease/sock */
        const char *client_name; /* <= 64 bytes, for kvleased's log; NULL: program name */
        int timeout_msec;        /* of connecting and each request; < 0: for ever; 0: 30 s */
        const char *tenant; /* only its namespaces are followed; NULL: all. Each that is takes a
                             * descriptor and, at a RESET, memory for its cached pages */
};

enum kvl_follow_kind {
        KVL_FOLLOW_NAMESPACE = 1, /* `ns` is followed from now on */
        KVL_FOLLOW_RESET = 2,     /* forget all pages of `ns`: the cached ones follow, as STORED */
        KVL_FOLLOW_SYNCED = 3,    /* all pages that were cached at a RESET have been told */
        KVL_FOLLOW_STORED = 4,
        KVL_FOLLOW_REMOVED = 5, /* the page can't be found in `tier` any more, and in no other */
        KVL_FOLLOW_MOVED = 6,   /* the page left from_tier, and is in `tier` now */
        KVL_FOLLOW_CLEARED = 7, /* `ns` was invalidated: none of its pages can be found any more */
        KVL_FOLLOW_GONE = 8     /* `ns` ended; its struct is freed by the next call */
};

/* A followed namespace. Strings and struct last until the call after its GONE. */
struct kvl_follow_ns {
        uint64_t id; /* unique in the follower */
        const char *tenant, *name;
        const char *model, *version; /* as in struct kvl_layout */
        const void *format;          /* as in struct kvl_layout */
        size_t format_bytes;
        uint32_t page_tokens;
        uint32_t layer_group;
        uint32_t tp_rank, tp_size;
        void *user; /* the caller's; NULL at first */
};

struct kvl_follow_event {
        size_t size; /* set by the caller: sizeof(struct kvl_follow_event) */
        enum kvl_follow_kind kind;
        struct kvl_follow_ns *ns;
        /* The rest is set for STORED, MOVED and REMOVED, else NULL and 0. REMOVED has key, n_tokens
         * and tier only. Pointers are borrowed until the next call on the follower. */
        const uint8_t *key;        /* KVL_KEY_BYTES */
        const uint8_t *parent_key; /* KVL_KEY_BYTES; NULL: the page begins a text */
        const uint32_t *token_ids; /* n_tokens of them; NULL: the publisher gave none */
        uint32_t n_tokens;         /* in the page, 1..page_tokens */
        uint32_t depth;            /* pages of the text up to the page's end, 1..2^30 - 1 */
        uint64_t tag;              /* as published; 0: none */
        uint8_t tier, from_tier;   /* enum kvl_tier; from_tier: MOVED */
        /* The publisher's, of the text that the page begins; NULL: none. NULL in pages that begin
         * no text. They have any bytes but NUL. */
        const char *lora_name, *cache_salt;
};

/* Connects, up to the timeout. options may be NULL; borrowed. Returns 0: *ret_follower is owned
 * (kvl_follow_close()). -EOPNOTSUPP: kvleased is too old. Otherwise as kvl_connect(); the admin
 * socket and monitor.sock are taken, too. */
int kvl_follow_open(const struct kvl_follow_options *options, struct kvl_follower **ret_follower);

/*
 * Gets the next event. Waits for one up to timeout_msec (0: not at all; < 0: for ever), and looks
 * every 10 ms. New namespaces, and the end of one, are noticed within a second. Reads shared memory
 * and takes no time of kvleased, except for one message each second.
 *
 * While kvleased is away there are no events. After it ended for good, its namespaces are GONE once
 * another kvleased answers on the socket.
 *
 * Returns 1: *ret_event is filled as far as ret_event->size goes. 0: none in time. -EINVAL;
 * -ECHILD. -ENOMEM: nothing is lost; call again.
 */
int kvl_follow_next(
        struct kvl_follower *follower, int timeout_msec, struct kvl_follow_event *ret_event);

/* Returns 1: the follower is connected, or hasn't noticed a hang-up yet; 0: kvleased is away. */
int kvl_follow_is_connected(const struct kvl_follower *follower);

/* Begins all followed namespaces anew: RESET, STORED..., SYNCED. */
void kvl_follow_reset(struct kvl_follower *follower);

/* Ends the follower and frees it with its namespaces. NULL is ignored. */
void kvl_follow_close(struct kvl_follower *follower);

/* ---- why it hit or missed -------------------------------------------------------------------- */

enum kvl_explain_state {
        KVL_EXPLAIN_NEVER_SEEN = 0, /* not published, or too long ago to be remembered */
        KVL_EXPLAIN_CACHED = 1,
        KVL_EXPLAIN_PENDING = 2, /* announced */
        KVL_EXPLAIN_EVICTED = 3,
        KVL_EXPLAIN_INVALIDATED = 4,
        KVL_EXPLAIN_OTHER_VERSION = 5, /* cached under another version of the namespace */
        KVL_EXPLAIN_EXPIRED = 6
};

struct kvl_explanation {
        enum kvl_explain_state state;
        uint32_t page;       /* CACHED, PENDING; else KVL_PAGE_NONE */
        uint32_t tier;       /* CACHED: enum kvl_tier */
        uint64_t age_sec;    /* CACHED: since its publish; else since its removal */
        uint64_t unused_sec; /* CACHED: since it was last found */
        uint64_t client_id;  /* of its publisher or announcer; 0: unknown */
        char by[65];         /* EVICTED: tenant that got the memory; INVALIDATED: the reason; "" */
};

/* Explains, for people, why these keys (n_keys <= 256) would hit or miss. Pins nothing, and doesn't
 * count as use. ret: n_keys entries. Returns 0; KVL_STALE; -EINVAL. */
int kvl_explain(
        struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, struct kvl_explanation *ret);

/* ---- the same without blocking --------------------------------------------------------------- */

/*
 * Called once for each started call, from kvl_dispatch() or a blocking call. code: the blocking
 * function's result. pages, n_pages, n_tokens: its results, valid during the callback. -ECANCELED:
 * the namespace was closed, or the connection by kvl_disconnect(). done may be NULL. Started calls
 * have no timeout.
 *
 * *_start() functions borrow their arguments during the call only. They return 0; -EINVAL; -ENOMEM;
 * -ENOTCONN; -ECHILD; -EAGAIN: KVL_MAX_STARTED are under way. After an error the callback never
 * runs.
 *
 * Calls may be started from any thread and from callbacks, also while the daemon is stopped or
 * away. Requests that it doesn't take yet wait in this process. A call is under way from *_start()
 * until its callback begins, also without a callback: then it ends in kvl_dispatch(). Exception: a
 * release in shared memory without a callback is over at once, and its result is returned. So each
 * callback may start at least one call. The limit counts the calls of all namespaces of the
 * connection, and those of _on_stream().
 *
 * After -EAGAIN wait for any of their callbacks: only that makes room. kvl_wait_start() and
 * kvl_lease_with_start() may take long. If they use up the limit, the calls that they wait for
 * can't be started.
 */
typedef void (*kvl_done_fn)(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data);

/* Started forms of the blocking calls of the same names. */
int kvl_lookup_start(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        kvl_done_fn done, void *data); /* n_keys <= KVL_MAX_LOOKUP_KEYS */
int kvl_fetch_start(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_done_fn done,
        void *data); /* pages: kvl_fetch()'s ret_pages; n_pages <= KVL_MAX_LEASE_PAGES */
int kvl_lease_start(
        struct kvl_ns *ns, uint64_t request, uint32_t n_pages, kvl_done_fn done, void *data);
int kvl_publish_start(struct kvl_ns *ns, const struct kvl_publish *publish, kvl_done_fn done,
        void *data); /* n_pages <= KVL_MAX_PUBLISH_PAGES */
int kvl_release_start(
        struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_done_fn done, void *data);
int kvl_free_start(
        struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_done_fn done, void *data);

/*
 * Callback of kvl_lease_with_start(): like kvl_done_fn, with result as kvl_lease_with()'s ret,
 * valid during the callback. The only timeout is max_wait. Other calls overtake the lease while it
 * waits, except for leases of the same connection. -EBUSY: some 500 of these wait behind it
 * already.
 */
typedef void (*kvl_lease_done_fn)(struct kvl_ns *ns, int code, const uint32_t *pages,
        const struct kvl_lease_result *result, void *data);

/* Does kvl_lease_with() without blocking. */
int kvl_lease_with_start(struct kvl_ns *ns, uint64_t request, uint32_t n_pages,
        const struct kvl_lease_options *options, kvl_lease_done_fn done, void *data);

/* ---- GPU streams ----------------------------------------------------------------------------- */

/*
 * A CUstream of this process and of the namespace's device (else -EINVAL). NULL: the legacy default
 * stream of the thread's current context if that is of the device, else of the device's primary
 * context. The host device has only NULL, and calls take effect at once. Not a stream that is being
 * captured into a graph (-EINVAL). A stream must exist until the callbacks of pages published on it
 * have run.
 */
typedef void *kvl_stream;

/*
 * Like the calls without "_on_stream", but they take effect after all earlier work on the stream,
 * without waiting. A host function on the stream submits the publish, or releases the pins and
 * pages. The order within a stream is kept. Exception: the daemon may see a release in shared
 * memory before an earlier publish. So release a page published on a stream, or its parent, only
 * after the publish's callback. If the namespace is closed first, nothing takes effect (a publish's
 * callback: -ECANCELED). publish: its callback runs as of kvl_publish_start(); only work on the
 * stream may still write the pages. release: the pages must be pinned, and stay pinned until then.
 *
 * If the stream's context breaks (an illegal access, ECC), nothing takes effect. The publish ends
 * with -EIO in one of the next kvl_dispatch() calls (no descriptor becomes ready for it), and its
 * pages can only be freed. Every later publish of this connection in a namespace of the device
 * returns -EIO. So no client gets a page that a failed kernel should have written. Releases and
 * frees that wait for the stream are dropped: their pages stay pinned and leased until the
 * namespace is closed or the process exits.
 *
 * Return 0; -EINVAL; -EIO: the context is broken; -ENOMEM; -ENOTCONN; -ECHILD; -EACCES:
 * metadata-only; -EAGAIN: as kvl_publish_start().
 */
int kvl_publish_on_stream(struct kvl_ns *ns, const struct kvl_publish *publish, kvl_stream stream,
        kvl_done_fn done, void *data); /* n_pages <= KVL_MAX_PUBLISH_PAGES */
int kvl_release_on_stream(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages,
        kvl_stream stream); /* n_pages <= KVL_MAX_LEASE_PAGES */
int kvl_free_on_stream(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages,
        kvl_stream stream); /* n_pages <= KVL_MAX_LEASE_PAGES */

/*
 * Called between two steps of the engine. The caller states: no work on `stream`, and no other work
 * of this process, uses pages that it doesn't hold. Gives back memory that the daemon has recalled
 * (KVL_EVENT_REVOKE) and of which this connection holds no page. It waits for the stream, unmaps
 * the memory and tells the daemon. Recalls arrive in kvl_dispatch() and in blocking calls, not
 * here.
 *
 * Returns the number of extent sets given back (0: no work, which costs one load), or -errno: -EIO:
 * the stream is broken, or unmapping failed; -EINVAL: the stream is being captured; -ENOTCONN;
 * -ETIMEDOUT; -ECHILD.
 */
int kvl_safepoint(struct kvl_conn *conn, kvl_stream stream);

/* ---- texts larger than the device ------------------------------------------------------------ */

/*
 * A window over a sequence whose pages don't all fit the device. The first and the last pages stay
 * there, and those between are demoted. They come back in chunks, copied into a buffer of leased
 * pages. One half of it is read while the other is filled. All pages stay pinned in their tiers. So
 * nothing of the sequence is dropped or computed again, and reads return the published bits (unless
 * the namespace has a codec for lower tiers).
 *
 *   open -> { append -> take... }... -> close
 *
 * On the device it needs whole pages for first_tokens and last_tokens, twice chunk_pages, and a
 * page or two that are being demoted. The rest of the sequence must fit the lower tiers. Pages that
 * an engine is about to write aren't in the window: it leases, writes and publishes them as usual,
 * then appends them.
 *
 * One thread at a time uses a window. It survives restarts of the daemon. Its buffer is leased and
 * its sequence pinned: to release pages that KVL_EVENT_REVOKE names, close it.
 */
struct kvl_window;

struct kvl_window_options {
        size_t size; /* sizeof(struct kvl_window_options) */
        /* Tokens at the beginning and the end of the sequence that stay on the device, in whole
         * pages; a partial page counts as one. 0: none. */
        uint64_t first_tokens, last_tokens;
        /* Pages of each half of the buffer, 1..KVL_MAX_WINDOW_CHUNK; 0: 8. */
        uint32_t chunk_pages;
        uint64_t request; /* of the buffer's lease; 0: none */
        /* A conversation whose pages are appended in their tiers; only necessary ones are brought
         * to the device, of the same namespace. NULL: the window is empty. */
        struct kvl_session *session;
};

#define KVL_MAX_WINDOW_CHUNK 256

/*
 * Opens a window and leases its buffer. Borrows the options.
 *
 * Returns 0: *ret_window is owned by the namespace (kvl_window_close(), kvl_ns_close()). KVL_QUOTA,
 * KVL_RESERVATION, KVL_FULL, KVL_DRAINING, KVL_TIMEOUT: no room for the buffer. KVL_STALE. With a
 * session also as kvl_session_pages(), but an empty one is no error, nor are pages that can't be
 * demoted. -EACCES: metadata-only; -EINVAL; -ENOMEM; -ENOTCONN.
 */
int kvl_window_open(struct kvl_ns *ns, const struct kvl_window_options *options,
        struct kvl_window **ret_window);

/*
 * Appends pages that this connection has pinned (published, or found by kvl_find()), in order of
 * the sequence, in any tier. Waits for the demotions that the previous call began, then begins to
 * demote pages that aren't among the first and last any more. Brings first and last pages in lower
 * tiers to the device, if there is room. stream: its work may still read pages that
 * kvl_window_take() handed out; NULL if there is none.
 *
 * Returns 0; -EINVAL, -ENOMEM, -ECHILD: nothing changed. After other errors the window has the
 * pages and their pins, but some pages that should be demoted stay on the device. KVL_FULL: there
 * is no room in the lower tiers. KVL_MISS: a page can't be found any more, or a truncated session
 * holds it in place. KVL_STALE; -ETIMEDOUT; -EIO; -ENOTCONN.
 */
int kvl_window_append(
        struct kvl_window *window, const uint32_t *pages, uint32_t n_pages, kvl_stream stream);

/* Returns the current page numbers, in order of the sequence. Borrowed until the next call on the
 * window. NULL if there are none. */
const uint32_t *kvl_window_pages(const struct kvl_window *window, uint32_t *ret_n_pages);

/*
 * Hands out pages of the sequence for reading, from index `first` on: at least one and at most
 * n_pages, all on the device. *ret_pages[i] has the contents of the sequence's page first + i: the
 * page itself, or a copy. Before it waits for copies, up to the connection's timeout, it begins
 * those of the next chunk. Chunks come in ascending order, and from the beginning again, as for
 * attention layer by layer. Any order works; others are slower.
 *
 * *ret_pages and the bytes are borrowed until the next kvl_window_take(), _append() or _close().
 * Work put on `stream` before that may still read them; copies into the buffer wait for it. The
 * stream must exist until the window is closed, or the second kvl_window_take() after this one.
 *
 * Returns 0; KVL_MISS: a page, named in the sentence, was damaged or evicted, and nothing was
 * handed out; -ETIMEDOUT: the window can only be closed after it; -EIO: the device or its stream is
 * broken; -EINVAL; -ENOMEM; -ENOTCONN; -ECHILD.
 */
int kvl_window_take(struct kvl_window *window, uint32_t first, uint32_t n_pages, kvl_stream stream,
        const uint32_t **ret_pages, uint32_t *ret_n_pages);

/*
 * Does kvl_window_take() for n_planes planes from first_plane on, for attention that works layer by
 * layer. Only these planes of copies are moved and have the sequence's bytes. The next chunk is
 * taken to be the same planes of the following pages; after the sequence's end, as many of the next
 * planes from its beginning. Other planes are moved, too, if a plane's page has less than 4 KiB, or
 * if the daemon is too old to copy some planes. From a disk the daemon reads whole pages. Returns
 * as kvl_window_take(); -EINVAL also: no such planes.
 */
int kvl_window_take_planes(struct kvl_window *window, uint32_t first, uint32_t n_pages,
        uint32_t first_plane, uint32_t n_planes, kvl_stream stream, const uint32_t **ret_pages,
        uint32_t *ret_n_pages);

/* Closes the window: releases its pins and its buffer after the work on the stream. The sequence
 * stays cached in its tiers. NULL is ignored. Returns 0; -EIO, -EINVAL, -ENOMEM, -ENOTCONN: some of
 * it is held until the namespace is closed. */
int kvl_window_close(struct kvl_window *window, kvl_stream stream);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
