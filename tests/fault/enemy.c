#include "tests/fault/enemy.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/shm.h"
#include "proto/sock.h"
#include "tests/fault/actors.h"
#include "tests/fault/raw.h"
#include "tests/integration/pattern.h"

#define N_CHAINS    6
#define CHAIN_PAGES 12
#define N_KNOWN     64 /* pages from replies that it remembers */
#define POOL_BYTES  (256 * 1024)

/* State of the process. */
struct enemy {
        struct harness *h;
        uint64_t random;
        const char *tenant;
        int fd; /* -1: hung up */
        uint64_t seq;
        struct frame_parser parser;
        struct arena arena;
        uint32_t ns_id, session; /* 0: none yet */
        uint32_t pages[N_KNOWN];
        uint32_t granted[N_KNOWN], n_granted;
        uint64_t chain, first; /* of the keys of the message that is made */
        bool takes_granted;    /* its pages are those */
        int fds[2];            /* that came last; owned, -1: none */
        uint64_t bytes[2];
        unsigned n_fds;
        size_t used; /* of pool */
        _Alignas(max_align_t) uint8_t pool[POOL_BYTES];
};

static struct enemy me;

static uint64_t draw(uint64_t below)
{
        return pattern_next(&me.random) % below;
}

static bool one_in(uint64_t n)
{
        return draw(n) == 0;
}

/* A small number, one right at a limit, or any. */
static uint64_t any_number(uint64_t usual)
{
        static const uint64_t edges[] = {0, 1, 255, 256, 1023, 1024, 1025, 4095, 4096, 4097, 65536,
                INT32_MAX, UINT32_MAX, UINT64_MAX};

        if (!one_in(16))
                return draw(usual);
        return one_in(2) ? edges[draw(ARRAY_SIZE(edges))] : pattern_next(&me.random);
}

static uint32_t any_page(void)
{
        if (me.takes_granted && me.n_granted > 0)
                return me.granted[--me.n_granted];
        return one_in(4) ? (uint32_t)any_number(4096) : me.pages[draw(N_KNOWN)];
}

/* ---- messages by chance --------------------------------------------------------------------- */

static void *take(size_t n)
{
        uint8_t *at = me.pool + me.used;

        n = (n + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
        if (n > sizeof(me.pool) - me.used)
                _exit(0);
        me.used += n;
        return memset(at, 0, n);
}

static bool is_named(const ProtobufCFieldDescriptor *f, const char *name)
{
        return strcmp(f->name, name) == 0;
}

/* Draws a value for a field, by its name. */
static uint64_t number_for(const ProtobufCFieldDescriptor *f)
{
        static const struct {
                const char *name;
                uint64_t usual; /* below that */
        } ranges[] = {{"n_pages", 48}, {"min_pages", 4}, {"last_tokens", 18}, {"first_tokens", 64},
                {"set_index", 6}, {"first_plane", 3}, {"request_id", 4}, {"tag", 4}, {"hint", 5},
                {"timeout_msec", 40}, {"max_wait_msec", 40}, {"after_msec", 100}, {"expire_sec", 3},
                {"from", 4}, {"max", 40}, {"mapped_sets", 8}};

        if (is_named(f, "ns_id"))
                return one_in(24) ? any_number(8) : me.ns_id;
        if (is_named(f, "resume_client"))
                return one_in(20) ? any_number(60) : 0;
        if (is_named(f, "last_tokens") && !one_in(4))
                return 16;
        if (is_named(f, "session"))
                return one_in(4) ? any_number(6) : me.session;
        if (is_named(f, "pages") || is_named(f, "targets") || is_named(f, "page"))
                return any_page();
        if (is_named(f, "min_version") || is_named(f, "max_version") ||
                is_named(f, "layout_version"))
                return one_in(64) ? any_number(9) : 1;
        for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
                if (is_named(f, ranges[i].name))
                        return any_number(ranges[i].usual);
        return one_in(8) ? any_number(4) : 0;
}

/* A run of a text's keys, mostly from its beginning. */
static ProtobufCBinaryData keys_for(const ProtobufCFieldDescriptor *f, size_t n)
{
        bool is_parent = is_named(f, "parent_key");
        ProtobufCBinaryData b = {n * SHM_KEY_BYTES, take(n * SHM_KEY_BYTES)};

        if (is_parent && me.first == 0)
                return (ProtobufCBinaryData){0};
        for (size_t i = 0; i < n; i++)
                pattern_key(me.chain, me.first + i - is_parent, b.data + i * SHM_KEY_BYTES);
        if (one_in(100))
                b.len = draw(b.len + 1);
        return b;
}

static ProtobufCBinaryData bytes_for(const ProtobufCFieldDescriptor *f, size_t n_pages)
{
        ProtobufCBinaryData b = {0};

        if (strstr(f->name, "key"))
                return keys_for(f, is_named(f, "keys") ? n_pages : 1);
        if (is_named(f, "group_token") && !one_in(16))
                return b;
        b.len = is_named(f, "id") ? 2 : is_named(f, "salt") ? 0 : 16;
        if (one_in(50))
                b.len = any_number(100) % 4096;
        b.data = take(b.len + 2);
        b.data[0] = 's';
        b.data[1] = (uint8_t)draw(5);
        return b;
}

static char *text_for(const ProtobufCFieldDescriptor *f)
{
        char *text = take(512);

        if (is_named(f, "name"))
                snprintf(text, 512, "ns-%u", (unsigned)draw(3));
        else if (is_named(f, "model"))
                snprintf(text, 512, "raw");
        else if (is_named(f, "version"))
                snprintf(text, 512, "v%d", one_in(20));
        else if (is_named(f, "set") && one_in(6))
                snprintf(text, 512, "set");
        if (one_in(200))
                memset(text, "x/\n\xff"[draw(4)], draw(511));
        return text;
}

static void fill_message(ProtobufCMessage *m);

/* A name must have the same layout each time, or it is refused. */
static ProtobufCMessage *layout_for(void)
{
        Kvlease__V1__NsLayout *l = take(sizeof(*l));

        kvlease__v1__ns_layout__init(l);
        if (one_in(20)) {
                fill_message(&l->base);
                return &l->base;
        }
        l->model = (char *)"raw";
        l->version = (char *)(one_in(20) ? "v1" : "v0");
        l->dtype = l->n_layers = l->n_kv_heads = l->head_size = 1;
        l->page_tokens = 16;
        l->n_planes = l->tp_size = 1;
        l->plane_page_bytes = 4096;
        return &l->base;
}

static void set_one(const ProtobufCFieldDescriptor *f, void *at, size_t n_pages)
{
        switch (f->type) {
        case PROTOBUF_C_TYPE_BOOL:
                *(protobuf_c_boolean *)at = one_in(6);
                break;
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_ENUM:
                *(uint32_t *)at = (uint32_t)number_for(f);
                break;
        case PROTOBUF_C_TYPE_UINT64:
                *(uint64_t *)at = number_for(f);
                break;
        case PROTOBUF_C_TYPE_STRING:
                *(char **)at = text_for(f);
                break;
        case PROTOBUF_C_TYPE_BYTES:
                *(ProtobufCBinaryData *)at = bytes_for(f, n_pages);
                break;
        case PROTOBUF_C_TYPE_MESSAGE:
                *(ProtobufCMessage **)at = layout_for();
                break;
        default:
                break;
        }
}

static void set_list(const ProtobufCFieldDescriptor *f, uint8_t *base, size_t n)
{
        size_t size = f->type == PROTOBUF_C_TYPE_UINT64 ? 8 : 4;
        uint8_t *list;

        if (f->type != PROTOBUF_C_TYPE_UINT32 && f->type != PROTOBUF_C_TYPE_UINT64)
                return;
        if (is_named(f, "targets") && !one_in(3))
                return;
        list = take(n * size);
        for (size_t i = 0; i < n; i++)
                set_one(f, list + i * size, 0);
        *(size_t *)(void *)(base + f->quantifier_offset) = n;
        *(void **)(void *)(base + f->offset) = list;
}

static void fill_message(ProtobufCMessage *m)
{
        uint8_t *base = (uint8_t *)m;
        size_t n = one_in(40) ? any_number(4200) % 4200 : 1 + draw(CHAIN_PAGES);

        for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
                const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];

                if (f->label == PROTOBUF_C_LABEL_REPEATED)
                        set_list(f, base, n);
                else
                        set_one(f, base + f->offset, one_in(60) ? draw(20) : n);
        }
}

/* ---- its connection ------------------------------------------------------------------------- */

static void send_bytes(const void *data, size_t n)
{
        struct pollfd p = {me.fd, POLLOUT, 0};

        /* The daemon doesn't read while its replies aren't read: do something else then. */
        if (me.fd < 0 || poll(&p, 1, 20) <= 0)
                return;
        if (send(me.fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && one_in(4))
                me.fd = fd_close(me.fd);
}

static void send_message(const struct msg_info *info)
{
        static uint8_t out[FRAME_MAX_SIZE];
        ProtobufCMessage *m;
        bool is_quiet = info->may_skip_reply && one_in(3);
        int n;

        me.used = 0;
        me.chain = draw(N_CHAINS);
        me.first = one_in(3) ? draw(CHAIN_PAGES) : 0;
        me.takes_granted = (info->type == MSG_PUBLISH || info->type == MSG_FREE ||
                                   info->type == MSG_ANNOUNCE || info->type == MSG_REPORT) &&
                           !one_in(8);
        m = take(info->request->sizeof_message);
        protobuf_c_message_init(info->request, m);
        fill_message(m);
        n = msg_pack(out, 1, info->type, is_quiet ? FRAME_NO_REPLY : 0, ++me.seq, 0, m);
        if (n <= 0)
                return;
        if (one_in(300))
                out[draw((uint64_t)n)] ^= (uint8_t)(1 << draw(8));
        send_bytes(out, one_in(400) ? draw((uint64_t)n) : (size_t)n);
}

static void remember(const uint32_t *pages, size_t n)
{
        for (size_t i = 0; i < n; i++)
                me.pages[draw(N_KNOWN)] = pages[i];
}

/* Takes numbers from the daemon's reply, to use them from now on. */
static void learn(struct frame *f)
{
        const struct msg_info *info = msg_find(f->header.type);
        const ProtobufCMessage *m;

        arena_reset(&me.arena);
        m = info && info->reply ? msg_unpack(info->reply, &me.arena, f->payload, f->header.length)
                                : NULL;
        if (!m)
                return;
        if (info->type == MSG_NS_OPEN) {
                const Kvlease__V1__NsOpenReply *open = (const Kvlease__V1__NsOpenReply *)m;

                me.ns_id = open->status == 0 ? open->ns_id : me.ns_id;
        } else if (info->type == MSG_LEASE) {
                const Kvlease__V1__LeaseReply *lease = (const Kvlease__V1__LeaseReply *)m;

                remember(lease->pages, lease->n_pages);
                me.n_granted = (uint32_t)MIN(lease->n_pages, (size_t)N_KNOWN);
                for (uint32_t i = 0; i < me.n_granted; i++)
                        me.granted[i] = lease->pages[i];
        } else if (info->type == MSG_LOOKUP) {
                const Kvlease__V1__LookupReply *lookup = (const Kvlease__V1__LookupReply *)m;

                remember(lookup->pages, lookup->n_pages);
        } else if (info->type == MSG_SESSION_OPEN) {
                me.session = ((const Kvlease__V1__SessionOpenReply *)m)->session;
        } else if (info->type == MSG_SHM_OPEN) {
                me.bytes[0] = ((const Kvlease__V1__ShmOpenReply *)m)->bytes;
        } else if (info->type == MSG_NS_SHARE) {
                me.bytes[0] = ((const Kvlease__V1__NsShareReply *)m)->index_bytes;
                me.bytes[1] = ((const Kvlease__V1__NsShareReply *)m)->pins_bytes;
        }
        if (f->header.fd_count == 0)
                return;
        for (unsigned i = 0; i < ARRAY_SIZE(me.fds); i++) {
                fd_close(me.fds[i]);
                me.fds[i] = i < f->header.fd_count ? fd_take(&f->fds[i]) : -1;
        }
        me.n_fds = f->header.fd_count;
}

/* Reads all replies that arrive within this time. */
static void hear(int msec)
{
        struct pollfd p = {me.fd, POLLIN, 0};
        struct frame f;

        while (me.fd >= 0 && poll(&p, 1, msec) > 0) {
                ssize_t n = sock_receive(me.fd, &me.parser);

                if (n <= 0)
                        me.fd = fd_close(me.fd);
                while (n > 0 && frame_parser_next(&me.parser, &f, NULL) == 1) {
                        learn(&f);
                        frame_close_fds(&f);
                }
                msec = 0;
        }
}

static bool come(void)
{
        char path[PRIVATE_PATH_MAX];

        frame_parser_deinit(&me.parser);
        frame_parser_init(&me.parser);
        me.ns_id = me.session = me.n_granted = 0;
        me.seq = 0;
        me.fd = sock_connect(private_daemon_socket(&me.h->daemon, me.tenant, path));
        return me.fd >= 0;
}

/* Sends a message, and waits for the answer. */
static void ask(uint16_t type)
{
        send_message(msg_find(type));
        hear(200);
}

static bool introduce(void)
{
        if (!come())
                return false;
        ask(MSG_HELLO);
        for (unsigned n = 0; n < 8 && me.fd >= 0 && me.ns_id == 0; n++)
                ask(MSG_NS_OPEN);
        return me.fd >= 0;
}

/* ---- what it does --------------------------------------------------------------------------- */

static const struct msg_info *any_type(void)
{
        static const uint16_t often[] = {MSG_LEASE, MSG_LEASE, MSG_PUBLISH, MSG_PUBLISH,
                MSG_PUBLISH, MSG_LOOKUP, MSG_RELEASE, MSG_FREE, MSG_INVALIDATE, MSG_ANNOUNCE,
                MSG_WAIT, MSG_SESSION_OPEN, MSG_SESSION_TRUNCATE, MSG_SESSION_KEEP,
                MSG_SESSION_PAGES, MSG_SESSION_CLOSE, MSG_FETCH, MSG_MAP, MSG_REPORT, MSG_EXPLAIN,
                MSG_NS_OPEN};
        const struct msg_info *info;
        unsigned n = 0;

        if (!one_in(5))
                return msg_find(often[draw(ARRAY_SIZE(often))]);
        while (msg_at(n))
                n++;
        do
                info = msg_at((unsigned)draw(n));
        while (!info->request || !(info->sockets & MSG_ON_TENANT) ||
                (info->type == MSG_HELLO && !one_in(200)) ||
                (info->type == MSG_BYE && !one_in(50)));
        return info;
}

/* Sends every kind of message, in any order. */
static void talk(void)
{
        bool is_deaf = one_in(5), is_hasty = one_in(2);

        if (!introduce())
                return;
        for (uint64_t n = 100 + draw(20000); n > 0 && me.fd >= 0; n--) {
                send_message(any_type());
                if (!is_deaf && (!is_hasty || one_in(32)))
                        hear(is_hasty ? 0 : 20);
        }
}

/* One kind of request, as fast as possible. */
static void storm(void)
{
        static const uint16_t kinds[] = {MSG_INVALIDATE, MSG_LEASE, MSG_FREE, MSG_NS_OPEN,
                MSG_EXPLAIN, MSG_SESSION_OPEN, MSG_SESSION_TRUNCATE, MSG_SESSION_KEEP, MSG_MAP,
                MSG_FETCH, MSG_WAIT, MSG_LOOKUP};
        uint16_t kind = kinds[draw(ARRAY_SIZE(kinds))];

        if (!introduce())
                return;
        for (uint64_t n = 1000 + draw(20000); n > 0 && me.fd >= 0; n--) {
                if (one_in(4)) {
                        send_message(msg_find(MSG_LEASE));
                        send_message(msg_find(MSG_PUBLISH));
                }
                send_message(msg_find(kind));
                if (one_in(16))
                        hear(0);
        }
}

static void send_with_fds(const void *data, size_t n, unsigned n_fds)
{
        int fds[FRAME_MAX_FDS];

        for (unsigned i = 0; i < n_fds; i++)
                fds[i] = STDERR_FILENO;
        (void)sock_send(me.fd, data, n, fds, n_fds);
}

/* Sends bytes that aren't a frame, half a frame, or descriptors. */
static void mumble(void)
{
        uint8_t junk[512];

        for (uint64_t n = 1 + draw(50); n > 0; n--) {
                struct frame_header header = {.magic = FRAME_MAGIC,
                        .version = 1,
                        .seq = 1 + draw(3),
                        .type = (uint16_t)any_number(140),
                        .length = (uint32_t)any_number(400),
                        .fd_count = (uint16_t)(one_in(3) ? draw(20) : 0),
                        .flags = (uint16_t)(one_in(3) ? draw(16) : 0)};

                if (me.fd < 0 && !(one_in(3) ? come() : introduce()))
                        return;
                for (size_t i = 0; i < sizeof(junk); i++)
                        junk[i] = (uint8_t)pattern_next(&me.random);
                if (!one_in(4))
                        frame_encode_header(&header, junk);
                if (one_in(3))
                        send_with_fds(junk, 1 + draw(sizeof(junk) - 1),
                                1 + (unsigned)draw(FRAME_MAX_FDS));
                else
                        send_bytes(junk, 1 + draw(sizeof(junk) - 1));
                hear((int)draw(10));
                if (one_in(3))
                        me.fd = fd_close(me.fd);
        }
}

/* Opens and closes connections, some with a HELLO, none correctly. */
static void flood(void)
{
        int open[48];

        for (unsigned i = 0; i < ARRAY_SIZE(open); i++)
                open[i] = -1;
        for (uint64_t n = 100 + draw(2000); n > 0; n--) {
                unsigned i = (unsigned)draw(ARRAY_SIZE(open));

                fd_close(open[i]);
                open[i] = -1;
                if (!come())
                        return;
                if (!one_in(4))
                        send_message(msg_find(MSG_HELLO));
                if (one_in(2))
                        send_message(msg_find(MSG_NS_OPEN));
                open[i] = fd_take(&me.fd);
                if (one_in(20))
                        usleep((useconds_t)draw(20000));
        }
}

/* ---- in shared memory ----------------------------------------------------------------------- */

struct shared {
        struct shm_client *client;
        struct shm_submission *subs;
        uint8_t *pins; /* mapped to write */
        uint64_t pins_bytes;
        _Atomic uint32_t *slots; /* its magazine: the header is scribbled over */
};

static void *map(int fd, uint64_t bytes)
{
        void *at = fd < 0 || bytes == 0
                           ? MAP_FAILED
                           : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        return at == MAP_FAILED ? NULL : at;
}

static bool share(struct shared *s)
{
        uint8_t *base;

        if (!introduce())
                return false;
        ask(MSG_SHM_OPEN);
        base = me.n_fds == 1 ? map(me.fds[0], SHM_CLIENT_BYTES) : NULL;
        if (!base)
                return false;
        s->client = (struct shm_client *)(void *)base;
        s->subs = (struct shm_submission *)(void *)(base + SHM_HEADER_BYTES);
        ask(MSG_NS_SHARE);
        s->pins_bytes = me.bytes[1];
        s->pins = me.n_fds == 2 ? map(me.fds[1], s->pins_bytes) : NULL;
        if (!s->pins)
                return false;
        s->slots =
                (_Atomic uint32_t *)(void *)(s->pins +
                                             ((struct shm_pins *)(void *)s->pins)->magazine_offset);
        /* The segment is sealed against this: a segment that shrinks would kill the daemon. */
        if (ftruncate(me.fds[one_in(2)], (off_t)any_number(1 << 20)) == 0)
                _exit(0);
        return true;
}

static uint32_t claim(struct shared *s)
{
        struct shm_pins *pins = (struct shm_pins *)(void *)s->pins;
        uint32_t page = atomic_exchange(&s->slots[draw(SHM_MAGAZINE_SLOTS)], 0);

        if (page == 0)
                return any_page();
        atomic_fetch_add(&pins->n_taken, 1);
        remember(&(uint32_t){page - 1}, 1);
        return page - 1;
}

static struct shm_submission any_submission(struct shared *s, bool is_right)
{
        struct shm_submission e = {
                .op = (uint8_t)(1 + draw(8)),
                .ns_id = one_in(30) ? (uint32_t)any_number(5) : me.ns_id,
                .page = one_in(3) ? claim(s) : any_page(),
                .tokens = (uint16_t)(one_in(20) ? any_number(20) : 16),
                .request_id = draw(4),
                .user_data = me.seq++,
        };

        if (e.op == SHM_OP_PUBLISH)
                e.flags = one_in(3) ? SHM_PUBLISH_CHAIN : SHM_PUBLISH_ROOT;
        if (e.op == SHM_OP_FETCH)
                e.flags = (uint8_t)draw(3);
        if (e.op == SHM_OP_FREE)
                e.tokens = (uint16_t)(1 + draw(SHM_FREE_PAGES));
        if (e.op == SHM_OP_REFILL)
                e.aux = (uint32_t)any_number(200);
        if (e.op == SHM_OP_PARENT || e.op == SHM_OP_PUBLISH)
                pattern_key(draw(N_CHAINS), draw(CHAIN_PAGES), e.key);
        else
                for (unsigned i = 0; i < SHM_FREE_PAGES; i++)
                        e.pages[i] = one_in(4) ? any_page() : claim(s);
        if (!is_right && one_in(50))
                memset(&e, (int)draw(256), 1 + draw(sizeof(e)));
        return e;
}

/* Writes to the segments as if they were its own. */
static void scribble(struct shared *s)
{
        _Atomic uint64_t *words[] = {&s->client->sub_tail, &s->client->comp_head,
                &s->client->sub_head, &s->client->comp_tail,
                (_Atomic uint64_t *)(void *)&s->client->daemon_sleeps,
                (_Atomic uint64_t *)(void *)s->pins,
                (_Atomic uint64_t *)(void *)(s->pins + 8 * draw(s->pins_bytes / 8))};
        uint64_t n_slots = (SHM_HEADER_BYTES + SHM_MAGAZINE_SLOTS * 4) / 8;
        _Atomic uint64_t *at = words[draw(ARRAY_SIZE(words))];

        if (one_in(2))
                at = (_Atomic uint64_t *)(void *)(s->pins + 8 * draw(n_slots));
        if (one_in(2))
                atomic_fetch_add(at, any_number(3));
        else
                atomic_store(at, any_number(4096));
}

static void submit(struct shared *s, bool is_right)
{
        uint64_t tail = atomic_load(&s->client->sub_tail);
        uint64_t n = 1 + (one_in(20) ? draw(SHM_SUB_ENTRIES) : draw(16));
        uint64_t used = tail - atomic_load(&s->client->sub_head);

        if (used >= SHM_SUB_ENTRIES)
                return;
        n = MIN(n, SHM_SUB_ENTRIES - used);
        for (uint64_t i = 0; i < n; i++)
                s->subs[(tail + i) % SHM_SUB_ENTRIES] = any_submission(s, is_right);
        atomic_store(&s->client->sub_tail, tail + n);
        if (!one_in(3))
                send_message(msg_find(MSG_DOORBELL));
        if (one_in(100))
                return; /* its completions pile up */
        atomic_store(&s->client->comp_head, atomic_load(&s->client->comp_tail));
}

/* Submits by the rules, as fast as possible, with frames in between; at last breaks the rules. */
static void submit_all(void)
{
        bool is_right = one_in(2);
        struct shared s;

        if (!share(&s))
                return;
        for (uint64_t n = 100 + draw(10000); n > 0 && me.fd >= 0; n--) {
                submit(&s, is_right);
                if (one_in(8))
                        send_message(any_type());
                if (one_in(4))
                        hear(0);
                if (!is_right && one_in(30))
                        scribble(&s);
        }
        for (uint64_t n = draw(100000); n > 0; n--)
                scribble(&s);
        send_message(msg_find(MSG_DOORBELL));
        if (one_in(2))
                usleep((useconds_t)draw(1000000)); /* muted: its pins stay */
}

_Noreturn void enemy_run(struct harness *h, uint64_t seed)
{
        static void (*const ways[])(void) = {
                talk, talk, storm, mumble, flood, submit_all, submit_all};
        const struct rlimit none = {0, 0};
        uid_t uid;

        me.h = h;
        me.random = seed;
        me.fd = me.fds[0] = me.fds[1] = -1;
        me.tenant = one_in(3) ? "mob" : "a";
        uid = (uid_t)(ENEMY_UID + draw(2));
        /* Resets cmocka's handlers, which would continue the test in here. */
        for (int signal_no = 1; signal_no < NSIG; signal_no++)
                signal(signal_no, SIG_DFL);
        setrlimit(RLIMIT_CORE, &none);
        if (one_in(2) && geteuid() == 0 && !be_uid(uid))
                _exit(1);
        if (arena_init(&me.arena, 1 << 20) < 0)
                _exit(1);
        for (;;) {
                ways[draw(ARRAY_SIZE(ways))]();
                me.fd = fd_close(me.fd);
                if (one_in(2))
                        _exit(0);
                usleep((useconds_t)draw(20000));
        }
}

void enemy_open_paths(struct harness *h)
{
        static const char *const tenants[] = {"a", "mob"};
        char path[PRIVATE_PATH_MAX];

        chmod(h->daemon.dir, 0755);
        for (unsigned i = 0; i < ARRAY_SIZE(tenants); i++) {
                snprintf(path, sizeof(path), "%.40s/t/%s", h->daemon.runtime, tenants[i]);
                chmod(path, 0755);
        }
}
