/*
 * A daemon that follows a script, for testing what the library does with replies a real one never
 * sends. It is a process of its own, so that the library's allocations, descriptors and threads are
 * counted without it. Scripts run there: they check with FAKE_CHECK(), never with cmocka.
 */
#ifndef KVL_TESTS_FAKE_DAEMON_H
#define KVL_TESTS_FAKE_DAEMON_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "proto/frame.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"
#include "tests/unit/fake-shm.h"

#define FAKE_NS_ID        7
#define FAKE_CLIENT_ID    42
#define FAKE_EXTENT_BYTES (UINT64_C(2) << 20)
#define FAKE_N_SETS       4
#define FAKE_MAX_PAGES    (FAKE_N_SETS * FAKE_EXTENT_BYTES / 64)
#define FAKE_MAX_PLANES   32
#define FAKE_MAX_PENDING  4096 /* protocol */
#define FAKE_TOKEN        "resume-token-16b"

#define FAKE_CHECK(what)                                                                          \
        do {                                                                                      \
                if (!(what)) {                                                                    \
                        fprintf(stderr, "%s:%d: the fake daemon saw !(%s)\n", __FILE__, __LINE__, \
                                #what);                                                           \
                        _exit(1);                                                                 \
                }                                                                                 \
        } while (0)

struct fake {
        pid_t pid;
        const char *dir; /* static storage of test_dir_make() */
        char *path;      /* owned: the socket */
};

/* The client's side of a connection, in the fake daemon. */
struct fake_peer {
        int fd, listener;
        struct frame_parser in;
        struct arena arena;
        uint64_t seq; /* of the request received last */
        uint16_t type, flags;
        /* Answers of NS_OPEN, set by the script. */
        const char *device; /* NULL: "host" */
        uint32_t transport; /* 0: memfd */
        uint64_t address;
        bool has_null_set;      /* where page 0 is kept back */
        uint32_t n_device_sets; /* likewise; the other sets are in host memory. 0: all */
        bool is_encoded;        /* likewise; host memory is */
        void (*spoil)(Kvlease__V1__NsOpenReply *m); /* likewise; called before it is sent */
        void (*fill)(struct fake_peer *p);          /* likewise; before it shares a namespace */
        /* Set by the script: called with every message before it is sent. */
        void (*lie)(struct fake_peer *p, ProtobufCMessage *m);
        /* Set by the script: instead of bringing up the page of a FETCH in the ring. */
        void (*on_fetch)(struct fake_peer *p, const struct shm_submission *s);
        bool has_broken; /* on_fetch: rules; the client may have let go of what it asked for since
                          */
        uint32_t fetch_room; /* then WIRE_FULL; in pages, UINT32_MAX: no end */
        uint32_t n_fetches;
        /* fake_serve()'s world. */
        uint32_t n_planes, set_pages, capacity;
        int extents[FAKE_N_SETS][FAKE_MAX_PLANES]; /* -1: not made */
        uint32_t n_unmapped[FAKE_N_SETS];          /* UNMAPPED that came */
        uint8_t leased[FAKE_MAX_PAGES];
        uint32_t pins[FAKE_MAX_PAGES];
        uint8_t keys[FAKE_MAX_PAGES][32];
        uint8_t has_key[FAKE_MAX_PAGES];
        uint16_t tokens[FAKE_MAX_PAGES]; /* of what was fake_put() */
        uint32_t next_page;
        uint32_t n_sessions; /* opened */
        bool shares;         /* set by the script: offers shared memory */
        bool has_rings, has_index;
        bool said_shares; /* in its last RESUME_NS */
        struct fake_rings rings;
        struct fake_index index;
        struct fake_pins shared_pins;
        uint64_t n_touches, n_roots; /* submitted */
        struct fake_with {
                uint32_t session;
                uint64_t tag;
        } with, published[FAKE_MAX_PAGES]; /* of the ring now; what each page was published with */
        struct fake_chain {
                bool is_broken;
                int64_t parent;
        } chain; /* of the publishes in the ring */
        /* Restarts. */
        bool resumes;                       /* set by the script: clients may go on after one */
        bool is_mute;                       /* likewise; its messages are not sent */
        bool is_resuming;                   /* not RESUMED yet: the rings wait */
        uint64_t pending[FAKE_MAX_PENDING]; /* of the last HELLO */
        size_t n_pending;
        uint64_t leased_by[FAKE_MAX_PAGES]; /* number of the request; 0: none, the magazine */
        bool is_mapped[FAKE_N_SETS];        /* as RESUME_NS says */
        uint32_t n_resume_ns, n_reopened;   /* since the last HELLO: RESUME_NS; SESSION_OPEN */
};

typedef void (*fake_script)(struct fake_peer *p);

/* Listens, forks, and runs the script on the first connection. */
void fake_start(struct fake *f, fake_script script);

/* Waits for the script's end; fails the test unless all its checks held. */
void fake_stop(struct fake *f);

/* Ends its process, whatever it does. */
void fake_kill(struct fake *f);

/* Between the test and the script of the last fake_start(): one side calls, the other awaits that.
 */
void fake_call(void);
void fake_await_call(void);

/* For scripts: drops the connection and waits for the next. */
void fake_accept(struct fake_peer *p);

/* For scripts. Leave: hang up and stop listening. Return: listen again, and wait for a connection.
 */
void fake_leave(struct fake_peer *p);
void fake_return(struct fake_peer *p);

/* Answers a client that goes on, up to its RESUMED. */
void fake_take_up(struct fake_peer *p);

/* Next request, which must be of `type`; borrowed until the next. */
const ProtobufCMessage *fake_receive(struct fake_peer *p, uint16_t type);

/* Next request of any type; NULL: the stream has ended. */
const ProtobufCMessage *fake_receive_any(struct fake_peer *p);

/* Waits for the end of the stream, ignoring what comes before; a BYE is answered, as daemons do. */
void fake_expect_end(struct fake_peer *p);

void fake_send(struct fake_peer *p, uint16_t type, uint16_t flags, uint64_t seq,
        const ProtobufCMessage *m, const int *fds, unsigned n_fds);
void fake_send_raw(struct fake_peer *p, const void *bytes, size_t len);

/* Answers the request received last. */
void fake_reply(struct fake_peer *p, const ProtobufCMessage *m);
void fake_reply_simple(struct fake_peer *p, uint32_t status, const char *detail);
void fake_reply_pages(struct fake_peer *p, uint32_t status, const uint32_t *pages, uint32_t n);

/* The usual beginnings: hello; hello and one namespace of FAKE_N_SETS sets. */
void fake_welcome(struct fake_peer *p);
void fake_welcome_ns(struct fake_peer *p);

/* The page carries the key, wherever it lies; findable. */
void fake_put(struct fake_peer *p, uint32_t page, const uint8_t *key, uint16_t tokens);

/* The page that has the key; -1: none. */
int64_t fake_find_key(const struct fake_peer *p, const uint8_t *key);

/* True if no client has the page, and it has no key. */
bool fake_is_unused(const struct fake_peer *p, uint32_t page);

/* Moves it to the device, where it isn't there already: *ret_page. WIRE_OK or WIRE_FULL. */
uint32_t fake_bring_up(struct fake_peer *p, uint32_t page, uint32_t *ret_page);

/* The other way round. */
uint32_t fake_send_down(struct fake_peer *p, uint32_t page, uint32_t *ret_page);

/* FETCH: of the ring; over the socket. */
void fake_serve_fetch_entry(struct fake_peer *p, const struct shm_submission *s);
void fake_serve_fetch(struct fake_peer *p, const Kvlease__V1__FetchRequest *request);

/* Rings where the client sleeps after this completion. */
void fake_complete(struct fake_peer *p, uint64_t user_data, uint32_t status, uint32_t page);

/* SHM_OPEN and NS_SHARE, after a fake_welcome() and a fake_welcome_ns(). */
void fake_share(struct fake_peer *p);
void fake_share_ns(struct fake_peer *p);

/* RECALL of a set. */
void fake_recall(struct fake_peer *p, uint32_t set_index, bool is_idle, uint32_t timeout_msec);

/* Answers one request as a daemon would; false: it was the end of the stream, or a BYE. */
bool fake_serve_one(struct fake_peer *p, const ProtobufCMessage *m);

/* Until the end. */
void fake_serve(struct fake_peer *p);

/* No page is leased and none pinned. */
void fake_check_nothing_held(struct fake_peer *p);

#define FAKE_DAEMON_SCENE(fn, ...) TEST_ON(fn, struct fake, f, fake_start, fake_stop, ##__VA_ARGS__)

#endif
