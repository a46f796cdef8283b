#include "daemon/core/life/open.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cache/history.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/placing.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/shared.h"
#include "proto/status.h"

static struct grants *find_grants(struct group *g, const struct ns *ns)
{
        list_for_each (grants, &g->grants, struct grants, link)
                if (grants->ns == ns)
                        return grants;
        return NULL;
}

/* Returns the group's grants in the namespace, with another attachment. NULL: no memory. */
static struct grants *join_grants(struct group *g, struct ns *ns)
{
        struct grants *grants = find_grants(g, ns);

        if (!grants) {
                grants = calloc(1, sizeof(*grants));
                if (!grants)
                        return NULL;
                grants->group = g;
                grants->ns = ns;
                grants->head = PAGE_NONE;
                list_init(&grants->closing);
                list_append(&g->grants, &grants->link);
        }
        grants->n_attach++;
        return grants;
}

static uint32_t next_attach_id(struct member *m)
{
        do
                m->last_attach_id++;
        while (m->last_attach_id == 0 || attach_find(m, m->last_attach_id));
        return m->last_attach_id;
}

/* A client that names no set accepts the namespace's. */
static int check_same_set(const struct ns *ns, const struct attach_options *o, struct detail *d)
{
        const char *set = o->set ? o->set : "";

        if (!set[0] || (ns->catalog.set && strcmp(ns->catalog.set->name, set) == 0 &&
                               ns->catalog.set->size == o->set_size))
                return 0;
        return detail_set(d, -EINVAL,
                "namespace %s was opened first %s%s, not in a set %.*s of %u; close it everywhere and remove it, or use another name",
                ns->name, ns->catalog.set ? "in set " : "without a set",
                ns->catalog.set ? ns->catalog.set->name : "", NS_NAME_MAX, set, o->set_size);
}

/* A client that names no codecs accepts the namespace's. */
static int check_same_codecs(const struct ns *ns, enum tier_kind kind,
        const struct codec_layers *asked, struct detail *d)
{
        const struct codec_layers *has = &ns->codecs.of_pages.tiers[kind];
        char has_text[CODEC_LAYERS_TEXT_MAX], asked_text[CODEC_LAYERS_TEXT_MAX];

        if (ns->geometry.tiers[kind].n_sets == 0 || asked->n == 0 || codec_layers_equal(asked, has))
                return 0;
        return detail_set(d, KVL_STATUS_LAYOUT,
                "namespace %s keeps pages in tier %u as %s, not as %s: who opened it first said so; use another name",
                ns->name, kind, codec_layers_format(has, ns->layout.n_layers, has_text),
                codec_layers_format(asked, ns->layout.n_layers, asked_text));
}

static int check_same(const struct ns *ns, const struct ns_layout *layout, const struct pool *pool,
        const struct attach_options *o, struct detail *d)
{
        char has[NS_LAYOUT_TEXT_MAX], asked[NS_LAYOUT_TEXT_MAX];
        const char *difference = ns_layout_difference(&ns->layout, layout);
        int r;

        if (difference)
                return detail_set(d, KVL_STATUS_LAYOUT,
                        "namespace %s has another %s; it has: %s; asked for: %s", ns->name,
                        difference, ns_layout_format(&ns->layout, has, sizeof(has)),
                        ns_layout_format(layout, asked, sizeof(asked)));
        if (ns->device.pool != pool)
                return detail_set(d, KVL_STATUS_LAYOUT, "namespace %s is on device %s, not on %s",
                        ns->name, ns->device.pool->props->name, pool->props->name);
        if (o->stride_bytes != 0 && o->stride_bytes != geometry_stride(&ns->geometry))
                return detail_set(d, KVL_STATUS_LAYOUT,
                        "namespace %s has a stride of %llu bytes, not of %llu: who opened it first said so, or left it to kvleased; use another name",
                        ns->name, (unsigned long long)geometry_stride(&ns->geometry),
                        (unsigned long long)o->stride_bytes);
        r = check_same_codecs(ns, TIER_HOST, &o->host_codecs, d);
        if (r == 0)
                r = check_same_codecs(ns, TIER_DISK, &o->disk_codecs, d);
        if (r != 0)
                return r;
        if (o->keep_page_zero && !ns->sets.keep_page_zero && !geometry_has_null_set(&ns->geometry))
                return detail_set(d, KVL_STATUS_LAYOUT,
                        "namespace %s was opened first without keeping page 0 back, and page 0 may be in use; use another name",
                        ns->name);
        return 0;
}

/* A read-only client can't retire cached pages. */
static int check_same_version(const struct ns *ns, const struct ns_layout *layout, struct detail *d)
{
        if (strcmp(ns->layout.version, layout->version) == 0)
                return 0;
        return detail_set(d, KVL_STATUS_LAYOUT,
                "namespace %s has version '%s', not '%s', and this client may not change it: only those that may publish can",
                ns->name, ns->layout.version, layout->version);
}

/* Returns the codecs of the tenant's attributes for a tier; none if the layout can't have them. */
static struct codec_layers default_codecs(
        const char *text, enum tier_kind kind, const struct ns_layout *layout)
{
        struct codec_layers tiers[TIER_COUNT] = {{0}};
        struct page_codecs codecs;

        if (codec_layers_parse(text, layout->n_layers, &tiers[kind], NULL) < 0 ||
                page_codecs_init(&codecs, layout, tiers, NULL) < 0)
                return codec_layers_all(CODEC_NONE);
        return tiers[kind];
}

static void choose_codecs(const struct tenant *t, const struct ns_layout *layout,
        const struct attach_options *o, struct codec_layers ret_codecs[TIER_COUNT])
{
        const struct tenant_attrs *a = &t->attrs;

        ret_codecs[TIER_HOST] = o->host_codecs;
        ret_codecs[TIER_DISK] = o->disk_codecs;
        if (o->host_codecs.n == 0 && !o->names_host_codecs)
                ret_codecs[TIER_HOST] = default_codecs(a->host_codec, TIER_HOST, layout);
        if (o->disk_codecs.n == 0 && !o->names_disk_codecs)
                ret_codecs[TIER_DISK] = default_codecs(a->disk_codec, TIER_DISK, layout);
}

/* Makes a namespace and joins its set, or neither. */
static int make_ns(struct tenant *t, const char *name, const struct ns_layout *layout,
        const struct attach_options *o, struct ns **ret_ns, struct detail *d)
{
        struct ns_options options = {
                .keep_page_zero = o->keep_page_zero, .stride_bytes = o->stride_bytes};
        struct pool *pool;
        struct ns *ns;
        int r = placing_choose(t, layout, o->stride_bytes, o->device, &pool, d);

        choose_codecs(t, layout, o, options.codecs);
        if (r == 0)
                r = ns_new(t, pool, name, layout, &options, &ns, d);
        if (r != 0)
                return r;
        if (o->set && o->set[0])
                r = nsset_join(ns, o->set, o->set_size, d);
        if (r == 0)
                r = records_begin(ns, d);
        if (r != 0) {
                ns_free(ns);
                return r;
        }
        tenant_tell(ns->tenant, ns_enters, ns);
        *ret_ns = ns;
        return 0;
}

/* Finds the namespace or makes it. */
static int get_ns(struct member *m, const char *name, const struct ns_layout *layout,
        const struct attach_options *o, struct ns **ret_ns, struct detail *d)
{
        struct tenant *t = m->group->tenant;
        const char *device = o->device;
        bool is_named = device && device[0];
        struct ns *ns;
        int r;

        if (!ns_name_is_valid(name))
                return detail_set(d, -EINVAL,
                        "a namespace's name is 1 to %d of A-Z a-z 0-9 . _ - @ and starts with none of . - @",
                        NS_NAME_MAX);
        r = ns_layout_check(layout, d);
        if (r < 0)
                return r;
        if (is_named && !store_find_pool(t->store, device))
                return detail_set(d, -ENOENT, "no device %s; see: kvleasectl devices", device);
        ns = ns_find(t, name);
        if (ns) {
                /* Without a named device, the namespace may be on any. */
                r = check_same(ns, layout,
                        is_named ? store_find_pool(t->store, device) : ns->device.pool, o, d);
                if (r == 0)
                        r = check_same_set(ns, o, d);
                if (r == 0 && m->read_only)
                        r = check_same_version(ns, layout, d);
                if (r == 0)
                        *ret_ns = ns;
                return r;
        }
        if (m->read_only)
                return detail_set(d, -ENOENT,
                        "no namespace %s in tenant %s: one of the clients that may publish there must open it first",
                        name, t->name);
        if (t->store->draining)
                return detail_set(d, KVL_STATUS_DRAINING, "the daemon is draining");
        return make_ns(t, name, layout, o, ret_ns, d);
}

/* Invalidates all pages of the old version of the weights: they are of no use. */
static int retire_version(struct ns *ns, const char *version)
{
        struct shared_epoch epoch = {0};
        uint64_t n_pages;
        int r;

        if (strcmp(ns->layout.version, version) == 0)
                return 0;
        /* Other hosts may still use pages of the old version: the store isn't told to invalidate
         * them. */
        tenant_tell(ns->tenant, ns_leaves, ns);
        r = ns_invalidate(ns, CAUSE_NAMESPACE, &n_pages);
        if (r < 0) {
                tenant_tell(ns->tenant, ns_enters, ns);
                return r;
        }
        ns->version_epoch++;
        history_note_all(ns, HISTORY_OTHER_VERSION, CAUSE_NAMESPACE);
        memcpy(ns->layout.version, version, strlen(version) + 1);
        records_commit_options(ns);
        shared_show_epochs(ns);
        space_renew(ns);
        /* Each version has an epoch of its own, so no change is due; in a set, one may still be. */
        epoch.must_change = ns->catalog.set && records_shared_epoch(ns).must_change;
        records_commit_shared_epoch(ns, &epoch);
        tenant_tell(ns->tenant, ns_enters, ns);
        return 0;
}

static struct attach *attach_new(struct member *m, struct ns *ns)
{
        struct attach *a = calloc(1, sizeof(*a));

        if (!a)
                return NULL;
        a->grants = join_grants(m->group, ns);
        if (!a->grants) {
                free(a);
                return NULL;
        }
        list_init(&a->member_link);
        list_init(&a->ns_link);
        list_init(&a->grants_link);
        task_init(&a->withdrawal);
        a->withdraw_at = PAGE_NONE;
        a->member = m;
        a->ns = ns;
        ns->tenant->n_attachments++;
        ns->idle.since_nsec = 0;
        map_init(&a->mapped);
        map_init(&a->sessions);
        a->share.segment.fd = a->share.segment.reader_fd = -1;
        return a;
}

/* Frees an attachment that couldn't be opened. */
static void attach_free(struct attach *a)
{
        struct grants *g = a->grants;

        a->ns->tenant->n_attachments--;
        if (--g->n_attach == 0 && list_is_empty(&g->closing)) {
                list_remove(&g->link);
                free(g);
        }
        pin_counts_deinit(&a->pins);
        map_deinit(&a->mapped);
        map_deinit(&a->sessions);
        free(a);
}

struct attach *attach_adopt(struct member *m, struct ns *ns, uint32_t id, uint64_t version_epoch)
{
        struct attach *a = attach_new(m, ns);

        if (!a)
                return NULL;
        a->id = id;
        a->version_epoch = version_epoch;
        m->last_attach_id = MAX(m->last_attach_id, id);
        list_append(&m->attachments, &a->member_link);
        list_append(&ns->clients.attachments, &a->ns_link);
        return a;
}

int attach_open_with(struct member *m, const char *name, const struct ns_layout *layout,
        const struct attach_options *o, struct attach **ret_attach, struct detail *d)
{
        struct attach *a;
        struct ns *ns = NULL;
        int r;

        list_for_each (other, &m->attachments, struct attach, member_link)
                if (strcmp(other->ns->name, name) == 0)
                        return detail_set(
                                d, -EEXIST, "this client has namespace %s open already", name);
        r = get_ns(m, name, layout, o, &ns, d);
        if (r != 0)
                return r;
        a = attach_new(m, ns);
        r = a ? retire_version(ns, layout->version) : -ENOMEM;
        if (r < 0) {
                /* A namespace made for this client stays, empty, like any without clients. */
                if (a)
                        attach_free(a);
                return detail_set(d, r, "no memory to open namespace %s", name);
        }
        a->id = next_attach_id(m);
        a->version_epoch = ns->version_epoch;
        a->open_frame = o->frame;
        r = attach_record(a, d);
        if (r < 0) {
                attach_free(a);
                return r;
        }
        if (o->expire_nsec > 0 && !m->read_only &&
                o->expire_nsec != ns->catalog.expiry.after_nsec) {
                ns->catalog.expiry.after_nsec = o->expire_nsec;
                records_commit_options(ns);
        }
        list_append(&m->attachments, &a->member_link);
        list_append(&ns->clients.attachments, &a->ns_link);
        *ret_attach = a;
        return 0;
}
