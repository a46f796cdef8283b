/* Clients that go on on another connection, of the daemon they had or of the next one. */
#include "tests/unit/server-fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "daemon/core/client-record.h"
#include "daemon/core/lease.h"
#include "daemon/core/recall.h"
#include "daemon/core/tenant.h"
#include "daemon/server/resume.h"
#include "daemon/server/tenants.h"
#include "proto/status.h"
#include "tests/unit/fake-keep.h"

#define N_SETS 8

/* What a client keeps of itself. */
struct identity {
        uint64_t id;
        uint8_t token[CLIENT_TOKEN_BYTES];
};

struct scene {
        struct world w;
        struct fake_keep keep;
};

static void start_daemon(struct scene *s, const char *config)
{
        struct detail d = {""};
        bool is_lost;

        world_init(&s->w, "fake");
        world_serve(&s->w, config, N_SETS);
        s->w.server.store.keep = s->keep.keep;
        assert_true(state_open(&s->w.server.store, &is_lost, &d) >= 0);
        if (resume_adopt(&s->w.server, &d) != 0)
                fail_msg("%s", d.text);
}

static struct scene *start(const char *config)
{
        struct scene *s = calloc(1, sizeof(*s));

        fake_keep_init(&s->keep);
        start_daemon(s, config);
        return s;
}

static void end(struct scene *s)
{
        world_end(&s->w);
        fake_keep_deinit(&s->keep);
        free(s);
}

static pid_t start_process(void)
{
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                pause();
                _exit(0);
        }
        return pid;
}

static void kill_process(pid_t pid)
{
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- what clients say -------------------------------------------------------------------------
 */

static struct identity identity_of(struct scene *s, struct client *c)
{
        const struct member *m = peer_of(&s->w, c)->member;
        struct identity i = {.id = m->id};

        memcpy(i.token, m->resume_token, CLIENT_TOKEN_BYTES);
        return i;
}

static uint32_t hello(
        struct scene *s, struct client *c, struct identity *i, uint64_t *pending, size_t n_pending)
{
        Kvlease__V1__HelloRequest m = KVLEASE__V1__HELLO_REQUEST__INIT;

        m.min_version = m.max_version = PROTO_VERSION_MAX;
        m.client_name = (char *)"again";
        m.resume_client = i->id;
        m.resume_token = (ProtobufCBinaryData){CLIENT_TOKEN_BYTES, i->token};
        m.pending = pending;
        m.n_pending = n_pending;
        return ask(&s->w, c, MSG_HELLO, &m.base);
}

/* Goes on as another connection of the process; the token is the one for the next time. */
static struct client *resume(
        struct scene *s, pid_t pid, struct identity *i, uint64_t *pending, size_t n_pending)
{
        struct client *c = connect_process(&s->w, "a", pid);
        const Kvlease__V1__HelloReply *reply;

        if (hello(s, c, i, pending, n_pending) != 0)
                fail_msg("%s", c->detail);
        reply = (const Kvlease__V1__HelloReply *)c->reply;
        assert_int_equal(reply->client_id, i->id);
        assert_int_equal(reply->resume_token.len, CLIENT_TOKEN_BYTES);
        assert_memory_not_equal(reply->resume_token.data, i->token, CLIENT_TOKEN_BYTES);
        memcpy(i->token, reply->resume_token.data, CLIENT_TOKEN_BYTES);
        return c;
}

static uint32_t resume_ns(struct scene *s, struct client *c, uint32_t *sets, size_t n)
{
        Kvlease__V1__ResumeNsRequest m = KVLEASE__V1__RESUME_NS_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.mapped_sets = sets;
        m.n_mapped_sets = n;
        return ask(&s->w, c, MSG_RESUME_NS, &m.base);
}

static uint32_t resumed(struct scene *s, struct client *c)
{
        Kvlease__V1__ResumedRequest m = KVLEASE__V1__RESUMED_REQUEST__INIT;

        return ask(&s->w, c, MSG_RESUMED, &m.base);
}

static uint32_t lease(struct scene *s, struct client *c, uint32_t n)
{
        say_lease(c, n);
        AWAIT(&s->w, c->status != UINT32_MAX);
        c->replies[0] = '\0';
        return c->status;
}

static uint32_t page_request(struct scene *s, struct client *c, uint16_t type, uint32_t page)
{
        Kvlease__V1__ReleaseRequest release = KVLEASE__V1__RELEASE_REQUEST__INIT;
        Kvlease__V1__FreeRequest free_request = KVLEASE__V1__FREE_REQUEST__INIT;

        release.ns_id = free_request.ns_id = NS_ID;
        release.pages = free_request.pages = &page;
        release.n_pages = free_request.n_pages = 1;
        return ask(&s->w, c, type, type == MSG_FREE ? &free_request.base : &release.base);
}

static uint32_t publish(struct scene *s, struct client *c, uint32_t page, uint8_t key_byte)
{
        Kvlease__V1__PublishRequest m = KVLEASE__V1__PUBLISH_REQUEST__INIT;
        uint8_t key[KEY_BYTES] = {key_byte};

        m.ns_id = NS_ID;
        m.pages = &page;
        m.n_pages = 1;
        m.keys = (ProtobufCBinaryData){KEY_BYTES, key};
        m.last_tokens = 16;
        return ask(&s->w, c, MSG_PUBLISH, &m.base);
}

static uint32_t lookup(struct scene *s, struct client *c, uint8_t key_byte)
{
        Kvlease__V1__LookupRequest m = KVLEASE__V1__LOOKUP_REQUEST__INIT;
        uint8_t key[KEY_BYTES] = {key_byte};

        m.ns_id = NS_ID;
        m.keys = (ProtobufCBinaryData){KEY_BYTES, key};
        return ask(&s->w, c, MSG_LOOKUP, &m.base);
}

static uint32_t open_session(struct scene *s, struct client *c, uint32_t wanted)
{
        Kvlease__V1__SessionOpenRequest m = KVLEASE__V1__SESSION_OPEN_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.id = (ProtobufCBinaryData){4, (uint8_t *)"talk"};
        m.wanted = wanted;
        if (ask(&s->w, c, MSG_SESSION_OPEN, &m.base) != 0)
                return 0;
        return ((const Kvlease__V1__SessionOpenReply *)c->reply)->session;
}

static struct attach *attach_of(struct scene *s, struct client *c)
{
        return attach_find(peer_of(&s->w, c)->member, NS_ID);
}

/* It has a page leased and the set mapped, and hangs up. */
static struct identity break_off(struct scene *s, struct client *c)
{
        struct identity i = identity_of(s, c);
        struct peer *p = peer_of(&s->w, c);

        hang_up(c);
        AWAIT(&s->w, p->state == PEER_WAITING);
        return i;
}

static struct client *connect_worker(struct scene *s, pid_t pid)
{
        struct client *c = connect_client(&s->w, pid, NULL);

        assert_int_equal(lease(s, c, 2), 0);
        map_set(&s->w, c, 0);
        return c;
}

/* ---- it goes on -------------------------------------------------------------------------------
 */

static void test_goes_on(void **state)
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
        assert_int_equal(s->w.server.n_peers, 1);
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
static void test_undone(void **state)
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

/* What is asked for again isn't done again. */
static void test_once(void **state)
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
static void test_segments_again(void **state)
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

/* It is told of a recall that came while it was away. */
static void test_told_again(void **state)
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

/* ---- who may not ------------------------------------------------------------------------------
 */

static void refuse(struct scene *s, const char *tenant, pid_t pid, struct identity i,
        uint32_t status, const char *why)
{
        struct client *c = connect_process(&s->w, tenant, pid);

        assert_int_equal(hello(s, c, &i, NULL, 0), status);
        if (!strstr(c->detail, why))
                fail_msg("%s: %s", why, c->detail);
        AWAIT(&s->w, peer_of(&s->w, c) == NULL);
}

static void test_forged(void **state)
{
        pid_t other = start_process(); /* before there are connections that it would inherit */
        struct scene *s = start("[tenant a]\n[tenant b]\n");
        struct client *c = connect_worker(s, getpid());
        struct identity i = identity_of(s, c), wrong = i, old;
        uint64_t n = s->w.server.n_violations;

        wrong.token[3] ^= 1;
        refuse(s, "a", getpid(), i, WIRE_DENIED, "has a connection that is open");
        (void)break_off(s, c);
        refuse(s, "a", other, i, WIRE_DENIED, "another process");
        refuse(s, "a", getpid(), wrong, WIRE_LOST, "token");
        refuse(s, "a", other, wrong, WIRE_LOST, "token");
        assert_int_equal(s->w.server.n_violations, n + 4);
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

static void test_after_bye(void **state)
{
        struct scene *s = start("[tenant a]\n");
        struct client *c = connect_worker(s, getpid());
        Kvlease__V1__ByeRequest bye = KVLEASE__V1__BYE_REQUEST__INIT;
        struct identity i = identity_of(s, c);

        assert_int_equal(ask(&s->w, c, MSG_BYE, &bye.base), 0);
        refuse(s, "a", getpid(), i, WIRE_LOST, "no client");
        assert_int_equal(fake_keep_count(&s->keep, KEEP_PROCESS), 0);
        end(s);
}

/* Its process has exited: whoever has the number now isn't it. */
static void test_exited(void **state)
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

static void test_bad_requests(void **state)
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
static void test_challenge(void **state)
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
        auth.nonce = (ProtobufCBinaryData){PEER_NONCE_SIZE, peer_of(&s->w, c)->nonce};
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
        auth.nonce.data = peer_of(&s->w, again)->nonce;
        assert_int_equal(ask(&s->w, again, MSG_AUTH, &auth.base), 0);
        assert_ptr_equal(peer_of(&s->w, again)->member, m);
        assert_null(peer_of(&s->w, c));
        assert_int_equal(resumed(s, again), 0);
        end(s);
}

/* ---- the next daemon --------------------------------------------------------------------------
 */

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
        dead = connect_client(&s->w, facts->dead_pid, NULL);
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

static void test_next_daemon(void **state)
{
        struct scene *s = calloc(1, sizeof(*s));
        struct client *c, *fresh;
        Kvlease__V1__HelloRequest m = KVLEASE__V1__HELLO_REQUEST__INIT;

        facts->dead_pid = start_process();
        fake_keep_init(&s->keep);
        assert_int_equal(fake_keep_fork(&s->keep, NULL, 0, live, NULL), 0);
        kill_process(facts->dead_pid);
        start_daemon(s, "[tenant a]\nmax_clients = 3\n");
        assert_int_equal(s->w.server.n_peers, 3);
        assert_int_equal(s->w.server.n_adopted, 3);
        AWAIT(&s->w, s->w.server.n_peers == 2);
        assert_int_equal(s->w.server.store.n_members, 2);
        list_for_each (p, &s->w.server.peers, struct peer, link)
                assert_string_equal(
                        peer_state_name(p), p->muted ? "waiting for exit" : "waiting to resume");
        refuse(s, "a", getpid(), facts->muted, WIRE_DENIED, "is ignored");
        refuse(s, "a", getpid(), facts->dead, WIRE_LOST, "no client");

        /* One is new, and then there is no room for another, but for who was there. */
        m.min_version = m.max_version = PROTO_VERSION_MAX;
        fresh = connect_process(&s->w, "a", getpid());
        assert_int_equal(ask(&s->w, fresh, MSG_HELLO, &m.base), 0);
        c = connect_process(&s->w, "a", getpid());
        assert_int_equal(ask(&s->w, c, MSG_HELLO, &m.base), WIRE_TOO_MANY);
        c = resume(s, getpid(), &facts->alive, NULL, 0);
        assert_true(ring_is_open(&peer_of(&s->w, c)->ring));
        assert_int_equal(resumed(s, c), 0);
        assert_int_equal(s->w.server.n_adopted, 1);
        end(s);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                TEST(test_goes_on),
                TEST(test_undone),
                TEST(test_once),
                TEST(test_segments_again),
                TEST(test_told_again),
                TEST(test_forged),
                TEST(test_after_bye),
                TEST(test_exited),
                TEST(test_bad_requests),
                TEST(test_challenge),
                TEST(test_next_daemon),
        };

        facts = mmap(
                NULL, sizeof(*facts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return cmocka_run_group_tests(tests, world_warm_up, NULL);
}
