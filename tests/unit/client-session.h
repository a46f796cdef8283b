/* Fixture of the tests of the library's sessions: both sides of a connection that has one. */
#ifndef KVL_TESTS_CLIENT_SESSION_H
#define KVL_TESTS_CLIENT_SESSION_H

#include "tests/unit/client-scene.h"

#define SESSION 5 /* handle that the scripts give */

static inline struct kvl_session *open_session(struct client *c)
{
        struct kvl_session *session = NULL;

        assert_int_equal(kvl_session_open(c->ns, "s", 1, NULL, NULL, &session), 0);
        assert_non_null(session);
        return session;
}

/* With rings where the script shares memory. */
static inline void welcome_shared(struct fake_peer *p)
{
        fake_welcome(p);
        fake_share(p);
        fake_serve_one(p, fake_receive(p, MSG_NS_OPEN));
        fake_share_ns(p);
}

static inline void answer_open(struct fake_peer *p, uint32_t handle)
{
        Kvlease__V1__SessionOpenReply m = KVLEASE__V1__SESSION_OPEN_REPLY__INIT;

        m.session = handle;
        m.created = true;
        fake_reply(p, &m.base);
}

static inline void serve_session_open(struct fake_peer *p)
{
        receive(p, MSG_SESSION_OPEN);
        answer_open(p, SESSION);
}

static inline void expect_close(struct fake_peer *p, uint32_t handle, bool drop)
{
        const Kvlease__V1__SessionCloseRequest *m =
                (const Kvlease__V1__SessionCloseRequest *)receive(p, MSG_SESSION_CLOSE);

        FAKE_CHECK(m->ns_id == FAKE_NS_ID && m->session == handle && m->drop == drop);
}

static inline void answer_count(struct fake_peer *p, uint64_t count)
{
        Kvlease__V1__CountReply m = KVLEASE__V1__COUNT_REPLY__INIT;

        m.count = count;
        fake_reply(p, &m.base);
}

#endif
