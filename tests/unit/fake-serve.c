/*
 * The scripted daemon's answers to requests, over the socket and in rings: a small world of pages,
 * simple where the real one is careful. Pages that change tiers: fake-fetch.c.
 */
#include "tests/unit/fake-daemon-impl.h"

#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/status.h"

/* ---- namespaces, pages ---------------------------------------------------------------------- */

static void describe_tiers(
        struct fake_peer *p, Kvlease__V1__NsOpenReply *m, const Kvlease__V1__NsLayout *layout)
{
        static Kvlease__V1__Tier device, host, *tiers[] = {&device, &host};

        kvlease__v1__tier__init(&device);
        kvlease__v1__tier__init(&host);
        device.n_pages = p->n_device_sets * p->set_pages;
        device.page_bytes = layout->n_planes * layout->plane_page_bytes;
        host.kind = 1;
        host.first_page = device.n_pages;
        host.n_pages = p->capacity - device.n_pages;
        host.page_bytes = p->is_encoded ? device.page_bytes / 4 : device.page_bytes;
        host.is_readable = !p->is_encoded;
        host.extent_bytes = host.is_readable ? FAKE_EXTENT_BYTES * layout->n_planes : 0;
        m->tiers = tiers;
        m->n_tiers = 2;
}

static void serve_open(struct fake_peer *p, const Kvlease__V1__NsOpenRequest *request)
{
        Kvlease__V1__NsOpenReply m = KVLEASE__V1__NS_OPEN_REPLY__INIT;

        p->n_planes = request->layout->n_planes;
        p->set_pages = (uint32_t)(FAKE_EXTENT_BYTES / request->layout->plane_page_bytes);
        p->capacity = p->set_pages * FAKE_N_SETS;
        FAKE_CHECK(p->n_planes <= FAKE_MAX_PLANES && p->capacity <= FAKE_MAX_PAGES);
        m.ns_id = FAKE_NS_ID;
        m.epoch = 1;
        m.capacity_pages = p->capacity;
        m.set_pages = p->set_pages;
        m.extent_bytes = FAKE_EXTENT_BYTES;
        m.device = (char *)(p->device ? p->device : "host");
        m.transport = p->transport ? p->transport : 1;
        m.address = p->address;
        m.null_set = p->has_null_set && request->keep_page_zero;
        /* The null set's pages are never leased. */
        if (m.null_set)
                memset(p->leased, 1, p->set_pages);
        if (p->n_device_sets > 0)
                describe_tiers(p, &m, request->layout);
        if (p->spoil)
                p->spoil(&m);
        fake_reply(p, &m.base);
}

void fake_welcome_ns(struct fake_peer *p)
{
        fake_welcome(p);
        serve_open(p, (const Kvlease__V1__NsOpenRequest *)fake_receive(p, MSG_NS_OPEN));
}

/* Handles say set and plane, as the first bytes of a GPU's extents do. */
static void reply_handles(
        struct fake_peer *p, const Kvlease__V1__MapRequest *request, uint32_t n_planes)
{
        Kvlease__V1__MapReply m = KVLEASE__V1__MAP_REPLY__INIT;
        uint8_t handles[FRAME_MAX_FDS * 64] = {0};

        for (uint32_t i = 0; i < n_planes; i++) {
                handles[i * 64] = (uint8_t)(1 + request->set_index);
                handles[i * 64 + 1] = (uint8_t)(request->first_plane + i);
        }
        m.n_planes = n_planes;
        m.handles.data = handles;
        m.handles.len = (size_t)n_planes * 64;
        fake_reply(p, &m.base);
}

/* A page's first bytes say which it is. */
static void serve_map_host(struct fake_peer *p, const Kvlease__V1__MapRequest *request)
{
        Kvlease__V1__MapReply m = KVLEASE__V1__MAP_REPLY__INIT;
        uint64_t page_bytes = FAKE_EXTENT_BYTES / p->set_pages * p->n_planes;
        int *extent = &p->extents[request->set_index][0];

        FAKE_CHECK(request->first_plane == 0 && !p->is_encoded);
        if (*extent < 0)
                *extent = memfd_create_sized("fake-host", FAKE_EXTENT_BYTES * p->n_planes);
        for (uint32_t i = 0; i < p->set_pages; i++) {
                uint32_t page = request->set_index * p->set_pages + i;

                FAKE_CHECK(pwrite(*extent, &page, sizeof(page), (off_t)(i * page_bytes)) ==
                           sizeof(page));
        }
        m.n_planes = 1;
        fake_send(p, MSG_MAP, FRAME_REPLY, p->seq, &m.base, extent, 1);
}

static void serve_map(struct fake_peer *p, const Kvlease__V1__MapRequest *request)
{
        Kvlease__V1__MapReply m = KVLEASE__V1__MAP_REPLY__INIT;
        int *extents = p->extents[request->set_index];
        uint32_t n = MIN(p->n_planes - request->first_plane, (uint32_t)FRAME_MAX_FDS);

        FAKE_CHECK(request->set_index < FAKE_N_SETS && request->first_plane < p->n_planes);
        if (p->n_device_sets > 0 && request->set_index >= p->n_device_sets) {
                serve_map_host(p, request);
                return;
        }
        if (p->transport == 3) {
                reply_handles(p, request, n);
                return;
        }
        for (uint32_t i = request->first_plane; i < request->first_plane + n; i++) {
                const uint8_t mark[2] = {(uint8_t)(1 + request->set_index), (uint8_t)i};

                if (extents[i] < 0)
                        extents[i] = memfd_create_sized("fake", FAKE_EXTENT_BYTES);
                if (p->transport == 2)
                        FAKE_CHECK(pwrite(extents[i], mark, 2, 0) == 2);
        }
        m.n_planes = n;
        fake_send(p, MSG_MAP, FRAME_REPLY, p->seq, &m.base, extents + request->first_plane, n);
}

/* Pages on the device. */
static uint32_t n_leasable(const struct fake_peer *p)
{
        return p->n_device_sets > 0 ? p->n_device_sets * p->set_pages : p->capacity;
}

static void serve_lease(struct fake_peer *p, const Kvlease__V1__LeaseRequest *request)
{
        static uint32_t pages[FAKE_MAX_PAGES];
        uint32_t n = 0;

        FAKE_CHECK(request->n_pages <= 4096);
        for (uint32_t tried = 0; n < request->n_pages && tried < n_leasable(p); tried++) {
                uint32_t page = p->next_page++ % n_leasable(p);

                if (!p->leased[page] && p->pins[page] == 0 && !p->has_key[page])
                        pages[n++] = page;
        }
        if (n < request->n_pages) {
                fake_reply_pages(p, WIRE_FULL, NULL, 0);
                return;
        }
        for (uint32_t i = 0; i < n; i++) {
                p->leased[pages[i]] = 1;
                p->leased_by[pages[i]] = p->seq;
        }
        fake_reply_pages(p, WIRE_OK, pages, n);
}

/* -1: none has it. */
/* One thread, and far too many looks for TSan: 25 M in test_client. */
__attribute__((no_sanitize("thread"))) int64_t fake_find_key(
        const struct fake_peer *p, const uint8_t *key)
{
        for (uint32_t i = 0; i < p->capacity; i++)
                if (p->has_key[i] && p->keys[i][0] == key[0] && p->keys[i][1] == key[1] &&
                        memcmp(p->keys[i], key, 32) == 0)
                        return i;
        return -1;
}

static void serve_publish(struct fake_peer *p, const Kvlease__V1__PublishRequest *request)
{
        static uint32_t pages[1024];
        uint32_t status = WIRE_OK;

        FAKE_CHECK(request->n_pages <= 1024 && request->keys.len == request->n_pages * 32);
        if (request->parent_key.len > 0 && fake_find_key(p, request->parent_key.data) < 0) {
                fake_reply_pages(p, WIRE_NO_PARENT, NULL, 0);
                return;
        }
        for (uint32_t i = 0; i < request->n_pages; i++) {
                const uint8_t *key = request->keys.data + i * 32;
                int64_t found = fake_find_key(p, key);

                /* Asked again: it is so, and pinned. */
                if (p->resumes && found == request->pages[i]) {
                        pages[i] = request->pages[i];
                        continue;
                }
                pages[i] = found < 0 ? request->pages[i] : (uint32_t)found;
                if (found < 0) {
                        FAKE_CHECK(p->leased[pages[i]]);
                        p->leased[pages[i]] = 0;
                        p->has_key[pages[i]] = 1;
                        memcpy(p->keys[pages[i]], key, 32);
                        p->published[pages[i]] = (struct fake_with){request->session, request->tag};
                } else {
                        status = WIRE_DUPLICATE;
                }
                p->pins[pages[i]]++;
        }
        fake_reply_pages(p, status, pages, (uint32_t)request->n_pages);
}

static void reply_found(struct fake_peer *p, uint32_t *pages, uint32_t n)
{
        Kvlease__V1__LookupReply m = KVLEASE__V1__LOOKUP_REPLY__INIT;
        uint32_t tokens[1536];

        for (uint32_t i = 0; i < n; i++)
                m.tokens += tokens[i] = p->tokens[pages[i]];
        m.status = n > 0 ? WIRE_OK : WIRE_MISS;
        m.n_pages = m.n_page_tokens = n;
        m.pages = pages;
        m.page_tokens = tokens;
        fake_reply(p, &m.base);
}

static void serve_lookup(struct fake_peer *p, const Kvlease__V1__LookupRequest *request)
{
        static uint32_t pages[1536];
        uint32_t n = 0;

        FAKE_CHECK(request->keys.len <= 1536 * 32 && request->keys.len % 32 == 0);
        for (; n < request->keys.len / 32; n++) {
                int64_t found = fake_find_key(p, request->keys.data + n * 32);

                if (found < 0)
                        break;
                pages[n] = (uint32_t)found;
                p->pins[found]++;
        }
        if (p->n_device_sets > 0)
                reply_found(p, pages, n);
        else
                fake_reply_pages(p, n > 0 ? WIRE_OK : WIRE_MISS, pages, n);
}

/* ---- below the device ----------------------------------------------------------------------- */

void fake_put(struct fake_peer *p, uint32_t page, const uint8_t *key, uint16_t tokens)
{
        p->has_key[page] = 1;
        p->tokens[page] = tokens;
        memcpy(p->keys[page], key, 32);
        if (p->has_index)
                fake_index_add(&p->index, page, key, tokens, 1);
}

bool fake_is_unused(const struct fake_peer *p, uint32_t page)
{
        return !p->leased[page] && !p->has_key[page] && p->pins[page] == 0 &&
               (!p->has_index || p->shared_pins.counters[page] == 0);
}

/* ---- shared memory -------------------------------------------------------------------------- */

static void serve_shm_open(struct fake_peer *p)
{
        Kvlease__V1__ShmOpenReply m = KVLEASE__V1__SHM_OPEN_REPLY__INIT;

        if (!p->shares) {
                fake_reply_simple(p, WIRE_UNSUPPORTED, "an old daemon");
                return;
        }
        FAKE_CHECK(!p->has_rings || p->resumes);
        if (!p->has_rings) {
                fake_rings_open(&p->rings, FAKE_CLIENT_ID);
                p->rings.header->daemon_sleeps = 1;
        }
        p->has_rings = true;
        m.bytes = p->rings.bytes;
        fake_send(p, MSG_SHM_OPEN, FRAME_REPLY, p->seq, &m.base, &p->rings.fd, 1);
}

static void serve_share(struct fake_peer *p)
{
        Kvlease__V1__NsShareReply m = KVLEASE__V1__NS_SHARE_REPLY__INIT;
        int fds[2];

        FAKE_CHECK(p->has_rings && (!p->has_index || p->resumes));
        if (!p->has_index) {
                fake_index_open(&p->index, p->capacity, 0);
                fake_pins_open(&p->shared_pins, p->capacity, FAKE_CLIENT_ID);
                p->shared_pins.header->level = 8;
                p->has_index = true;
                if (p->fill)
                        p->fill(p);
        }
        m.index_bytes = p->index.bytes;
        m.pins_bytes = p->shared_pins.bytes;
        m.version_epoch = p->index.header->version_epoch;
        fds[0] = p->index.fd;
        fds[1] = p->shared_pins.fd;
        fake_send(p, MSG_NS_SHARE, FRAME_REPLY, p->seq, &m.base, fds, 2);
}

void fake_share(struct fake_peer *p)
{
        p->shares = true;
        fake_receive(p, MSG_SHM_OPEN);
        serve_shm_open(p);
}

void fake_share_ns(struct fake_peer *p)
{
        fake_receive(p, MSG_NS_SHARE);
        serve_share(p);
}

void fake_complete(struct fake_peer *p, uint64_t user_data, uint32_t status, uint32_t page)
{
        Kvlease__V1__RingEvent m = KVLEASE__V1__RING_EVENT__INIT;

        if (fake_rings_complete(&p->rings, user_data, status, page))
                fake_send(p, MSG_RING, FRAME_EVENT, 0, &m.base, NULL, 0);
}

static void serve_publish_entry(struct fake_peer *p, const struct shm_submission *s)
{
        int64_t found = fake_find_key(p, s->key);

        FAKE_CHECK(s->flags == SHM_PUBLISH_ROOT || s->flags == SHM_PUBLISH_CHAIN);
        p->n_roots += s->flags == SHM_PUBLISH_ROOT;
        if (s->flags == SHM_PUBLISH_ROOT)
                p->chain = (struct fake_chain){.parent = 0};
        if (p->chain.is_broken || p->chain.parent < 0) {
                p->chain.is_broken = true;
                fake_complete(p, s->user_data, WIRE_NO_PARENT, s->page);
                return;
        }
        if (found >= 0) {
                atomic_fetch_add(&p->shared_pins.counters[found], 1);
                fake_complete(p, s->user_data, WIRE_DUPLICATE, (uint32_t)found);
                return;
        }
        if (!p->leased[s->page]) {
                p->chain.is_broken = true;
                fake_complete(p, s->user_data, WIRE_INVALID, s->page);
                return;
        }
        FAKE_CHECK(p->shared_pins.counters[s->page] > 0);
        p->leased[s->page] = 0;
        p->has_key[s->page] = 1;
        memcpy(p->keys[s->page], s->key, 32);
        p->published[s->page] = p->with;
        fake_index_add(&p->index, s->page, s->key, s->tokens, 1);
        fake_complete(p, s->user_data, WIRE_OK, s->page);
}

static void serve_free_entry(struct fake_peer *p, const struct shm_submission *s)
{
        uint32_t status = WIRE_OK;

        FAKE_CHECK(s->tokens >= 1 && s->tokens <= SHM_FREE_PAGES);
        for (unsigned i = 0; i < s->tokens; i++)
                if (!p->leased[s->pages[i]])
                        status = WIRE_INVALID;
        for (unsigned i = 0; i < s->tokens && status == WIRE_OK; i++)
                p->leased[s->pages[i]] = 0;
        fake_complete(p, s->user_data, status, s->page);
}

static void fill_magazine(struct fake_peer *p)
{
        struct shm_pins *h = p->shared_pins.header;

        for (uint32_t i = 0; i < n_leasable(p) && h->n_put - h->n_taken < h->level; i++) {
                if (p->leased[i] || p->has_key[i] || p->pins[i] > 0)
                        continue;
                p->leased[i] = 1;
                fake_pins_put(&p->shared_pins, i);
        }
        h->refill_asked = 0;
}

static void drain_magazine(struct fake_peer *p)
{
        for (uint32_t i = 0; i < SHM_MAGAZINE_SLOTS && p->has_index; i++) {
                uint32_t page = atomic_exchange(&p->shared_pins.magazine[i], 0);

                if (page == 0)
                        continue;
                p->leased[page - 1] = 0;
                p->shared_pins.header->n_put--;
        }
}

/* A WITH holds until a submission that isn't part of a publish. */
static void note_with(struct fake_peer *p, const struct shm_submission *s)
{
        if (s->op == SHM_OP_WITH)
                p->with = (struct fake_with){s->page, s->with.tag};
        else if (s->op != SHM_OP_PARENT && s->op != SHM_OP_PUBLISH)
                p->with = (struct fake_with){0};
}

static void serve_rings(struct fake_peer *p)
{
        struct shm_submission s;

        while (p->has_rings && !p->is_resuming && fake_rings_take(&p->rings, &s)) {
                FAKE_CHECK(s.ns_id == FAKE_NS_ID);
                note_with(p, &s);
                if (s.op == SHM_OP_PARENT)
                        p->chain = (struct fake_chain){.parent = fake_find_key(p, s.key)};
                else if (s.op == SHM_OP_PUBLISH)
                        serve_publish_entry(p, &s);
                else if (s.op == SHM_OP_FREE)
                        serve_free_entry(p, &s);
                else if (s.op == SHM_OP_FETCH || s.op == SHM_OP_FETCH_PLANES)
                        fake_serve_fetch_entry(p, &s);
                else if (s.op == SHM_OP_REFILL)
                        fill_magazine(p);
                else if (s.op == SHM_OP_TOUCH)
                        p->n_touches++;
                else
                        FAKE_CHECK(s.op == SHM_OP_WITH || s.op == SHM_OP_REQUEST_END ||
                                   s.op == SHM_OP_EXPECT);
        }
}

/* ---- */

/* RELEASE and FREE look the same. */
static void serve_put(struct fake_peer *p, const Kvlease__V1__ReleaseRequest *request)
{
        bool is_free = p->type == MSG_FREE;
        uint32_t status = WIRE_OK;

        FAKE_CHECK(request->n_pages <= 4096);
        for (uint32_t i = 0; i < request->n_pages; i++) {
                uint32_t page = request->pages[i];

                if (is_free ? !p->leased[page] : p->pins[page] == 0) {
                        status = WIRE_INVALID;
                        FAKE_CHECK(!(p->flags & FRAME_NO_REPLY));
                } else if (is_free) {
                        p->leased[page] = 0;
                } else {
                        p->pins[page]--;
                }
        }
        if (!(p->flags & FRAME_NO_REPLY))
                fake_reply_simple(p, status, status ? "it isn't yours" : "");
}

/* The memory has another owner: clients that map the set again get fresh extents. */
static void serve_unmapped(struct fake_peer *p, const Kvlease__V1__UnmappedRequest *request)
{
        FAKE_CHECK(request->ns_id == FAKE_NS_ID && request->set_index < FAKE_N_SETS);
        p->n_unmapped[request->set_index]++;
        for (uint32_t i = 0; i < p->n_planes; i++)
                p->extents[request->set_index][i] = fd_close(p->extents[request->set_index][i]);
        fake_reply_simple(p, WIRE_OK, "");
}

void fake_recall(struct fake_peer *p, uint32_t set_index, bool is_idle, uint32_t timeout_msec)
{
        Kvlease__V1__RecallEvent m = KVLEASE__V1__RECALL_EVENT__INIT;

        m.ns_id = FAKE_NS_ID;
        m.set_index = set_index;
        m.idle = is_idle;
        m.timeout_msec = timeout_msec;
        fake_send(p, MSG_RECALL, FRAME_EVENT, 0, &m.base, NULL, 0);
}

static void serve_invalidate(struct fake_peer *p)
{
        Kvlease__V1__CountReply m = KVLEASE__V1__COUNT_REPLY__INIT;

        m.count = 5;
        fake_reply(p, &m.base);
}

static void serve_session_open(struct fake_peer *p, const Kvlease__V1__SessionOpenRequest *request)
{
        Kvlease__V1__SessionOpenReply m = KVLEASE__V1__SESSION_OPEN_REPLY__INIT;

        FAKE_CHECK(p->is_resuming == (request->wanted != 0));
        FAKE_CHECK(!p->is_resuming || request->must_exist);
        p->n_reopened += p->is_resuming;
        m.session = p->is_resuming ? request->wanted : ++p->n_sessions;
        m.created = !p->is_resuming;
        fake_reply(p, &m.base);
}

bool fake_serve_one(struct fake_peer *p, const ProtobufCMessage *m)
{
        serve_rings(p);
        if (!m)
                return false;
        switch (p->type) {
        case MSG_SHM_OPEN:
                serve_shm_open(p);
                break;
        case MSG_NS_SHARE:
                serve_share(p);
                break;
        case MSG_HELLO:
                fake_serve_hello(p, (const Kvlease__V1__HelloRequest *)m);
                break;
        case MSG_RESUME_NS:
                fake_serve_resume_ns(p, (const Kvlease__V1__ResumeNsRequest *)m);
                break;
        case MSG_RESUMED:
                fake_serve_resumed(p);
                break;
        case MSG_NS_OPEN:
                serve_open(p, (const Kvlease__V1__NsOpenRequest *)m);
                break;
        case MSG_MAP:
                serve_map(p, (const Kvlease__V1__MapRequest *)m);
                break;
        case MSG_UNMAPPED:
                serve_unmapped(p, (const Kvlease__V1__UnmappedRequest *)m);
                break;
        case MSG_LEASE:
                serve_lease(p, (const Kvlease__V1__LeaseRequest *)m);
                break;
        case MSG_PUBLISH:
                serve_publish(p, (const Kvlease__V1__PublishRequest *)m);
                break;
        case MSG_LOOKUP:
                serve_lookup(p, (const Kvlease__V1__LookupRequest *)m);
                break;
        case MSG_FETCH:
                fake_serve_fetch(p, (const Kvlease__V1__FetchRequest *)m);
                break;
        case MSG_RELEASE:
        case MSG_FREE:
                serve_put(p, (const Kvlease__V1__ReleaseRequest *)m);
                break;
        case MSG_INVALIDATE:
                serve_invalidate(p);
                break;
        case MSG_SESSION_OPEN:
                serve_session_open(p, (const Kvlease__V1__SessionOpenRequest *)m);
                break;
        case MSG_REQUEST_END:
        case MSG_SESSION_HINT:
        case MSG_EXPECT:
        case MSG_NOTE_PREFILL:
        case MSG_DOORBELL:
                if (!(p->flags & FRAME_NO_REPLY))
                        fake_reply_simple(p, WIRE_OK, "");
                break;
        default:
                fake_reply_simple(p, WIRE_OK, "");
        }
        return p->type != MSG_BYE;
}

void fake_serve(struct fake_peer *p)
{
        do
                while (p->has_rings && !p->is_resuming && !fake_rings_sleep(&p->rings))
                        serve_rings(p);
        while (fake_serve_one(p, fake_receive_any(p)));
}

void fake_check_nothing_held(struct fake_peer *p)
{
        drain_magazine(p);
        for (uint32_t i = 0; i < p->capacity; i++)
                FAKE_CHECK(!p->leased[i] && p->pins[i] == 0 &&
                           (!p->has_index || p->shared_pins.counters[i] == 0));
}
