#include "daemon/core/clients/client-record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-table.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/state.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "proto/status.h"

static struct store *member_store(const struct member *m)
{
        return m->group->tenant->store;
}

/* ---- the tables ------------------------------------------------------------------------------ */

static int map_tables(struct client_table *t, int fd)
{
        uint8_t *base = memory_map(fd, CLIENT_TABLE_BYTES);

        if (!base)
                return -errno;
        t->header = (struct client_table_header *)(void *)base;
        t->clients = (struct client_slot *)(void *)(base + CLIENT_HEADER_BYTES);
        t->attaches = (struct attach_slot *)(t->clients + CLIENT_SLOTS);
        return 0;
}

/* Maps the stored tables. -ENOENT: none, or damaged ones, which are dropped. */
static int take_tables(struct store *s, struct client_table *t)
{
        _cleanup_fd_ int fd = s->keep.ops->take(s->keep.data, KEEP_CLIENTS, 0);
        struct stat st;
        int r;

        if (fd < 0)
                return -ENOENT;
        r = fstat(fd, &st) == 0 && (uint64_t)st.st_size == CLIENT_TABLE_BYTES ? map_tables(t, fd)
                                                                              : -ENOENT;
        if (r == 0 &&
                (t->header->n_clients > CLIENT_SLOTS || t->header->n_attaches > ATTACH_SLOTS)) {
                munmap(t->header, CLIENT_TABLE_BYTES);
                r = -ENOENT;
        }
        if (r == -ENOENT)
                keep_drop(&s->keep, KEEP_CLIENTS, 0);
        return r;
}

static int make_tables(struct store *s, struct client_table *t, struct detail *d)
{
        _cleanup_fd_ int fd = memfd_create_sized("kvlease-clients", CLIENT_TABLE_BYTES);
        int r = fd < 0 ? fd : map_tables(t, fd);

        if (r < 0)
                return detail_set(d, r, "no memory to keep clients in: %s", status_text(r));
        r = keep_add(&s->keep, KEEP_CLIENTS, 0, fd, d);
        if (r < 0)
                munmap(t->header, CLIENT_TABLE_BYTES);
        return r;
}

/* Makes new tables. Namespaces without tables had clients that may still read and write. */
static int replace_tables(struct store *s, struct client_table *t, bool *ret_lost, struct detail *d)
{
        struct detail other = {""};
        int r = 0;

        *ret_lost = s->keep.ops->list(s->keep.data, KEEP_RECORDS, NULL, 0) > 0;
        if (*ret_lost) {
                (void)detail_set(d, -EINVAL,
                        "namespaces were kept, but not who uses them: kvleased starts empty");
                r = state_start_over(s, &other);
        }
        if (r == 0)
                r = make_tables(s, t, &other);
        if (r < 0 && d)
                *d = other;
        return r;
}

int client_records_open(struct store *s, bool *ret_lost, struct detail *d)
{
        struct client_table *t;
        int r;

        *ret_lost = false;
        if (!keep_is_on(&s->keep))
                return 0;
        t = calloc(1, sizeof(*t));
        r = t ? take_tables(s, t) : -ENOMEM;
        if (r == -ENOENT)
                r = replace_tables(s, t, ret_lost, d);
        else if (r < 0)
                detail_set(d, r, "no memory for the clients that were kept: %s", status_text(r));
        if (r < 0)
                free(t);
        else
                s->clients = t;
        return r;
}

void client_records_close(struct store *s)
{
        if (!s->clients)
                return;
        munmap(s->clients->header, CLIENT_TABLE_BYTES);
        free(s->clients);
        s->clients = NULL;
}

/* Returns the number of a free row + 1. 0: there is none. */
static uint32_t take_client_row(struct client_table *t)
{
        uint32_t row = t->free_client;

        if (row != 0) {
                t->free_client = t->clients[row - 1].next_free;
                return row;
        }
        if (t->header->n_clients == CLIENT_SLOTS)
                return 0;
        FAULT_POINT("client-rows-before");
        row = ++t->header->n_clients;
        FAULT_POINT("client-rows-after");
        return row;
}

static uint32_t take_attach_row(struct client_table *t)
{
        uint32_t row = t->free_attach;

        if (row != 0) {
                t->free_attach = t->attaches[row - 1].next_free;
                return row;
        }
        if (t->header->n_attaches == ATTACH_SLOTS)
                return 0;
        FAULT_POINT("attach-rows-before");
        row = ++t->header->n_attaches;
        FAULT_POINT("attach-rows-after");
        return row;
}

void client_row_free(struct store *s, uint32_t row)
{
        struct client_table *t = s->clients;
        struct client_slot *c = &t->clients[row - 1];

        if (c->live != 0) {
                FAULT_POINT("client-end-before");
                atomic_store_explicit(&c->live, 0, memory_order_release);
                FAULT_POINT("client-end-after");
                keep_drop(&s->keep, KEEP_PROCESS, row - 1);
                if (c->marks & CLIENT_RING)
                        keep_drop(&s->keep, KEEP_RING, row - 1);
                FAULT_POINT("client-end-dropped");
        }
        c->next_free = t->free_client;
        t->free_client = row;
}

void attach_row_free(struct store *s, uint32_t row)
{
        struct client_table *t = s->clients;
        struct attach_slot *a = &t->attaches[row - 1];

        if (a->live != 0) {
                FAULT_POINT("attach-end-before");
                atomic_store_explicit(&a->live, 0, memory_order_release);
                FAULT_POINT("attach-end-after");
                if (a->marks & ATTACH_SHARES)
                        keep_drop(&s->keep, KEEP_PINS, row - 1);
                if (a->marks & ATTACH_SOCKET_PINS)
                        keep_drop(&s->keep, KEEP_SOCKET_PINS, row - 1);
                FAULT_POINT("attach-end-dropped");
        }
        a->next_free = t->free_attach;
        t->free_attach = row;
}

/* Identifies a file among all memory files since the machine's start. */
static uint64_t inode_of(int fd)
{
        struct stat st;

        return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* ---- members --------------------------------------------------------------------------------- */

struct client_slot *client_slot_of(const struct member *m)
{
        return m->record == 0 ? NULL : &member_store(m)->clients->clients[m->record - 1];
}

static void set_text(char *to, size_t size, const char *text)
{
        memset(to, 0, size);
        memcpy(to, text, MIN(strlen(text), size - 1));
}

/* Fills all fields but the word that makes the row live. */
static void fill_client(struct client_slot *c, const struct member *m, const struct client_who *who)
{
        memset((char *)c + sizeof(c->live), 0, sizeof(*c) - sizeof(c->live));
        c->flags = (m->metadata_only ? CLIENT_METADATA_ONLY : 0) |
                   (m->safepoints ? CLIENT_SAFEPOINTS : 0);
        c->group_id = m->group->id;
        memcpy(c->group_token, m->group->token, GROUP_TOKEN_BYTES);
        c->pid = who->pid;
        c->uid = who->uid;
        memcpy(c->tokens[0], m->resume_token, CLIENT_TOKEN_BYTES);
        c->valid_tokens = 1;
        set_text(c->tenant, sizeof(c->tenant), m->group->tenant->name);
        set_text(c->name, sizeof(c->name), who->name);
}

int client_record(struct member *m, const struct client_who *who, int pidfd, struct detail *d)
{
        struct store *s = member_store(m);
        struct client_slot *c;
        uint32_t row;
        int r;

        if (!s->clients)
                return 0;
        assert(m->record == 0 && list_is_empty(&m->attachments));
        row = take_client_row(s->clients);
        if (row == 0)
                return detail_set(d, -EMFILE, "kvleased keeps %u clients, the most it can",
                        (unsigned)CLIENT_SLOTS);
        c = &s->clients->clients[row - 1];
        r = keep_add(&s->keep, KEEP_PROCESS, row - 1, pidfd, d);
        if (r < 0) {
                c->next_free = s->clients->free_client;
                s->clients->free_client = row;
                return r;
        }
        FAULT_POINT("client-before-fill");
        fill_client(c, m, who);
        FAULT_POINT("client-before-live");
        atomic_store_explicit(&c->live, m->id, memory_order_release);
        FAULT_POINT("client-after-live");
        m->record = row;
        return 0;
}

void client_unrecord(struct member *m)
{
        if (m->record == 0)
                return;
        client_row_free(member_store(m), m->record);
        m->record = 0;
}

void client_get_who(const struct member *m, struct client_who *ret_who)
{
        const struct client_slot *c = client_slot_of(m);

        *ret_who = (struct client_who){.pid = c->pid, .uid = c->uid};
        memcpy(ret_who->name, c->name, CLIENT_NAME_MAX);
}

int client_record_ring(
        struct member *m, int fd, struct client_cursors **ret_cursors, struct detail *d)
{
        struct client_slot *c = client_slot_of(m);
        int r;

        *ret_cursors = NULL;
        if (!c)
                return 0;
        r = keep_add(&member_store(m)->keep, KEEP_RING, m->record - 1, fd, d);
        if (r < 0)
                return r;
        FAULT_POINT("client-ring-before");
        memset(&c->cursors, 0, sizeof(c->cursors));
        c->ring_inode = inode_of(fd);
        FAULT_POINT("client-ring-before-mark");
        atomic_fetch_or_explicit(&c->marks, CLIENT_RING, memory_order_release);
        FAULT_POINT("client-ring-after-mark");
        *ret_cursors = &c->cursors;
        return 0;
}

int client_take_kept(
        struct store *s, enum keep_kind kind, uint32_t row, uint64_t bytes, uint64_t inode)
{
        _cleanup_fd_ int fd = s->keep.ops->take(s->keep.data, kind, row - 1);
        struct stat st;
        int seals;

        if (fd < 0)
                return -ENOENT;
        seals = fcntl(fd, F_GET_SEALS);
        if (fstat(fd, &st) == 0 && st.st_ino == inode && (uint64_t)st.st_size == bytes &&
                seals >= 0 &&
                (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) == (F_SEAL_SHRINK | F_SEAL_GROW))
                return fd_take(&fd);
        keep_drop(&s->keep, kind, row - 1);
        return -ENOENT;
}

int client_take_ring(struct member *m, struct client_cursors **ret_cursors)
{
        struct client_slot *c = client_slot_of(m);
        int fd;

        if (!(c->marks & CLIENT_RING))
                return -ENOENT;
        fd = client_take_kept(
                member_store(m), KEEP_RING, m->record, SHM_CLIENT_BYTES, c->ring_inode);
        if (fd >= 0) {
                *ret_cursors = &c->cursors;
                return fd;
        }
        if (member_store(m)->state->is_unsure)
                client_lose(m);
        atomic_fetch_and_explicit(&c->marks, ~CLIENT_RING, memory_order_release);
        return fd;
}

void client_lose(struct member *m)
{
        struct client_slot *c = client_slot_of(m);

        if (c)
                atomic_fetch_or_explicit(&c->marks, CLIENT_LOST, memory_order_release);
}

void attach_lose_pins(struct attach *a)
{
        struct store *s = member_store(a->member);

        a->pins_lost = true;
        client_lose(a->member);
        if (s->clients && a->record != 0)
                atomic_fetch_or_explicit(&s->clients->attaches[a->record - 1].marks, ATTACH_LOST,
                        memory_order_release);
}

bool client_is_lost(const struct member *m)
{
        const struct client_slot *c = client_slot_of(m);

        return c && (c->marks & CLIENT_LOST);
}

void client_mute(struct member *m)
{
        struct client_slot *c = client_slot_of(m);

        if (!c)
                return;
        FAULT_POINT("client-mute-before");
        atomic_fetch_or_explicit(&c->marks, CLIENT_MUTED, memory_order_release);
        FAULT_POINT("client-mute-after");
}

bool client_is_muted(const struct member *m)
{
        const struct client_slot *c = client_slot_of(m);

        return c && (c->marks & CLIENT_MUTED);
}

void client_note_frame(struct member *m, uint64_t number)
{
        struct client_slot *c = client_slot_of(m);

        if (!c)
                return;
        FAULT_POINT("client-frame-before");
        atomic_store_explicit(&c->frames_done, number, memory_order_release);
        FAULT_POINT("client-frame-after");
}

bool client_frame_is_done(const struct member *m, uint64_t number)
{
        const struct client_slot *c = client_slot_of(m);

        return c && number <= atomic_load_explicit(&c->frames_done, memory_order_relaxed);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

void client_token_random(uint8_t ret_token[CLIENT_TOKEN_BYTES])
{
        struct hash_seed random = hash_seed_random(); /* 16 bytes from the kernel */

        static_assert(sizeof(random) == CLIENT_TOKEN_BYTES, "a token is 16 random bytes");
        memcpy(ret_token, &random, CLIENT_TOKEN_BYTES);
}

static bool is_same(const uint8_t a[CLIENT_TOKEN_BYTES], const uint8_t b[CLIENT_TOKEN_BYTES])
{
        uint8_t difference = 0;

        for (unsigned i = 0; i < CLIENT_TOKEN_BYTES; i++)
                difference |= a[i] ^ b[i];
        return difference == 0;
}

/* Returns the valid token's index; -1: neither. */
static int find_token(const struct client_slot *c, const uint8_t token[CLIENT_TOKEN_BYTES])
{
        uint32_t valid = c->valid_tokens;
        bool is_first = is_same(c->tokens[0], token) & ((valid & 1) != 0);
        bool is_second = is_same(c->tokens[1], token) & ((valid & 2) != 0);

        return is_first ? 0 : is_second ? 1 : -1;
}

bool client_token_is(const struct member *m, const uint8_t token[CLIENT_TOKEN_BYTES])
{
        const struct client_slot *c = client_slot_of(m);

        return c && find_token(c, token) >= 0;
}

void client_token_renew(struct member *m, const uint8_t presented[CLIENT_TOKEN_BYTES],
        const uint8_t fresh[CLIENT_TOKEN_BYTES])
{
        struct client_slot *c = client_slot_of(m);
        int which = find_token(c, presented), other = !which;

        assert(which >= 0);

        /* The client never received the token given beside this one. */
        FAULT_POINT("token-before");
        atomic_store_explicit(&c->valid_tokens, UINT32_C(1) << which, memory_order_release);
        FAULT_POINT("token-one");
        memcpy(c->tokens[other], fresh, CLIENT_TOKEN_BYTES);
        FAULT_POINT("token-before-both");
        atomic_store_explicit(&c->valid_tokens, 3, memory_order_release);
        FAULT_POINT("token-both");
        memcpy(m->resume_token, fresh, CLIENT_TOKEN_BYTES);
}

void client_token_commit(struct member *m)
{
        struct client_slot *c = client_slot_of(m);

        if (!c)
                return;
        FAULT_POINT("token-settle-before");
        atomic_store_explicit(&c->valid_tokens, UINT32_C(1) << find_token(c, m->resume_token),
                memory_order_release);
        FAULT_POINT("token-settle-after");
}

/* ---- attachments ----------------------------------------------------------------------------- */

static struct attach_slot *slot_of(const struct attach *a)
{
        return a->record == 0 ? NULL : &member_store(a->member)->clients->attaches[a->record - 1];
}

int attach_record(struct attach *a, struct detail *d)
{
        struct store *s = member_store(a->member);
        struct attach_slot *slot;
        uint32_t row;

        if (!client_is_recorded(a->member))
                return 0;
        row = take_attach_row(s->clients);
        if (row == 0)
                return detail_set(d, -EMFILE,
                        "kvleased keeps %u open namespaces of all clients, the most it can",
                        (unsigned)ATTACH_SLOTS);
        slot = &s->clients->attaches[row - 1];
        FAULT_POINT("attach-before-fill");
        memset((char *)slot + sizeof(slot->live), 0, sizeof(*slot) - sizeof(slot->live));
        slot->client = a->member->record - 1;
        slot->records = a->ns->records.number;
        slot->id = a->id;
        slot->open_frame = a->open_frame;
        slot->version_epoch = a->version_epoch;
        FAULT_POINT("attach-before-live");
        atomic_store_explicit(&slot->live, a->member->id, memory_order_release);
        FAULT_POINT("attach-after-live");
        a->record = row;
        return 0;
}

void attach_unrecord(struct attach *a)
{
        if (a->record == 0)
                return;
        attach_row_free(member_store(a->member), a->record);
        a->record = 0;
}

int attach_record_share(struct attach *a, struct detail *d)
{
        struct attach_slot *slot = slot_of(a);
        int r;

        if (!slot)
                return 0;
        r = keep_add(
                &member_store(a->member)->keep, KEEP_PINS, a->record - 1, a->share.segment.fd, d);
        if (r < 0)
                return r;
        FAULT_POINT("attach-share-before");
        slot->pins_inode = inode_of(a->share.segment.fd);
        FAULT_POINT("attach-share-before-mark");
        atomic_fetch_or_explicit(&slot->marks, ATTACH_SHARES, memory_order_release);
        FAULT_POINT("attach-share-after-mark");
        return 0;
}

int attach_record_pins(struct attach *a, int fd, struct detail *d)
{
        struct attach_slot *slot = slot_of(a);
        int r;

        if (!slot)
                return 0;
        r = keep_add(&member_store(a->member)->keep, KEEP_SOCKET_PINS, a->record - 1, fd, d);
        if (r < 0)
                return r;
        FAULT_POINT("attach-pins-before");
        slot->socket_pins_inode = inode_of(fd);
        FAULT_POINT("attach-pins-before-mark");
        atomic_fetch_or_explicit(&slot->marks, ATTACH_SOCKET_PINS, memory_order_release);
        FAULT_POINT("attach-pins-after-mark");
        return 0;
}

/* ---- chain ----------------------------------------------------------------------------------- */
