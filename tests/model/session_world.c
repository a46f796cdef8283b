#include "tests/model/session_world.h"
#include "tests/unit/at-once.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/tasks.h"

struct fake_device device;
struct store store;
struct tenant *tenant;
struct ns *ns;
struct client clients[N_MEMBERS];
struct text texts[N_SESSIONS];
uint64_t seed, random_state, now_nsec;
struct sealed_key sealed[N_SEALED];
unsigned long step;
const char *op;
bool windows_may_go;
struct detail d;
struct truncation truncations[3];
unsigned n_truncations; /* that took several slices */

uint64_t mix(uint64_t z)
{
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
}

uint32_t rnd(uint32_t n)
{
        return (uint32_t)(mix(random_state += 0x9e3779b97f4a7c15) % n);
}

void key_bytes(uint64_t key, uint8_t bytes[KEY_BYTES])
{
        memset(bytes, 0, KEY_BYTES);
        memcpy(bytes, &key, sizeof(key));
}

size_t row_of(uint64_t key)
{
        size_t i = mix(key) % ARRAY_SIZE(sealed);

        while (sealed[i].key != key && sealed[i].key != 0)
                i = (i + 1) % ARRAY_SIZE(sealed);
        return i;
}

unsigned long sealed_at(uint64_t key)
{
        return sealed[row_of(key)].step;
}

/* ---- the world ------------------------------------------------------------------------------- */

void join_client(struct client *c, bool shares)
{
        const struct ns_layout layout = toy_layout(PAGE_BYTES);

        *c = (struct client){0};
        CHECK(member_new(tenant, NULL, false, &c->member, &d) == 0, "%s", d.text);
        CHECK(attach_open(c->member, "x", &layout, "", false, &c->a, &d) == 0, "%s", d.text);
        CHECK(!shares || attach_share(c->a, &d) == 0, "%s", d.text);
        ns = c->a->ns;
}

void begin_world(void)
{
        const struct tenant_attrs attrs = {.limit_bytes = 6 * SET_BYTES,
                .weight = 1,
                .priority = 50,
                .max_clients = 8,
                .events_bytes = seed % 3 ? UINT64_C(1) << 40 : 0};

        random_state = mix(seed);
        now_nsec = SEC;
        memset(texts, 0, sizeof(texts));
        fake_device_init(&device, "fake", 256);
        store_init(&store, &evict_lru);
        store.min_page_bytes = PAGE_BYTES;
        store.drop_slice_pages = 1 + rnd(3);
        memset(sealed, 0, sizeof(sealed));
        CHECK(store_add_pool(&store, &device.device, 8 * SET_BYTES, SET_BYTES, &d) == 0, "%s",
                d.text);
        CHECK(tenant_new(&store, "a", &attrs, &tenant, &d) == 0, "%s", d.text);
        for (unsigned i = 0; i < N_MEMBERS; i++)
                join_client(&clients[i], i % 2);
}

void end_world(void)
{
        while (tasks_work(&store))
                ;
        for (unsigned i = 0; i < N_MEMBERS; i++)
                member_free(clients[i].member);
        store_deinit(&store);
        CHECK(device.n_extents == 0, "extents are left");
}

struct client *any_client(void)
{
        return &clients[rnd(N_MEMBERS)];
}

struct client *any_open(unsigned *ret_i)
{
        for (unsigned tries = 0; tries < 16; tries++) {
                struct client *c = any_client();

                *ret_i = rnd(N_SESSIONS);
                if (session_of(c->a, c->handles[*ret_i], NULL))
                        return c;
        }
        return NULL;
}

/* ---- the model ------------------------------------------------------------------------------- */

bool is_in_tree(const struct element *e)
{
        const struct page *p = ns_page(ns, e->page);

        return p && p->generation == e->generation && p->state == PAGE_SEALED &&
               !ns_page_is_stale(ns, p);
}

bool is_in_window(const struct element *e)
{
        const struct page *p = ns_page(ns, e->page);

        return p && p->generation == e->generation && ns_extra(ns, e->page)->n_windows > 0;
}

void prune(struct text *t)
{
        unsigned n = 0;

        while (n < t->head.n && is_in_tree(&t->head.e[n]))
                n++;
        t->head.n = n;
}

uint64_t end_of(const struct list *l, uint64_t empty)
{
        return l->n > 0 ? l->e[l->n - 1].end : empty;
}

struct truncation *truncation_of(unsigned i)
{
        for (unsigned k = 0; k < ARRAY_SIZE(truncations); k++)
                if (truncations[k].is_under_way && truncations[k].i == i &&
                        !truncations[k].is_decided && truncations[k].result == 0)
                        return &truncations[k];
        return NULL;
}

void call_off(unsigned i, int result)
{
        if (truncation_of(i))
                truncation_of(i)->result = result;
}

void note_truncation(struct truncation *c)
{
        c->window_may_go |= windows_may_go || store.recalls.n > 0;
        for (unsigned k = 0; k < c->before.head.n; k++) {
                struct element *e = &c->before.head.e[k];

                if (!is_in_tree(e) && !is_in_window(e))
                        e->page = PAGE_NONE; /* gone, even if its key or its number is used again */
        }
}

void forget_text(struct text *t)
{
        unsigned n_open = t->n_open;

        *t = (struct text){.n_open = n_open};
}

/* ---- comparison ------------------------------------------------------------------------------ */

const struct session *find_real(unsigned i)
{
        const struct session *s;
        struct session_info info;
        uint64_t number = 0;

        while ((s = session_next(ns, number, &number))) {
                session_info(s, &info);
                if (info.id_len == 1 && info.id[0] == i)
                        return s;
        }
        return NULL;
}

/* Compares pages piece by piece, through a client with or without shared memory. */
static void compare_pages(const struct session *s, const struct text *t)
{
        struct client *c = any_client();
        struct session_page pages[7];
        uint32_t from = 0, n;

        while (session_pages(c->a, (struct session *)s, (struct session_range){from, 1 + rnd(7)},
                       now_nsec, pages, &n, &d) == 0)
                for (uint32_t i = 0; i < n; i++, from++) {
                        const struct element *e = from < t->head.n ? &t->head.e[from]
                                                                   : &t->window.e[from - t->head.n];

                        CHECK(from < t->head.n + t->window.n, "page %u is too many", from);
                        CHECK(pages[i].page == e->page && pages[i].tokens == e->tokens,
                                "page %u: %u", from, pages[i].page);
                        CHECK(ns_page(ns, e->page)->generation == e->generation, "page %u", from);
                        CHECK(pages[i].first_token == e->end - e->tokens, "page %u at %llu", from,
                                (unsigned long long)pages[i].first_token);
                        if (pins_is_open(&c->a->share))
                                atomic_fetch_sub(&c->a->share.counters[e->page], 1);
                        else
                                CHECK(release_pages(c->a, &pages[i].page, 1, now_nsec, &d) == 0,
                                        "%s", d.text);
                }
        CHECK(from == t->head.n + t->window.n, "%u pages, not %u", from, t->head.n + t->window.n);
}

void compare_text(unsigned i)
{
        const struct session *s = find_real(i);
        struct text *t = &texts[i];
        struct session_info info;
        uint64_t lost;

        CHECK((s != NULL) == t->exists, "session %u", i);
        if (!s)
                return;
        session_info(s, &info);
        prune(t);
        if (t->window.n > 0 && info.n_pages == t->head.n) {
                CHECK(windows_may_go, "the window of session %u is gone", i);
                t->window.n = 0;
        }
        for (unsigned k = 0; k < t->window.n; k++)
                CHECK(is_in_window(&t->window.e[k]), "session %u", i);
        lost = t->truncated ? t->head_end - end_of(&t->head, 0) + t->end -
                                      end_of(&t->window, t->window_token)
                            : t->end - end_of(&t->head, 0);
        CHECK(info.n_tokens == t->end && info.lost_tokens == lost, "session %u: %llu, %llu lost", i,
                (unsigned long long)info.n_tokens, (unsigned long long)info.lost_tokens);
        CHECK(info.is_truncated == t->truncated && info.n_open == t->n_open, "session %u", i);
        compare_pages(s, t);
}

void compare_all(void)
{
        uint64_t n_pages, n_sets;

        idle_sets_drain(&store);
        CHECK(store_check(&store, &n_pages, &n_sets, &d) == 0, "%s", d.text);
        for (unsigned i = 0; i < N_SESSIONS; i++)
                compare_text(i);
        idle_sets_drain(&store);
        CHECK(store_check(&store, &n_pages, &n_sets, &d) == 0, "%s", d.text);
}
