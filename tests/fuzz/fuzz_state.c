/*
 * Damaged state of a previous daemon, given to recovery. With any contents: no crash, a state that
 * checks and can be used, and no stored descriptor that isn't known. A page that is found has the
 * bytes of its key, unless the input made the sums right.
 *
 * Input: a byte of enum flags, then records of {target, how, offset (2), value (2)}. They change
 * the root, the records, the index segment, the clients' tables, clients' pins, or which
 * descriptors there are. The namespace has two sets with texts, a stale page, a detached one,
 * granted ones, an announced one, tags and a recall. A client has a client segment and pins of both
 * kinds.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/announce.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-table.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/state.h"
#include "daemon/core/life/recover.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/publish.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/at-once.h"
#include "tests/unit/keep-parent.h"
#include "tests/unit/toy-layout.h"

#define EXTENT      (UINT64_C(2) << 20)
#define SET_PAGES   8
#define PAGE_BYTES  (EXTENT / SET_PAGES)
#define PAGE_TOKENS 16
#define N_SETS      4
#define N_IDS       24
#define RECORD      6
#define NOW_NSEC    UINT64_C(1000000000000)

enum flags {
        FIX_IDENTITY = 1, /* sums of header and options are made right */
        FIX_PAGES = 2,    /* and of pages */
};

/* New targets come last: the corpus has their numbers. */
enum target { ROOT, RECORDS, INDEX, DESCRIPTORS, CLIENTS, SOCKET_PINS, PINS, N_TARGETS };
enum how { SET_BYTE, XOR_BYTE, SET_16, SET_32, FILL, N_HOWS };

/*
 * A stored descriptor's contents; for the clients' tables, which are large, the first rows of each.
 */
struct kept {
        enum keep_kind kind;
        uint32_t number;
        uint8_t *bytes; /* owned */
        size_t len;
};

#define ROW_BYTES   (CLIENT_HEADER_BYTES + 8 * (uint64_t)sizeof(struct client_slot))
#define ATTACHES_AT (CLIENT_HEADER_BYTES + CLIENT_SLOTS * (uint64_t)sizeof(struct client_slot))

static struct kept template[KEEP_PARENT_MAX];
static unsigned n_template;

/* ---- a life ---- */

struct life {
        struct keep_parent keep;
        struct store store;
        struct tenant *t;
        bool is_lost;
        int opened;
};

static void begin(struct life *l)
{
        const struct device_options options = {.side = DEVICE_OWNER};
        struct tenant_attrs attrs = {
                .weight = 1, .priority = 50, .max_clients = 8, .limit_bytes = N_SETS * EXTENT};
        char why[DEVICE_WHY_BYTES] = "";
        struct device *device;
        bool are_clients_lost;

        store_init(&l->store, &evict_lru);
        l->store.keep = (struct keep){&keep_parent_ops, &l->keep};
        store_set_now(&l->store, NOW_NSEC);
        l->opened = state_open(&l->store, &l->is_lost, NULL);
        CHECK(l->opened >= 0);
        CHECK(client_records_open(&l->store, &are_clients_lost, NULL) == 0);
        if (are_clients_lost)
                l->opened = 0;
        CHECK(device_open("host", &options, &device, why) == 0);
        CHECK(store_add_pool(&l->store, device, N_SETS * EXTENT, EXTENT, NULL) == 0);
        CHECK(tenant_new(&l->store, "a", &attrs, &l->t, NULL) == 0);
}

static void check(struct store *s)
{
        uint64_t n_pages, n_sets;
        struct detail d;

        idle_sets_drain(s);
        if (store_check(s, &n_pages, &n_sets, &d) == 0)
                return;
        fprintf(stderr, "%s\n", d.text);
        abort();
}

static struct attach *open_ns(struct member *m, const char *version)
{
        struct ns_layout layout = toy_layout(PAGE_BYTES);
        struct attach *a = NULL;

        strcpy(layout.version, version);
        (void)attach_open(m, "n", &layout, "", false, &a, NULL);
        return a;
}

static struct extent *extent_of(const struct ns *ns, uint32_t page)
{
        return ns_set_of(ns, page)->extents[0];
}

static void publish(struct attach *a, unsigned id, unsigned parent, unsigned tag)
{
        uint8_t key[KEY_BYTES] = {(uint8_t)id}, parent_key[KEY_BYTES] = {(uint8_t)parent};
        uint32_t page, sealed, n;
        struct publish p = {.pages = &page,
                .keys = key,
                .n = 1,
                .parent_key = parent ? parent_key : NULL,
                .last_tokens = PAGE_TOKENS,
                .tag = tag};
        struct extent *e;

        CHECK(lease_pages(a, 1, NOW_NSEC, &page, NULL) == 0);
        e = extent_of(a->ns, page);
        CHECK(e->device->ops->extent_write(e, page % SET_PAGES * PAGE_BYTES, key, 1) == 0);
        CHECK(publish_pages(a, &p, NOW_NSEC, &sealed, &n, NULL) == 0);
}

/* ---- the template ---- */

static void fill(struct attach *a)
{
        uint8_t key[KEY_BYTES] = {20}, announced[KEY_BYTES] = {21};
        uint32_t pages[3], n, other;
        uint64_t n_pages;

        publish(a, 19, 0, 0);
        CHECK(ns_invalidate(a->ns, CAUSE_NAMESPACE, &n_pages) == 0); /* stale */
        for (unsigned id = 1; id <= 7; id++)
                publish(a, id, id % 4 == 1 ? 0 : id - 1, id == 3 ? 5 : 0);
        publish(a, 20, 0, 0);
        CHECK(invalidate_key(a, key, &n_pages, NULL) == 0); /* pinned: detached */
        CHECK(lease_pages(a, 3, NOW_NSEC, pages, NULL) == 0);
        CHECK(announce_pages(a, pages, announced, 1, &n, &other, NULL) == 0);
        CHECK(recall_sets(a->ns->tenant, a->ns, 1, 7) == 1);
}

static void copy(struct kept *to, const struct keep_entry *e)
{
        struct stat st;

        CHECK(fstat(e->fd, &st) == 0);
        *to = (struct kept){.kind = e->kind, .number = e->number, .len = (size_t)st.st_size};
        to->bytes = malloc(to->kind == KEEP_CLIENTS ? 2 * ROW_BYTES : to->len);
        CHECK(to->bytes);
        if (to->kind == KEEP_CLIENTS)
                CHECK(pread(e->fd, to->bytes, ROW_BYTES, 0) == (ssize_t)ROW_BYTES &&
                        pread(e->fd, to->bytes + ROW_BYTES, ROW_BYTES, (off_t)ATTACHES_AT) ==
                                (ssize_t)ROW_BYTES);
        else
                CHECK(pread(e->fd, to->bytes, to->len, 0) == (ssize_t)to->len);
}

/* Makes a client segment and pin segments; pages published before are pinned over the socket. */
static void share(struct member *m, struct attach *a)
{
        _cleanup_fd_ int ring = memfd_create_sized("fuzz-ring", SHM_CLIENT_BYTES);
        struct client_cursors *cursors;

        CHECK(ring >= 0 && client_record_ring(m, ring, &cursors, NULL) == 0);
        CHECK(attach_share(a, NULL) == 0);
}

static void make_template(void)
{
        const struct client_who who = {.pid = getpid(), .name = "fuzz"};
        int pidfd = pidfd_open(getpid(), 0);
        struct life l;
        struct member *m;
        struct attach *a;

        keep_parent_init(&l.keep);
        begin(&l);
        CHECK(member_new(l.t, NULL, false, &m, NULL) == 0);
        CHECK(pidfd >= 0 && client_record(m, &who, pidfd, NULL) == 0);
        fd_close(pidfd);
        a = open_ns(m, "v");
        CHECK(a);
        fill(a);
        share(m, a);
        check(&l.store);
        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++)
                if (l.keep.entries[i].fd >= 0 && l.keep.entries[i].kind != KEEP_PROCESS)
                        copy(&template[n_template++], &l.keep.entries[i]);
        member_free(m);
        CHECK(store_deinit(&l.store));
        keep_parent_deinit(&l.keep);
}

/* ---- the input ---- */

static struct keep_entry *find(struct keep_parent *k, enum keep_kind kind)
{
        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++)
                if (k->entries[i].fd >= 0 && k->entries[i].kind == kind)
                        return &k->entries[i];
        return NULL;
}

static void change(int fd, const uint8_t *r)
{
        uint64_t offset = (uint64_t)(r[2] | r[3] << 8);
        uint8_t bytes[16], old;
        size_t n = 1;
        struct stat st;

        CHECK(fstat(fd, &st) == 0);
        if (r[0] % N_TARGETS == CLIENTS && offset >= ROW_BYTES)
                offset = ATTACHES_AT + offset % ROW_BYTES;
        memset(bytes, r[4], sizeof(bytes));
        switch (r[1] % N_HOWS) {
        case XOR_BYTE:
                if (pread(fd, &old, 1, (off_t)offset) == 1)
                        bytes[0] = old ^ r[4];
                break;
        case SET_16:
                bytes[1] = r[5];
                n = 2;
                break;
        case SET_32:
                bytes[1] = r[5];
                bytes[2] = bytes[3] = r[5] == 0xff ? 0xff : 0;
                n = 4;
                break;
        case FILL:
                n = sizeof(bytes);
                break;
        }
        if (offset + n <= (uint64_t)st.st_size)
                CHECK(pwrite(fd, bytes, n, (off_t)offset) == (ssize_t)n);
}

static void apply(struct keep_parent *k, const uint8_t *r)
{
        static const enum keep_kind kinds[N_TARGETS] = {KEEP_STATE, KEEP_RECORDS,
                KEEP_INDEX, [CLIENTS] = KEEP_CLIENTS, KEEP_SOCKET_PINS, KEEP_PINS};
        unsigned target = r[0] % N_TARGETS;
        struct keep_entry *e;

        if (target == DESCRIPTORS) {
                e = &k->entries[r[4] % n_template];
                if (r[1] & 1 && e->fd >= 0)
                        e->fd = fd_close(e->fd);
                else
                        e->number = 100000 +
                                    (uint32_t)(e - k->entries); /* a name that no other entry has */
                return;
        }
        e = find(k, kinds[target]);
        if (e)
                change(e->fd, r);
}

/* A reader's descriptor is of this file, too. */
static void reopen_reader(struct keep_parent *k)
{
        struct keep_entry *index = find(k, KEEP_INDEX), *reader = find(k, KEEP_INDEX_READER);
        char path[64];

        CHECK(index && reader);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", index->fd);
        fd_close(reader->fd);
        reader->fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(reader->fd >= 0);
}

static uint64_t inode_of(struct keep_parent *k, enum keep_kind kind)
{
        const struct keep_entry *e = find(k, kind);
        struct stat st;

        CHECK(e && fstat(e->fd, &st) == 0);
        return st.st_ino;
}

/* The tables name stored files by inode. */
static void name_files(struct keep_parent *k)
{
        const uint64_t ring = inode_of(k, KEEP_RING);
        const uint64_t pins[2] = {inode_of(k, KEEP_PINS), inode_of(k, KEEP_SOCKET_PINS)};
        int fd = find(k, KEEP_CLIENTS)->fd;

        CHECK(pwrite(fd, &ring, sizeof(ring),
                      CLIENT_HEADER_BYTES + offsetof(struct client_slot, ring_inode)) > 0);
        CHECK(pwrite(fd, pins, sizeof(pins),
                      (off_t)(ATTACHES_AT + offsetof(struct attach_slot, pins_inode))) > 0);
}

/* Only the first byte of each page of an extent is looked at. */
static void lay_out(struct keep_parent *k)
{
        keep_parent_init(k);
        for (unsigned i = 0; i < n_template; i++) {
                const struct kept *t = &template[i];
                size_t step = t->kind == KEEP_EXTENT ? PAGE_BYTES : t->len;
                size_t len = t->kind == KEEP_EXTENT ? 1 : t->len;
                int fd = memfd_create_sized("fuzz", t->len);

                CHECK(fd >= 0);
                if (t->kind == KEEP_CLIENTS) {
                        CHECK(pwrite(fd, t->bytes, ROW_BYTES, 0) == (ssize_t)ROW_BYTES);
                        CHECK(pwrite(fd, t->bytes + ROW_BYTES, ROW_BYTES, (off_t)ATTACHES_AT) ==
                                (ssize_t)ROW_BYTES);
                        step = t->len;
                        len = 0;
                }
                for (size_t at = 0; at < t->len; at += step)
                        CHECK(pwrite(fd, t->bytes + at, len, (off_t)at) == (ssize_t)len);
                k->entries[i] = (struct keep_entry){.kind = t->kind, .number = t->number, .fd = fd};
        }
        reopen_reader(k);
        name_files(k);
        keep_parent_begin(k);
}

static void fix_header(int fd)
{
        struct records_header h;

        if (pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
                return;
        h.sum = records_identity_sum(&h);
        for (unsigned i = 0; i < 2; i++)
                h.options[i].sum = records_options_sum(&h, &h.options[i]);
        CHECK(pwrite(fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h));
}

/* Makes the sums right, as an attacker with knowledge of the format would. */
static void fix_sums(struct keep_parent *k, unsigned flags)
{
        struct keep_entry *e = find(k, KEEP_RECORDS);
        struct records r;
        int fd;

        if (!e || !(flags & (FIX_IDENTITY | FIX_PAGES)))
                return;
        fd = fcntl(e->fd, F_DUPFD_CLOEXEC, 0);
        if (flags & FIX_IDENTITY)
                fix_header(fd);
        if (records_adopt(fd, &r) < 0) {
                fd_close(fd);
                return;
        }
        if (flags & FIX_PAGES) {
                struct ns ns = {.records = r, .geometry = r.header->identity.geometry};

                for (uint32_t i = 0; i < r.header->identity.geometry.capacity_pages; i++)
                        r.notes[i].place.sum =
                                records_sum(&ns, i, r.pages[i].generation, r.notes[i].place.parent);
        }
        records_close(&r);
}

/* ---- what must hold ---- */

static void check_bytes(const struct ns *ns)
{
        for (unsigned id = 1; id <= N_IDS; id++) {
                uint8_t key[KEY_BYTES] = {(uint8_t)id}, byte;
                uint32_t page = ns_find_page(ns, key);
                struct extent *e = page == PAGE_NONE ? NULL : extent_of(ns, page);

                if (!e)
                        continue;
                CHECK(e->device->ops->extent_read(e, page % SET_PAGES * PAGE_BYTES, &byte, 1) == 0);
                CHECK(byte == id);
        }
}

/* Uses the recovered state. */
static void use(struct life *l)
{
        const struct ns *ns = ns_find(l->t, "n");
        struct member *m;
        struct attach *a;
        uint32_t pages[4];

        CHECK(member_new(l->t, NULL, true, &m, NULL) == 0);
        a = open_ns(m, ns ? ns->layout.version : "v");
        if (a && lease_pages(a, 4, NOW_NSEC, pages, NULL) == 0)
                CHECK(free_pages(a, pages, 4, NULL) == 0);
        check(&l->store);
        member_free(m);
        check(&l->store);
}

/* Ends the clients like exited processes, and releases unknown descriptors like the server. */
static void end_clients(struct life *l)
{
        static const enum keep_kind kinds[] = {KEEP_RING, KEEP_PINS, KEEP_SOCKET_PINS};

        list_for_each_safe (g, &l->t->groups, struct group, link)
                list_for_each_safe (m, &g->members, struct member, link) {
                        bool is_last = m->link.next == m->link.prev;

                        member_free(m);
                        check(&l->store);
                        if (is_last)
                                break; /* the group is gone, too */
                }
        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
                (void)state_drop_kind(&l->store.keep, kinds[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct recovery r = {0};
        struct life l;
        bool has_clients = true;
        unsigned flags;

        if (size < 1 || size > 1 + 64 * RECORD)
                return 0;
        if (n_template == 0)
                make_template();
        flags = data[0];
        lay_out(&l.keep);
        for (size_t at = 1; at + RECORD <= size; at += RECORD) {
                unsigned target = data[at] % N_TARGETS;

                has_clients &= target != ROOT && target != DESCRIPTORS && target != CLIENTS;
                apply(&l.keep, data + at);
        }
        fix_sums(&l.keep, flags);
        begin(&l);
        if (l.opened == 1)
                store_recover(&l.store, &r, NULL, NULL);
        if (!(flags & FIX_PAGES))
                list_for_each (ns, &l.t->namespaces, struct ns, link)
                        check_bytes(ns);
        CHECK(clients_recover(&l.store, &r, NULL) == 0);
        CHECK(!has_clients || r.n_clients == 1);
        store_recover_end(&l.store, &r);
        check(&l.store);
        use(&l);
        end_clients(&l);
        CHECK(store_deinit(&l.store));
        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++)
                CHECK(l.keep.entries[i].fd < 0 || l.keep.entries[i].kind == KEEP_STATE ||
                        l.keep.entries[i].kind == KEEP_CLIENTS ||
                        l.keep.entries[i].number > KEEP_MAX_NUMBER);
        keep_parent_deinit(&l.keep);
        return 0;
}
