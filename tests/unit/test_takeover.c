/* Clients of the previous daemon, which is a child, in the next one. */
#include "daemon/core/clients/attach.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/reclaim/reclaim.h"
#include "daemon/core/state/shared.h"
#include "tests/unit/at-once.h"
#include "tests/unit/resume-fixture.h"

#include <errno.h>
#include <sys/mman.h>

#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"

static struct shared_facts {
        struct identity alive, dead, muted;
        pid_t dead_pid;
} * facts;

static void live(struct fake_keep *keep, void *data)
{
        struct scene *s = calloc(1, sizeof(*s));
        Kvlease__V1__ShmOpenRequest open = KVLEASE__V1__SHM_OPEN_REQUEST__INIT;
        struct client *alive, *dead, *muted;

        s->keep = *keep;
        s->keep.keep.data = &s->keep;
        start_daemon(s, "[tenant a]\nmax_clients = 3\n");
        alive = connect_client(&s->w, getppid(), NULL);
        dead = connect_client(&s->w, facts->dead_pid, alive);
        muted = connect_client(&s->w, getppid(), NULL);
        open.layout_version = SHM_LAYOUT_VERSION;
        assert_int_equal(ask(&s->w, alive, MSG_SHM_OPEN, &open.base), 0);
        assert_int_equal(lease(s, muted, 1), 0);
        map_set(&s->w, muted, 0);
        peer_violation(peer_of(&s->w, muted), "test");
        facts->alive = identity_of(s, alive);
        facts->dead = identity_of(s, dead);
        facts->muted = identity_of(s, muted);
}

TEST(test_next_daemon)
{
        struct scene *s = calloc(1, sizeof(*s));
        struct client *c, *fresh;
        Kvlease__V1__HelloRequest hello_new = KVLEASE__V1__HELLO_REQUEST__INIT;
        struct member *m;

        facts->dead_pid = start_process();
        fake_keep_init(&s->keep);
        assert_int_equal(fake_keep_fork(&s->keep, NULL, 0, live, NULL), 0);
        kill_process(facts->dead_pid);
        start_daemon(s, "[tenant a]\nmax_clients = 3\n");
        assert_int_equal(s->w.server.peers.n_peers, 3);
        assert_int_equal(s->w.server.peers.n_adopted, 3);
        AWAIT(&s->w, s->w.server.peers.n_peers == 2);
        assert_int_equal(s->w.server.store.n_members, 2);
        list_for_each (p, &s->w.server.peers.list, struct peer, links.all)
                assert_string_equal(
                        peer_state_name(p), p->muted ? "waiting for exit" : "waiting to resume");
        refuse(s, "a", getpid(), facts->muted, WIRE_DENIED, "is ignored");
        refuse(s, "a", getpid(), facts->dead, WIRE_LOST, "no client");

        /* One client is new. Then there is room only for clients that resume. */
        hello_new.min_version = hello_new.max_version = PROTO_VERSION_MAX;
        fresh = connect_process(&s->w, "a", getpid());
        assert_int_equal(ask(&s->w, fresh, MSG_HELLO, &hello_new.base), 0);
        c = connect_process(&s->w, "a", getpid());
        assert_int_equal(ask(&s->w, c, MSG_HELLO, &hello_new.base), WIRE_TOO_MANY);
        c = resume(s, getpid(), &facts->alive, NULL, 0);
        assert_true(ring_is_open(&peer_of(&s->w, c)->ring));
        assert_int_equal(resumed(s, c), 0);
        AWAIT(&s->w, c->n_left == 1); /* the client that died while there was no daemon */
        assert_int_equal(s->w.server.peers.n_adopted, 1);
        assert_int_equal(s->w.server.peers.n_resumed, 1);
        assert_int_equal(s->w.server.life.recovery.n_clients, 3);

        /* Once more, of the same daemon: it isn't counted again. */
        m = peer_of(&s->w, c)->member;
        m->n_mapped_sets++; /* something to stay for */
        facts->alive = break_off(s, c);
        m->n_mapped_sets--;
        (void)resume(s, getpid(), &facts->alive, NULL, 0);
        assert_int_equal(s->w.server.peers.n_resumed, 1);
        end(s);
}

static void live_alone(struct fake_keep *keep, void *data)
{
        struct scene *s = calloc(1, sizeof(*s));
        Kvlease__V1__HelloRequest m = KVLEASE__V1__HELLO_REQUEST__INIT;

        s->keep = *keep;
        s->keep.keep.data = &s->keep;
        start_daemon(s, "[tenant a]\n");
        m.min_version = m.max_version = PROTO_VERSION_MAX;
        assert_int_equal(ask(&s->w, connect_process(&s->w, "a", getppid()), MSG_HELLO, &m.base), 0);
}

/* A client whose process can't be checked isn't dead: it may be reading. */
TEST(test_without_descriptors)
{
        struct scene *s = calloc(1, sizeof(*s));

        fake_keep_init(&s->keep);
        assert_int_equal(fake_keep_fork(&s->keep, NULL, 0, live_alone, NULL), 0);
        s->is_tight = true;
        start_daemon(s, "[tenant a]\n");
        for (unsigned i = 0; i < 10; i++)
                world_turn(&s->w);
        assert_int_equal(s->w.server.store.n_members, 1);
        assert_int_equal(s->w.server.peers.n_adopted, 1);
        end(s);
}

static bool ring_fails;

int __real_ring_adopt(struct ring *r, int fd, struct client_cursors *kept);
int __wrap_ring_adopt(struct ring *r, int fd, struct client_cursors *kept);

int __wrap_ring_adopt(struct ring *r, int fd, struct client_cursors *kept)
{
        return ring_fails ? -ENOMEM : __real_ring_adopt(r, fd, kept);
}

/* Whom no peer ends: of a start that failed. */
static void end_unadopted(struct tenant *t)
{
        struct member *m;

        do {
                m = NULL;
                list_for_each (g, &t->groups, struct group, link)
                        list_for_each (any, &g->members, struct member, link)
                                if (!any->server_data)
                                        m = any;
                if (m)
                        member_free(m); /* and its group, where it is the last one */
        } while (m);
}

/* A client whose ring can't be had isn't gone on with as if it had none: it is tried again. */
TEST(test_without_its_ring)
{
        struct scene *s = calloc(1, sizeof(*s));
        struct detail d = {""};

        facts->dead_pid = start_process();
        fake_keep_init(&s->keep);
        assert_int_equal(fake_keep_fork(&s->keep, NULL, 0, live, NULL), 0);
        world_init(&s->w, "fake");
        world_serve(&s->w, "[tenant a]\n", N_SETS);
        s->w.server.store.keep = s->keep.keep;
        assert_int_equal(takeover_begin(&s->w.server, &d), 0);
        ring_fails = true;
        assert_int_equal(takeover_end(&s->w.server, &d), -ENOMEM);
        ring_fails = false;
        assert_non_null(strstr(d.text, "cannot go on with the clients"));
        assert_int_equal(fake_keep_count(&s->keep, KEEP_RING), 1);
        end_unadopted(tenant_find(&s->w.server.store, "a"));
        kill_process(facts->dead_pid);
        end(s);
}

/* The client was told of a segment that isn't stored: its submissions there are unknown. */
TEST(test_lost_client)
{
        struct scene *s = calloc(1, sizeof(*s));

        facts->dead_pid = start_process();
        fake_keep_init(&s->keep);
        assert_int_equal(fake_keep_fork(&s->keep, NULL, 0, live, NULL), 0);
        for (uint32_t row = 0; row < 3; row++)
                keep_drop(&s->keep.keep, KEEP_RING, row);
        fake_keep_set_unsure(&s->keep);
        start_daemon(s, "[tenant a]\n");
        assert_int_equal(s->w.server.store.state->is_unsure, 0);
        refuse(s, "a", getpid(), facts->alive, WIRE_LOST, "before it was kept");
        assert_int_equal(s->w.server.peers.n_adopted, 3); /* until it exits */
        kill_process(facts->dead_pid);
        end(s);
}

/* A page that can't be found any more. One client, whose process isn't stored, pins it over the
 * socket, and another one in its segment. */
static void live_with_readers(struct fake_keep *keep, void *data)
{
        struct scene *s = calloc(1, sizeof(*s));
        struct client *alive, *dead;
        uint64_t n_pages;
        uint32_t page;
        struct ns *ns;

        s->keep = *keep;
        s->keep.keep.data = &s->keep;
        s->is_on_host = true;
        start_daemon(s, "[tenant a]\n");
        alive = connect_client(&s->w, getppid(), NULL);
        assert_int_equal(attach_share(attach_of(s, alive), NULL), 0);
        dead = connect_client(&s->w, facts->dead_pid, NULL);
        assert_int_equal(lease(s, dead, 1), 0);
        page = attach_of(s, dead)->grants->head;
        assert_int_equal(publish(s, dead, page, 1), 0);
        pins_add(&attach_of(s, alive)->share, page);
        ns = attach_of(s, alive)->ns;
        assert_int_equal(ns_invalidate(ns, CAUSE_NAMESPACE, &n_pages), 0);
        while (ns_sweep(ns, 1000))
                ;
        assert_int_equal(ns_page(ns, page)->state, PAGE_DETACHED);
        keep_drop(&s->w.server.store.keep, KEEP_PROCESS, peer_of(&s->w, dead)->member->record - 1);
}

TEST(test_exited_reader)
{
        struct scene *s = calloc(1, sizeof(*s));
        const struct ns *ns;

        facts->dead_pid = start_process();
        fake_keep_init(&s->keep);
        assert_int_equal(fake_keep_fork(&s->keep, NULL, 0, live_with_readers, NULL), 0);
        kill_process(facts->dead_pid);
        s->is_on_host = true;
        start_daemon(s, "[tenant a]\n");
        assert_int_equal(s->w.server.store.n_members, 1);
        ns = ns_find(tenant_find(&s->w.server.store, "a"), "n");
        assert_int_equal(ns->device.n_pages[PAGE_DETACHED], 1);
        assert_int_equal(ns->catalog.watched.n, 1);
        world_check(&s->w);
        end(s);
}

/* Why it can't start is what is said, not what it has lost. */
TEST(test_no_room_for_the_root)
{
        struct scene *s = calloc(1, sizeof(*s));
        struct detail d = {""};
        int fd;

        fake_keep_init(&s->keep);
        assert_int_equal(fake_keep_fork(&s->keep, NULL, 0, live_alone, NULL), 0);
        fd = fake_keep_find(&s->keep, KEEP_STATE, 0);
        assert_int_equal(pwrite(fd, &(uint64_t){0}, sizeof(uint64_t), 0), sizeof(uint64_t));
        s->keep.room = 0;
        world_init(&s->w, "fake");
        world_serve(&s->w, "[tenant a]\n", N_SETS);
        s->w.server.store.keep = s->keep.keep;
        assert_int_equal(takeover_begin(&s->w.server, &d), -EMFILE);
        assert_non_null(strstr(d.text, "no room"));
        end(s);
}

int main(void)
{
        facts = mmap(
                NULL, sizeof(*facts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return test_run_all(world_warm_up, NULL);
}
