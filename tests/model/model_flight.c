/*
 * Model test of single flight and namespace sets: random operations of a few clients in three
 * namespaces of a set and one beside it. The model knows all announcements, and predicts every end
 * of them. It learns the cached keys by looking. A key lost in one namespace of the set must be
 * dropped in the others. A lease takes no page that is held in another, and no key stays incomplete
 * for ever. The invariant checker runs after each step.
 *   model_flight [--seed N] [--steps N] [--seeds N]
 */
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/core/cache/announced.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/announce.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/open.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/requests/invalidate.h"
#include "tests/unit/core-fixture.h"

#define N_RANKS   3
#define N_SPACES  4 /* the last is in no set */
#define N_MEMBERS 4
#define N_KEYS    24 /* key k continues k - 1, but for every fourth, which is a root */
#define MAX_PAGES 256
#define BUDGET    8 /* sets */

struct announcement {
        int member; /* -1: none */
        uint32_t page;
        uint64_t word;
};

struct client {
        struct member *real; /* NULL: unused */
        struct attach *a[N_SPACES];
        uint64_t epoch[N_SPACES][MAX_PAGES]; /* GRANTED to it: of the namespace then, + 1; else 0 */
        uint32_t pins[N_SPACES][MAX_PAGES];
        bool is_over;
};

static struct fixture f;
static struct client clients[N_MEMBERS];
static struct announcement announced[N_SPACES][N_KEYS];
static uint64_t had[N_SPACES][N_KEYS]; /* generation + 1 of the page with the key, before; 0 */
static bool was_held[N_RANKS][N_KEYS]; /* pinned, before */
static uint64_t must_go[N_RANKS]
                       [N_KEYS]; /* generation + 1 of a page to be dropped by the work; 0: none */
static uint64_t changed_nsec[N_KEYS]; /* the key was published, dropped or pinned somewhere */
static bool is_invalidated[N_SPACES]; /* by this step */
static bool is_unswept[N_KEYS];       /* since one was, no work has come by */
static unsigned n_ends, n_expected_ends, n_published, n_joint, n_expired;
static uint64_t now_nsec = 1, seed, rng_state;
static unsigned long step;
static const char *op = "start";

#define CHECK(condition, ...)                                      \
        do {                                                       \
                if (!(condition))                                  \
                        broken(#condition, __LINE__, __VA_ARGS__); \
        } while (0)

__attribute__((noreturn, format(printf, 3, 4))) static void broken(
        const char *condition, int line, const char *format, ...)
{
        va_list ap;

        fprintf(stderr,
                "model_flight: --seed %llu, step %lu, %s: line %d: %s: ", (unsigned long long)seed,
                step, op, line, condition);
        va_start(ap, format);
        vfprintf(stderr, format, ap);
        va_end(ap);
        fputc('\n', stderr);
        exit(1);
}

/* splitmix64, in the public domain */
static uint32_t rnd(uint32_t n)
{
        uint64_t z = rng_state += 0x9e3779b97f4a7c15;

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return (uint32_t)((z ^ (z >> 31)) % n);
}

/* ---- what is there --------------------------------------------------------------------------- */

static struct ns *space(int i)
{
        static const char *const names[N_SPACES] = {"rank0", "rank1", "rank2", "alone"};

        return ns_find(f.a, names[i]);
}

static uint32_t find(int s, int key)
{
        uint8_t k[KEY_BYTES];

        make_keys(k, (unsigned)key, 1);
        return ns_find_page(space(s), k);
}

static uint64_t generation(int s, int key)
{
        uint32_t page = find(s, key);

        return page == PAGE_NONE ? 0 : ns_page(space(s), page)->generation + 1;
}

static bool is_recalled(int s, uint32_t page)
{
        return ns_set_of(space(s), page)->recall.state != RECALL_NONE;
}

static struct client *any_client(bool active)
{
        struct client *c = &clients[rnd(N_MEMBERS)];

        return c->real && !(active && c->is_over) ? c : NULL;
}

/* Returns a page granted to the client; PAGE_NONE: there is none. */
static uint32_t any_granted(const struct client *c, int s)
{
        uint32_t first = rnd(MAX_PAGES);

        for (uint32_t i = 0; i < MAX_PAGES; i++)
                if (c->epoch[s][(first + i) % MAX_PAGES])
                        return (first + i) % MAX_PAGES;
        return PAGE_NONE;
}

/* ---- what ends ------------------------------------------------------------------------------- */

static void note_end(struct ns *ns, const uint8_t key[KEY_BYTES], void *data)
{
        n_ends++;
}

/* Ends the model's announcement of a key; a client that saw its word may not see it again. */
static void expect_end(int s, int key)
{
        announced[s][key].member = -1;
        n_expected_ends++;
}

static void expect_end_of(int s, uint32_t page)
{
        for (int key = 0; key < N_KEYS; key++)
                if (announced[s][key].member >= 0 && announced[s][key].page == page)
                        expect_end(s, key);
}

/* Announcements of a member or a namespace are withdrawn in slices, which unit tests count. Here
 * they run one right after the other, with all other work. */
static void withdraw_all(void)
{
        while (tasks_work(&f.store))
                ;
}

static void expect_end_by(int member)
{
        for (int s = 0; s < N_SPACES; s++)
                for (int key = 0; key < N_KEYS; key++)
                        if (announced[s][key].member == member)
                                expect_end(s, key);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void op_join(void)
{
        static const char *const names[N_SPACES] = {"rank0", "rank1", "rank2", "alone"};
        struct client *c = &clients[rnd(N_MEMBERS)];
        struct ns_layout l = test_layout();

        op = "join";
        if (c->real)
                return;
        memset(c, 0, sizeof(*c));
        c->real = join(f.a);
        for (int s = 0; s < N_SPACES; s++) {
                struct attach_options o = {
                        .set = s < N_RANKS ? "model" : NULL, .set_size = s < N_RANKS ? N_RANKS : 0};

                CHECK(attach_open_with(c->real, names[s], &l, &o, &c->a[s], &f.d) == 0, "%s",
                        f.d.text);
        }
}

static void op_leave(void)
{
        struct client *c = any_client(false);

        op = "leave";
        if (!c || rnd(4))
                return;
        expect_end_by((int)(c - clients));
        member_free(TAKE(c->real));
        withdraw_all();
}

static void op_linger(void)
{
        struct client *c = any_client(true);

        op = "linger";
        if (!c || rnd(8))
                return;
        expect_end_by((int)(c - clients));
        member_linger(c->real);
        c->is_over = true;
        withdraw_all();
}

/* A lease may take a page that is to be dropped, though another rank found it before that. */
static void check_held_stay(void)
{
        for (int key = 0; key < N_KEYS; key++)
                for (int i = 0; i < N_RANKS; i++)
                        for (int k = 0; k < N_RANKS; k++)
                                CHECK(i == k || had[i][key] == generation(i, key) ||
                                                must_go[i][key] == had[i][key] || !was_held[k][key],
                                        "key %d went in rank %d, rank %d reads it", key, i, k);
}

static void op_lease(void)
{
        struct client *c = any_client(true);
        uint32_t pages[4], n = 1 + rnd(4);
        int s = (int)rnd(N_SPACES), r;

        op = "lease";
        if (!c)
                return;
        r = lease_pages(c->a[s], n, now_nsec, pages, &f.d);
        CHECK(r == 0 || r == KVL_STATUS_QUOTA || r == KVL_STATUS_FULL, "%d %s", r, f.d.text);
        for (uint32_t i = 0; r == 0 && i < n; i++)
                c->epoch[s][pages[i]] = space(s)->epoch + 1;
        check_held_stay();
}

static int expected_announce(const struct client *c, int s, uint32_t page, int key)
{
        const struct page *p = ns_page(space(s), page);

        if (!c->epoch[s][page])
                return -EINVAL;
        if (c->epoch[s][page] != space(s)->epoch + 1)
                return KVL_STATUS_STALE;
        if (p->announced)
                return -EINVAL;
        if (had[s][key])
                return KVL_STATUS_DUPLICATE;
        if (announced[s][key].member >= 0)
                return KVL_STATUS_PENDING;
        return is_recalled(s, page) ? -ENOSPC : 0;
}

static void op_announce(void)
{
        struct client *c = any_client(true);
        int s = (int)rnd(N_SPACES), key = (int)rnd(N_KEYS), r, expected;
        uint32_t page = c ? any_granted(c, s) : PAGE_NONE, n, other;
        uint8_t k[KEY_BYTES];
        uint64_t word;

        op = "announce";
        if (page == PAGE_NONE)
                return;
        if (rnd(20) == 0)
                page = rnd(MAX_PAGES);
        make_keys(k, (unsigned)key, 1);
        expected = expected_announce(c, s, page, key);
        r = announce_pages(c->a[s], &page, k, 1, &n, &other, &f.d);
        CHECK(r == expected && n == (r == 0), "%d, expected %d: %s", r, expected, f.d.text);
        if (r == KVL_STATUS_DUPLICATE)
                CHECK(other == find(s, key), "page %u", other);
        if (r == KVL_STATUS_PENDING)
                CHECK(other == announced[s][key].page, "page %u", other);
        if (r != 0)
                return;
        word = space(s)->shared.lines[page].state;
        for (int i = 0; i < N_KEYS; i++)
                CHECK(announced[s][i].page != page ||
                                (uint32_t)announced[s][i].word != (uint32_t)word,
                        "the word of page %u has come back", page);
        announced[s][key] = (struct announcement){(int)(c - clients), page, word};
}

static int expected_publish(const struct client *c, int s, uint32_t page, int key)
{
        if (key % 4 && !had[s][key - 1])
                return KVL_STATUS_NO_PARENT;
        if (c->epoch[s][page] != space(s)->epoch + 1)
                return KVL_STATUS_STALE;
        return had[s][key] ? KVL_STATUS_DUPLICATE : 0;
}

static void op_publish(void)
{
        struct client *c = any_client(true);
        int s = (int)rnd(N_SPACES), key = (int)rnd(N_KEYS), r, expected;
        uint32_t page = c ? any_granted(c, s) : PAGE_NONE, got, n;
        uint8_t k[KEY_BYTES], parent[KEY_BYTES];
        struct publish p = {.pages = &page, .keys = k, .n = 1, .last_tokens = PAGE_TOKENS};
        bool recalled;

        op = "publish";
        if (page == PAGE_NONE)
                return;
        /* The announced key, most of the time. */
        for (int i = 0; i < N_KEYS; i++)
                if (announced[s][i].member >= 0 && announced[s][i].page == page && rnd(4))
                        key = i;
        make_keys(k, (unsigned)key, 1);
        make_keys(parent, (unsigned)key - 1, 1);
        p.parent_key = key % 4 ? parent : NULL;
        expected = expected_publish(c, s, page, key);
        recalled = is_recalled(s, page);
        r = publish_pages(c->a[s], &p, now_nsec, &got, &n, &f.d);
        CHECK(r == expected, "%d, expected %d: %s", r, expected, f.d.text);
        if (r != 0 && r != KVL_STATUS_DUPLICATE)
                return;
        c->pins[s][got]++;
        if (r != 0)
                return;
        n_published++;
        c->epoch[s][page] = 0;
        expect_end_of(s, page);
        if (!recalled && announced[s][key].member >= 0)
                expect_end(s, key);
}

/* Publishes like the ranks of an engine: the key in all of them, or in all but the last. */
static void op_publish_all(void)
{
        struct client *c = any_client(true);
        int key = (int)rnd(N_KEYS), n_ranks = rnd(5) ? N_RANKS : N_RANKS - 1;
        uint8_t k[KEY_BYTES], parent[KEY_BYTES];

        op = "publish in all";
        make_keys(k, (unsigned)key, 1);
        make_keys(parent, (unsigned)key - 1, 1);
        for (int s = 0; c && s < n_ranks; s++) {
                uint32_t page, got, n;
                struct publish p = {.pages = &page,
                        .keys = k,
                        .n = 1,
                        .parent_key = key % 4 ? parent : NULL,
                        .last_tokens = PAGE_TOKENS};

                if (had[s][key] || (key % 4 && !had[s][key - 1]) ||
                        lease_pages(c->a[s], 1, now_nsec, &page, &f.d) != 0)
                        continue;
                /* The lease may have evicted the parent. */
                if (publish_pages(c->a[s], &p, now_nsec, &got, &n, &f.d) != 0) {
                        CHECK(free_pages(c->a[s], &page, 1, &f.d) == 0, "%s", f.d.text);
                        continue;
                }
                n_published++;
                if (announced[s][key].member >= 0)
                        expect_end(s, key);
                CHECK(release_pages(c->a[s], &got, 1, now_nsec, &f.d) == 0, "%s", f.d.text);
        }
}

static void op_release(void)
{
        struct client *c = any_client(false);
        int s = (int)rnd(N_SPACES);
        uint32_t first = rnd(MAX_PAGES);

        op = "release";
        for (uint32_t i = 0; c && i < MAX_PAGES; i++) {
                uint32_t page = (first + i) % MAX_PAGES;

                if (c->pins[s][page] == 0)
                        continue;
                c->pins[s][page]--;
                CHECK(release_pages(c->a[s], &page, 1, now_nsec, &f.d) == 0, "%s", f.d.text);
                return;
        }
}

static void op_free(void)
{
        struct client *c = any_client(true);
        int s = (int)rnd(N_SPACES);
        uint32_t page = c ? any_granted(c, s) : PAGE_NONE;

        op = "free";
        if (page == PAGE_NONE)
                return;
        expect_end_of(s, page);
        c->epoch[s][page] = 0;
        CHECK(free_pages(c->a[s], &page, 1, &f.d) == 0, "%s", f.d.text);
}

static void op_lookup(void)
{
        struct client *c = any_client(false);
        int s = (int)rnd(N_SPACES), key = (int)rnd(N_KEYS), r;
        uint8_t k[KEY_BYTES];
        uint32_t page, n;
        uint64_t tokens;

        op = "lookup";
        if (!c)
                return;
        make_keys(k, (unsigned)key, 1);
        r = lookup_pages(
                c->a[s], &(struct lookup_request){k, 1, now_nsec}, &page, &n, &tokens, &f.d);
        CHECK(r == (had[s][key] ? 0 : KVL_STATUS_MISS), "%d", r);
        if (r == 0)
                c->pins[s][page]++;
}

static void op_invalidate_key(void)
{
        struct client *c = any_client(true);
        int s = (int)rnd(N_SPACES), key = (int)rnd(N_KEYS);
        uint8_t k[KEY_BYTES];
        uint64_t n;

        op = "invalidate key";
        if (!c)
                return;
        make_keys(k, (unsigned)key, 1);
        CHECK(invalidate_key(c->a[s], k, &n, &f.d) == 0, "%s", f.d.text);
        CHECK((n > 0) == (had[s][key] != 0), "%llu pages", (unsigned long long)n);
}

/* A drop under way, and its pages: keys from `key` on, with generations. */
struct cut {
        struct drop drop;
        bool is_under_way;
        int space;
        uint32_t pages[4];
        uint64_t generations[4]; /* + 1; 0: the key isn't cached */
};

static struct cut cuts[3];
static unsigned n_cuts; /* that took several slices */

static void check_cut(struct drop *drop)
{
        struct cut *c = container_of(drop, struct cut, drop);

        for (int i = 0; i < 4; i++) {
                const struct page *p = ns_page(space(c->space), c->pages[i]);

                CHECK(c->generations[i] == 0 || !p || p->state != PAGE_SEALED ||
                                p->generation + 1 != c->generations[i] ||
                                ns_page_is_stale(space(c->space), p),
                        "page %u is left", c->pages[i]);
        }
        c->is_under_way = false;
}

/* In slices of one look each: other steps run between. */
static void op_cut(void)
{
        struct client *c = any_client(true);
        int s = (int)rnd(N_SPACES), key = (int)rnd(N_KEYS);
        struct cut *cut = &cuts[rnd(ARRAY_SIZE(cuts))];
        uint8_t k[KEY_BYTES];

        op = "cut";
        if (!c || cut->is_under_way || !had[s][key])
                return;
        cut->space = s;
        memset(cut->generations, 0, sizeof(cut->generations));
        for (int i = key; i / 4 == key / 4 && had[s][i]; i++) {
                make_keys(k, (unsigned)i, 1);
                cut->pages[i % 4] = ns_find_page(space(s), k);
                cut->generations[i % 4] = had[s][i];
        }
        make_keys(k, (unsigned)key, 1);
        CHECK(drop_key(&cut->drop, c->a[s], k, &f.d) == 0, "%s", f.d.text);
        cut->is_under_way = !drop_is_over(&cut->drop);
        n_cuts += cut->is_under_way;
        if (cut->is_under_way)
                drop_queue(&cut->drop, check_cut);
        else
                check_cut(&cut->drop);
}

static void op_cut_more(void)
{
        op = "cut more";
        (void)tasks_work(&f.store);
}

static void op_invalidate(void)
{
        int s = (int)rnd(N_SPACES);
        uint64_t n;

        op = "invalidate";
        if (rnd(8))
                return;
        for (int key = 0; key < N_KEYS; key++)
                if (announced[s][key].member >= 0)
                        expect_end(s, key);
        CHECK(ns_invalidate(space(s), CAUSE_NAMESPACE, &n) == 0, "no memory");
        withdraw_all();
        is_invalidated[s] = true;
}

static void op_read_only(void)
{
        struct client *c = any_client(true);

        op = "read only";
        if (!c || rnd(8))
                return;
        expect_end_by((int)(c - clients));
        member_set_read_only(c->real, true);
        member_set_read_only(c->real, false);
        withdraw_all();
}

static void op_recall(void)
{
        int s = (int)rnd(N_SPACES);

        op = "recall";
        if (rnd(10))
                return;
        (void)recall_sets(f.a, space(s), SET_BYTES, 0);
        for (int key = 0; key < N_KEYS; key++)
                if (announced[s][key].member >= 0 && is_recalled(s, announced[s][key].page))
                        expect_end(s, key);
}

static void op_recall_work(void)
{
        op = "recall work";
        (void)recall_work(&f.store, now_nsec, 1000, 1 + rnd(40));
}

static void op_time(void)
{
        op = "time";
        now_nsec += rnd(4) ? rnd(1000) : NSSET_GRACE_NSEC / 3;
        store_set_now(&f.store, now_nsec);
}

/* ---- after each ------------------------------------------------------------------------------ */

static void look(void)
{
        for (int s = 0; s < N_SPACES; s++) {
                is_invalidated[s] = false;
                for (int key = 0; key < N_KEYS; key++) {
                        uint32_t page = find(s, key);

                        had[s][key] = generation(s, key);
                        if (s < N_RANKS)
                                was_held[s][key] =
                                        page != PAGE_NONE && page_pins(ns_page(space(s), page)) > 0;
                }
        }
}

static void compare_announced(void)
{
        CHECK(n_ends == n_expected_ends, "%u announcements ended, not %u", n_ends, n_expected_ends);
        for (int s = 0; s < N_SPACES; s++) {
                uint32_t n = 0;

                for (int key = 0; key < N_KEYS; key++) {
                        const struct announcement *a = &announced[s][key];
                        uint8_t k[KEY_BYTES];
                        uint32_t page;
                        bool same;

                        make_keys(k, (unsigned)key, 1);
                        page = announce_find(space(s), shared_hash(&space(s)->shared, k), k);
                        CHECK(page == (a->member >= 0 ? a->page : PAGE_NONE),
                                "key %d of %d is announced for page %u", key, s, page);
                        same = (uint32_t)space(s)->shared.lines[a->page].state == (uint32_t)a->word;
                        CHECK(a->word == 0 || same == (a->member >= 0),
                                "who waits for key %d of %d isn't told", key, s);
                        n += a->member >= 0;
                }
                CHECK(space(s)->catalog.announced.n == n, "%u announced",
                        space(s)->catalog.announced.n);
        }
}

static void note_changes(void)
{
        for (int key = 0; key < N_KEYS; key++)
                for (int i = 0; i < N_RANKS; i++)
                        if (had[i][key] != generation(i, key)) {
                                changed_nsec[key] = now_nsec;
                                is_unswept[key] |= is_invalidated[i];
                        }
}

/* A key that an invalidated rank lost is incomplete from the sweep on. */
static void note_swept(void)
{
        for (int key = 0; key < N_KEYS; key++)
                if (is_unswept[key]) {
                        is_unswept[key] = false;
                        changed_nsec[key] = now_nsec;
                }
}

/* The other ranks are to lose a key that one rank lost. Exceptions: the rank was invalidated as a
 * whole, or was to lose it. */
static void note_losses(void)
{
        for (int key = 0; key < N_KEYS; key++)
                for (int i = 0; i < N_RANKS; i++) {
                        if (had[i][key] == 0 || had[i][key] == generation(i, key) ||
                                is_invalidated[i] || must_go[i][key] == had[i][key])
                                continue;
                        for (int k = 0; k < N_RANKS; k++)
                                if (k != i && had[k][key] == generation(k, key))
                                        must_go[k][key] = had[k][key];
                }
}

static void work(void)
{
        while (store_work(&f.store, 1 + rnd(8)) || tasks_are_left(&f.store)) {
                (void)tasks_work(&f.store);
                if (rnd(4) == 0)
                        fixture_check(&f);
        }
        for (int i = 0; i < N_RANKS; i++)
                for (int key = 0; key < N_KEYS; key++) {
                        CHECK(must_go[i][key] == 0 || must_go[i][key] != generation(i, key),
                                "rank %d keeps key %d, which another has lost", i, key);
                        n_joint += must_go[i][key] != 0;
                        must_go[i][key] = 0;
                }
}

static void compare_sets(void)
{
        const struct nsset *set = space(0)->catalog.set;
        uint64_t n_complete = 0, n_incomplete = 0;

        for (int key = 0; key < N_KEYS; key++) {
                unsigned n = 0, n_held = 0;

                for (int i = 0; i < N_RANKS; i++) {
                        uint32_t page = find(i, key);

                        n += page != PAGE_NONE;
                        n_held += page != PAGE_NONE && page_pins(ns_page(space(i), page)) > 0;
                }
                n_complete += n == N_RANKS;
                n_incomplete += n > 0 && n < N_RANKS;
                if (n_held > 0)
                        changed_nsec[key] = now_nsec;
                CHECK(n == 0 || n == N_RANKS || now_nsec - changed_nsec[key] < NSSET_GRACE_NSEC,
                        "key %d stays incomplete", key);
        }
        CHECK(set->n_complete == n_complete && set->n_incomplete == n_incomplete,
                "%llu complete, %llu incomplete, not %llu and %llu",
                (unsigned long long)set->n_complete, (unsigned long long)set->n_incomplete,
                (unsigned long long)n_complete, (unsigned long long)n_incomplete);
}

static const struct {
        void (*run)(void);
        uint32_t weight;
} operations[] = {
        {op_join, 6},
        {op_leave, 6},
        {op_linger, 2},
        {op_lease, 20},
        {op_announce, 25},
        {op_publish, 30},
        {op_publish_all, 40},
        {op_release, 60},
        {op_free, 6},
        {op_lookup, 10},
        {op_invalidate_key, 3},
        {op_cut, 40},
        {op_cut_more, 20},
        {op_invalidate, 2},
        {op_read_only, 2},
        {op_recall, 2},
        {op_recall_work, 12},
        {op_time, 8},
};

static void one_step(void)
{
        uint32_t total = 0, pick;

        for (size_t i = 0; i < ARRAY_SIZE(operations); i++)
                total += operations[i].weight;
        pick = rnd(total);
        look();
        now_nsec++;
        for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
                if (pick < operations[i].weight) {
                        operations[i].run();
                        break;
                }
                pick -= operations[i].weight;
        }
        note_changes();
        note_losses();
        fixture_check(&f);
        compare_announced();
        if (rnd(4) == 0)
                return;
        look();
        work();
        note_changes(); /* pages that expired, or were to be dropped before others published them
                           anew */
        note_swept();
        fixture_check(&f);
        compare_announced();
        compare_sets();
}

static void run_seed(unsigned long n_steps)
{
        rng_state = seed;
        now_nsec = 1;
        n_ends = n_expected_ends = n_published = n_joint = n_expired = 0;
        memset(clients, 0, sizeof(clients));
        memset(announced, 0, sizeof(announced));
        memset(must_go, 0, sizeof(must_go));
        memset(changed_nsec, 0, sizeof(changed_nsec));
        memset(is_unswept, 0, sizeof(is_unswept));
        for (int s = 0; s < N_SPACES; s++)
                for (int key = 0; key < N_KEYS; key++)
                        announced[s][key].member = -1;
        fixture_start(&f, BUDGET, BUDGET, BUDGET);
        f.store.owner.on_announce_end = note_end;
        f.store.drop_slice_pages = 1;
        n_cuts = 0;
        memset(cuts, 0, sizeof(cuts));
        while (!space(0))
                op_join();
        for (step = 1; step <= n_steps; step++)
                one_step();
        n_expired = (unsigned)space(0)->catalog.set->n_dropped;
        while (tasks_work(&f.store))
                ;
        for (int i = 0; i < N_MEMBERS; i++)
                if (clients[i].real)
                        member_free(clients[i].real);
        fixture_end(&f);
        printf("model_flight: --seed %llu: %lu steps, %u pages published, %u announcements ended, "
               "%u pages gone with another rank's, %u keys incomplete for too long, %u cuts in slices: ok\n",
                (unsigned long long)seed, n_steps, n_published, n_ends, n_joint, n_expired, n_cuts);
        CHECK(n_steps < 10000 || (n_published && n_ends && n_joint && n_expired && n_cuts),
                "nothing of that happened");
}

int main(int argc, char **argv)
{
        unsigned long n_steps = 15000, n_seeds = 3;

        seed = (uint64_t)time(NULL);
        for (int i = 1; i + 1 < argc; i += 2) {
                unsigned long long value = strtoull(argv[i + 1], NULL, 0);

                if (strcmp(argv[i], "--seed") == 0) {
                        seed = value;
                        n_seeds = 1;
                } else if (strcmp(argv[i], "--steps") == 0) {
                        n_steps = (unsigned long)value;
                } else if (strcmp(argv[i], "--seeds") == 0) {
                        n_seeds = (unsigned long)value;
                }
        }
        for (; n_seeds > 0; n_seeds--, seed++)
                run_seed(n_steps);
        return 0;
}
