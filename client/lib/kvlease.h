/*
 * libkvlease: lease, share and find KV-cache pages owned by kvleased.
 *
 * A worker connects, opens a namespace (one model context), leases pages, writes K and V into them
 * where they are mapped, and publishes them under a key that names their content and everything
 * before it. Any worker of the same tenant that looks the key up gets the very same memory, pinned.
 *
 *   lease -> (write) -> publish -> (read, pinned) -> release
 *         \-> free                lookup -> (read, pinned) -> release
 *
 * Ownership: *borrows* (yours, used during the call), *returns owned* (you free it), *shares*.
 *
 * Returns. 0: done. Negative: an errno, the operation failed and changed nothing, where not said
 * otherwise. Positive: a KVL_* condition listed at the function. kvl_last_error() has a sentence.
 * ret_ parameters are set where 0 is returned. Anything else, conditions such as KVL_MISS included,
 * leaves them untouched, but for the contents of arrays (ret_pages), and where a function says
 * otherwise: after KVL_MISS *ret_n_pages is what it was before. NULL for a connection, namespace,
 * session or window is -EINVAL where nothing else is said; what returns no code returns NULL, "" or
 * 0 then, or does nothing.
 * After -ETIMEDOUT the outcome is unknown: the daemon may still do it. What a late answer to a
 * lookup or lease brings, and the pins of a late publish, the library gives back by itself. After
 * -ENOTCONN, -ESTALE, -ECONNRESET or -EPROTO the connection is over: nothing can be said on
 * it any more, so what is leased and pinned stays so, for the daemon, until the process exits;
 * mapped pages stay readable until kvl_disconnect().
 *
 * Restarts. Where kvleased keeps its state (`kvleased --keep`, or a service manager), a hang-up
 * isn't the end: the connection is away, until the daemon is back and knows it by its secret, and
 * then goes on with all it had: namespaces, addresses, leases, pins, sessions. Nothing fails by
 * that. Blocking calls wait, up to their timeout; started ones complete later; what the daemon may
 * have done already isn't done twice. Whoever waits in a blocking call reconnects meanwhile, or
 * kvl_dispatch() does. KVL_EVENT_AWAY and KVL_EVENT_BACK tell. What doesn't survive: announcements
 * (kvl_announce() again, if somebody should wait); what was asked back by KVL_EVENT_REVOKE, which
 * is told again where it is still wanted; hints and ends of requests that were on their way. Pins
 * of a kvl_lookup() over the socket, or of kvl_session_pages(), that was under way may stay until
 * the namespace is closed. It is over once the daemon was away for too long (reconnect_msec):
 * -ENOTCONN; or where it came back without the state of this connection: -ESTALE, connect anew.
 * That is so, too, where it came back without one of its namespaces: the memory of a GPU was lost
 * (a reset), or handed over by cudaipc, which ends with the daemon. Lookups there give KVL_STALE.
 * kvl_disconnect(), then begin as at first: what was cached is to be computed again, sessions are
 * new. What was mapped by cudaipc means nothing from the end of the daemon on: finish no step on
 * it, and know that lookups give KVL_STALE once kvl_dispatch(), or a blocking call, has found it
 * away, not before.
 *
 * Threads. Every function may be called from any thread, also at the same time on one connection,
 * where its comment says nothing else; calls on one connection wait for each other. Callbacks run
 * in the thread that calls kvl_dispatch() or waits in a blocking call, without any lock held. The
 * library starts no threads, installs no signal handlers, prints nothing and never ends the
 * process.
 *
 * Shared memory. Where the daemon offers it, hits, releases and most leases are made in memory that
 * is shared with it, without a system call (but when memory of the host is found or leased by this
 * process for the first time: one for 64 KiB, instead of the faults that its first use would cost),
 * and go on while it is busy, stopped or away; publishes and frees are queued there, and complete
 * once it is back. Once the connection is over, hits and
 * releases still go on. kvl_uses_shm() tells. What differs from the socket:
 *
 * - kvl_release(), -EINVAL: none of all pages of the call is dropped; but where one is named more
 *   often than it is pinned, those before it are.
 *
 * - kvl_free(), -EINVAL: none is freed within each KVL_SHM_FREE_PAGES of them; the others are.
 *
 * - kvl_*_start(): a lookup, release or lease may be done at once. Its callback waits for
 *   kvl_dispatch(), for which kvl_fd() is ready.
 *
 * - -ENOTCONN is no answer of a lookup or release: they are made all the same.
 *
 * - A thread that makes hits alone never reads the socket: events wait for kvl_dispatch() or a
 *   blocking call, and are dropped when too many wait.
 *
 * Fork. A child must not use a connection of its parent (-ECHILD); mapped pages aren't inherited.
 * Functions without a return value for it do nothing, or return what they do for NULL.
 * kvl_disconnect() in the child gives back the child's descriptor and leaves the parent's
 * connection alone.
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
/* Started calls of one connection that may be under way at the same time: see kvl_done_fn. */
#define KVL_MAX_STARTED 2048
/* Keys that one kvl_import_start() asks for. */
#define KVL_MAX_IMPORT_KEYS 256

/* How long a request may be expected: see kvl_expect(). */
#define KVL_MAX_EXPECT_MSEC 600000

/* Conditions: not errors, listed at the functions that return them. */
enum kvl_condition {
        KVL_MISS = 1,        /* not cached */
        KVL_DUPLICATE = 2,   /* somebody published the key first; their page is returned */
        KVL_QUOTA = 3,       /* the tenant's limit is reached */
        KVL_FULL = 4,        /* the device has no memory left to lease */
        KVL_NO_PARENT = 5,   /* the parent page is not cached (any more) */
        KVL_STALE = 6,       /* the namespace was invalidated, or changed its version */
        KVL_DRAINING = 7,    /* the daemon is draining: nothing new is granted */
        KVL_LAYOUT = 8,      /* the namespace exists with another layout */
        KVL_VERSION = 9,     /* library and daemon have no protocol version in common */
        KVL_TIMEOUT = 10,    /* it waited as long as it may */
        KVL_PENDING = 11,    /* somebody else is computing it */
        KVL_RESERVATION = 12 /* the tenant's reservation is used up, and it may not go beyond it */
};

/* Why a lease was refused, waited, or got fewer pages than it asked for. A newer daemon may have
 * others. */
enum kvl_reason {
        KVL_REASON_NONE = 0,
        KVL_REASON_QUOTA = 1,            /* the tenant's limit */
        KVL_REASON_RESERVATION_FULL = 2, /* a pinned tenant that keeps to its reservation */
        KVL_REASON_POOL_FULL = 3,        /* the memory that all tenants share */
        KVL_REASON_DEADLINE = 4,         /* it has waited as long as it may */
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

/* Sentence for any return value of this library ("ok", "the tenant's limit is reached"). Static or
 * thread-local. */
const char *kvl_strerror(int code);

/* ---- connection ------------------------------------------------------------------------------ */

enum kvl_connect_flags {
        KVL_CONNECT_METADATA_ONLY =
                1 << 0,              /* never maps: kvl_page_ptr() is NULL (a scheduler process) */
        KVL_CONNECT_NO_SHM = 1 << 1, /* no shared memory, everything over the socket; so does
                                       $KVLEASE_NO_SHM, set and neither empty nor 0 */
        /*
         * The engine calls kvl_safepoint() between steps, and lets go of what KVL_EVENT_REVOKE
         * names. Only where all processes of a tenant say so can memory it has mapped go to tenants
         * that deserve it, and can it use what others have reserved and don't need. Who says so and
         * doesn't keep to it has its memory quarantined.
         */
        KVL_CONNECT_SAFEPOINTS = 1 << 2
};

struct kvl_connect_options {
        size_t size;             /* sizeof(struct kvl_connect_options): lets the struct grow */
        const char *socket_path; /* NULL: $KVLEASE_SOCKET, else /run/kvlease/sock */
        const char *client_name; /* shown by `kvleasectl clients`, at most 64 bytes; NULL: program
                                    name */
        const uint8_t *group_token; /* KVL_GROUP_TOKEN_BYTES of a member, to join its group; NULL:
                                       new group */
        unsigned flags;             /* enum kvl_connect_flags */
        int timeout_msec; /* of every blocking call; < 0: for ever; 0: the default, 30 s */
        /* How long the daemon may be away (KVL_EVENT_AWAY) before the connection is over; < 0: for
         * ever; 0: the default, 60 s. Counted from when the library notices. */
        int reconnect_msec;
        /*
         * Instead of group_token: joins the group that this secret names, or makes it. For the
         * processes of an engine (tensor-parallel ranks) that share nothing else: 16..256 bytes
         * that nobody else can guess, others each time the engine starts; they never leave the
         * process. NULL, 0: none.
         */
        const void *group_secret;
        size_t group_secret_bytes;
};

/*
 * Connects and says hello. Blocks up to the timeout. options may be NULL; borrows what it points
 * to. 0: *ret_conn is returned owned (kvl_disconnect()). KVL_VERSION; KVL_DRAINING; -ENOENT no such
 * socket, or (with a token) no such group; -ECONNREFUSED no daemon listens there; -EACCES;
 * -EMFILE too many clients, or descriptors of this process; -ENAMETOOLONG; -EINVAL wrong options,
 * or a socket for administration; -EPROTO;
 * -ECONNRESET it hung up meanwhile; -ETIMEDOUT; -ENOMEM.
 * On failure the sentence is in kvl_last_error().
 */
int kvl_connect(const struct kvl_connect_options *options, struct kvl_conn **ret_conn);

/*
 * Unmaps everything, says goodbye, frees the connection and its namespaces. No other call on them
 * may be running or follow; not from a callback. Pins and unpublished pages end; published pages
 * stay. Waits up to 1 s for a daemon that is away or doesn't answer: one that hears nothing drops
 * all that when the process exits. NULL is ignored.
 */
void kvl_disconnect(struct kvl_conn *conn);

/* Why the calling thread's last call on this library failed. Never NULL, valid until its next call.
 */
const char *kvl_last_error(void);

/* Tenant the socket stands for. Valid as long as the connection. */
const char *kvl_tenant(const struct kvl_conn *conn);

/* Id the daemon and kvleasectl know this connection by. */
uint64_t kvl_client_id(const struct kvl_conn *conn);

/* Token for other processes of this engine to join. A secret of the engine. */
void kvl_group_token(const struct kvl_conn *conn, uint8_t ret_token[KVL_GROUP_TOKEN_BYTES]);

/* ---- events and use from an event loop ------------------------------------------------------- */

enum kvl_event_type {
        KVL_EVENT_DRAIN = 1, /* leases are refused from now on: finish and disconnect */
        KVL_EVENT_DRAIN_END = 2,
        KVL_EVENT_PRESSURE = 3,     /* no room in `ns`: release and free what is idle */
        KVL_EVENT_STALE = 4,        /* `ns` was invalidated as a whole */
        KVL_EVENT_MEMBER_LEFT = 5,  /* member `client_id` of the group died or left */
        KVL_EVENT_DISCONNECTED = 6, /* the connection is over; sent once */
        KVL_EVENT_SHUTDOWN = 7,     /* the daemon stops: AWAY or DISCONNECTED follows */
        /*
         * The daemon takes memory back: release what is pinned and free what is leased of `ns` in
         * pages `first_page` to first_page + n_pages - 1, and call kvl_safepoint(), within
         * timeout_msec. Past that the memory is quarantined at the tenant's expense, and the
         * administrator may have the process killed. Sent once a set; again once nothing in it is
         * held any more: then only the safe point is missing.
         */
        KVL_EVENT_REVOKE = 8,
        /* The daemon went away, and may come back ("Restarts" above): BACK or DISCONNECTED follows.
         * Absences that are over before anybody could be told may be told as one. */
        KVL_EVENT_AWAY = 9,
        KVL_EVENT_BACK = 10
};

struct kvl_event {
        enum kvl_event_type type;
        struct kvl_ns *ns; /* NULL where it concerns all; borrowed */
        uint64_t client_id;
        const char *detail;           /* a sentence; valid during the callback */
        uint32_t first_page, n_pages; /* REVOKE */
        uint32_t timeout_msec;        /* REVOKE */
        int is_idle;                  /* REVOKE: nothing there is held any more */
};

typedef void (*kvl_event_fn)(struct kvl_conn *conn, const struct kvl_event *event, void *data);

/* Sets the one handler (NULL: none). Not while another thread dispatches. */
void kvl_set_event_handler(struct kvl_conn *conn, kvl_event_fn fn, void *data);

/*
 * The descriptor to poll for reading. It is ready while kvl_dispatch() has something to do: the
 * daemon sent something, or has room for what is unsent; a call that was started is done; it is
 * time to try again to reach a daemon that is away. So a loop needs no timeout of its own for it.
 * Whoever starts calls, in whatever thread, also while this one is polled, wakes who polls it,
 * where there is something to do. The same one as long as the connection lasts. Level- or
 * edge-triggered; an edge-triggered user calls kvl_dispatch() until it returns 0. Borrowed: don't
 * read, write or close it. -1 once disconnected.
 */
int kvl_fd(const struct kvl_conn *conn);

/* 1: something is unsent, or a callback waits for kvl_dispatch(); 0. Needn't be asked: kvl_fd()
 * becomes ready for it. */
int kvl_wants_write(const struct kvl_conn *conn);

/* 1: there is a daemon that knows this connection; 0: it is away, or the connection is over (then
 * kvl_fd() is -1). */
int kvl_is_connected(const struct kvl_conn *conn);

/*
 * Does what can be done without blocking: sends, receives, runs callbacks of finished calls and
 * events. Number of callbacks run (>= 0), or -errno once the connection is over (after their
 * callbacks ran with that error).
 */
int kvl_dispatch(struct kvl_conn *conn);

/* ---- namespaces and memory ------------------------------------------------------------------- */

struct kvl_layout {
        size_t size;         /* sizeof(struct kvl_layout) */
        const char *model;   /* 1..128 bytes */
        const char *version; /* of the weights, 0..128 bytes; another one retires the contents */
        enum kvl_dtype dtype;
        uint32_t n_layers;    /* >= 1 */
        uint32_t n_kv_heads;  /* >= 1 */
        uint32_t head_size;   /* elements, >= 1 */
        uint32_t page_tokens; /* tokens, 1..1024 */
        uint32_t n_planes; /* 1 (block-major) .. 1024 (a tensor per layer, or per layer and K/V) */
        uint64_t plane_page_bytes; /* bytes of one page in one plane, a multiple of 64; times
                                      n_planes at least 4096, or kvl_ns_open() refuses it */
        uint32_t tp_rank, tp_size; /* tensor parallel; 0 of 1 where there is none */
        uint32_t layer_group; /* 0 unless the model has groups of layers with caches of their own */
        const void *salt;     /* keeps equal prompts apart; 0..64 bytes */
        size_t salt_bytes;
        /*
         * How kernels lay K and V out inside a page, in the engine's own words: engine, version,
         * attention backend, inner layout. 0..64 opaque bytes. Engines that name different ones
         * never read each other's pages: it is part of root keys, and a namespace has one.
         */
        const void *format;
        size_t format_bytes;
};

enum kvl_ns_flags {
        /*
         * Page 0 is never granted: an engine's null block. It is there from kvl_ns_open() on, as
         * long as the namespace is open: zeros, as long as nobody writes to it. What is written
         * there may be seen by this process alone or by others of the tenant, and be gone again.
         * On a GPU it is memory that this process takes of the device itself, which no limit of
         * kvleased counts: a page of one plane, rounded up to the device's unit (2 MiB). All planes
         * share it, so what is written in one is seen in the others. No other page of its set is
         * ever granted there. With a kvleased, or a namespace, from before that was so it is mapped
         * with other pages of its set, which may be never.
         */
        KVL_NS_KEEP_PAGE_ZERO = 1 << 0,
        /* Pages at the same addresses in every process that asks for it. Not with cudaipc. */
        KVL_NS_SAME_ADDRESS = 1 << 1,
        /*
         * What of the planes isn't mapped can be read, as zeros; writing there is SIGSEGV as ever.
         * For engines that have a tensor over a whole plane. A set that is mapped takes the place
         * of the zeros, and they come back when it is unmapped, without a moment at which a reader
         * faults. The zeros take no memory but page tables, of what is read: 1/512 of it. On host
         * memory alone: -EOPNOTSUPP where the device is a GPU, whose mappings can't be exchanged in
         * one step. Nothing is mapped by a metadata-only connection, which may say it.
         */
        KVL_NS_BACK_HOLES = 1 << 2
};

#define KVL_NS_NAME_BYTES 129 /* the longest name there is, and its NUL */

/*
 * The name that follows from a layout: of the same one everywhere, and from one version of this
 * library to the next. The model, as far as there is room, with '_' for what a name may not have,
 * '@', and 12 hexadecimal digits of a SHA-256 over all of the layout but its version. They tell
 * whoever sees the name as much of the salt: guess by guess, where that can be guessed.
 * 0; -EINVAL; -EIO: libcrypto failed.
 */
int kvl_layout_name(const struct kvl_layout *layout, char ret_name[KVL_NS_NAME_BYTES]);

/*
 * Opens a namespace of the connection's tenant, makes it where it doesn't exist, and reserves its
 * whole address range (backed as pages are leased or found; addresses never change). Borrows the
 * arguments. name: 1..128 of A-Z a-z 0-9 . _ - @, not beginning with one of . - @; NULL or "": as
 * kvl_layout_name() has it. device: UUID, "host", or NULL for the daemon's default.
 * 0: *ret_ns, owned by the connection (kvl_ns_close() or kvl_disconnect()). KVL_LAYOUT: the
 * sentence has both layouts. KVL_DRAINING. -EEXIST: open on this connection already. -ENOENT: no
 * such device, or this process can't use it (the sentence says why: no driver, one of
 * a wrong version, not visible). -EBUSY: with KVL_NS_SAME_ADDRESS, its addresses are in use here.
 * -EOPNOTSUPP: the transport, or the device, can't do that. -EIO: the GPU failed, with
 * KVL_NS_KEEP_PAGE_ZERO. -EINVAL; -ENOMEM: also of the GPU, with that flag.
 */
int kvl_ns_open(struct kvl_conn *conn, const char *name, const struct kvl_layout *layout,
        const char *device, unsigned flags, struct kvl_ns **ret_ns);

/*
 * Unmaps it, drops pins, and grants where no other member of the group has it open. No other call
 * on it may run. Calls started on it end with -ECANCELED. Waits for its callbacks that run in other
 * threads; one of its own callbacks may close it. NULL is ignored.
 */
void kvl_ns_close(struct kvl_ns *ns);

/* Where a page's bytes are. */
enum kvl_tier {
        KVL_TIER_DEVICE = 0,
        KVL_TIER_HOST = 1, /* host memory */
        KVL_TIER_DISK = 2
};
#define KVL_TIERS 3

/*
 * A tier has page numbers of its own: a page that moves to another one has another number there,
 * and the same key.
 */
struct kvl_tier_info {
        enum kvl_tier tier;
        uint32_t first_page; /* of those numbers; the device: 0 */
        uint32_t n_pages;
        uint64_t page_bytes; /* that a page takes there, over all planes */
        uint8_t is_readable; /* HOST: kvl_page_ptr() has its pages (they aren't encoded) */
};

struct kvl_ns_info {
        size_t size;             /* set by the caller: sizeof(struct kvl_ns_info) */
        uint32_t capacity_pages; /* page indices are below it, of all tiers */
        uint32_t set_pages;      /* pages per extent set */
        uint32_t page_tokens;
        uint32_t n_planes;
        uint64_t plane_page_bytes;
        uint64_t epoch;  /* when opened */
        char device[65]; /* UUID or "host" */
        /* 1: kvl_page_ptr() gives addresses of the CPU; 0: of the GPU. */
        uint8_t is_cpu_memory;
        /* 1: kvl_plane_base() + i * stride_bytes is page i. 0 (cudaipc): ask kvl_page_ptr(). */
        uint8_t is_contiguous;
        uint32_t n_tiers; /* in order of their pages; the first is the device */
        struct kvl_tier_info tiers[KVL_TIERS];
        /*
         * From a page to the next one in a plane on the device: plane_page_bytes where that makes
         * extent sets of a good size, else at most 4 % of it more. What lies between is nobody's:
         * kvleased neither reads nor copies it.
         */
        uint64_t stride_bytes;
        /*
         * On which the planes lie that this connection maps: the device itself, or its member where
         * it spans several. "": they lie on several members, or nothing is mapped (metadata-only).
         */
        char member[65];
};

/* Fills what fits info->size. */
void kvl_ns_info(const struct kvl_ns *ns, struct kvl_ns_info *info);

/* The name that the namespace was opened by. Valid as long as the namespace is open. */
const char *kvl_ns_name(const struct kvl_ns *ns);

/* How pages are kept below the device. */
enum kvl_codec {
        KVL_CODEC_NONE = 0, /* as they are */
        KVL_CODEC_INT8 = 1, /* 8 bits a number, scaled per channel: contents change a little */
        KVL_CODEC_FP8 = 2,  /* E4M3, likewise */
        KVL_CODEC_INT4 = 3 /* 4 bits a number, scaled per channel and 32 tokens: they change more */
};

struct kvl_ns_options {
        size_t size;        /* sizeof(struct kvl_ns_options) */
        const char *device; /* as of kvl_ns_open() */
        unsigned flags;     /* enum kvl_ns_flags */
        /* The namespace set it belongs to (same rules as a namespace's name; fixed by the first who
         * opens it), and how many namespaces that has: 2..64. NULL, 0: none. Keys are evicted in
         * all of them together: kvl_lookup_set(). */
        const char *set;
        uint32_t set_size;
        /* Cached pages that nobody has used for so long go. The last who says one is right. 0: as
         * the tenant is configured. */
        uint32_t expire_sec;
        /* In which fewer bytes pages lie below the device: fixed by the first who opens it, another
         * one is KVL_LAYOUT then. NONE takes what there is; a namespace that is made then has what
         * the tenant is configured for. Of dtype F32, F16 and BF16 alone (-EINVAL). Where the
         * tenant has a remote, pages of other hosts come in host_codec, too, and from hosts that
         * have the same one alone. disk_codec: on a disk below that. */
        enum kvl_codec host_codec, disk_codec;
        /*
         * kvl_ns_info.stride_bytes as it must be: plane_page_bytes (pages one right behind the
         * other) up to 4 % of the stride more, a multiple of 64; fixed by the first who opens it,
         * another one is KVL_LAYOUT then. -EINVAL: the extent sets that it needs are too large (the
         * sentence says how large, and what the limit is). 0: kvleased chooses; takes what there
         * is.
         */
        uint64_t stride_bytes;
        /*
         * The same as host_codec and disk_codec, with a codec for each range of layers, as text:
         * "0-7:none,8-23:int8,24-:int4". Ranges begin at layer 0, follow each other without a gap
         * and end at the last layer, whose number the last one may leave out; there are 16 at
         * most. All layers' pages must be equally large, and lie in order of layers, in planes and
         * within a plane (kvl_layout). A codec's name alone is for all layers, and "none" keeps
         * them as they are, whatever the tenant is configured for. NULL: host_codec, disk_codec.
         * -EINVAL: with one of these other than KVL_CODEC_NONE, or what is wrong with the text, in
         * the sentence. Borrowed for the call. A kvleased that knows no such codecs refuses it.
         */
        const char *host_layer_codecs, *disk_layer_codecs;
        /*
         * The planes that this connection maps, n_planes from first_plane on: those of one rank of
         * an engine. n_planes 0: all planes from first_plane on. The other planes have no address
         * here: NULL, and -EINVAL where their bytes are asked for. Where a device spans several
         * GPUs (kvleased's option "members"), the library opens the GPUs on which these planes lie
         * and no others. With planes on several GPUs the calls with a stream and kvl_window_open()
         * are -EINVAL, but for kvl_safepoint(), which waits for all of them.
         */
        uint32_t first_plane, n_planes;
};

/* Opens a namespace as kvl_ns_open() does, and returns what that does. options NULL: none of it.
 * -EINVAL also: the set has another size, or is full; a codec can't be had for the layout;
 * stride_bytes; there are no such planes; KVL_NS_KEEP_PAGE_ZERO with planes on several GPUs. */
int kvl_ns_open_with(struct kvl_conn *conn, const char *name, const struct kvl_layout *layout,
        const struct kvl_ns_options *options, struct kvl_ns **ret_ns);

/* 1: through shared memory; 0: over the socket. */
int kvl_uses_shm(const struct kvl_ns *ns);

/*
 * First byte of a plane: page i lies at base + i * stride_bytes (kvl_ns_info), in every process at
 * its own base. NULL for a metadata-only connection, a plane out of range, or where pages aren't
 * contiguous (kvl_ns_info). Doesn't block.
 */
void *kvl_plane_base(const struct kvl_ns *ns, uint32_t plane);

/*
 * Address of a page, valid while it is leased or pinned: kvl_lease(), kvl_lookup() and
 * kvl_publish() have mapped what they return. NULL: metadata-only, out of range, or not mapped (a
 * page that another member leased: kvl_map_pages() first). Write only to pages leased and not yet
 * published. Doesn't block, takes no lock. Of a page in host memory (kvl_find()): an address of the
 * CPU, to be read alone; NULL where it is encoded, or on a disk.
 */
void *kvl_page_ptr(const struct kvl_ns *ns, uint32_t page, uint32_t plane);

/* Maps pages that another member of the group leased or pinned (any number), those below the device
 * as far as they can be. 0; -ENOENT: one is neither leased by the group nor pinned by one of its
 * members, and none was mapped for it; -EACCES metadata-only. */
int kvl_map_pages(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/*
 * Copies between a page, in one plane, and memory of this process, wherever the page lies; done
 * when it returns. The page is leased (to write) or pinned (to read), and mapped. On a GPU not
 * ordered with work on streams. 0; -EINVAL: offset + bytes beyond plane_page_bytes, out of range;
 * a page to be written is published, as far as that is known without asking (where memory is
 * shared; over the socket it is written, and changes for everybody who finds it); -EACCES
 * metadata-only; -ENOENT: not mapped; -EIO.
 */
int kvl_page_read(const struct kvl_ns *ns, uint32_t page, uint32_t plane, uint64_t offset,
        void *dst, uint64_t bytes);
int kvl_page_write(const struct kvl_ns *ns, uint32_t page, uint32_t plane, uint64_t offset,
        const void *src, uint64_t bytes);

/* What is copied of many pages: of each, in each of the planes, `bytes` at `offset`. */
struct kvl_page_io {
        size_t size; /* sizeof(struct kvl_page_io) */
        const uint32_t *pages;
        uint32_t n_pages;               /* any number, 1 at least */
        uint32_t first_plane, n_planes; /* n_planes 0: from first_plane to the last */
        uint64_t offset, bytes;         /* bytes 0: from offset to the end of the page */
        /*
         * One of both, the other NULL: where all of it is, page after page, or where each page is
         * (n_pages of them). Of a page its planes come one behind the other.
         */
        void *memory;
        void *const *buffers;
        uint64_t memory_bytes; /* of memory, or of each of buffers: just as many as are copied */
};

/*
 * kvl_page_read() and kvl_page_write() of many pages and planes at once, in the order of `pages`.
 * All is looked at before anything is copied: 0, or as there, with nothing copied; but -EIO: some
 * of it may be. -EINVAL also: memory_bytes isn't what is copied. kvl_pages_write() reads `memory`
 * and `buffers` alone.
 */
int kvl_pages_read(const struct kvl_ns *ns, const struct kvl_page_io *io);
int kvl_pages_write(const struct kvl_ns *ns, const struct kvl_page_io *io);

/* ---- keys ------------------------------------------------------------------------------------ */

/*
 * Chain keys for engines that have none of their own, by SHA-256 (docs/PROTOCOL.md, "Keys"). The
 * root binds model, version, dtype, geometry, rank, salt and format. 0; -EINVAL; -EIO: libcrypto
 * failed.
 */
int kvl_key_root(const struct kvl_layout *layout, uint8_t ret_key[KVL_KEY_BYTES]);

/*
 * Keys of all pages of a text, in one call: n_tokens token ids, page_tokens (1 to 1,024, as in the
 * layout) in each page but for the last, which has what is left. `parent`: key of the page before
 * them, whose text goes on (so that only what is new is computed), or the root key. ret_keys has
 * room for KVL_KEY_BYTES for each page, n_tokens / page_tokens of them, rounded up; neither parent
 * nor tokens lie in that room. Any thread. 0, also for no tokens, which have no keys; -EINVAL,
 * with nothing written.
 */
int kvl_keys(const uint8_t parent[KVL_KEY_BYTES], const uint32_t *tokens, uint32_t n_tokens,
        uint32_t page_tokens, uint8_t *ret_keys);

/* Key of one page of n_tokens (1 to 1,024) after the page with key `parent`, as kvl_keys(). */
int kvl_key_chain(const uint8_t parent[KVL_KEY_BYTES], const uint32_t *tokens, uint32_t n_tokens,
        uint8_t ret_key[KVL_KEY_BYTES]);

/* ---- pages ----------------------------------------------------------------------------------- */

/*
 * A request: what one prompt's processing looks up, leases and publishes belongs together, and the
 * eviction policy wants to know. begin: an id unique in the connection, > 0. end: tells the daemon,
 * doesn't wait; request 0: nothing. 0; -EINVAL; -EAGAIN: the daemon doesn't read, or the ring is
 * full (the daemon isn't told: a hint, to be dropped, or told again once any call of the connection
 * is done); -ENOTCONN; -EPROTO; -ENOMEM; -ECHILD. 0 may be passed as "no request" everywhere.
 */
uint64_t kvl_request_begin(struct kvl_ns *ns);
int kvl_request_end(struct kvl_ns *ns, uint64_t request);

/*
 * Finds the longest run of cached pages for keys[0..n_keys-1] (n_keys * 32 bytes, from the first
 * page on; any number), pinned and mapped. Those that lie below the device are brought to it first,
 * within the connection's timeout: the run ends before one that can't be, or isn't by then.
 * ret_pages: room for n_keys. 0: *ret_n_pages > 0 pages holding *ret_n_tokens tokens, each to be
 * released. KVL_MISS: none. KVL_STALE. KVL_QUOTA: over the socket, more pins than a client of the
 * tenant may have (kvl_last_error() has the limit). -EINVAL; -ENOMEM; -EIO.
 */
int kvl_lookup(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens);

/*
 * As kvl_lookup(), but nothing is moved: each page is pinned in the tier where it lies
 * (kvl_page_tier()), and mapped where that can be.
 */
int kvl_find(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens);

/*
 * How many of keys[0..n_keys-1] (any number, in order of the text) are cached, from the first on,
 * and in which tier each of these lies: ret_tiers (room for n_keys, enum kvl_tier; may be NULL).
 * Pins nothing, moves nothing and counts as no use of the pages: what it says may be different
 * right after. Where memory is shared it makes no system call. 0: *ret_n_keys > 0; KVL_MISS: not
 * even the first is cached (*ret_n_keys is untouched); KVL_STALE; -EINVAL; over the socket also
 * -ENOTCONN, -ETIMEDOUT, -EPROTO.
 */
int kvl_probe(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint8_t *ret_tiers,
        uint32_t *ret_n_keys);

/*
 * kvl_probe() that counts what other hosts share, too (tenant option `remote`), for routers and
 * schedulers: how much of a text needn't be computed. Of keys[0..n_keys-1] (at least one, any
 * number, in order of the text) *ret_n_here are cached on this host, from the first on, and
 * *ret_n_keys on this host or others, without a gap: 0 <= *ret_n_here <= *ret_n_keys <= n_keys.
 * *ret_would_load (may be NULL): 1 where kvl_import_start() would load now what others have of the
 * KVL_MAX_IMPORT_KEYS keys behind *ret_n_here, as that is sooner than computing it; else 0. What
 * somebody on this host is computing counts as little as with kvl_probe(). Pins, loads and changes
 * nothing, here or there, and counts as no use: what it says may be different right after. Clients
 * that may only read may ask, too.
 * Other hosts are asked where not all is cached here, at most timeout_msec (1..600000): a round
 * trip to the servers for each KVL_MAX_IMPORT_KEYS keys, of which each takes at most the remote's
 * `probe_timeout`. Where they don't answer, have too much to do (16 imports and probes of the
 * connection, 32 of the tenant), the namespace takes no part, or the daemon is too old, what is
 * known so far is the answer. This host is asked as by kvl_probe(). Blocks; from any thread.
 * 0, also where both numbers are 0; KVL_STALE; -EINVAL; -ENOTCONN, -EPROTO, -ECHILD; over the
 * socket also -ETIMEDOUT and -ENOMEM. The results are set with 0 alone.
 */
int kvl_probe_hosts(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, int timeout_msec,
        uint32_t *ret_n_here, uint32_t *ret_n_keys, int *ret_would_load);

/*
 * Says that a request will ask for this text soon: keys[0..n_keys-1] (any number, in order of the
 * text), as an engine knows of the requests that wait in its queue. For ttl_msec (0: 30,000; at
 * most KVL_MAX_EXPECT_MSEC), or until a lookup finds the text, what is cached of it is passed over
 * when pages are evicted, and what of it lies below the device is brought up. A hint, and no
 * promise: at most a quarter of a namespace's pages is kept so, those that were said first, and
 * they go where nothing else can. To be said once for each request, when it begins to wait; a
 * request that is called off needs no word. What is published later than that isn't kept. Doesn't
 * wait for an answer. Where memory is shared it finds the text itself, and rings the daemon if that
 * sleeps. 0, also where nothing of the text is cached; KVL_STALE; -EINVAL; -EAGAIN: the daemon
 * isn't told, as it doesn't read, many submissions wait for it, or another thread is submitting;
 * -ENOTCONN; -ENOMEM; -EPROTO; -ECHILD. Of a daemon that is too old nothing is heard, and nothing
 * is kept.
 */
int kvl_expect(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint32_t ttl_msec);

/* Tier that the page's number belongs to (enum kvl_tier). -EINVAL: no such page. Doesn't block. */
int kvl_page_tier(const struct kvl_ns *ns, uint32_t page);

/*
 * Brings pages to the device that are pinned (any number): ret_pages[i] (room for n_pages; may be
 * `pages`) is the page that has now what pages[i] had, mapped, and the pin on pages[i] is one on it
 * from now on. What is on the device stays; so does what can't be brought up: then ret_pages[i] is
 * pages[i], still pinned. 0: all are on the device. KVL_FULL: no room for one; KVL_MISS: one is
 * gone, or was damaged; KVL_QUOTA: as kvl_lookup(); -ETIMEDOUT: those that aren't brought up by
 * then; -EINVAL: one isn't pinned; -ENOMEM; -ENOTCONN; -EIO. Whatever is returned but -EINVAL of an
 * argument: ret_pages is filled.
 */
int kvl_fetch(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, uint32_t *ret_pages);

/*
 * Leases n_pages (1..KVL_MAX_LEASE_PAGES) for writing, all or none, mapped. Contents are undefined
 * but never another tenant's. KVL_QUOTA, KVL_RESERVATION, KVL_FULL, KVL_DRAINING, KVL_STALE;
 * KVL_TIMEOUT. -EINVAL; -ENOMEM; -EIO.
 * Where there is no room it waits if the tenant says so (when_full = queue), or if the memory is
 * the tenant's own and lent to others. The connection's timeout ends that, too (-ETIMEDOUT).
 */
int kvl_lease(struct kvl_ns *ns, uint64_t request, uint32_t n_pages, uint32_t *ret_pages);

/*
 * How many pages leases would get now without waiting, where nobody else gives way: what is free in
 * the namespace, what it has cached and nobody holds, this connection's share granted ahead, and
 * what the tenant may still take of the device, without what others have reserved. A hint, and not
 * promised to anybody: what it says may be different right after, and what was released in shared
 * memory counts only once the daemon has looked, some 10 ms or more after it was next asked for
 * anything. So neither is 0 a refusal (others may be made to give way), nor a number a promise (of
 * a text that somebody reads the end, nothing before that can go). Where memory is shared it costs
 * a few loads and no system call, also while the daemon is stopped or away. Pages (>= 0): 0 where
 * limit or memory are used up and all of it is held, while the daemon drains, and where the
 * namespace is stale. -EINVAL; -ECHILD; over the socket also -ENOTCONN, -ETIMEDOUT, -EPROTO.
 */
int kvl_leasable_pages(struct kvl_ns *ns);

/*
 * Could n_pages (> 0) of the namespace be held together, if everybody else gave way, but for what
 * is reserved for others? What a connection holds itself counts among them. 0: they could, once
 * there is room; of a daemon that is too old always. KVL_QUOTA, KVL_RESERVATION, KVL_FULL: not as
 * limit, reservation and device are: kvl_last_error() says what they take, what it is more than,
 * and the remedy. An engine refuses a text that takes so many instead of waiting. -EINVAL; -ECHILD;
 * -ENOTCONN; -ETIMEDOUT; -EPROTO.
 */
int kvl_check_room(struct kvl_ns *ns, uint32_t n_pages);

/* For pages with consecutive numbers, which lie one behind the other where kvl_ns_info says that
 * pages are contiguous. */
enum kvl_lease_flags {
        /*
         * All pages of the lease, in ascending order, or KVL_FULL: with KVL_REASON_NO_RUN where
         * enough pages are free and no such ones. It isn't waited for them, and nothing that is
         * cached gives way for them. -EOPNOTSUPP: a daemon that is too old. Where the tenant is
         * degraded when it is full, and with min_pages: as many as there are.
         */
        KVL_LEASE_CONTIGUOUS = 1 << 0,
        /* In few runs of such pages, each ascending: of the longest there are, as far as can be
         * told without much searching. Never refused for that. */
        KVL_LEASE_PREFER_CONTIGUOUS = 1 << 1
};

struct kvl_lease_options {
        size_t size;        /* sizeof(struct kvl_lease_options) */
        uint32_t min_pages; /* fewest of use, where the tenant is degraded when it is full
                               (when_full = degrade); 0: n_pages */
        /* For room, at most what the tenant allows: its max_wait where when_full = queue, else (the
         * default) no wait. < 0: not at all; 0: what the tenant allows, in a blocking call at most
         * the connection's timeout. */
        int max_wait_msec;
        unsigned flags; /* enum kvl_lease_flags: one of them, or 0 */
};

struct kvl_lease_result {
        size_t size;            /* set by the caller: sizeof(struct kvl_lease_result) */
        uint32_t n_pages;       /* granted */
        enum kvl_reason reason; /* why it was refused, waited or got fewer; NONE: none of that */
        uint64_t waited_usec;   /* for room, in the daemon */
};

/*
 * As kvl_lease(), with a say in what happens where there is no room, and an account of what did.
 * options NULL: none of it. ret (may be NULL) is filled whatever is returned, with zeros where the
 * daemon wasn't asked or didn't answer. 0: ret->n_pages pages, at least min_pages. KVL_TIMEOUT: it
 * has waited in vain. The connection's timeout is counted from the end of the longest wait that was
 * asked for. It holds no pages while it waits.
 *
 * Safe points. A lease may wait for memory that this very process is to give back: a thread that
 * waits in here runs the event handler (KVL_EVENT_REVOKE), but reaches no safe point by itself. So
 * an engine that declares safe points uses kvl_lease_with_start(), or calls kvl_safepoint() from
 * another thread, or from the event handler where a thread that leases is between two steps.
 */
int kvl_lease_with(struct kvl_ns *ns, uint64_t request, uint32_t n_pages,
        const struct kvl_lease_options *options, uint32_t *ret_pages, struct kvl_lease_result *ret);

struct kvl_publish {
        size_t size;           /* sizeof(struct kvl_publish) */
        const uint32_t *pages; /* leased, written, in order of the text */
        const uint8_t *keys;   /* n_pages * 32 bytes */
        uint32_t n_pages;      /* any number */
        const uint8_t
                *parent_key; /* key of the page before the first; NULL: the first begins the text */
        uint32_t last_tokens; /* tokens in the last page, 1..page_tokens; the others are full */
        uint64_t request;
        /* Ends at the last of these pages from now on; of the same namespace. NULL: none. Where
         * somebody dropped it: -ENOENT, and nothing is published. */
        const struct kvl_session *session;
        uint64_t tag; /* for kvl_invalidate_tag(): of the document these pages are from; 0: none */
        /* Not 0: these are pages of layers with a window of attention, and the text that is being
         * computed goes on beyond that window. Only a text that begins where one of these pages
         * ends needs the page: it is evicted before pages without this, until somebody finds it.
         * For the eviction policy; an older daemon ignores it. Since 0.2 */
        int window_passed;
};

/*
 * Publishes pages: immutable from now on, findable by all workers of the tenant, each pinned for
 * this client until released. ret_pages (room for n_pages; may be NULL where nobody else publishes
 * these keys): the page that carries each key, which may lie below the device where somebody was
 * first. *ret_n_pages (may be NULL): how many were handled,
 * whatever is returned but -EINVAL before the first. 0: all. KVL_DUPLICATE: all handled, for some
 * somebody was first: ret_pages[i] != pages[i], and pages[i] is still leased: free it.
 * KVL_NO_PARENT, KVL_STALE, KVL_QUOTA (pins, as kvl_lookup()), -EINVAL: stopped there; the rest is
 * still leased. -EINVAL also where a page would end beyond token 2^32 - 1 of its text, what was
 * truncated of the session included: a text can't be longer, begin another session.
 */
int kvl_publish(struct kvl_ns *ns, const struct kvl_publish *publish, uint32_t *ret_pages,
        uint32_t *ret_n_pages);

/* Drops one pin of each page, in the order of the text (any number). -EINVAL: one isn't pinned;
 * none dropped within its batch of KVL_MAX_LEASE_PAGES. */
int kvl_release(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/*
 * One pin more of each page (any number, in any order, also one page more than once), which this
 * connection has pinned already: a sequence that forks. Each pin needs a kvl_release() of its own.
 * Where memory is shared it makes no system call. 0; -EINVAL: one isn't pinned by this connection;
 * -EOVERFLOW: one is pinned some 2^31 times; KVL_QUOTA: over the socket, more pins than the tenant
 * allows a client. Then none has another pin; but over the socket those before it in other batches
 * of KVL_MAX_LEASE_PAGES may.
 */
int kvl_pin(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/* Gives leased, unpublished pages back (any number). -EINVAL as above. */
int kvl_free(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/*
 * Drops the page with `key` and everything after it; NULL: the whole namespace. When it returns
 * nobody finds any of it; before, lookups of others find less and less (of a whole namespace: all
 * or nothing). Some 1 s for a million pages; other calls of this connection that need kvleased wait
 * meanwhile. Pinned pages stay readable. Where the tenant shares pages with other hosts
 * (docs/REMOTE.md) they drop the same, a second later, as long as they reach the servers, and load
 * nothing more that was written before. *ret_n_pages (may be NULL): pages dropped. -EAGAIN: some
 * 60 are under way, in the namespace by whomever, or on this connection, so that this one wasn't
 * begun: again once one of them has returned.
 */
int kvl_invalidate(struct kvl_ns *ns, const uint8_t *key, uint64_t *ret_n_pages);

/* Does what kvl_invalidate() does for pages published with a tag (by whomever) and everything after
 * them. What a truncated session keeps behind its gap is reached by neither: drop the session.
 * -EINVAL also: tag is 0. */
int kvl_invalidate_tag(struct kvl_ns *ns, uint64_t tag, uint64_t *ret_n_pages);

/*
 * Drops the whole namespace, as kvl_invalidate() with NULL does, because a page that was found held
 * other numbers than the caller computed for its key. kvleased counts it for the tenant
 * (kvlease_verify_failures_total), and makes an event of it where pages were dropped. An older
 * kvleased drops and doesn't count.
 */
int kvl_invalidate_mismatch(struct kvl_ns *ns, uint64_t *ret_n_pages);

/*
 * Copies the contents of a page that is pinned (a partly filled last page, which can't be written
 * any more) into a leased one, in the planes that are mapped, where both lie; done when it returns.
 * The rest is filled, and published under the key of the longer text. On a GPU not ordered with
 * work on streams. 0; -EINVAL; -EACCES: metadata-only; -ENOENT: one isn't mapped; -EIO.
 */
int kvl_page_copy(struct kvl_ns *ns, uint32_t from_page, uint32_t to_page);

/*
 * Tells which leased, unpublished pages this connection still holds (any number; none: pages may be
 * NULL), after it lost track of them; all others that its group has leased in the namespace are
 * freed. *ret_n_freed (may be NULL): how many. -EBUSY: other members of the group have it open,
 * too.
 */
int kvl_report(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, uint64_t *ret_n_freed);

/* ---- single flight --------------------------------------------------------------------------- */

/*
 * Before computing a text that isn't cached: says that page pages[i] (leased, by this connection's
 * group) is about to get keys[i], in order of the text; n_pages at most KVL_MAX_PUBLISH_PAGES. Who
 * asks for one of these keys meanwhile can wait for its publish. *ret_n_pages: how many were
 * announced, as the daemon says, whatever is returned; 0 where it says nothing. 0: all.
 * KVL_PENDING: somebody else is computing keys[*ret_n_pages] already: free the rest of the pages,
 * kvl_wait() for it. KVL_DUPLICATE: that key is cached: look it up. -EINVAL: a page isn't leased,
 * or announced already; -ENOSPC: the index is full there (go on without announcing). KVL_STALE. An
 * announcement ends with the page's publish or kvl_free(), with this connection, and with the
 * daemon, also where that is restarted.
 */
int kvl_announce(struct kvl_ns *ns, const uint32_t *pages, const uint8_t *keys, uint32_t n_pages,
        uint32_t *ret_n_pages);

/*
 * Waits until somebody who announced it has published `key`, or gave up. Pins nothing. 0: it is
 * cached (look it up). KVL_MISS: nobody computes it (any more): announce and compute it.
 * KVL_TIMEOUT after timeout_msec (1..600000; over the socket counted anew by the next daemon): two
 * that wait for each other go on so. KVL_STALE.
 * -EBUSY: over the socket, some 250 waits of the connection are under way. Where memory is shared
 * this asks nobody: what is cached is known while the daemon is stopped or away, what isn't is
 * waited for as long as it may; and events wait for the next call.
 */
int kvl_wait(struct kvl_ns *ns, const uint8_t *key, int timeout_msec);

/* Does kvl_wait() without blocking, as other kvl_*_start() do: code is what kvl_wait() returns.
 * -EBUSY: some 250 of these wait on the connection already. done may be NULL. */
int kvl_wait_start(struct kvl_ns *ns, const uint8_t *key, int timeout_msec,
        void (*done)(struct kvl_ns *ns, int code, void *data), void *data);

/*
 * kvl_lookup() that waits for keys somebody else is computing, page by page, and for pages that the
 * daemon brings from other hosts (tenant option `remote`), up to timeout_msec in all. Of what is
 * left of it when they are asked, the question what they have takes a quarter at most. Returns with
 * the longest run there is once a key is neither cached nor being computed, or the time is over.
 * Returns as kvl_lookup(); *ret_is_pending (may be NULL; set with KVL_MISS, too): 1 where the key
 * after the last found is still being computed.
 */
int kvl_lookup_wait(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        int timeout_msec, uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens,
        int *ret_is_pending);

/*
 * Has the daemon bring what other hosts have of a text (tenant option `remote`), where that is
 * quicker than to compute it: without blocking, as other kvl_*_start() do, for engines that
 * schedule other requests meanwhile. keys[0..n_keys-1] (at least one; of more than
 * KVL_MAX_IMPORT_KEYS the first ones) are in order of the text, parent_key is the key before them
 * (NULL: they begin the text), and that one is cached here while keys[0] isn't. Pins nothing.
 * timeout_msec: 1..600000, which the daemon keeps; the question what other hosts have takes a
 * quarter of it at most, and the remote's `probe_timeout`. Returns KVL_MISS where the namespace
 * takes no part: then nothing was started, and done (may be NULL) isn't called.
 * code: 0: keys[0] is cached by now, and those after it as far as they came: look them up.
 * KVL_MISS: no other host has it, or not in time, or it is quicker to compute. KVL_TIMEOUT:
 * somebody on this host computes it, and hasn't published it yet. KVL_STALE. -EBUSY: 16 of these
 * are under way on the connection: later. -EACCES: the connection may only read. -ENOMEM;
 * -ENOTCONN; -ECANCELED.
 */
int kvl_import_start(struct kvl_ns *ns, const uint8_t *parent_key, const uint8_t *keys,
        uint32_t n_keys, int timeout_msec, void (*done)(struct kvl_ns *ns, int code, void *data),
        void *data);

/*
 * Tells the daemon that this engine has computed n_tokens (at least 1) tokens of prompts (prefill)
 * in nsec (1 to an hour) nanoseconds, for all requests of a step, or of some steps, together: with
 * kvl_import_start() and kvl_lookup_wait() it loads what is here sooner than this engine computes
 * it. Recent steps count most. Where the tenant's option `remote_prefill` says how fast engines are
 * that counts instead.
 * Steps that decode besides count with all their time, as a prompt waits for them. Ten calls a
 * second are plenty: sum steps up. Doesn't wait. Where the namespace takes no part nothing is done,
 * and 0 returned. 0; -EINVAL; -EAGAIN, -ENOTCONN, -EPROTO, -ENOMEM, -ECHILD: as kvl_request_end().
 */
int kvl_note_prefill(struct kvl_ns *ns, uint32_t n_tokens, uint64_t nsec);

/*
 * As kvl_lookup() in all n_ns (1..64) namespaces of a set, which are open on this process's
 * connections and use the same keys for the same text: the longest run that is cached in every one.
 * ret_pages: n_ns * n_keys, those of nss[i] from ret_pages[i * n_keys] on. What is beyond the run
 * in some isn't pinned.
 */
int kvl_lookup_set(struct kvl_ns *const *nss, uint32_t n_ns, uint64_t request, const uint8_t *keys,
        uint32_t n_keys, uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens);

/* ---- sessions -------------------------------------------------------------------------------- */

/*
 * A session is a named chain of pages (a conversation), kept by the daemon: it outlives the worker,
 * and any worker of the tenant opens it again by its id. It ends at the last page published to it
 * (struct kvl_publish). Its pages can be evicted like any others, from its end.
 */
struct kvl_session;

enum kvl_hint {
        KVL_HINT_UNKNOWN = 0,
        KVL_HINT_CONTINUES = 1, /* another turn will come */
        KVL_HINT_DONE = 2,      /* none will */
        KVL_HINT_RETURNS = 3    /* one will, in about the time given (a tool call) */
};

#define KVL_SESSION_ID_MAX 64

struct kvl_session_options {
        size_t size;         /* sizeof(struct kvl_session_options) */
        int must_exist;      /* -ENOENT instead of a new one */
        uint32_t expire_sec; /* forgotten when it wasn't used for so long; 0: the tenant's */
        uint32_t load_msec;  /* what another host has of it, and this one hasn't, is loaded first,
                                for so long at most, up to 600,000; 0: it is opened as it is here */
};

struct kvl_session_info {
        size_t size; /* set by the caller: sizeof(struct kvl_session_info) */
        int is_new;
        uint32_t n_pages;                /* that it has now */
        uint64_t n_tokens;               /* up to its end, truncated and lost ones included */
        uint64_t lost_tokens;            /* at its end: evicted, to be computed again */
        uint8_t last_key[KVL_KEY_BYTES]; /* of its last page, where n_pages > 0 */
};

/*
 * Opens the session with this id (1..KVL_SESSION_ID_MAX opaque bytes), or makes it. Several may
 * have it open. options and info may be NULL; info is of this moment. 0: *ret_session, owned by the
 * namespace (kvl_session_close(), kvl_ns_close()). -ENOENT; -EMFILE: too many sessions; KVL_STALE;
 * -EINVAL; -ENOMEM.
 *
 * With load_msec, where the namespace's pages are exchanged with other hosts, the session is here
 * what it was on the host that was last done with a turn of it (it was closed there by all, or was
 * given a hint other than KVL_HINT_DONE). What of that can't be had in time is lost at its end
 * (lost_tokens). A session that is open on this host, was truncated, or was continued here without
 * other hosts being told yet, is opened as it is here; so where two hosts continue one at the same
 * time, each has its own, and others follow who was done last. Not being able to load is no error.
 */
int kvl_session_open(struct kvl_ns *ns, const void *id, size_t id_bytes,
        const struct kvl_session_options *options, struct kvl_session_info *info,
        struct kvl_session **ret_session);

struct kvl_session_page {
        uint32_t page;
        uint32_t n_tokens;
        uint64_t first_token; /* position in the text: what was given up is a gap */
        uint8_t key[KVL_KEY_BYTES];
};

/*
 * Its pages in order of the text, from index `from` on, at most `max` (any number), each pinned and
 * mapped: to be released. From below the device they are brought up as in kvl_lookup(), but for
 * what a truncation found and left there: that is read through a window (kvl_window_open()). 0:
 * *ret_n_pages > 0; KVL_MISS: none; -ENOENT: somebody dropped the session; KVL_STALE; KVL_QUOTA: as
 * kvl_lookup().
 */
int kvl_session_pages(struct kvl_session *session, uint32_t from, uint32_t max,
        struct kvl_session_page *ret_pages, uint32_t *ret_n_pages);

/*
 * Keeps the pages that hold the first and the last so many tokens (whole pages, where they are; a
 * partial last page with the last), and gives up those between. What is after the gap, and what is
 * published to the session from now on, can be found through the session alone: under another
 * context it isn't what its keys say. A publish continues one of the last 256 pages after the gap
 * (parent_key); those after that one leave the session. *ret_n_pages (may be NULL): pages given up.
 * 0; -EINVAL; -ENOENT; -ENOMEM; -EAGAIN: somebody published to the session meanwhile, or is
 * truncating it, or many others of the namespace are: it is as before.
 */
int kvl_session_truncate(struct kvl_session *session, uint64_t first_tokens, uint64_t last_tokens,
        uint32_t *ret_n_pages);

#define KVL_SESSION_RANGES_MAX 1024
#define KVL_TEXT_END           UINT64_MAX /* where the text ends, wherever that is */

/* Positions in a text: the tokens from first_token on, before end_token. */
struct kvl_token_range {
        uint64_t first_token;
        uint64_t end_token;
};

/*
 * Keeps the pages that have a token of one of the ranges (1..KVL_SESSION_RANGES_MAX, which ascend
 * and have no token in common), and gives up all others, anywhere in the text and any number of
 * times. Pages stay whole, and where they are: their first_token says so. Only the last range may
 * have KVL_TEXT_END as its end; where it ends before the text does, the text ends with the last
 * page kept, and is continued there. What follows the first page that was given up is as after
 * kvl_session_truncate(): found through the session alone. Of tokens that were lost (evicted)
 * nothing is kept; those that were given up before can't be asked for. Sessions of the namespaces
 * of a set are independent: each keeps ranges of its own. *ret_n_pages (may be NULL): pages given
 * up. 0; -EINVAL: the ranges, or what they name is beyond the text or was given up; all else as
 * kvl_session_truncate(), -EAGAIN also where the session lost what it had after a gap meanwhile.
 */
int kvl_session_keep(struct kvl_session *session, const struct kvl_token_range *ranges,
        uint32_t n_ranges, uint32_t *ret_n_pages);

/* What is known of its next turn; after_msec: RETURNS. For the eviction policy. Doesn't wait. 0;
 * -EINVAL; -EAGAIN: as kvl_request_end(); -ENOTCONN. */
int kvl_session_hint(struct kvl_session *session, enum kvl_hint hint, uint32_t after_msec);

/* Closes it; drop: forgets it, too, for everybody, with what only it uses. The handle is gone,
 * whatever is returned. NULL is ignored. 0; -ENOENT: it was to be dropped, and somebody did. */
int kvl_session_close(struct kvl_session *session, int drop);

/* ---- page tables ----------------------------------------------------------------------------- */

/*
 * The block table of one text, for an engine: page indices in order of the text, as a flat array
 * and as two levels (groups of group_pages). Updated in place as the text grows: an append costs
 * O(1) in the middle (the flat array is moved when it outgrows its room, which doubles; groups
 * never move), a truncation O(pages that move or go). Memory isn't given back before it is freed.
 * Plain memory of this process; one thread at a time.
 */
struct kvl_page_table;

/* group_pages: a power of two, 16..4096; max_pages: what the table may ever have, 0: no bound. 0;
 * -EINVAL; -ENOMEM. */
int kvl_page_table_new(uint32_t group_pages, uint32_t max_pages, struct kvl_page_table **ret_table);
void kvl_page_table_free(struct kvl_page_table *table); /* NULL is ignored */

/* 0; -EINVAL; -ENOSPC: max_pages; -ENOMEM (both views unchanged; the array of groups may have
 * moved). */
int kvl_page_table_append(struct kvl_page_table *table, const uint32_t *pages, uint32_t n_pages);

/* Another page at this place: a partial one that was extended. -EINVAL: beyond the end. */
int kvl_page_table_replace(struct kvl_page_table *table, uint32_t index, uint32_t page);

/* Keeps the first and the last so many pages; the last move up behind the first. -EINVAL: more than
 * there are. */
int kvl_page_table_truncate(struct kvl_page_table *table, uint32_t n_first, uint32_t n_last);

/* How many pages it has. */
uint32_t kvl_page_table_n_pages(const struct kvl_page_table *table);

/* All pages; valid until the next append that makes it grow. NULL where there are none. */
const uint32_t *kvl_page_table_flat(const struct kvl_page_table *table);

/* The groups, each of group_pages entries, the last one filled as far as there are pages (the rest
 * is KVL_PAGE_NONE). Groups stay where they are; the array of them is valid until the next append
 * that makes it grow. */
const uint32_t *const *kvl_page_table_groups(
        const struct kvl_page_table *table, uint32_t *ret_n_groups);

/* ---- why it hit or missed -------------------------------------------------------------------- */

enum kvl_explain_state {
        KVL_EXPLAIN_NEVER_SEEN = 0, /* not published, or so long ago that nobody remembers */
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
        uint64_t age_sec;    /* CACHED: since its publish; else since it went */
        uint64_t unused_sec; /* CACHED: since it was last found */
        uint64_t client_id;  /* that published or announced it; 0: unknown */
        char by[65]; /* EVICTED: tenant whose lease it gave way to; INVALIDATED: by what; "" */
};

/* Why these keys (n_keys <= 256) would hit or miss, for people. Pins nothing, counts as no use.
 * ret: room for n_keys. 0; KVL_STALE; -EINVAL. */
int kvl_explain(
        struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, struct kvl_explanation *ret);

/* ---- the same without blocking --------------------------------------------------------------- */

/*
 * Called once for each started call, from kvl_dispatch() or a blocking call. code: as the blocking
 * form returns. pages, n_pages, n_tokens: its results, valid during the callback. If *_start()
 * returns an error, the callback never runs. -ECANCELED: the namespace was closed, or the
 * connection by kvl_disconnect(). done may be NULL. *_start() itself: 0; -EINVAL; -ENOMEM;
 * -ENOTCONN; -ECHILD; -EAGAIN: KVL_MAX_STARTED of them are under way.
 * They borrow their arguments during the call only. A started call has no timeout.
 *
 * They may be started from any thread and from callbacks, whether the daemon reads, is stopped or
 * away: what it doesn't take yet waits in this process. A call is under way from *_start() until
 * its callback begins, also one without a callback, which ends in kvl_dispatch() as well (but for a
 * release in shared memory: without a callback it is over at once, and what is wrong with it is
 * returned). So each callback may start one at least; those of all namespaces of the connection
 * count, those of _on_stream() too. After -EAGAIN wait for the callback of any of them: no event
 * but that makes room. kvl_wait_start() and kvl_lease_with_start() may wait for long: whoever fills
 * the room with them has none for what they wait for.
 */
typedef void (*kvl_done_fn)(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data);

/* Each as the blocking call of that name. */
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
 * As kvl_lease_with() and kvl_*_start(): result is what ret is there, valid during the callback.
 * There is no timeout but max_wait. Other calls overtake it while it waits, but for leases of the
 * same connection. -EBUSY: some 500 of these wait behind it already.
 */
typedef void (*kvl_lease_done_fn)(struct kvl_ns *ns, int code, const uint32_t *pages,
        const struct kvl_lease_result *result, void *data);

/* kvl_lease_with() without blocking. */
int kvl_lease_with_start(struct kvl_ns *ns, uint64_t request, uint32_t n_pages,
        const struct kvl_lease_options *options, kvl_lease_done_fn done, void *data);

/* ---- GPU streams ----------------------------------------------------------------------------- */

/*
 * A CUstream of this process, of the namespace's device (else -EINVAL). NULL: the legacy default
 * stream, of the thread's current context where that is of the device, else of the device's primary
 * context. On the host device there is only NULL, and what is said takes effect at once. Not one
 * that is being captured into a graph (-EINVAL). It must exist until the callbacks of what was
 * published on it have run.
 */
typedef void *kvl_stream;

/*
 * As the calls without "_on_stream", but effective after everything that was put on the stream
 * before: without waiting, by a host function on it, from which the publish is submitted, or the
 * pins and pages go. Order within a stream is kept, but for releases in shared memory: the daemon
 * may see one before a publish that was put there earlier. So release a page published on a stream,
 * or the parent of one, once the publish's callback ran. Where the namespace is closed first
 * nothing takes effect (a publish's callback: -ECANCELED). publish: its callback runs as of
 * kvl_publish_start(); the pages stay writable for the work on the stream only. release: what it
 * names must be pinned, and stays pinned until then.
 *
 * Where the stream's context breaks (an illegal access, ECC), nothing takes effect: the publish
 * ends with -EIO at one of the next kvl_dispatch() (no descriptor becomes ready for it), its pages
 * can only be freed, and every publish of this connection in a namespace of the device, in
 * whatever way, is refused with -EIO from then on: no one gets a page that a failed kernel should
 * have written. Releases and frees that wait for it are dropped: what they name stays pinned and
 * leased until the namespace is closed or the process exits.
 *
 * 0; -EINVAL; -EIO: the context is broken; -ENOMEM; -ENOTCONN; -ECHILD; -EACCES: metadata-only;
 * -EAGAIN: as kvl_publish_start().
 */
int kvl_publish_on_stream(struct kvl_ns *ns, const struct kvl_publish *publish, kvl_stream stream,
        kvl_done_fn done, void *data); /* n_pages <= KVL_MAX_PUBLISH_PAGES */
int kvl_release_on_stream(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages,
        kvl_stream stream); /* n_pages <= KVL_MAX_LEASE_PAGES */
int kvl_free_on_stream(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages,
        kvl_stream stream); /* n_pages <= KVL_MAX_LEASE_PAGES */

/*
 * Between two steps of the engine: "nothing on `stream`, nor anything else of mine, uses pages that
 * I don't hold". Where the daemon has asked for memory back (KVL_EVENT_REVOKE) and this connection
 * holds nothing of it any more, waits for the stream, unmaps it and tells the daemon. What the
 * daemon asks for is learned of in kvl_dispatch() and in blocking calls, not here. Number of extent
 * sets given back (0: nothing to do, which costs one load), or -errno: -EIO the stream is broken,
 * or unmapping failed; -EINVAL the stream is being captured; -ENOTCONN; -ETIMEDOUT; -ECHILD.
 */
int kvl_safepoint(struct kvl_conn *conn, kvl_stream stream);

/* ---- texts larger than the device ------------------------------------------------------------ */

/*
 * A window over a text whose pages don't all fit the device: the first and the last of them stay
 * there, what is between goes below it, and comes back in chunks, which are copied into a buffer of
 * leased pages. One half of that is read while the other is filled with what comes next. All pages
 * stay pinned, wherever they lie: nothing of the text is dropped or computed again, and what is
 * read has the bits that were published (unless the namespace has a codec below the device).
 *
 *   open -> { append -> take... }... -> close
 *
 * On the device it needs first_tokens, last_tokens and twice chunk_pages in whole pages, and a page
 * or two that are on their way down; the rest of the text has to fit below. Pages that an engine
 * is about to write aren't in it: it leases, writes and publishes them as ever, then appends them.
 *
 * One thread at a time uses a window. Restarts of the daemon are survived as by all else. Its
 * buffer is leased and its text pinned: what KVL_EVENT_REVOKE names is given back by closing it.
 */
struct kvl_window;

struct kvl_window_options {
        size_t size; /* sizeof(struct kvl_window_options) */
        /* At the beginning and the end of the text, what stays on the device: in whole pages, a
         * partial one counting as one. 0: none. */
        uint64_t first_tokens, last_tokens;
        /* Pages of each half of the buffer, 1..KVL_MAX_WINDOW_CHUNK; 0: 8. */
        uint32_t chunk_pages;
        uint64_t request; /* that the buffer is leased for; 0: none */
        /* A conversation: its pages are appended, each from where it lies, and none is brought up
         * that needn't be. Of the same namespace. NULL: the window is empty. */
        struct kvl_session *session;
};

#define KVL_MAX_WINDOW_CHUNK 256

/*
 * Opens a window and leases its buffer. Borrows what it points to. 0: *ret_window, owned by the
 * namespace (kvl_window_close(), kvl_ns_close()). KVL_QUOTA, KVL_RESERVATION, KVL_FULL,
 * KVL_DRAINING, KVL_TIMEOUT: no room for the buffer; KVL_STALE; with a session also as
 * kvl_session_pages(), but an empty one is no error, nor are pages that can't go down. -EACCES:
 * metadata-only; -EINVAL; -ENOMEM; -ENOTCONN.
 */
int kvl_window_open(struct kvl_ns *ns, const struct kvl_window_options *options,
        struct kvl_window **ret_window);

/*
 * Appends pages that this connection has pinned (published, or found by kvl_find()), in order of
 * the text, whatever tier they are in, and begins to send down what isn't among the first and last
 * any more; waits for what the call before this one began. Pages of the beginning and the end that
 * lie below are brought up, where there is room. stream: what was put on it may still read pages
 * that were handed out by kvl_window_take(); NULL where there is none.
 * 0; nothing happened: -EINVAL, -ENOMEM, -ECHILD. Else the window has the pages and their pins all
 * the same, and some that should be below the device stay on it: KVL_FULL: there is no room below;
 * KVL_MISS: one can't be found any more, or a truncated session holds it where it is; KVL_STALE;
 * -ETIMEDOUT; -EIO; -ENOTCONN.
 */
int kvl_window_append(
        struct kvl_window *window, const uint32_t *pages, uint32_t n_pages, kvl_stream stream);

/* The pages, in order of the text, where each lies now. Borrowed, until the next call on the
 * window. NULL where there are none. */
const uint32_t *kvl_window_pages(const struct kvl_window *window, uint32_t *ret_n_pages);

/*
 * Pages of the text to be read, from `first` on (an index), at least one and at most n_pages, all
 * on the device: *ret_pages[i] has what page first + i of the text has, where that lies or as a
 * copy. Waits for copies, up to the connection's timeout, and before that begins those of the chunk
 * that comes next: in ascending order, and from the beginning again, as attention over layer after
 * layer asks for them. Any order is right, others are slower.
 * *ret_pages: borrowed, like the bytes, until the next kvl_window_take(), _append() or _close():
 * work that was put on `stream` before that may still read them; copies into the buffer wait for
 * it. The stream must exist until the window is closed, or the second kvl_window_take() after.
 * 0; KVL_MISS: a page is damaged, or gone, which the sentence names (nothing was handed out);
 * -ETIMEDOUT: the window can only be closed after it; -EIO: the device or its stream is broken;
 * -EINVAL; -ENOMEM; -ENOTCONN; -ECHILD.
 */
int kvl_window_take(struct kvl_window *window, uint32_t first, uint32_t n_pages, kvl_stream stream,
        const uint32_t **ret_pages, uint32_t *ret_n_pages);

/*
 * The same for some planes, n_planes from first_plane on, as attention that goes layer by layer
 * asks for them: of copies only these planes have the text's bytes, and only these were moved. What
 * comes next is taken to be the same planes of the pages that follow, and after the text's end as
 * many planes after these, from its beginning on. Planes of fewer than 4 KiB a page, and all on a
 * daemon that is too old to copy some, are moved with the others; from a disk the daemon reads
 * whole pages. Returns what kvl_window_take() does; -EINVAL: there are no such planes, either.
 */
int kvl_window_take_planes(struct kvl_window *window, uint32_t first, uint32_t n_pages,
        uint32_t first_plane, uint32_t n_planes, kvl_stream stream, const uint32_t **ret_pages,
        uint32_t *ret_n_pages);

/* Closes it: pins and buffer go, after what was put on the stream. The text stays cached, where it
 * lies. NULL is ignored. 0; -EIO, -EINVAL, -ENOMEM, -ENOTCONN: some of it is held until the
 * namespace is closed. */
int kvl_window_close(struct kvl_window *window, kvl_stream stream);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
