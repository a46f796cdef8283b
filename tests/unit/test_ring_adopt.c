/*
 * A client segment that outlives the daemon, which is killed at any fault point (ring.c is compiled
 * with them). Checks the entries that the next daemon executes, for any bytes from the client.
 * Entries have fake effects, as in test_daemon_ring.c.
 */
#include "tests/unit/child.h"
#include "tests/unit/test-support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/server/base/ring.h"

#define N_ENTRIES 100
#define NOW       1

/* Shared by the test and its children. */
struct scene {
        struct client_cursors cursors;
        uint8_t n_executed[N_ENTRIES];
        uint8_t n_repeats[N_ENTRIES]; /* of these, told that it may be once more */
        bool is_broken_chain;
};

static struct scene *scene;
static struct member member;

void __wrap_submit_one(struct member *m, struct submit_chain *chain, const struct shm_submission *s,
        uint64_t now_nsec, struct submit_result *ret);

/* Each is chained to the one before it. */
void __wrap_submit_one(struct member *m, struct submit_chain *chain, const struct shm_submission *s,
        uint64_t now_nsec, struct submit_result *ret)
{
        uint32_t n = s->page;

        scene->is_broken_chain |= n >= N_ENTRIES || (n > 0 && chain->page != n - 1);
        if (n < N_ENTRIES) {
                scene->n_executed[n]++;
                scene->n_repeats[n] += m->repeats;
        }
        chain->page = n;
        *ret = (struct submit_result){.completes = true, .page = n};
}

static void *map_shared(int fd, size_t bytes)
{
        void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);

        assert_true(at != MAP_FAILED);
        return at;
}

/* A segment with so many entries; its descriptor is owned. */
static int make_segment(uint32_t n, struct shm_client **ret_shm)
{
        struct shm_submission *submissions;
        struct ring r;
        int fd;

        assert_int_equal(ring_open(&r, 77, 1, &fd), 0);
        ring_close(&r);
        *ret_shm = map_shared(fd, SHM_CLIENT_BYTES);
        submissions = (struct shm_submission *)((char *)*ret_shm + (*ret_shm)->sub_offset);
        for (uint32_t i = 0; i < n; i++)
                submissions[i] = (struct shm_submission){
                        .op = SHM_OP_PUBLISH, .page = i, .user_data = 1000 + i};
        (*ret_shm)->sub_tail = n;
        return fd;
}

static int copy_of(int fd)
{
        int copy = dup(fd);

        assert_true(copy >= 0);
        return copy;
}

static struct ring adopt(int fd)
{
        struct ring r;

        assert_int_equal(ring_adopt(&r, copy_of(fd), &scene->cursors), 0);
        return r;
}

/* A daemon that takes the segment over, and is killed at the point. Returns false where it never
 * came there. */
static bool run_daemon(int fd, const char *point, unsigned pass)
{
        char text[16];
        int status;
        pid_t pid = child_fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                struct ring r;

                snprintf(text, sizeof(text), "%u", pass);
                setenv("KVL_FAULT_POINT", point, 1);
                setenv("KVL_FAULT_PASS", text, 1);
                if (ring_adopt(&r, dup(fd), &scene->cursors) == 0)
                        ring_drain(&r, &member, UINT32_MAX, NOW, UINT64_MAX);
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* The client takes the completions it finds: each entry's, once, in order. */
static void take_completions(struct shm_client *shm, uint64_t n)
{
        struct shm_completion *completions =
                (struct shm_completion *)((char *)shm + shm->comp_offset);

        assert_int_equal(shm->comp_tail, n);
        for (uint64_t i = 0; i < n; i++)
                assert_int_equal(completions[i].user_data, 1000 + i);
}

static void begin_scene(void)
{
        memset(scene, 0, sizeof(*scene));
}

/* Every entry once, but for those at which a daemon was killed: twice, and known to be. */
static void check_executed(unsigned n_kills)
{
        unsigned n_twice = 0;

        assert_false(scene->is_broken_chain);
        for (uint32_t i = 0; i < N_ENTRIES; i++) {
                assert_in_range(scene->n_executed[i], 1, 2);
                n_twice += scene->n_executed[i] == 2;
                if (scene->n_executed[i] == 2)
                        assert_true(scene->n_repeats[i] >= 1);
        }
        assert_true(n_twice <= n_kills);
}

static void kill_and_go_on(const char *point, unsigned pass)
{
        struct shm_client *shm;
        struct ring_turn turn;
        int fd = make_segment(N_ENTRIES, &shm);
        struct ring r;

        begin_scene();
        if (!run_daemon(fd, point, pass))
                fail_msg("%s is never passed %u times", point, pass);
        r = adopt(fd);
        turn = ring_drain(&r, &member, UINT32_MAX, NOW, UINT64_MAX);
        assert_null(turn.violation);
        assert_int_equal(r.sub_head, N_ENTRIES);
        assert_int_equal(shm->sub_head, N_ENTRIES);
        check_executed(1);
        take_completions(shm, N_ENTRIES);
        ring_close(&r);
        munmap(shm, SHM_CLIENT_BYTES);
        fd_close(fd);
}

TEST(test_killed)
{
        static const char *const each[] = {"completion-before", "cursor-before-copy",
                "cursor-before-turn", "cursor-after-turn"};
        static const char *const batch[] = {
                "ring-before-heads", "ring-between-heads", "ring-after-heads"};
        static const unsigned passes[] = {1, 2, 31, 32, 33, N_ENTRIES};

        for (size_t i = 0; i < sizeof(each) / sizeof(*each); i++)
                for (size_t j = 0; j < sizeof(passes) / sizeof(*passes); j++)
                        kill_and_go_on(each[i], passes[j]);
        for (size_t i = 0; i < sizeof(batch) / sizeof(*batch); i++)
                for (unsigned pass = 1; pass <= N_ENTRIES / RING_BATCH; pass++)
                        kill_and_go_on(batch[i], pass);
}

/* Killed again and again, also while it takes over. */
TEST(test_killed_often)
{
        static const char *const points[] = {"cursor-before-turn", "ring-adopt-before",
                "completion-before", "ring-adopt-between", "cursor-before-copy", "ring-adopt-after",
                "cursor-after-turn"};
        struct shm_client *shm;
        int fd = make_segment(N_ENTRIES, &shm);
        unsigned n_kills = 0;
        struct ring r;

        begin_scene();
        for (unsigned i = 0; i < 4; i++)
                for (size_t j = 0; j < sizeof(points) / sizeof(*points); j++)
                        n_kills += run_daemon(fd, points[j], strstr(points[j], "adopt") ? 1 : 4);
        assert_int_equal(n_kills, 28);
        r = adopt(fd);
        assert_null(ring_drain(&r, &member, UINT32_MAX, NOW, UINT64_MAX).violation);
        assert_false(scene->is_broken_chain);
        for (uint32_t i = 0; i < N_ENTRIES; i++)
                assert_true(scene->n_executed[i] >= 1);
        take_completions(shm, N_ENTRIES);
        ring_close(&r);
        munmap(shm, SHM_CLIENT_BYTES);
        fd_close(fd);
}

/* The shared words are the daemon's only by agreement. */
TEST(test_hostile_words)
{
        struct shm_client *shm;
        int fd = make_segment(N_ENTRIES, &shm);
        struct ring r;

        begin_scene();
        scene->cursors.copies[0] =
                (struct client_cursor){.sub_head = 40, .comp_tail = 40, .chain = {.page = 39}};
        memset(scene->n_executed, 1, 40);
        memset(&shm->header, 0xff, sizeof(shm->header));
        shm->sub_offset = shm->comp_offset = UINT64_MAX / 2;
        shm->sub_entries = shm->comp_entries = UINT32_MAX;
        shm->sub_head = 7;
        shm->comp_tail = 12345;
        r = adopt(fd);
        assert_int_equal(shm->sub_head, 40);
        assert_int_equal(shm->comp_tail, 40);
        assert_null(ring_drain(&r, &member, UINT32_MAX, NOW, UINT64_MAX).violation);
        check_executed(0);
        assert_int_equal(shm->comp_tail, N_ENTRIES);
        ring_close(&r);

        shm->sub_tail = N_ENTRIES + SHM_SUB_ENTRIES + 1;
        r = adopt(fd);
        assert_string_equal(
                ring_drain(&r, &member, UINT32_MAX, NOW, UINT64_MAX).violation, "ring-tail");
        ring_close(&r);
        shm->sub_tail = N_ENTRIES;
        shm->comp_head = N_ENTRIES + 1;
        r = adopt(fd);
        assert_string_equal(
                ring_drain(&r, &member, UINT32_MAX, NOW, UINT64_MAX).violation, "ring-head");
        ring_close(&r);
        munmap(shm, SHM_CLIENT_BYTES);
        fd_close(fd);
}

/* Completions that it took while the daemon was away make room. */
TEST(test_taken_meanwhile)
{
        struct shm_client *shm;
        int fd = make_segment(0, &shm);
        struct ring r;

        begin_scene();
        scene->cursors.copies[0] =
                (struct client_cursor){.sub_head = 5000, .comp_tail = SHM_COMP_ENTRIES + 10};
        shm->sub_tail = 5000;
        shm->comp_head = 10;
        r = adopt(fd);
        shm->sub_tail = 5001;
        assert_int_equal(ring_drain(&r, &member, UINT32_MAX, NOW, UINT64_MAX).n, 0);
        shm->comp_head = 11;
        assert_int_equal(ring_drain(&r, &member, UINT32_MAX, NOW, UINT64_MAX).n, 1);
        ring_close(&r);
        munmap(shm, SHM_CLIENT_BYTES);
        fd_close(fd);
}

int main(void)
{
        scene = map_shared(-1, sizeof(*scene));
        list_init(&member.attachments);
        return test_run_all(NULL, NULL);
}
