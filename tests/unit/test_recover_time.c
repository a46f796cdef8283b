/* How long it takes to take over what a daemon left: printed, for 10 k, 100 k and 1 M pages in one
 * namespace, in texts of 64 pages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/state.h"
#include "daemon/core/life/recover.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "tests/unit/at-once.h"
#include "tests/unit/keep-parent.h"
#include "tests/unit/test-support.h"
#include "tests/unit/toy-layout.h"

#define PAGE_BYTES 64 /* nothing is ever written to them */
#define EXTENT     (UINT64_C(2) << 20)
#define SET_PAGES  (EXTENT / PAGE_BYTES)
#define TEXT_PAGES 64

struct figures {
        uint32_t n_pages;
        uint64_t n_findable;
        const struct evict_ops *evict;
        uint64_t publish_nsec, cpu_nsec;
        struct recovery recovery;
};

/* Nothing can be unwound to in a child. */
#define CHECK(cond)                                                                \
        do {                                                                       \
                if (!(cond)) {                                                     \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
                        _exit(99);                                                 \
                }                                                                  \
        } while (0)

static struct tenant *begin(struct store *s, struct keep_parent *k, const struct figures *f)
{
        const struct device_options options = {.side = DEVICE_OWNER};
        uint64_t bytes = (f->n_pages / SET_PAGES + 1) * EXTENT;
        struct tenant_attrs attrs = {
                .weight = 1, .priority = 50, .max_clients = 8, .limit_bytes = bytes};
        char why[DEVICE_WHY_BYTES] = "";
        struct device *device;
        struct tenant *t;
        bool is_lost;

        store_init(s, f->evict);
        s->keep = (struct keep){&keep_parent_ops, k};
        s->min_page_bytes = PAGE_BYTES;
        store_set_now(s, clock_now_nsec());
        CHECK(state_open(s, &is_lost, NULL) >= 0 && !is_lost);
        CHECK(device_open("host", &options, &device, why) == 0);
        CHECK(store_add_pool(s, device, bytes, EXTENT, NULL) == 0);
        CHECK(tenant_new(s, "a", &attrs, &t, NULL) == 0);
        return t;
}

static void publish_text(struct attach *a, uint32_t first)
{
        uint32_t pages[TEXT_PAGES], sealed[TEXT_PAGES], n;
        uint8_t keys[TEXT_PAGES * KEY_BYTES] = {0};
        struct publish p = {.pages = pages, .keys = keys, .n = TEXT_PAGES, .last_tokens = 16};

        for (uint32_t i = 0; i < TEXT_PAGES; i++) {
                uint32_t key = first + i + 1;

                memcpy(keys + (size_t)i * KEY_BYTES, &key, sizeof(key));
        }
        CHECK(lease_pages(a, TEXT_PAGES, clock_now_nsec(), pages, NULL) == 0);
        CHECK(publish_pages(a, &p, clock_now_nsec(), sealed, &n, NULL) == 0);
        CHECK(release_pages(a, sealed, n, clock_now_nsec(), NULL) == 0);
}

static int run_fill(struct keep_parent *k, void *data)
{
        struct ns_layout layout = toy_layout(PAGE_BYTES);
        struct figures *f = data;
        uint64_t since_nsec;
        struct store s;
        struct tenant *t = begin(&s, k, f);
        struct member *m;
        struct attach *a;

        CHECK(member_new(t, NULL, true, &m, NULL) == 0);
        CHECK(attach_open(m, "n", &layout, "", false, &a, NULL) == 0);
        since_nsec = clock_now_nsec();
        for (uint32_t i = 0; i < f->n_pages / TEXT_PAGES; i++)
                publish_text(a, i * TEXT_PAGES);
        f->publish_nsec = clock_now_nsec() - since_nsec;
        f->n_findable = ns_count_findable(a->ns); /* some texts find no slot in the index */
        return 0;
}

static uint64_t cpu_now_nsec(void)
{
        struct timespec now;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        return (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
}

static int run_recover(struct keep_parent *k, void *data)
{
        struct figures *f = data;
        struct store s;

        (void)begin(&s, k, f);
        f->cpu_nsec = cpu_now_nsec();
        store_recover(&s, &f->recovery, NULL, NULL);
        store_recover_end(&s, &f->recovery);
        f->cpu_nsec = cpu_now_nsec() - f->cpu_nsec;
        return 0;
}

static void measure(uint32_t n_pages, const struct evict_ops *evict)
{
        struct figures *f =
                mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct keep_parent k;

        keep_parent_init(&k);
        *f = (struct figures){.n_pages = n_pages / TEXT_PAGES * TEXT_PAGES, .evict = evict};
        assert_int_equal(keep_parent_run(&k, run_fill, f, 0), 0);
        assert_int_equal(keep_parent_run(&k, run_recover, f, 0), 0);
        fprintf(stderr,
                "%s, %u pages: %.0f ms, %.0f of the processor (publishing: %.0f ns a page)\n",
                evict->name, f->n_pages, (double)f->recovery.nsec / 1e6, (double)f->cpu_nsec / 1e6,
                (double)f->publish_nsec / f->n_pages);
        assert_true(f->n_findable > n_pages / 100 * 99);
        assert_int_equal(f->recovery.n_pages, f->n_findable);
        keep_parent_deinit(&k);
        munmap(f, sizeof(*f));
}

TEST(test_time)
{
        static const struct evict_ops *const policies[] = {&evict_lru, &evict_pgi};

        for (size_t i = 0; i < ARRAY_SIZE(policies); i++)
                for (uint32_t n = 10000; n <= 1000000; n *= 10)
                        measure(n, policies[i]);
}
