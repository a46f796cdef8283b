/*
 * Damaged session logs at the daemon's start (daemon/core/sessions/session-log.h), over pages of a
 * namespace. With any contents: no crash, state that checks, and usable sessions. Input: the half
 * that counts. Sums are made right, so that records are looked at; exception: records whose sum is
 * given as 0xffffffff.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "daemon/core/life/recover-sessions.h"
#include "daemon/core/sessions/session-impl.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/at-once.h"
#include "tests/unit/fake-device.h"
#include "tests/unit/toy-layout.h"

#define PAGE_BYTES 128
#define SET_BYTES  1024
#define N_CHAIN    12 /* pages, in one chain */
#define MOST       (1u << 16)

static struct fake_device device;
static struct store store;
static struct tenant *tenant;
static struct member *member;
static struct attach *attach;
static int kept; /* owned */

static int add(void *data, enum keep_kind kind, uint32_t number, int fd, struct detail *d)
{
        kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        return 0;
}

static void drop(void *data, enum keep_kind kind, uint32_t number)
{
        kept = fd_close(kept);
}

static int take(void *data, enum keep_kind kind, uint32_t number)
{
        return fcntl(kept, F_DUPFD_CLOEXEC, 0);
}

static const struct keep_ops ops = {.add = add, .drop = drop, .take = take};

static void publish_chain(void)
{
        uint8_t keys[N_CHAIN * KEY_BYTES] = {0};
        uint32_t leased[N_CHAIN], sealed[N_CHAIN], n;
        struct publish p = {.pages = leased, .keys = keys, .n = N_CHAIN, .last_tokens = 16};

        for (unsigned i = 0; i < N_CHAIN; i++)
                keys[i * KEY_BYTES] = (uint8_t)(i + 1);
        CHECK(lease_pages(attach, N_CHAIN, 1, leased, NULL) == 0);
        CHECK(publish_pages(attach, &p, 1, sealed, &n, NULL) == 0 && n == N_CHAIN);
        CHECK(release_pages(attach, sealed, n, 1, NULL) == 0);
}

static void start(void)
{
        const struct ns_layout layout = toy_layout(PAGE_BYTES);
        struct tenant_attrs attrs = {
                .limit_bytes = 8 * SET_BYTES, .weight = 1, .priority = 50, .max_clients = 8};

        fake_device_init(&device, "fake", 256);
        store_init(&store, &evict_lru);
        store.min_page_bytes = PAGE_BYTES;
        CHECK(store_add_pool(&store, &device.device, 8 * SET_BYTES, SET_BYTES, NULL) == 0);
        CHECK(tenant_new(&store, "a", &attrs, &tenant, NULL) == 0);
        CHECK(member_new(tenant, NULL, false, &member, NULL) == 0);
        CHECK(attach_open(member, "x", &layout, "", false, &attach, NULL) == 0);
        publish_chain();
}

static uint32_t open_session(const char *id)
{
        uint32_t handle;
        bool created;

        CHECK(session_open(attach, &(struct session_request){(const uint8_t *)id, 1, false, 0, 1},
                      &handle, &created, NULL) == 0);
        return handle;
}

/* Makes an empty log of the namespace; its sessions ended with their process. */
static void make_log(void)
{
        store.keep.ops = &ops;
        open_session("a");
        sessions_close_all(attach, 1);
        sessions_free(attach->ns);
}

static void correct_sums(uint8_t *half, size_t size)
{
        static const struct hash_seed seed = {1, 2};

        for (size_t at = 0; size - at >= sizeof(struct session_record);) {
                struct session_record *r = (struct session_record *)(void *)(half + at);

                if (r->bytes < sizeof(*r) || r->bytes % 8 != 0 || r->bytes > size - at)
                        return;
                if (r->sum != UINT32_MAX)
                        r->sum = (uint32_t)hash_bytes(seed, &r->bytes, r->bytes - sizeof(r->sum));
                at += r->bytes;
        }
}

static void fill_log(const uint8_t *data, size_t size)
{
        struct session_log_head *h =
                mmap(NULL, SESSION_LOG_HEAD + MOST, PROT_READ | PROT_WRITE, MAP_SHARED, kept, 0);
        uint8_t *half = (uint8_t *)h + SESSION_LOG_HEAD;

        CHECK(h != MAP_FAILED);
        memcpy(half, data, size);
        correct_sums(half, size);
        atomic_store(&h->tails[0], size);
        munmap(h, SESSION_LOG_HEAD + MOST);
}

static void check_state(void)
{
        uint64_t n_pages, n_sets;
        struct detail d = {""};

        idle_sets_drain(&store);
        if (store_check(&store, &n_pages, &n_sets, &d) != 0) {
                fprintf(stderr, "store_check: %s\n", d.text);
                abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        uint32_t handle;
        uint64_t n;

        start();
        make_log();
        fill_log(data, MIN(size, (size_t)MOST));
        (void)sessions_recover(attach->ns);
        check_state();
        handle = open_session("a");
        (void)session_truncate(session_of(attach, handle, NULL), 16, 16, &n, NULL);
        (void)sessions_give_way(attach->ns, true);
        idle_sets_drain(attach->ns->store);
        check_state();
        CHECK(session_close(attach, handle, true, 1, NULL) == 0);
        check_state();
        store.keep.ops = NULL;
        member_free(member);
        store_deinit(&store);
        kept = fd_close(kept);
        return 0;
}
