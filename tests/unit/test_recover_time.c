/* How long it takes to take over what a daemon left: printed, for 10 k, 100 k and 1 M pages in one
 * namespace, in texts of 64 pages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/recover-many.h"

struct figures {
        uint32_t n_pages;
        uint64_t n_findable;
        const struct evict_ops *evict;
        uint64_t publish_nsec, cpu_nsec;
        struct recovery recovery;
};

static int run_fill(struct keep_parent *k, void *data)
{
        struct figures *f = data;
        struct store s;
        struct tenant *t = begin(&s, k, f->n_pages, f->evict);
        uint64_t since_nsec = clock_now_nsec();
        struct attach *a = fill(t, f->n_pages);

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

        (void)begin(&s, k, f->n_pages, f->evict);
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
