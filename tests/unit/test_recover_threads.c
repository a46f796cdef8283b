/* Many pages that a daemon left, some of them damaged, are taken over by several threads. */
#include <sys/mman.h>

#include "daemon/core/cache/pages.h"
#include "daemon/core/state/shared.h"
#include "tests/unit/recover-many.h"

#define N_PAGES 40000u /* many pieces of recover-pages.c */

/* Damages to the last pages of so many texts: to records, to slots, and to lines. */
#define N_RECORDS 10u
#define N_SLOTS   100u
#define N_LINES   50u

struct facts {
        uint64_t n_findable;
        struct recovery recovery;
};

/* The last page of a text. */
static uint32_t leaf_of(const struct ns *ns, uint32_t text)
{
        uint32_t first = text * TEXT_PAGES + TEXT_PAGES, page;
        uint8_t key[KEY_BYTES] = {0};

        memcpy(key, &first, sizeof(first));
        page = ns_find_page(ns, key);
        CHECK(page != PAGE_NONE);
        return page;
}

static int run_damage(struct keep_parent *k, void *data)
{
        struct facts *f = data;
        struct store s;
        struct ns *ns = fill(begin(&s, k, N_PAGES, &evict_pgi), N_PAGES)->ns;
        uint32_t text = 0;

        f->n_findable = ns_count_findable(ns);
        for (uint32_t end = text + N_RECORDS; text < end; text++)
                ns_page(ns, leaf_of(ns, text))->end_token ^= 1;
        for (uint32_t end = text + N_SLOTS; text < end; text++)
                CHECK(shared_remove(ns, leaf_of(ns, text)));
        for (uint32_t end = text + N_LINES; text < end; text++)
                ns->shared.lines[leaf_of(ns, text)].tokens ^= 1;
        return 0;
}

static int run_recover(struct keep_parent *k, void *data)
{
        struct facts *f = data;
        uint64_t n_pages, n_sets;
        struct detail d = {""};
        struct store s;

        (void)begin(&s, k, N_PAGES, &evict_pgi);
        store_recover(&s, &f->recovery, NULL, NULL);
        CHECK(store_recover_end(&s, &f->recovery) == 0);
        if (store_check(&s, &n_pages, &n_sets, &d) == 0)
                return 0;
        fprintf(stderr, "%s\n", d.text);
        return 98;
}

static void recover(struct keep_parent *k, struct facts *f, uint64_t n_dropped, uint64_t n_fixed)
{
        assert_int_equal(keep_parent_run(k, run_recover, f, 0), 0);
        assert_int_equal(f->recovery.n_pages, f->n_findable - n_dropped);
        assert_int_equal(f->recovery.n_dropped[DROP_CHECKSUM], n_dropped);
        assert_int_equal(f->recovery.n_slots_fixed, n_fixed);
        f->n_findable -= n_dropped;
}

TEST(test_threads)
{
        struct facts *f =
                mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct keep_parent k;

        keep_parent_init(&k);
        *f = (struct facts){0};
        assert_int_equal(keep_parent_run(&k, run_damage, f, 0), 0);
        /* A dropped page has a slot and a line to be corrected. */
        recover(&k, f, N_RECORDS, 2 * N_RECORDS + N_SLOTS + N_LINES);
        recover(&k, f, 0, 0);
        keep_parent_deinit(&k);
        munmap(f, sizeof(*f));
}
