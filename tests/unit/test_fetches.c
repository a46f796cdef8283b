/*
 * The server in process: FETCH over the socket, from the request to the reply. What brings pages up
 * is daemon/core's: it is replaced here (by the linker), and done when the test says so. FETCHes of
 * rings: test_daemon_ring.c.
 */
#include "tests/unit/server-fixture.h"

#include <string.h>

#include "daemon/core/clients/member.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/peers/fetches.h"
#include "proto/status.h"

#define N_PAGES 3

/* Arguments of fetch_begin(), and its answer. */
static struct {
        int answer; /* 0: it is under way */
        unsigned n_begun, n_canceled;
        struct attach *attach;
        struct fetch_request asked[N_PAGES];
        fetch_fn done[N_PAGES]; /* NULL: it was done, or called off */
        void *data[N_PAGES];
} core;

int __wrap_fetch_begin(struct attach *a, const struct fetch_request *rq, fetch_fn done, void *data,
        struct fetch **ret_fetch, uint32_t *ret_page, struct detail *d);
void __wrap_fetch_cancel(struct fetch *f);

int __wrap_fetch_begin(struct attach *a, const struct fetch_request *rq, fetch_fn done, void *data,
        struct fetch **ret_fetch, uint32_t *ret_page, struct detail *d)
{
        unsigned i = core.n_begun;

        assert_true(i < N_PAGES);
        if (core.answer == FETCH_THERE)
                *ret_page = rq->page;
        if (core.answer != 0)
                return core.answer;
        core.attach = a;
        core.asked[i] = *rq;
        core.done[i] = done;
        core.data[i] = data;
        core.n_begun++;
        *ret_fetch = (struct fetch *)(uintptr_t)(i + 1);
        return 0;
}

void __wrap_fetch_cancel(struct fetch *f)
{
        unsigned i = (unsigned)(uintptr_t)f - 1;

        assert_non_null(core.done[i]);
        core.done[i] = NULL;
        core.n_canceled++;
}

static void finish(unsigned i, int status, uint32_t page)
{
        fetch_fn done = core.done[i];

        assert_non_null(done);
        core.done[i] = NULL;
        done((struct fetch *)(uintptr_t)(i + 1), status, page, core.data[i]);
}

/* ---- what clients say ------------------------------------------------------------------------ */

struct scene {
        struct world w;
        struct client *c;
        struct attach *attach;
        uint32_t pages[N_PAGES]; /* published, and pinned once */
};

static void say_publish(struct client *c, const uint32_t *pages)
{
        Kvlease__V1__PublishRequest m = KVLEASE__V1__PUBLISH_REQUEST__INIT;
        uint8_t keys[N_PAGES * KEY_BYTES] = {0};

        for (unsigned i = 0; i < N_PAGES; i++)
                keys[i * KEY_BYTES] = (uint8_t)(i + 1);
        m.ns_id = NS_ID;
        m.pages = (uint32_t *)pages;
        m.n_pages = N_PAGES;
        m.keys.data = keys;
        m.keys.len = sizeof(keys);
        m.last_tokens = 16;
        say(c, MSG_PUBLISH, &m.base);
}

static void lease(struct scene *s, uint32_t n, uint32_t *ret_pages)
{
        const Kvlease__V1__LeaseReply *m;

        say_lease(s->c, n);
        expect(&s->w, s->c, "LEASE:0 ");
        m = (const Kvlease__V1__LeaseReply *)s->c->reply;
        assert_int_equal(m->n_pages, n);
        memcpy(ret_pages, m->pages, n * sizeof(*ret_pages));
}

static void start(struct scene *s)
{
        memset(&core, 0, sizeof(core));
        world_init(&s->w, "fake");
        world_serve(&s->w, "[tenant a]\nlimit=1MiB\n", 4);
        s->c = connect_client(&s->w, getpid(), NULL);
        s->attach =
                list_first(&peer_of(&s->w, s->c)->member->attachments, struct attach, member_link);
        lease(s, N_PAGES, s->pages);
        say_publish(s->c, s->pages);
        expect(&s->w, s->c, "PUBLISH:0 ");
        assert_int_equal(s->attach->member->n_pins, N_PAGES);
}

static void say_fetch(
        struct scene *s, const uint32_t *pages, size_t n, uint32_t *targets, size_t n_targets)
{
        Kvlease__V1__FetchRequest m = KVLEASE__V1__FETCH_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.pages = (uint32_t *)pages;
        m.n_pages = n;
        m.targets = targets;
        m.n_targets = n_targets;
        say(s->c, MSG_FETCH, &m.base);
}

static void say_ns_close(struct client *c)
{
        Kvlease__V1__NsCloseRequest m = KVLEASE__V1__NS_CLOSE_REQUEST__INIT;

        m.ns_id = NS_ID;
        say(c, MSG_NS_CLOSE, &m.base);
}

static void assert_outcome(struct scene *s, unsigned i, uint32_t status, uint32_t page)
{
        const Kvlease__V1__FetchReply *m = (const Kvlease__V1__FetchReply *)s->c->reply;

        assert_int_equal(m->n_pages, m->n_statuses);
        assert_true(i < m->n_pages);
        assert_int_equal(m->statuses[i], status);
        assert_int_equal(m->pages[i], page);
}

/* ---- */

static const struct {
        int answer;
        uint32_t status;
        bool is_pinned; /* once more */
} answers[] = {
        {FETCH_THERE, WIRE_OK, true},
        {-ENOENT, WIRE_NOT_FOUND, false},
        {-EINVAL, WIRE_INVALID, false},
        {-EAGAIN, WIRE_BUSY, false},
        {-ENOMEM, WIRE_NO_MEMORY, false},
        {KVL_STATUS_FULL, WIRE_FULL, false},
};

TEST(test_at_once)
{
        struct scene s;

        for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
                start(&s);
                core.answer = answers[i].answer;
                say_fetch(&s, s.pages, 1, NULL, 0);
                expect(&s.w, s.c, "FETCH:0 ");
                assert_outcome(
                        &s, 0, answers[i].status, answers[i].is_pinned ? s.pages[0] : PAGE_NONE);
                assert_int_equal(s.attach->member->n_pins, N_PAGES + answers[i].is_pinned);
                world_end(&s.w);
        }
}

/* A pin too many: of all pages before anything is begun, of one page as that page's outcome. */
TEST(test_too_many_pins)
{
        struct scene s;

        start(&s);
        s.attach->ns->tenant->attrs.max_pins = N_PAGES + 1;
        say_fetch(&s, s.pages, 2, NULL, 0);
        expect(&s.w, s.c, "FETCH:3 ");
        assert_int_equal(core.n_begun, 0);
        say_fetch(&s, s.pages, 1, NULL, 0);
        AWAIT(&s.w, core.n_begun == 1);
        s.attach->ns->tenant->attrs.max_pins = N_PAGES; /* lowered meanwhile */
        finish(0, 0, s.pages[1]);
        expect(&s.w, s.c, "FETCH:0 ");
        assert_outcome(&s, 0, WIRE_QUOTA, PAGE_NONE);
        assert_int_equal(s.attach->member->n_pins, N_PAGES);
        world_end(&s.w);
}

/* The attack: pins of one page up to their limit, then one more by FETCH. */
TEST(test_too_many_pins_of_a_page)
{
        struct scene s;

        start(&s);
        core.answer = FETCH_THERE;
        assert_int_equal(pin_reserve(s.attach, PAGE_MAX_CLIENT_PINS, NULL), 0);
        while (ns_page(s.attach->ns, s.pages[0])->n_pins < PAGE_MAX_CLIENT_PINS)
                pin_add(s.attach, s.pages[0]);
        say_fetch(&s, s.pages, 2, NULL, 0);
        expect(&s.w, s.c, "FETCH:0 ");
        assert_outcome(&s, 0, WIRE_QUOTA, PAGE_NONE);
        assert_outcome(&s, 1, WIRE_OK, s.pages[1]);
        assert_int_equal(ns_page(s.attach->ns, s.pages[0])->n_pins, PAGE_MAX_CLIENT_PINS);
        world_end(&s.w);
}

/* Copies: into what is granted, and without a pin. */
TEST(test_copy)
{
        uint32_t targets[2];
        struct scene s;

        start(&s);
        lease(&s, 1, targets);
        targets[1] = s.pages[2]; /* published: no client may write it */
        say_fetch(&s, s.pages, 2, targets, 2);
        AWAIT(&s.w, core.n_begun == 1);
        assert_int_equal(core.asked[0].to, targets[0]);
        finish(0, 0, targets[0]);
        expect(&s.w, s.c, "FETCH:0 ");
        assert_outcome(&s, 0, WIRE_OK, targets[0]);
        assert_outcome(&s, 1, WIRE_INVALID, PAGE_NONE);
        assert_int_equal(s.attach->member->n_pins, N_PAGES);
        targets[0] = PAGE_NONE;
        say_fetch(&s, s.pages, 1, targets, 1);
        expect(&s.w, s.c, "FETCH:0 ");
        assert_outcome(&s, 0, WIRE_INVALID, PAGE_NONE);
        say_fetch(&s, s.pages, 2, targets, 1);
        expect(&s.w, s.c, "FETCH:32 ");
        world_end(&s.w);
}

static void say_fetch_planes(struct scene *s, const uint32_t *targets, size_t n_targets,
        uint32_t first_plane, uint32_t n_planes)
{
        Kvlease__V1__FetchRequest m = KVLEASE__V1__FETCH_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.pages = s->pages;
        m.n_pages = 1;
        m.targets = (uint32_t *)(uintptr_t)targets;
        m.n_targets = n_targets;
        m.first_plane = first_plane;
        m.n_planes = n_planes;
        say(s->c, MSG_FETCH, &m.base);
}

/* Planes of copies, and of nothing else; whether there are such is daemon/core's to say. */
TEST(test_copy_planes)
{
        uint32_t target;
        struct scene s;

        start(&s);
        lease(&s, 1, &target);
        say_fetch_planes(&s, &target, 1, 2, 5);
        AWAIT(&s.w, core.n_begun == 1);
        assert_int_equal(core.asked[0].to, target);
        assert_int_equal(core.asked[0].planes.first, 2);
        assert_int_equal(core.asked[0].planes.n, 5);
        finish(0, 0, target);
        expect(&s.w, s.c, "FETCH:0 ");
        assert_outcome(&s, 0, WIRE_OK, target);
        say_fetch_planes(&s, NULL, 0, 0, 1);
        expect(&s.w, s.c, "FETCH:32 ");
        say_fetch_planes(&s, NULL, 0, 1, 0);
        expect(&s.w, s.c, "FETCH:32 ");
        say_fetch_planes(&s, &target, 1, 1, 0);
        expect(&s.w, s.c, "FETCH:32 ");
        assert_int_equal(core.n_begun, 1);
        world_end(&s.w);
}

/* Refuses pages that another client has pinned, and pages that don't exist. */
TEST(test_refused)
{
        uint32_t many[FETCHES_MAX_PAGES + 1] = {0};
        uint32_t wrong[] = {0, UINT32_MAX, 4 * SET_PAGES};
        struct scene s;

        start(&s);
        wrong[0] = s.pages[2] + 1;
        say_fetch(&s, wrong, 3, NULL, 0);
        expect(&s.w, s.c, "FETCH:0 ");
        for (unsigned i = 0; i < 3; i++)
                assert_outcome(&s, i, WIRE_INVALID, PAGE_NONE);
        assert_int_equal(core.n_begun, 0);
        say_fetch(&s, many, 0, NULL, 0);
        expect(&s.w, s.c, "FETCH:32 ");
        say_fetch(&s, many, FETCHES_MAX_PAGES + 1, NULL, 0);
        expect(&s.w, s.c, "FETCH:39 ");
        world_end(&s.w);
}

/* A reader brings pages up, and sends none down. */
TEST(test_reader)
{
        Kvlease__V1__FetchRequest m = KVLEASE__V1__FETCH_REQUEST__INIT;
        struct scene s;

        start(&s);
        member_set_read_only(s.attach->member, true);
        m.ns_id = NS_ID;
        m.pages = s.pages;
        m.n_pages = 1;
        m.down = true;
        say(s.c, MSG_FETCH, &m.base);
        expect(&s.w, s.c, "FETCH:0 ");
        assert_outcome(&s, 0, WIRE_DENIED, PAGE_NONE);
        assert_int_equal(core.n_begun, 0);
        say_fetch(&s, s.pages, 1, NULL, 0);
        AWAIT(&s.w, core.n_begun == 1);
        finish(0, 0, s.pages[0]);
        expect(&s.w, s.c, "FETCH:0 ");
        assert_outcome(&s, 0, WIRE_OK, s.pages[0]);
        world_end(&s.w);
}

TEST(test_closed)
{
        struct scene s;

        start(&s);
        say_fetch(&s, s.pages, 2, NULL, 0);
        AWAIT(&s.w, core.n_begun == 2);
        finish(1, 0, s.pages[1]);
        say_ns_close(s.c);
        expect(&s.w, s.c, "FETCH:34 NS_CLOSE:0 ");
        assert_int_equal(core.n_canceled, 1);
        world_check(&s.w);
        world_end(&s.w);
}

TEST(test_gone)
{
        struct scene s;

        start(&s);
        say_fetch(&s, s.pages, 2, NULL, 0);
        AWAIT(&s.w, core.n_begun == 2);
        hang_up(s.c);
        AWAIT(&s.w, core.n_canceled == 2);
        world_check(&s.w);
        world_end(&s.w);
}

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
