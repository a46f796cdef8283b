/* Namespaces that hold nothing go (daemon/core/life/idle.h). */
#include "daemon/core/core.h"
#include "daemon/core/life/idle.h"

#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/sessions/session.h"
#include "tests/unit/core-fixture.h"

#define SEC       NSEC_PER_SEC
#define START_SEC 1000

/* Does the daemon's work. */
static void pass(struct fixture *f, uint64_t now_nsec)
{
        (void)idle_look(&f->store, now_nsec);
        while (store_work(&f->store, 1000))
                ;
        fixture_check(f);
}

static void leave(struct attach *a)
{
        attach_close(a);
}

CORE_SCENE(test_goes_after_a_while, 8, 8, 8)
{
        struct member *m;

        m = join(f->a);
        leave(open_ns(m, "n"));
        assert_int_equal(f->a->n_namespaces, 1);
        assert_int_equal(idle_look(&f->store, START_SEC * SEC), START_SEC * SEC + NS_IDLE_NSEC);
        pass(f, START_SEC * SEC + NS_IDLE_NSEC - 1);
        assert_non_null(ns_find(f->a, "n"));
        pass(f, START_SEC * SEC + NS_IDLE_NSEC);
        assert_null(ns_find(f->a, "n"));
        assert_int_equal(f->a->n_namespaces, 0);
        assert_int_equal(idle_look(&f->store, START_SEC * SEC + NS_IDLE_NSEC), UINT64_MAX);
}

/* A namespace that is opened again has no idle time while it is open, and a new one afterwards. */
CORE_SCENE(test_opened_again, 8, 8, 8)
{
        struct member *m;
        struct attach *a;

        m = join(f->a);
        leave(open_ns(m, "n"));
        pass(f, START_SEC * SEC);
        a = open_ns(m, "n");
        pass(f, START_SEC * SEC + NS_IDLE_NSEC);
        leave(a);
        pass(f, START_SEC * SEC + NS_IDLE_NSEC + SEC);
        assert_non_null(ns_find(f->a, "n"));
        leave(open_ns(m, "n")); /* between two looks */
        pass(f, START_SEC * SEC + 2 * NS_IDLE_NSEC + SEC);
        assert_non_null(ns_find(f->a, "n"));
        pass(f, START_SEC * SEC + 3 * NS_IDLE_NSEC + SEC);
        assert_null(ns_find(f->a, "n"));
}

/* A page that is cached, a session: it stays. */
CORE_SCENE(test_what_stays, 8, 8, 8)
{
        struct attach *pages = enter(f->a, "pages");
        struct attach *sessions;
        uint32_t handle;
        bool created;
        uint64_t n;

        sessions = open_ns(pages->member, "sessions");
        cache_chain(pages, 0, 4);
        assert_int_equal(session_open(sessions, (const uint8_t *)"s", 1, false, 0, SEC, &handle,
                                 &created, NULL),
                0);
        leave(pages);
        leave(sessions);
        pass(f, START_SEC * SEC);
        assert_int_equal(idle_drop(f->a, 10), 0);
        pass(f, START_SEC * SEC + 2 * NS_IDLE_NSEC);
        assert_int_equal(f->a->n_namespaces, 2);
        /* And goes when these have gone. */
        assert_int_equal(ns_invalidate(ns_find(f->a, "pages"), CAUSE_NAMESPACE, &n), 0);
        assert_int_equal(ns_invalidate(ns_find(f->a, "sessions"), CAUSE_NAMESPACE, &n), 0);
        pass(f, START_SEC * SEC + 2 * NS_IDLE_NSEC);
        pass(f, START_SEC * SEC + 3 * NS_IDLE_NSEC);
        pass(f, START_SEC * SEC + 4 * NS_IDLE_NSEC);
        assert_int_equal(f->a->n_namespaces, 0);
}

/* All of them, some in each call. */
CORE_SCENE(test_many, 8, 8, 8)
{
        struct member *m;
        char name[16];
        unsigned n_calls = 1;

        m = join(f->a);
        for (unsigned i = 0; i < 100; i++) {
                snprintf(name, sizeof(name), "n%u", i);
                leave(open_ns(m, name));
        }
        (void)idle_look(&f->store, START_SEC * SEC);
        store_set_now(&f->store, START_SEC * SEC + NS_IDLE_NSEC);
        while (idle_work(&f->store))
                n_calls++;
        assert_in_range(n_calls, 2, 100);
        assert_int_equal(f->a->n_namespaces, 0);
}

/* At the limit of a tenant's namespaces an idle one makes place, of its own and no other's. */
CORE_SCENE(test_makes_place, 8, 8, 8)
{
        struct ns_layout l = test_layout();
        struct member *m, *other;
        struct attach *a;
        char name[16];

        m = join(f->a);
        other = join(f->b);
        leave(open_ns(other, "n"));
        for (unsigned i = 0; i < NS_MAX_PER_TENANT; i++) {
                snprintf(name, sizeof(name), "n%u", i);
                a = open_ns(m, name);
        }
        assert_int_equal(attach_open(m, "more", &l, "", false, &a, &f->d), -EMFILE);
        assert_non_null(strstr(f->d.text, "has 1024 namespaces, the most"));
        leave(attach_find(m, 7));
        open_ns(m, "more");
        assert_int_equal(f->a->n_namespaces, NS_MAX_PER_TENANT);
        assert_int_equal(f->b->n_namespaces, 1);
}
