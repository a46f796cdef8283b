#include "tests/unit/at-once.h"
#include "tests/unit/client-recover-fixture.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/state/state-root.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/state/state.h"
#include "daemon/core/life/recover.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "daemon/core/requests/refill.h"
#include "tests/unit/toy-layout.h"

struct facts *facts;

void daemon_start(struct daemon *dm, const struct keep *keep)
{
        struct tenant_attrs attrs = {
                .weight = 1, .priority = 50, .max_clients = 8, .limit_bytes = N_SETS * SET_BYTES};
        char why[DEVICE_WHY_BYTES];
        struct device *device;
        bool is_lost, are_clients_lost;

        memset(dm, 0, sizeof(*dm));
        store_init(&dm->store, &evict_lru);
        dm->store.keep = *keep;
        assert_true(state_open(&dm->store, &is_lost, &dm->d) >= 0);
        need(client_records_open(&dm->store, &are_clients_lost, &dm->d));
        assert_false(is_lost || are_clients_lost);
        need(device_open("host", &(struct device_options){.side = DEVICE_OWNER}, &device, why));
        need(store_add_pool(&dm->store, device, N_SETS * SET_BYTES, SET_BYTES, &dm->d));
        need(tenant_new(&dm->store, "a", &attrs, &dm->a, &dm->d));
        need(tenant_new(&dm->store, "b", &attrs, &dm->b, &dm->d));
        store_recover(&dm->store, &dm->recovery, NULL, NULL);
        need(clients_recover(&dm->store, &dm->recovery, &dm->d));
        store_recover_end(&dm->store, &dm->recovery);
}

void daemon_check(struct daemon *dm)
{
        uint64_t n_pages, n_sets;

        idle_sets_drain(&dm->store);
        if (store_check(&dm->store, &n_pages, &n_sets, &dm->d) != 0)
                fail_msg("%s", dm->d.text);
}

static void end_members(struct tenant *t)
{
        while (!list_is_empty(&t->groups)) {
                struct group *g = list_first(&t->groups, struct group, link);

                member_free(list_first(&g->members, struct member, link));
        }
}

void daemon_end(struct daemon *dm)
{
        daemon_check(dm);
        end_members(dm->a);
        end_members(dm->b);
        daemon_check(dm);
        store_deinit(&dm->store);
}

void release_rest(struct fake_keep *k)
{
        for (uint32_t i = 0; i < k->n;)
                if (k->kept[i].is_old)
                        keep_drop(&k->keep, k->kept[i].kind, k->kept[i].number);
                else
                        i++;
}

void check_nothing_kept(const struct fake_keep *k)
{
        static const enum keep_kind kinds[] = {
                KEEP_RING, KEEP_PROCESS, KEEP_PINS, KEEP_SOCKET_PINS};

        for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
                assert_int_equal(fake_keep_count(k, kinds[i]), 0);
        assert_int_equal(fake_keep_count(k, KEEP_CLIENTS), 1);
}

/* ---- clients ---- */

static struct ns_layout layout(void)
{
        return toy_layout(PAGE_BYTES);
}

struct member *join(struct tenant *t, const uint8_t *token, bool metadata_only)
{
        _cleanup_fd_ int pidfd = pidfd_open(getpid(), 0);
        struct client_who who = {.pid = getpid(), .uid = 7, .name = "test"};
        struct member *m;

        need(member_new(t, token, metadata_only, &m, NULL));
        need(client_record(m, &who, pidfd, NULL));
        return m;
}

struct attach *open_ns(struct member *m, const char *name, uint64_t frame)
{
        struct attach_options o = {.frame = frame};
        struct ns_layout l = layout();
        struct attach *a;

        struct detail d = {""};

        if (attach_open_with(m, name, &l, &o, &a, &d) != 0)
                fail_msg("%s", d.text);
        return a;
}

void lease(struct attach *a, uint32_t n, uint64_t frame, uint32_t *ret_pages)
{
        struct lease_request rq = {.n = n, .min = n, .seq = lease_seq(frame)};
        struct lease_result result;

        struct detail d = {""};

        if (lease_ask(a, &rq, NOW, ret_pages, &result, &d) != 0)
                fail_msg("%s", d.text);
}

void make_keys(uint8_t *keys, unsigned first, unsigned n)
{
        memset(keys, 0, n * KEY_BYTES);
        for (unsigned i = 0; i < n; i++)
                memcpy(keys + i * KEY_BYTES, &(unsigned){first + i + 1}, sizeof(unsigned));
}

int publish(struct attach *a, unsigned first, uint32_t n, uint32_t *pages)
{
        uint8_t keys[SET_PAGES * KEY_BYTES];
        struct publish p = {.pages = pages, .keys = keys, .n = n, .last_tokens = 16};
        uint32_t sealed[SET_PAGES], n_sealed;

        make_keys(keys, first, n);
        return publish_pages(a, &p, NOW, sealed, &n_sealed, NULL);
}

static int lookup(struct attach *a, unsigned first, uint32_t n)
{
        uint8_t keys[SET_PAGES * KEY_BYTES];
        uint32_t pages[SET_PAGES], found;
        uint64_t tokens;

        make_keys(keys, first, n);
        return lookup_pages(
                a, &(struct lookup_request){keys, n, NOW}, pages, &found, &tokens, NULL);
}

struct member *find(struct daemon *dm, uint64_t id)
{
        list_for_each (t, &dm->store.tenants, struct tenant, link)
                list_for_each (g, &t->groups, struct group, link)
                        list_for_each (m, &g->members, struct member, link)
                                if (m->id == id)
                                        return m;
        return NULL;
}

/* ---- the first daemon ---- */

void facts_init(void)
{
        facts = mmap(
                NULL, sizeof(*facts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void live(struct fake_keep *k, void *data)
{
        struct daemon dm;
        struct member *one, *mate, *other;
        struct attach *a, *b;
        uint32_t slot = 0;

        daemon_start(&dm, &k->keep);
        one = join(dm.a, NULL, false);
        mate = join(dm.a, one->group->token, false);
        other = join(dm.b, NULL, true);
        a = open_ns(one, "n", 11);
        b = open_ns(mate, "n", 12);
        (void)open_ns(one, "late", 13);
        (void)open_ns(other, "n", 14);
        facts->one = one->id;
        facts->mate = mate->id;
        facts->other = other->id;
        facts->group_id = one->group->id;
        memcpy(facts->group_token, one->group->token, GROUP_TOKEN_BYTES);
        memcpy(facts->token, one->resume_token, CLIENT_TOKEN_BYTES);

        lease(a, 4, 20, facts->sealed);
        need(publish(a, 0, 4, facts->sealed));
        need(lookup(a, 0, 2));
        lease(a, 5, 21, facts->leased);
        lease(a, 3, 22, facts->leased + 5);

        need(attach_share(b, NULL));
        assert_true(magazine_refill(b, 8, NOW));
        facts->n_ready = b->magazine->n_pages - 1;
        while (b->magazine->pages[slot] == 0)
                slot++;
        facts->claimed = atomic_exchange(&b->share.magazine[slot], 0) - 1;
        facts->in_segment = facts->sealed[3];
        pins_add(&b->share, facts->in_segment);
        client_mute(other);
        client_note_frame(one, 77);
        if (data)
                ((void (*)(struct daemon *, struct attach *, struct attach *))data)(&dm, a, b);
}
