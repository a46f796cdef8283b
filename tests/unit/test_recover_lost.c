/*
 * One kind of stored state is missing, or replaced: that part is lost and reported, and the rest is
 * there. Nothing belongs to a client that doesn't exist (the table in daemon/core/state/keep.h).
 * Uses the state of tests/fixtures.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/state/state-root.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/open.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/life/recover.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/sessions/session.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/at-once.h"
#include "tests/unit/state-image.h"
#include "tests/unit/state-scene.h"
#include "tests/unit/test-support.h"
#include "tests/unit/toy-layout.h"

/* Recovered objects, and lost ones. */
struct found {
        unsigned n_namespaces, n_sessions, n_clients, n_attaches;
        unsigned n_ns_lost, n_logs_lost, n_pins_lost;
};

static const struct row {
        enum keep_kind kind;
        const char *said; /* NULL: nothing */
        struct found found;
} rows[] = {
        {KEEP_STATE, "but not the root", {0}},
        {KEEP_CLIENTS, "but not who uses them", {0}},
        {KEEP_RECORDS, "a namespace is gone: its records weren't kept",
                {.n_clients = 4, .n_ns_lost = 5}},
        {KEEP_INDEX, "namespace n of tenant a is gone: its index wasn't kept",
                {.n_clients = 4, .n_ns_lost = 5}},
        {KEEP_INDEX_READER, "namespace r1 of tenant b is gone: its index wasn't kept",
                {.n_clients = 4, .n_ns_lost = 5}},
        {KEEP_EXTENT, "namespace m of tenant a is gone: extents of it weren't kept",
                {.n_clients = 4, .n_ns_lost = 5}},
        {KEEP_SESSIONS, "sessions of namespace n of tenant a are gone",
                {.n_namespaces = 5, .n_clients = 4, .n_attaches = 7, .n_logs_lost = 1}},
        {KEEP_PINS, NULL,
                {.n_namespaces = 5,
                        .n_sessions = 2,
                        .n_clients = 4,
                        .n_attaches = 7,
                        .n_pins_lost = 1}},
        {KEEP_SOCKET_PINS, NULL,
                {.n_namespaces = 5,
                        .n_sessions = 2,
                        .n_clients = 4,
                        .n_attaches = 7,
                        .n_pins_lost = 4}},
        {KEEP_RING, NULL, {.n_namespaces = 5, .n_sessions = 2, .n_clients = 4, .n_attaches = 7}},
        {KEEP_PROCESS, NULL, {.n_namespaces = 5, .n_sessions = 2, .n_clients = 4, .n_attaches = 7}},
};

/* ---- what is left ---------------------------------------------------------------------------- */

static struct fake_keep *load(void)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        char path[512];
        FILE *f;

        snprintf(path, sizeof(path), FIXTURES_DIR "/state-v%u", STATE_LAYOUT_VERSION);
        f = fopen(path, "r");
        assert_true(k && f);
        fake_keep_init(k);
        state_image_load(k, f);
        fclose(f);
        return k;
}

/* All of the kind are. */
static void lose(struct fake_keep *k, enum keep_kind kind)
{
        unsigned n = 0;

        for (uint32_t i = 0; i < k->n;)
                if (k->kept[i].kind == kind) {
                        keep_drop(&k->keep, kind, k->kept[i].number);
                        n++;
                } else {
                        i++;
                }
        assert_true(n > 0);
}

/* In their places are files of this size, full of rubbish. 0: of the same. */
static void replace(struct fake_keep *k, enum keep_kind kind, uint64_t bytes)
{
        uint8_t rubbish[4096];

        memset(rubbish, 0xa5, sizeof(rubbish));
        for (uint32_t i = 0; i < k->n; i++) {
                struct stat st;
                uint64_t size;
                int fd;

                if (k->kept[i].kind != kind)
                        continue;
                assert_int_equal(fstat(k->kept[i].fd, &st), 0);
                size = bytes > 0 ? bytes : (uint64_t)st.st_size;
                fd = memfd_create_sized("rubbish", size);
                assert_true(fd >= 0);
                assert_true(pwrite(fd, rubbish, MIN(size, sizeof(rubbish)), 0) >= 0);
                fd_close(k->kept[i].fd);
                k->kept[i].fd = fd;
        }
}

/* ---- what is found --------------------------------------------------------------------------- */

static bool has_group(const struct tenant *t, uint32_t id)
{
        list_for_each (g, &t->groups, struct group, link)
                if (g->id == id)
                        return true;
        return false;
}

static void check_owners(const struct ns *ns)
{
        list_for_each (set, &ns->device.sets_bound, struct extent_set, link)
                for (uint32_t i = 0; i < ns->geometry.set_pages; i++)
                        if (set->pages[i].state == PAGE_GRANTED)
                                assert_true(has_group(ns->tenant, set->pages[i].owner));
}

static struct found find(struct scene *s)
{
        struct found f = {.n_ns_lost = s->recovery.n_lost,
                .n_logs_lost = s->recovery.n_logs_lost,
                .n_pins_lost = s->recovery.n_pins_lost};

        list_for_each (t, &s->store.tenants, struct tenant, link) {
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        f.n_namespaces++;
                        f.n_sessions += sessions_count(ns);
                        check_owners(ns);
                }
                list_for_each (g, &t->groups, struct group, link)
                        list_for_each (m, &g->members, struct member, link) {
                                f.n_clients++;
                                list_for_each (a, &m->attachments, struct attach, member_link)
                                        f.n_attaches++;
                        }
        }
        return f;
}

/* Another one comes and uses what is there. */
static void use(struct scene *s)
{
        struct ns_layout layout = toy_layout(256 << 10);
        struct member *m;
        struct attach *a;
        uint32_t page;

        assert_int_equal(member_new(s->a, NULL, false, &m, NULL), 0);
        assert_int_equal(attach_open(m, "n", &layout, "", true, &a, &s->d), 0);
        assert_int_equal(lease_pages(a, 1, s->store.now_nsec, &page, &s->d), 0);
        member_free(m);
}

/* No unused descriptor stays stored: the server releases them when it is ready. */
static void end(struct scene *s, struct fake_keep *k)
{
        use(s);
        scene_end(s);
        for (uint32_t i = 0; i < k->n; i++)
                if (!k->kept[i].is_old && k->kept[i].kind != KEEP_STATE &&
                        k->kept[i].kind != KEEP_CLIENTS)
                        fail_msg("%c%u is still kept", (int)k->kept[i].kind, k->kept[i].number);
        fake_keep_deinit(k);
        free(k);
}

static void check_row(const struct row *row)
{
        struct fake_keep *k = load();
        struct found f;
        struct scene s;
        const char *said;

        fake_keep_set_unsure(k);
        lose(k, row->kind);
        scene_start(&s, &k->keep);
        said = s.is_lost ? s.d.text : s.said;
        if (row->said ? !strstr(said, row->said) : said[0] != '\0')
                fail_msg("without %c it said: %s", (int)row->kind, said);
        assert_int_equal(s.is_lost, row->found.n_clients == 0);
        f = find(&s);
        if (memcmp(&f, &row->found, sizeof(f)) != 0)
                fail_msg("without %c there were %u namespaces, %u sessions, %u clients, %u of "
                         "their namespaces; lost: %u namespaces, %u logs, %u times pins",
                        (int)row->kind, f.n_namespaces, f.n_sessions, f.n_clients, f.n_attaches,
                        f.n_ns_lost, f.n_logs_lost, f.n_pins_lost);
        end(&s, k);
}

TEST(test_missing)
{
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                check_row(&rows[i]);
}

/* One of several is missing: what it belongs to goes, the others stay. */
TEST(test_one_missing)
{
        static const enum keep_kind kinds[] = {
                KEEP_RECORDS, KEEP_INDEX, KEEP_INDEX_READER, KEEP_EXTENT};

        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                struct fake_keep *k = load();
                struct found f;
                struct scene s;

                for (uint32_t n = 0; n < k->n; n++)
                        if (k->kept[n].kind == kinds[i]) {
                                keep_drop(&k->keep, kinds[i], k->kept[n].number);
                                break;
                        }
                scene_start(&s, &k->keep);
                f = find(&s);
                assert_int_equal(f.n_namespaces, 4);
                assert_int_equal(f.n_ns_lost, 1);
                assert_int_equal(f.n_clients, 4);
                end(&s, k);
        }
}

TEST(test_rubbish)
{
        static const uint64_t sizes[] = {0, 8192, UINT64_C(1) << 28};

        for (size_t i = 0; i < ARRAY_SIZE(rows) * ARRAY_SIZE(sizes); i++) {
                enum keep_kind kind = rows[i / ARRAY_SIZE(sizes)].kind;
                struct fake_keep *k = load();
                struct scene s;

                replace(k, kind, sizes[i % ARRAY_SIZE(sizes)]);
                scene_start(&s, &k->keep);
                assert_int_equal(s.is_lost, kind == KEEP_STATE || kind == KEEP_CLIENTS);
                (void)find(&s);
                end(&s, k);
        }
}

#define NONE_LEFT 7 /* exit status: no allocation failed */

static void recover_without_memory(struct fake_keep *k, void *data)
{
        const unsigned *n = data;
        bool happened;
        struct scene s;
        int r;

        scene_prepare(&s, &k->keep);
        alloc_fail_at(*n);
        r = clients_recover(&s.store, &s.recovery, &s.d);
        happened = alloc_fail_end();
        assert_int_equal(r, happened ? -ENOMEM : 0);
        assert_true(!happened || strstr(s.d.text, "no memory for the clients"));
        _exit(happened ? 0 : NONE_LEFT);
}

/* Each allocation in turn fails while clients are recovered: the daemon that comes after that one
 * finds all of them. */
TEST(test_clients_without_memory)
{
        const struct found all = {
                .n_namespaces = 5, .n_sessions = 2, .n_clients = 4, .n_attaches = 7};
        int status = 0;
        unsigned n;

        for (n = 1; status == 0; n++) {
                struct fake_keep *k = load();
                struct found f;
                struct scene s;

                status = fake_keep_fork(k, NULL, 0, recover_without_memory, &n);
                assert_true(WIFEXITED(status));
                scene_start(&s, &k->keep);
                f = find(&s);
                if (memcmp(&f, &all, sizeof(f)) != 0)
                        fail_msg("after allocation %u failed not all is there", n);
                end(&s, k);
        }
        assert_int_equal(WEXITSTATUS(status), NONE_LEFT);
        assert_true(n > 10);
}
