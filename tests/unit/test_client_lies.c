/*
 * A daemon that answers anything in replies, events and shared memory: the library returns, and its
 * process goes on. The seed is printed. Answers are random, so nothing else is checked, except that
 * addresses from the library are readable.
 */
#include <signal.h>
#include <sys/wait.h>

#include "base/macros.h"
#include "tests/unit/client-support.h"
#include "tests/unit/test-random.h"

#define N_LIVES      150 /* KVL_FULL: ten times as many */
#define N_CALLS      20  /* of a life, at most */
#define MAX_ASKED    8
#define TIMEOUT_MSEC 200
#define LOUD_TEXT    2000 /* bytes: more than any name or sentence may have */

/* ---- the daemon ----------------------------------------------------------------------------- */

static unsigned n_sent, lies_at; /* this message of a life is a lie; a few others are as well */

static uint64_t any_number(uint64_t old)
{
        switch (random_below(9)) {
        case 0:
                return 0;
        case 1:
                return UINT64_MAX;
        case 2:
                return UINT32_MAX - random_below(2);
        case 3:
                return UINT64_C(1) << random_below(64);
        case 4:
                return old - 1;
        case 5:
                return old + 1;
        case 6:
                return old * 2;
        case 7:
                return random_u64();
        default:
                return random_below(70);
        }
}

static void spoil_message(ProtobufCMessage *m);

static void spoil_numbers(const ProtobufCFieldDescriptor *f, ProtobufCMessage *m)
{
        static uint64_t numbers[4000];
        size_t *n = (size_t *)((uint8_t *)m + f->quantifier_offset);
        void **at = (void **)((uint8_t *)m + f->offset);
        bool is_wide = f->type == PROTOBUF_C_TYPE_UINT64;

        if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
                if (*n > 0 && random_below(2))
                        spoil_message(((ProtobufCMessage **)*at)[random_below((uint32_t)*n)]);
                else if (*n > 0)
                        --*n;
                return;
        }
        if (f->type != PROTOBUF_C_TYPE_UINT32 && !is_wide)
                return;
        memset(numbers, 0, sizeof(numbers));
        for (size_t i = 0; i < MIN(*n, (size_t)100); i++)
                if (is_wide)
                        numbers[i] = ((uint64_t *)*at)[i];
                else
                        ((uint32_t *)numbers)[i] = ((uint32_t *)*at)[i];
        *at = numbers;
        if (random_below(2))
                *n = random_below(random_below(10) == 0 ? 4000 : 12);
        if (*n > 0 && is_wide)
                numbers[random_below((uint32_t)*n)] = any_number(numbers[0]);
        else if (*n > 0)
                ((uint32_t *)numbers)[random_below((uint32_t)*n)] =
                        (uint32_t)any_number(((uint32_t *)numbers)[0]);
}

static void spoil_field(const ProtobufCFieldDescriptor *f, ProtobufCMessage *m)
{
        static char loud[LOUD_TEXT + 1];
        static uint8_t bytes[LOUD_TEXT];
        void *at = (uint8_t *)m + f->offset;

        memset(loud, 'x', LOUD_TEXT);
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
                spoil_numbers(f, m);
                return;
        }
        switch (f->type) {
        case PROTOBUF_C_TYPE_STRING:
                *(char **)at = random_below(2) ? loud : &loud[LOUD_TEXT];
                break;
        case PROTOBUF_C_TYPE_BYTES:
                *(ProtobufCBinaryData *)at = (ProtobufCBinaryData){
                        random_below(random_below(2) ? LOUD_TEXT : 66), bytes};
                break;
        case PROTOBUF_C_TYPE_MESSAGE:
                if (*(ProtobufCMessage **)at)
                        spoil_message(*(ProtobufCMessage **)at);
                break;
        case PROTOBUF_C_TYPE_UINT64:
                *(uint64_t *)at = any_number(*(uint64_t *)at);
                break;
        default: /* bool, enum, uint32 */
                *(uint32_t *)at = (uint32_t)any_number(*(uint32_t *)at);
        }
}

static void spoil_message(ProtobufCMessage *m)
{
        for (unsigned i = random_below(3); i < 3 && m->descriptor->n_fields > 0; i++)
                spoil_field(&m->descriptor->fields[random_below(m->descriptor->n_fields)], m);
}

/* A word, mostly of the header. */
static void scribble(void *base, uint64_t bytes)
{
        uint64_t at = random_below(random_below(3) ? 512 : (uint32_t)bytes) & ~UINT64_C(7), word;

        memcpy(&word, (uint8_t *)base + at, sizeof(word));
        word = random_below(2) ? any_number(word) : word ^ UINT64_C(1) << random_below(64);
        memcpy((uint8_t *)base + at, &word, sizeof(word));
}

static void lie(struct fake_peer *p, ProtobufCMessage *m)
{
        if (n_sent++ != lies_at && random_below(25) != 0)
                return;
        if (random_below(3) || !p->has_rings)
                spoil_message(m);
        for (unsigned i = random_below(6); p->has_rings && i > 0; i--) {
                if (random_below(2) || !p->has_index)
                        scribble(p->rings.header, p->rings.bytes);
                else if (random_below(2))
                        scribble(p->index.header, p->index.bytes);
                else
                        scribble(p->shared_pins.header, p->shared_pins.bytes);
        }
}

/* The daemon may trip over its own lies, and end. */
static void script(struct fake_peer *p)
{
        if (!freopen("/dev/null", "w", stderr))
                _exit(1);
        alarm(20);
        p->lie = lie;
        p->shares = random_below(4) != 0;
        p->has_null_set = random_below(3) == 0;
        p->n_device_sets = random_below(3) == 0 ? 2 : 0;
        fake_serve(p);
}

/* ---- the engine ----------------------------------------------------------------------------- */

struct life {
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct kvl_ns_info info;
        uint32_t pages[MAX_ASKED], n_pages; /* as the last call brought them */
        uint8_t keys[MAX_ASKED * KVL_KEY_BYTES];
};

static void touch(struct life *l, bool writes)
{
        for (uint32_t i = 0; i < l->n_pages; i++) {
                volatile uint8_t *at = kvl_page_ptr(l->ns, l->pages[i], l->info.n_planes - 1);

                if (!at)
                        continue;
                if (writes)
                        at[0] = at[l->info.plane_page_bytes - 1] = 1;
                else
                        l->keys[0] += at[l->info.plane_page_bytes - 1];
        }
}

static void brought(struct life *l, int r, uint32_t n)
{
        l->n_pages = r == 0 ? n : 0;
        assert_true(l->n_pages <= MAX_ASKED);
        for (uint32_t i = 0; i < l->n_pages; i++)
                assert_true(l->pages[i] < l->info.capacity_pages);
}

static void use_session(struct life *l)
{
        struct kvl_session_info info = {.size = sizeof(info)};
        struct kvl_session_page pages[MAX_ASKED];
        struct kvl_session *session;
        uint32_t n = 0;

        if (kvl_session_open(l->ns, "s", 1, NULL, &info, &session) != 0)
                return;
        (void)kvl_session_pages(session, 0, MAX_ASKED, pages, &n);
        (void)kvl_session_truncate(session, 0, 16, NULL);
        (void)kvl_session_close(session, random_below(2));
}

static void use_window(struct life *l)
{
        const struct kvl_window_options options = {.size = sizeof(options), .chunk_pages = 2};
        struct kvl_window *window;
        const uint32_t *pages;
        uint32_t n;

        if (kvl_window_open(l->ns, &options, &window) != 0)
                return;
        if (l->n_pages > 0 && kvl_window_append(window, l->pages, l->n_pages, NULL) == 0)
                (void)kvl_window_take(window, 0, l->n_pages, NULL, &pages, &n);
        (void)kvl_window_close(window, NULL);
        l->n_pages = 0;
}

static void on_done(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        (void)ns, (void)code, (void)pages, (void)n_pages, (void)n_tokens, (void)data;
}

static void call_once(struct life *l)
{
        struct kvl_publish p = {.size = sizeof(p),
                .pages = l->pages,
                .keys = l->keys,
                .n_pages = l->n_pages,
                .last_tokens = 16};
        uint32_t asked = 1 + random_below(MAX_ASKED), n = asked, first = random_below(4);
        uint8_t *keys = l->keys + (size_t)random_below(2) * KVL_KEY_BYTES;
        uint64_t n_tokens;

        switch (random_below(16)) {
        case 0:
        case 1:
                brought(l, kvl_lease(l->ns, 1, asked, l->pages), asked);
                touch(l, true);
                break;
        case 2:
        case 3:
                n = 0;
                brought(l, l->n_pages > 0 ? kvl_publish(l->ns, &p, l->pages, &n) : -EINVAL, n);
                break;
        case 4:
        case 5:
                n = 0;
                asked = MIN(asked, (uint32_t)MAX_ASKED - 1);
                brought(l, kvl_lookup(l->ns, 1, keys, asked, l->pages, &n, &n_tokens), n);
                touch(l, false);
                break;
        case 6:
                n = 0;
                brought(l, kvl_find(l->ns, 1, l->keys, asked, l->pages, &n, &n_tokens), n);
                touch(l, false);
                break;
        case 7:
                if (l->n_pages > 0)
                        (void)kvl_fetch(l->ns, l->pages, l->n_pages, l->pages);
                touch(l, false);
                break;
        case 8:
                if (l->n_pages > 0)
                        (void)kvl_release(l->ns, l->pages, l->n_pages);
                break;
        case 9:
                if (l->n_pages > 0)
                        (void)kvl_free(l->ns, l->pages, l->n_pages);
                break;
        case 10:
                for (uint32_t i = 0; i < MAX_ASKED; i++)
                        l->pages[i] = random_below(l->info.capacity_pages);
                brought(l, kvl_map_pages(l->ns, l->pages, first + 1), first + 1);
                break;
        case 11:
                use_session(l);
                break;
        case 12:
                use_window(l);
                break;
        case 13:
                (void)kvl_lookup_start(l->ns, 1, l->keys, asked, on_done, NULL);
                (void)kvl_lease_start(l->ns, 1, asked, on_done, NULL);
                break;
        case 14:
                (void)kvl_dispatch(l->conn);
                (void)kvl_safepoint(l->conn, NULL);
                (void)kvl_leasable_pages(l->ns);
                (void)kvl_wait(l->ns, l->keys, 1);
                break;
        default:
                (void)kvl_invalidate(l->ns, random_below(2) ? l->keys : NULL, NULL);
                (void)kvl_expect(l->ns, l->keys, asked, 10);
                (void)kvl_request_end(l->ns, 1);
        }
}

static void live(const struct fake *f, unsigned *n_opened)
{
        const struct kvl_connect_options o = {.size = sizeof(o),
                .socket_path = f->path,
                .timeout_msec = TIMEOUT_MSEC,
                .reconnect_msec = 20,
                .flags = random_below(6) == 0 ? KVL_CONNECT_METADATA_ONLY : KVL_CONNECT_SAFEPOINTS};
        struct kvl_layout layout = test_layout(1 + random_below(3), PAGE_BYTES);
        unsigned flags = random_below(2) * KVL_NS_KEEP_PAGE_ZERO +
                         random_below(2) * KVL_NS_BACK_HOLES +
                         (random_below(4) == 0) * KVL_NS_SAME_ADDRESS;
        struct life l = {.info.size = sizeof(l.info)};

        for (uint32_t i = 0; i < MAX_ASKED; i++)
                test_key(l.keys + (size_t)i * KVL_KEY_BYTES, i);
        if (kvl_connect(&o, &l.conn) != 0)
                return;
        if (kvl_ns_open(l.conn, "chat", &layout, NULL, flags, &l.ns) == 0) {
                ++*n_opened;
                kvl_ns_info(l.ns, &l.info);
                for (unsigned i = random_below(N_CALLS); i > 0; i--)
                        call_once(&l);
                if (random_below(2))
                        kvl_ns_close(l.ns);
        }
        kvl_disconnect(l.conn);
}

TEST(test_lies)
{
        const char *full = getenv("KVL_FULL");
        unsigned n_lives = full && *full == '1' ? 10 * N_LIVES : N_LIVES, n_opened = 0;

        random_start("test_client_lies");
        for (unsigned i = 0; i < n_lives; i++) {
                struct fake f;

                n_sent = 0;
                lies_at = random_below(20);
                fake_start(&f, script);
                random_u64(); /* the daemon goes on from here as well */
                live(&f, &n_opened);
                fake_kill(&f);
        }
        assert_true(n_opened > n_lives / 4);
}
