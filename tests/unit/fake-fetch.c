/* FETCH in the scripted daemon. No bytes move, only keys. */
#include "tests/unit/fake-daemon.h"

#include "proto/status.h"

static uint32_t n_device(const struct fake_peer *p)
{
        return p->n_device_sets * p->set_pages;
}

/* To the first unused page from `first` on, of the n there. */
static uint32_t move(
        struct fake_peer *p, uint32_t page, uint32_t first, uint32_t n, uint32_t *ret_page)
{
        int64_t found = fake_find_key(p, p->keys[page]);
        uint32_t to = first;

        FAKE_CHECK(found >= 0);
        *ret_page = (uint32_t)found;
        if (found >= first && found < first + n)
                return WIRE_OK;
        if (p->fetch_room == 0)
                return WIRE_FULL;
        p->fetch_room -= p->fetch_room != UINT32_MAX;
        while (!fake_is_unused(p, to))
                to++;
        FAKE_CHECK(to < first + n);
        p->has_key[page] = 0;
        if (p->has_index)
                fake_index_detach(&p->index, page);
        fake_put(p, to, p->keys[page], p->tokens[page]);
        *ret_page = to;
        return WIRE_OK;
}

uint32_t fake_bring_up(struct fake_peer *p, uint32_t page, uint32_t *ret_page)
{
        return move(p, page, 0, n_device(p), ret_page);
}

uint32_t fake_send_down(struct fake_peer *p, uint32_t page, uint32_t *ret_page)
{
        return move(p, page, n_device(p), p->capacity - n_device(p), ret_page);
}

static void check_target(const struct fake_peer *p, uint32_t to)
{
        FAKE_CHECK(to < n_device(p) && p->leased[to]);
}

void fake_serve_fetch_entry(struct fake_peer *p, const struct shm_submission *s)
{
        bool has_planes = s->op == SHM_OP_FETCH_PLANES;
        bool copies = has_planes || s->flags == SHM_FETCH_COPY;
        uint32_t page = s->page, status = WIRE_OK;

        FAKE_CHECK(s->flags <= SHM_FETCH_DOWN && page < p->capacity);
        FAKE_CHECK(copies || (page < n_device(p)) == (s->flags != 0));
        if (has_planes)
                FAKE_CHECK(s->flags == 0 && s->copy.n_planes > 0 &&
                           s->copy.first_plane + s->copy.n_planes <= p->n_planes);
        FAKE_CHECK(p->has_broken || p->shared_pins.counters[page] > 0);
        FAKE_CHECK(s->aux == (uint32_t)(p->index.lines[page].state >> 8));
        if (copies)
                check_target(p, s->copy.to);
        p->n_fetches++;
        if (p->on_fetch) {
                p->on_fetch(p, s);
                return;
        }
        if (copies)
                page = s->copy.to;
        else if (s->flags == SHM_FETCH_DOWN)
                status = fake_send_down(p, s->page, &page);
        else
                status = fake_bring_up(p, s->page, &page);
        fake_complete(p, s->user_data, status, page);
}

void fake_serve_fetch(struct fake_peer *p, const Kvlease__V1__FetchRequest *request)
{
        Kvlease__V1__FetchReply m = KVLEASE__V1__FETCH_REPLY__INIT;
        bool copies = request->n_targets > 0;
        uint32_t pages[256], statuses[256];

        FAKE_CHECK(request->n_pages >= 1 && request->n_pages <= 256);
        FAKE_CHECK(!copies || (request->n_targets == request->n_pages && !request->down));
        FAKE_CHECK(request->first_plane + request->n_planes <= (copies ? p->n_planes : 0));
        for (uint32_t i = 0; i < request->n_pages; i++) {
                FAKE_CHECK(p->pins[request->pages[i]] > 0);
                statuses[i] = WIRE_OK;
                if (copies) {
                        pages[i] = request->targets[i];
                        check_target(p, pages[i]);
                } else {
                        statuses[i] = (request->down ? fake_send_down : fake_bring_up)(
                                p, request->pages[i], &pages[i]);
                        p->pins[pages[i]] += statuses[i] == WIRE_OK;
                }
                p->n_fetches++;
        }
        m.n_pages = m.n_statuses = request->n_pages;
        m.pages = pages;
        m.statuses = statuses;
        fake_reply(p, &m.base);
}
