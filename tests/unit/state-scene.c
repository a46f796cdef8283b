#include "tests/unit/at-once.h"
#include "tests/unit/state-scene.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/announce.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/state/state-root.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/state/state.h"
#include "daemon/core/life/recover.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "daemon/core/requests/refill.h"
#include "daemon/core/sessions/session-impl.h"
#include "proto/status.h"
#include "tests/unit/test-support.h"
#include "tests/unit/toy-layout.h"

#define SET_BYTES   (UINT64_C(2) << 20) /* an extent of the host device */
#define SET_PAGES   8
#define PAGE_BYTES  (SET_BYTES / SET_PAGES)
#define PAGE_TOKENS 16
#define N_SETS      8
#define SECOND      UINT64_C(1000000000)
#define BEGIN       (1000 * SECOND) /* of the daemon that lives */
#define AGAIN       (2000 * SECOND) /* of the one that comes after */

#define need(call) assert_int_equal(call, 0)

/* ---- a daemon -------------------------------------------------------------------------------- */

static void say(const struct detail *d, void *data)
{
        struct scene *s = data;
        size_t len = strlen(s->said);

        snprintf(s->said + len, sizeof(s->said) - len, "%s\n", d->text);
}

void scene_prepare(struct scene *s, const struct keep *keep)
{
        struct tenant_attrs attrs = {
                .weight = 1, .priority = 50, .max_clients = 8, .limit_bytes = N_SETS * SET_BYTES};
        char why[DEVICE_WHY_BYTES];
        bool are_clients_lost;
        struct device *device;

        memset(s, 0, sizeof(*s));
        store_init(&s->store, &evict_lru);
        s->store.keep = *keep;
        s->opened = state_open(&s->store, &s->is_lost, &s->d);
        assert_true(s->opened >= 0);
        need(client_records_open(&s->store, &are_clients_lost, s->is_lost ? NULL : &s->d));
        if (are_clients_lost) {
                s->is_lost = true;
                s->opened = 0;
        }
        store_set_now(&s->store, s->opened == 1 ? AGAIN : BEGIN);
        need(device_open("host", &(struct device_options){.side = DEVICE_OWNER}, &device, why));
        need(store_add_pool(&s->store, device, N_SETS * SET_BYTES, SET_BYTES, &s->d));
        need(tenant_new(&s->store, "a", &attrs, &s->a, &s->d));
        need(tenant_new(&s->store, "b", &attrs, &s->b, &s->d));
        if (s->opened == 1)
                store_recover(&s->store, &s->recovery, say, s);
}

void scene_start(struct scene *s, const struct keep *keep)
{
        scene_prepare(s, keep);
        need(clients_recover(&s->store, &s->recovery, &s->d));
        if (s->opened == 1)
                store_recover_end(&s->store, &s->recovery);
}

static void check(struct scene *s)
{
        uint64_t n_pages, n_sets;

        idle_sets_drain(&s->store);
        if (store_check(&s->store, &n_pages, &n_sets, &s->d) != 0)
                fail_msg("%s", s->d.text);
}

static void end_members(struct tenant *t)
{
        while (!list_is_empty(&t->groups)) {
                struct group *g = list_first(&t->groups, struct group, link);

                member_free(list_first(&g->members, struct member, link));
        }
}

void scene_end(struct scene *s)
{
        check(s);
        end_members(s->a);
        end_members(s->b);
        check(s);
        store_deinit(&s->store);
}

/* ---- what clients do ------------------------------------------------------------------------- */

static uint64_t now_nsec;

static void key_of(uint32_t id, uint8_t key[KEY_BYTES])
{
        memset(key, 0, KEY_BYTES);
        memcpy(key, &id, sizeof(id));
}

static struct member *join(
        struct tenant *t, const struct member *mate, bool metadata_only, const char *name)
{
        _cleanup_fd_ int pidfd = pidfd_open(getpid(), 0);
        struct client_who who = {.pid = 4711, .uid = 7};
        struct member *m;

        strcpy(who.name, name);
        need(member_new(t, mate ? mate->group->token : NULL, metadata_only, &m, NULL));
        m->safepoints = mate;
        need(client_record(m, &who, pidfd, NULL));
        return m;
}

static struct attach *open_version(
        struct member *m, const char *name, const char *version, const struct attach_options *o)
{
        struct ns_layout layout = toy_layout(PAGE_BYTES);
        struct detail d = {""};
        struct attach *a;

        strcpy(layout.version, version);
        if (attach_open_with(m, name, &layout, o, &a, &d) != 0)
                fail_msg("%s", d.text);
        return a;
}

static struct attach *open_ns(struct member *m, const char *name, const struct attach_options *o)
{
        return open_version(m, name, "v1", o);
}

static uint32_t lease(struct attach *a, uint64_t frame)
{
        struct lease_request rq = {.n = 1, .min = 1, .seq = lease_seq(frame)};
        struct lease_result result;
        uint32_t page;

        need(lease_ask(a, &rq, now_nsec, &page, &result, NULL));
        return page;
}

struct text {
        uint32_t id, parent, tokens, session;
        uint64_t tag;
};

/* A second later; its bytes begin with its key; it stays pinned. */
static uint32_t publish(struct attach *a, const struct text *t)
{
        uint8_t key[KEY_BYTES], parent[KEY_BYTES];
        uint32_t page, sealed, n;
        struct publish p = {.pages = &page,
                .keys = key,
                .n = 1,
                .parent_key = t->parent ? parent : NULL,
                .last_tokens = t->tokens ? t->tokens : PAGE_TOKENS,
                .session = t->session,
                .tag = t->tag};
        struct extent *e;

        now_nsec += SECOND;
        page = lease(a, 100 + t->id);
        key_of(t->id, key);
        key_of(t->parent, parent);
        e = ns_set_of(a->ns, page)->extents[0];
        need(e->device->ops->extent_write(e, page % SET_PAGES * PAGE_BYTES, key, sizeof(key)));
        need(publish_pages(a, &p, now_nsec, &sealed, &n, NULL));
        return page;
}

static void publish_idle(struct attach *a, const struct text *t)
{
        uint32_t page = publish(a, t);

        need(release_pages(a, &page, 1, now_nsec, NULL));
}

static uint32_t open_session(struct attach *a, const char *id)
{
        uint32_t handle;
        bool created;

        need(session_open(a,
                &(struct session_request){
                        (const uint8_t *)id, (uint32_t)strlen(id), false, 60 * SECOND, now_nsec},
                &handle, &created, NULL));
        return handle;
}

/* Makes three texts that clients read: published and found; of an older epoch; invalidated. */
static void live_texts(struct attach *a)
{
        uint8_t key[KEY_BYTES], keys[2 * KEY_BYTES];
        uint32_t page, pages[2], found;
        uint64_t n;

        (void)publish(a, &(struct text){.id = 9});
        need(ns_invalidate(a->ns, CAUSE_NAMESPACE, &n));
        (void)publish(a, &(struct text){.id = 1, .tag = 5});
        page = publish(a, &(struct text){.id = 2, .parent = 1, .tag = 5});
        publish_idle(a, &(struct text){.id = 3, .parent = 2, .tokens = 7});
        (void)publish(a, &(struct text){.id = 10});
        key_of(10, key);
        need(invalidate_key(a, key, &n, NULL));
        now_nsec += SECOND;
        key_of(1, keys);
        key_of(2, keys + KEY_BYTES);
        need(lookup_pages(a, &(struct lookup_request){keys, 2, now_nsec}, pages, &found, &n, NULL));
        assert_int_equal(found, 2);
        need(release_pages(a, &page, 1, now_nsec, NULL));
}

/* One that ends in the tree, and one with a head, a gap and a window. */
static void live_sessions(struct attach *a)
{
        uint32_t talk = open_session(a, "talk"), novel = open_session(a, "novel");
        uint64_t n;

        publish_idle(a, &(struct text){.id = 4, .parent = 2, .session = talk});
        for (uint32_t id = 20; id < 25; id++)
                publish_idle(a,
                        &(struct text){.id = id, .parent = id > 20 ? id - 1 : 0, .session = novel});
        need(session_truncate(session_of(a, novel, NULL), PAGE_TOKENS, 2 * PAGE_TOKENS, &n, NULL));
        session_hint(session_of(a, talk, NULL), EVICT_HINT_RETURNS, 30 * SECOND, now_nsec);
}

static void live_grants(struct attach *a)
{
        uint8_t key[KEY_BYTES];
        uint32_t page = lease(a, 21), other, n;

        (void)lease(a, 22);
        key_of(30, key);
        need(announce_pages(a, &page, key, 1, &n, &other, NULL));
}

/* A magazine of which a page was claimed, and a pin, in a segment. */
static void live_segment(struct attach *a, uint32_t page)
{
        unsigned slot = 0;

        need(attach_share(a, NULL));
        assert_true(magazine_refill(a, 4, now_nsec));
        while (a->magazine->pages[slot] == 0)
                slot++;
        atomic_store(&a->share.magazine[slot], 0);
        pins_add(&a->share, page);
}

static void live_ring(struct member *m, uint32_t page)
{
        _cleanup_fd_ int fd = memfd_create_sized("ring", SHM_CLIENT_BYTES);
        struct client_cursor cursor = {.sub_head = 5,
                .comp_tail = 3,
                .chain = {.ns_id = 1,
                        .page = page,
                        .generation = 1,
                        .with = {.ns_id = 1, .session = 1, .tag = 6}}};
        struct client_cursors *cursors;

        assert_true(fd >= 0);
        need(client_record_ring(m, fd, &cursors, NULL));
        client_cursors_commit(cursors, &cursor);
        client_note_frame(m, 77);
}

static void live_ranks(struct tenant *t)
{
        struct attach_options o = {.set = "ranks", .set_size = 2};
        struct member *m = join(t, NULL, false, "ranks");

        for (o.frame = 30; o.frame < 32; o.frame++)
                publish_idle(open_ns(m, o.frame == 30 ? "r0" : "r1", &o), &(struct text){.id = 50});
}

static void live_stale(struct member *m)
{
        struct attach *a = open_ns(m, "old", &(struct attach_options){.frame = 34});
        uint64_t n;

        (void)publish(a, &(struct text){.id = 60});
        need(ns_invalidate(a->ns, CAUSE_NAMESPACE, &n));
}

void scene_live(struct scene *s)
{
        struct attach_options n = {.frame = 11, .keep_page_zero = true, .expire_nsec = 90 * SECOND};
        struct attach_options m = {.frame = 13};
        struct member *one = join(s->a, NULL, false, "one");
        struct member *mate = join(s->a, one, false, "mate"), *other;
        struct attach *a, *b;
        uint8_t key[KEY_BYTES];

        now_nsec = BEGIN;
        attach_close(open_version(one, "n", "v0", &n));
        a = open_ns(one, "n", &n);
        n.frame = 12;
        b = open_ns(mate, "n", &n);
        live_texts(a);
        live_sessions(a);
        live_grants(a);
        key_of(3, key);
        live_segment(b, ns_find_page(a->ns, key));
        live_ring(one, ns_find_page(a->ns, key));
        a = open_ns(one, "m", &m);
        (void)lease(a, 23);
        assert_int_equal(recall_sets(s->a, a->ns, 1, 7 * SECOND), 1);
        live_ranks(s->b);
        other = join(s->b, NULL, true, "other");
        (void)open_ns(other, "r0", &(struct attach_options){.frame = 33});
        live_stale(other);
        client_mute(other);
        client_token_renew(mate, mate->resume_token, (uint8_t[CLIENT_TOKEN_BYTES]){1, 2, 3});
        check(s);
}

/* ---- what is there --------------------------------------------------------------------------- */

static void describe_root(const struct state_root *r, FILE *to)
{
        fprintf(to,
                "root: restart %" PRIu64 ", last of namespaces %" PRIu64 ", sets %" PRIu64
                ", members %" PRIu64 ", groups %" PRIu64 ", extents %" PRIu64 ", records %" PRIu64
                "\n",
                r->n_restarts, r->last_ns_id, r->last_nsset_id, r->last_member_id, r->last_group_id,
                r->last_extent, r->last_records);
}

static void describe_ns(const struct ns *ns, FILE *to)
{
        fprintf(to,
                "namespace %s/%s: id %" PRIu64 ", records %u, version %s (%" PRIu64
                "), epoch %" PRIu64 ", expires in %" PRIu64 " s, page zero %s\n",
                ns->tenant->name, ns->name, ns->id, ns->records.number, ns->layout.version,
                ns->version_epoch, ns->epoch, ns->catalog.expiry.after_nsec / SECOND,
                ns->sets.keep_page_zero ? "kept back" : "used");
        fprintf(to, "  %u pages in %u slots of %u, planes %u of %u, %u tokens each\n",
                ns->geometry.capacity_pages, ns->geometry.n_set_slots, ns->geometry.set_pages,
                ns->layout.n_planes, (unsigned)ns->layout.plane_page_bytes, ns->layout.page_tokens);
        if (ns->catalog.set)
                fprintf(to, "  in set %s (%" PRIu64 ") of %u, %" PRIu64 " keys complete\n",
                        ns->catalog.set->name, ns->catalog.set->id, ns->catalog.set->size,
                        ns->catalog.set->n_complete);
}

static unsigned id_at(const struct ns *ns, uint32_t page)
{
        unsigned id = 0;

        memcpy(&id, ns_page(ns, page)->key, sizeof(id));
        return id;
}

static unsigned id_in(const struct ns *ns, uint32_t page)
{
        struct extent *e = ns_set_of(ns, page)->extents[0];
        uint8_t key[KEY_BYTES] = {0};
        unsigned id;

        need(e->device->ops->extent_read(e, page % SET_PAGES * PAGE_BYTES, key, sizeof(key)));
        memcpy(&id, key, sizeof(id));
        return id;
}

static void describe_published(const struct ns *ns, uint32_t page, FILE *to)
{
        const struct page *p = ns_page(ns, page);
        const struct page_note *n = ns_note(ns, page);
        const struct page_extra *extra = ns_extra(ns, page);
        uint32_t parent = tree_has(&ns->tree, page) ? tree_parent(&ns->tree, page) : NODE_NONE;
        uint8_t key[KEY_BYTES];

        memcpy(key, p->key, KEY_BYTES);
        fprintf(to,
                "  %s key %u, bytes %u, after %u, tokens %u of %u, page %u of its text, tag %" PRIu64
                ", by %" PRIu64 " at %u, used %u, %s, pins %u%s, windows %u\n",
                ns_page_is_stale(ns, p) ? "stale" : page_state_name((enum page_state)p->state),
                id_at(ns, page), id_in(ns, page), parent == NODE_NONE ? 0 : id_at(ns, parent),
                p->tokens, p->end_token, n->depth, extra->tag, n->client, p->published_sec,
                n->used_sec, ns_find_page(ns, key) == page ? "found" : "not found", page_pins(p),
                shared_is_pinned(ns, page) ? " and in segments" : "", extra->n_windows);
}

static void describe_page(const struct ns *ns, uint32_t page, FILE *to)
{
        const struct page *p = ns_page(ns, page);

        switch ((enum page_state)p->state) {
        case PAGE_GRANTED:
                fprintf(to,
                        "  page %u, generation %u: granted to group %u, member %" PRIu64
                        ", by %u%s%s\n",
                        page, (unsigned)p->generation, p->owner, ns_note(ns, page)->client,
                        ns_note(ns, page)->seq, p->ready ? ", in a magazine" : "",
                        p->announced ? ", announced" : "");
                break;
        case PAGE_SEALED:
        case PAGE_DETACHED:
                fprintf(to, "  page %u, generation %u:", page, (unsigned)p->generation);
                describe_published(ns, page, to);
                break;
        default:
                if (p->generation > 0)
                        fprintf(to, "  page %u, generation %u: %s\n", page, (unsigned)p->generation,
                                page_state_name((enum page_state)p->state));
        }
}

static void describe_sets(const struct ns *ns, FILE *to)
{
        list_for_each (set, &ns->device.sets_bound, struct extent_set, link) {
                fprintf(to, "  set %u: extent %u%s", set->index, set->first_extent,
                        set->recall.state == RECALL_NONE ? "" : ", recalled");
                if (set->recall.state != RECALL_NONE)
                        fprintf(to, " in %u s",
                                (unsigned)((ns->records.sets[set->index].recall - 1) / SECOND));
                fprintf(to, "\n");
                for (uint32_t i = 0; i < SET_PAGES; i++)
                        describe_page(ns, set->index * SET_PAGES + i, to);
        }
}

static void describe_sessions(const struct ns *ns, FILE *to)
{
        const struct session *s;

        for (uint64_t number = 0; (s = session_next(ns, number, &number));) {
                fprintf(to,
                        "  session %.*s: %" PRIu64
                        " tokens, ends at %u, %u pages after token %" PRIu64 " (head %" PRIu64
                        "), used %u, expires in %u s, hint %s %u\n",
                        (int)s->id_len, (const char *)s->id, s->n_tokens,
                        session_tail(s) == PAGE_NONE ? 0 : id_at(ns, session_tail(s)), s->window.n,
                        s->window.token, s->head_tokens, (unsigned)(s->used_nsec / SECOND),
                        (unsigned)(s->expire_nsec / SECOND), session_hint_name(s->hint),
                        (unsigned)(s->returns_nsec / SECOND));
                for (uint32_t i = 0; i < s->window.n; i++)
                        fprintf(to, "    window: %u\n", id_at(ns, s->window.pages[i]));
        }
}

static void describe_attach(struct attach *a, FILE *to)
{
        fprintf(to,
                "  ns_id %u: %s, by frame %" PRIu64 ", version epoch %" PRIu64
                ", %u sets mapped, %s, %u pages ready\n",
                a->id, a->ns->name, a->open_frame, a->version_epoch, (unsigned)a->mapped.n_used,
                pins_is_open(&a->share) ? "shared" : "not shared",
                a->magazine ? a->magazine->n_pages : 0);
        for (uint32_t page = 0; page < a->ns->geometry.capacity_pages; page++) {
                uint32_t n = pin_counts_get(&a->pins, page);

                if (n > 0)
                        fprintf(to, "    pins page %u %u times\n", page, n);
        }
}

static void describe_member(struct member *m, FILE *to)
{
        struct client_cursors *cursors;
        struct client_cursor c;
        struct client_who who;
        int fd;

        client_get_who(m, &who);
        fprintf(to,
                "client %" PRIu64 " of %s: group %u, %s, process %d of %u, token %02x%s%s%s%s%s\n",
                m->id, m->group->tenant->name, m->group->id, who.name, (int)who.pid,
                (unsigned)who.uid, client_slot_of(m)->tokens[0][0],
                client_token_is(m, (uint8_t[CLIENT_TOKEN_BYTES]){1, 2, 3}) ? " and 010203" : "",
                m->metadata_only ? ", metadata only" : "", m->safepoints ? ", safe points" : "",
                client_is_muted(m) ? ", muted" : "",
                client_frame_is_done(m, 77) && !client_frame_is_done(m, 78) ? ", frame 77 is done"
                                                                            : "");
        fd = client_take_ring(m, &cursors);
        if (fd >= 0) {
                c = client_cursors_get(cursors);
                fprintf(to,
                        "  ring: %" PRIu64 " done, %" PRIu64
                        " told; chain: ns %u, page %u, generation %u, with %u, session %u, tag %" PRIu64
                        "\n",
                        c.sub_head, c.comp_tail, c.chain.ns_id, c.chain.page,
                        (unsigned)c.chain.generation, c.chain.with.ns_id, c.chain.with.session,
                        c.chain.with.tag);
                fd_close(fd);
        }
        list_for_each (a, &m->attachments, struct attach, member_link)
                describe_attach(a, to);
}

void scene_describe(struct scene *s, FILE *to)
{
        describe_root(s->store.state, to);
        list_for_each (t, &s->store.tenants, struct tenant, link) {
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        describe_ns(ns, to);
                        describe_sets(ns, to);
                        if (ns->sessions)
                                describe_sessions(ns, to);
                }
                list_for_each (g, &t->groups, struct group, link)
                        list_for_each (m, &g->members, struct member, link)
                                describe_member(m, to);
        }
}
