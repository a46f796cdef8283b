/* Clients that go on on another connection, of the daemon they had. */
#include "daemon/core/reclaim/recall.h"
#include "daemon/server/peers/resume.h"
#include "tests/unit/resume-fixture.h"

/* ---- it goes on ----------------------------------------------------------------------------- */

TEST(test_goes_on)
{
        struct scene *s = start("[tenant a]\n");
        struct client *c = connect_worker(s, getpid()), *again;
        uint32_t session, sets[] = {0};
        struct identity i;
        uint64_t pending;

        session = open_session(s, c, 0);
        assert_true(session > 0);
        assert_int_equal(open_session(s, c, 0), session + 1);
        assert_int_equal(lease(s, c, 5), 0);
        pending = c->seq;
        assert_int_equal(attach_of(s, c)->grants->n_pages, 7);
        i = break_off(s, c);

        again = resume(s, getpid(), &i, &pending, 1);
        assert_null(peer_of(&s->w, c));
        assert_int_equal(s->w.server.peers.n_peers, 1);
        assert_int_equal(attach_of(s, again)->grants->n_pages, 2);
        assert_int_equal(s->w.server.store.n_members, 1);
        assert_int_equal(lease(s, again, 1), WIRE_INVALID);
        assert_int_equal(open_session(s, again, session + 1), session + 1);
        assert_int_equal(open_session(s, again, session + 1), 0); /* open already */
        assert_int_equal(open_session(s, again, session), session);
        assert_int_equal(resume_ns(s, again, sets, 1), 0);
        assert_int_equal(resumed(s, again), 0);
        assert_int_equal(resumed(s, again), WIRE_INVALID);
        assert_int_equal(open_session(s, again, 77), 0);
        assert_int_equal(open_session(s, again, 0), session + 2);
        assert_int_equal(lease(s, again, 1), 0);
        assert_string_equal(peer_state_name(peer_of(&s->w, again)), "active");
        assert_int_equal(attach_of(s, again)->mapped.n_used, 1);

        /* And once more, with the other token, and without the set. */
        i = break_off(s, again);
        c = resume(s, getpid(), &i, NULL, 0);
        assert_int_equal(resumed(s, c), 0);
        assert_int_equal(attach_of(s, c)->mapped.n_used, 0);
        end(s);
}

/* A namespace that it was never told is open is closed; sets that aren't there are told. */
TEST(test_undone)
{
        struct scene *s = start("[tenant a]\n");
        struct client *c = connect_worker(s, getpid());
        uint64_t pending[] = {2}; /* its NS_OPEN */
        uint32_t sets[] = {5};
        struct identity i = break_off(s, c);

        c = resume(s, getpid(), &i, NULL, 0);
        assert_int_equal(resume_ns(s, c, sets, 1), WIRE_LOST);
        assert_non_null(strstr(c->detail, "set 5 of namespace n"));
        i = break_off(s, c);
        c = resume(s, getpid(), &i, pending, 1);
        assert_null(attach_of(s, c));
        assert_int_equal(resume_ns(s, c, NULL, 0), WIRE_LOST);
        end(s);
}

/* A repeated request isn't executed again. */
TEST(test_once)
{
        struct scene *s = start("[tenant a]\n");
        struct client *c = connect_worker(s, getpid()), *mate;
        uint32_t sets[] = {0}, sealed, given;
        uint64_t pending[3];
        struct identity i;

        sealed = attach_of(s, c)->grants->head;
        assert_int_equal(publish(s, c, sealed, 1), 0);
        pending[0] = c->seq;
        assert_int_equal(lookup(s, c, 1), 0);
        assert_int_equal(lookup(s, c, 1), 0);
        assert_int_equal(page_request(s, c, MSG_RELEASE, sealed), 0);
        pending[1] = c->seq;
        mate = connect_client(&s->w, getpid(), c);
        given = attach_of(s, c)->grants->head;
        assert_int_equal(page_request(s, c, MSG_FREE, given), 0);
        pending[2] = c->seq;
        assert_int_equal(lease(s, mate, 1), 0);
        assert_int_equal(attach_of(s, mate)->grants->head, given);
        i = break_off(s, c);

        c = resume(s, getpid(), &i, pending, 3);
        assert_int_equal(resume_ns(s, c, sets, 1), 0);
        assert_int_equal(resumed(s, c), 0);
        c->seq = pending[0] - 1;
        assert_int_equal(publish(s, c, sealed, 1), 0);
        assert_int_equal(peer_of(&s->w, c)->member->n_pins, 2);
        c->seq = pending[1] - 1;
        assert_int_equal(page_request(s, c, MSG_RELEASE, sealed), 0);
        assert_int_equal(peer_of(&s->w, c)->member->n_pins, 2);
        c->seq = pending[2] - 1;
        assert_int_equal(page_request(s, c, MSG_FREE, given), 0);
        assert_int_equal(attach_of(s, mate)->grants->n_pages, 1); /* the mate's, still */
        /* From here on it means it. */
        assert_int_equal(publish(s, c, sealed, 1), WIRE_INVALID);
        assert_int_equal(page_request(s, c, MSG_RELEASE, sealed), 0);
        assert_int_equal(peer_of(&s->w, c)->member->n_pins, 1);
        end(s);
}

/* Descriptors whose reply was lost are sent again. */
TEST(test_segments_again)
{
        struct scene *s = start("[tenant a]\n");
        struct client *c = connect_client(&s->w, getpid(), NULL);
        Kvlease__V1__ShmOpenRequest open = KVLEASE__V1__SHM_OPEN_REQUEST__INIT;
        Kvlease__V1__NsShareRequest share = KVLEASE__V1__NS_SHARE_REQUEST__INIT;
        const struct shm_client *shm;

        open.layout_version = SHM_LAYOUT_VERSION;
        share.ns_id = NS_ID;
        assert_int_equal(ask(&s->w, c, MSG_SHM_OPEN, &open.base), 0);
        shm = peer_of(&s->w, c)->ring.shm;
        assert_int_equal(ask(&s->w, c, MSG_SHM_OPEN, &open.base), 0);
        assert_ptr_equal(peer_of(&s->w, c)->ring.shm, shm);
        assert_int_equal(ask(&s->w, c, MSG_NS_SHARE, &share.base), 0);
        assert_int_equal(ask(&s->w, c, MSG_NS_SHARE, &share.base), 0);
        assert_int_equal(((const Kvlease__V1__NsShareReply *)c->reply)->pins_bytes,
                attach_of(s, c)->share.segment.bytes);
        assert_int_equal(fake_keep_count(&s->keep, KEEP_RING), 1);
        assert_int_equal(fake_keep_count(&s->keep, KEEP_PINS), 1);
        end(s);
}

/* A segment that can't be opened isn't kept, and can be asked for again. */
TEST(test_segment_without_descriptors)
{
        struct scene *s = start("[tenant a]\n");
        struct client *c = connect_client(&s->w, getpid(), NULL);
        Kvlease__V1__ShmOpenRequest open = KVLEASE__V1__SHM_OPEN_REQUEST__INIT;
        struct rlimit before;

        open.layout_version = SHM_LAYOUT_VERSION;
        for (unsigned n = 1; n < 3; n++) { /* the segment's, and one more */
                before = leave_descriptors(n);
                assert_int_not_equal(ask(&s->w, c, MSG_SHM_OPEN, &open.base), 0);
                assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
                assert_int_equal(fake_keep_count(&s->keep, KEEP_RING), 0);
        }
        assert_int_equal(ask(&s->w, c, MSG_SHM_OPEN, &open.base), 0);
        assert_int_equal(fake_keep_count(&s->keep, KEEP_RING), 1);
        end(s);
}

static uint32_t resume_shared_ns(struct scene *s, struct client *c)
{
        Kvlease__V1__ResumeNsRequest m = KVLEASE__V1__RESUME_NS_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.shares = true;
        return ask(&s->w, c, MSG_RESUME_NS, &m.base);
}

/* A client whose shared memory the daemon has lost can't pin or submit there. It keeps reading its
 * pages. */
static void expect_lost(struct scene *s, struct client *c)
{
        assert_int_equal(resume_shared_ns(s, c), WIRE_LOST);
        assert_non_null(strstr(c->detail, "weren't kept"));
        assert_true(attach_find(peer_of(&s->w, c)->member, NS_ID)->pins_lost);
}

TEST(test_segments_lost)
{
        Kvlease__V1__ShmOpenRequest open = KVLEASE__V1__SHM_OPEN_REQUEST__INIT;
        Kvlease__V1__NsShareRequest share = KVLEASE__V1__NS_SHARE_REQUEST__INIT;
        struct scene *s = start("[tenant a]\n");
        struct client *c = connect_worker(s, getpid());
        struct identity i = break_off(s, c);

        c = resume(s, getpid(), &i, NULL, 0);
        expect_lost(s, c);
        end(s);
        s = start("[tenant a]\n");
        c = connect_worker(s, getpid());
        open.layout_version = SHM_LAYOUT_VERSION;
        share.ns_id = NS_ID;
        assert_int_equal(ask(&s->w, c, MSG_SHM_OPEN, &open.base), 0);
        assert_int_equal(ask(&s->w, c, MSG_NS_SHARE, &share.base), 0);
        map_set(&s->w, c, 0);
        i = break_off(s, c);
        c = resume(s, getpid(), &i, NULL, 0);
        assert_int_equal(resume_shared_ns(s, c), 0);
        ring_close(&peer_of(&s->w, c)->ring); /* as if it weren't kept */
        expect_lost(s, c);
        end(s);
}

/* A client that was away gets the recall that came meanwhile. */
TEST(test_told_again)
{
        struct scene *s = start("[tenant a]\n");
        struct client *c = connect_worker(s, getpid());
        uint32_t sets[] = {0};
        struct identity i;

        recall_sets(attach_of(s, c)->ns->tenant, NULL, UINT64_MAX, 0);
        AWAIT(&s->w, c->n_recalls == 1);
        i = break_off(s, c);
        c = resume(s, getpid(), &i, NULL, 0);
        assert_int_equal(resume_ns(s, c, sets, 1), 0);
        assert_int_equal(c->n_recalls, 0);
        assert_int_equal(resumed(s, c), 0);
        AWAIT(&s->w, c->n_recalls == 1);
        assert_int_equal(c->recall_set, 0);
        end(s);
}

/* ---- refused clients ------------------------------------------------------------------------- */

TEST(test_forged)
{
        pid_t other = start_process(); /* before there are connections that it would inherit */
        struct scene *s = start("[tenant a]\n[tenant b]\n");
        struct client *c = connect_worker(s, getpid());
        struct identity i = identity_of(s, c), wrong = i, old;
        uint64_t n = s->w.server.peers.n_violations;

        wrong.token[3] ^= 1;
        refuse(s, "a", getpid(), i, WIRE_DENIED, "has a connection that is open");
        (void)break_off(s, c);
        refuse(s, "a", other, i, WIRE_DENIED, "another process");
        refuse(s, "a", getpid(), wrong, WIRE_LOST, "token");
        refuse(s, "a", other, wrong, WIRE_LOST, "token");
        assert_int_equal(s->w.server.peers.n_violations, n + 4);
        refuse(s, "b", getpid(), i, WIRE_LOST, "no client");
        wrong.id = 12345;
        refuse(s, "a", getpid(), wrong, WIRE_LOST, "no client");

        /* The old token counts until the client has shown that it has the other. */
        old = i;
        c = resume(s, getpid(), &i, NULL, 0);
        refuse(s, "a", getpid(), old, WIRE_DENIED, "has a connection that is open");
        (void)break_off(s, c);
        i = old;
        c = resume(s, getpid(), &i, NULL, 0);
        assert_int_equal(resumed(s, c), 0);
        assert_int_equal(resume_ns(s, c, NULL, 0), WIRE_INVALID);
        assert_int_equal(lease(s, c, 1), 0);
        map_set(&s->w, c, 0);
        (void)break_off(s, c);
        refuse(s, "a", getpid(), old, WIRE_LOST, "token");
        assert_int_equal(s->w.server.store.n_members, 1);
        kill_process(other);
        end(s);
}

/* Its process has exited: another process with the same number isn't it. */
TEST(test_exited)
{
        struct scene *s = start("[tenant a]\n");
        pid_t pid = start_process();
        struct client *c = connect_worker(s, pid), *again;
        struct identity i = break_off(s, c);

        again = connect_process(&s->w, "a", pid);
        kill_process(pid);
        {
                Kvlease__V1__HelloRequest m = KVLEASE__V1__HELLO_REQUEST__INIT;

                m.min_version = m.max_version = PROTO_VERSION_MAX;
                m.resume_client = i.id;
                m.resume_token = (ProtobufCBinaryData){CLIENT_TOKEN_BYTES, i.token};
                say(again, MSG_HELLO, &m.base);
        }
        AWAIT(&s->w, s->w.server.store.n_members == 0);
        end(s);
}

TEST(test_bad_requests)
{
        struct scene *s = start("[tenant a]\n");
        struct client *c = connect_worker(s, getpid());
        static uint64_t pending[RESUME_MAX_PENDING + 1];
        struct identity i = break_off(s, c);
        Kvlease__V1__HelloRequest m = KVLEASE__V1__HELLO_REQUEST__INIT;

        for (size_t n = 0; n < RESUME_MAX_PENDING + 1; n++)
                pending[n] = 100 + n;
        c = connect_process(&s->w, "a", getpid());
        assert_int_equal(hello(s, c, &i, pending, RESUME_MAX_PENDING + 1), WIRE_TOO_BIG);
        c = connect_process(&s->w, "a", getpid());
        m.min_version = m.max_version = PROTO_VERSION_MAX;
        m.resume_client = i.id;
        m.resume_token = (ProtobufCBinaryData){3, i.token};
        assert_int_equal(ask(&s->w, c, MSG_HELLO, &m.base), WIRE_INVALID);
        c = resume(s, getpid(), &i, pending, RESUME_MAX_PENDING);
        assert_int_equal(resumed(s, c), 0);
        end(s);
}

/* Until the process has proven itself nothing happens. */
TEST(test_challenge)
{
        struct scene *s = start("[daemon]\nliveness = challenge\n[tenant a]\n");
        Kvlease__V1__AuthRequest auth = KVLEASE__V1__AUTH_REQUEST__INIT;
        struct client *c = connect_process(&s->w, "a", getpid()), *again;
        Kvlease__V1__HelloRequest first = KVLEASE__V1__HELLO_REQUEST__INIT;
        struct identity i;
        struct member *m;

        first.min_version = first.max_version = PROTO_VERSION_MAX;
        assert_int_equal(ask(&s->w, c, MSG_HELLO, &first.base), 0);
        assert_int_equal(fake_keep_count(&s->keep, KEEP_PROCESS), 0);
        auth.nonce = (ProtobufCBinaryData){PEER_NONCE_SIZE, peer_of(&s->w, c)->challenge.nonce};
        assert_int_equal(ask(&s->w, c, MSG_AUTH, &auth.base), 0);
        assert_int_equal(fake_keep_count(&s->keep, KEEP_PROCESS), 1);
        m = peer_of(&s->w, c)->member;
        m->n_mapped_sets++; /* something to stay for */
        i = break_off(s, c);
        m->n_mapped_sets--;

        again = connect_process(&s->w, "a", getpid());
        assert_int_equal(hello(s, again, &i, NULL, 0), 0);
        assert_int_equal(peer_of(&s->w, again)->state, PEER_AUTH);
        assert_null(peer_of(&s->w, again)->member);
        assert_ptr_equal(peer_of_member(m), peer_of(&s->w, c));
        auth.nonce.data = peer_of(&s->w, again)->challenge.nonce;
        assert_int_equal(ask(&s->w, again, MSG_AUTH, &auth.base), 0);
        assert_ptr_equal(peer_of(&s->w, again)->member, m);
        assert_null(peer_of(&s->w, c));
        assert_int_equal(resumed(s, again), 0);
        end(s);
}

/* ---- mates ---------------------------------------------------------------------------------- */

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
