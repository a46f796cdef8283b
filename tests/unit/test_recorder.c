/* The daemon's traffic as a trace (daemon/server/services/recorder.h): what is written is read back
 * by the reader of traces, and is what was done. */
#include "daemon/core/cache/pages.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/requests/invalidate.h"
#include "tests/unit/at-once.h"
#include "tests/unit/server-fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/fd.h"
#include "client/trace/trace.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/request.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "daemon/server/services/recorder.h"

#define TOKENS 16 /* of a page; server-fixture.c */

/* The file system as it is told to kvleased: free and all, in MiB. */
static uint64_t fs_free = 1 << 20, fs_all = 1 << 20;

int statvfs(const char *path, struct statvfs *ret)
{
        *ret = (struct statvfs){
                .f_frsize = 1 << 20, .f_bsize = 1 << 20, .f_blocks = fs_all, .f_bavail = fs_free};
        return 0;
}

struct bench {
        struct world w;
        struct client *c;
        struct attach *a;
        char dir[64];
        char path[128];
};

static void begin(struct bench *b)
{
        char text[256];

        memset(b, 0, sizeof(*b));
        strcpy(b->dir, "/tmp/kvl-record-XXXXXX");
        assert_non_null(mkdtemp(b->dir));
        snprintf(b->path, sizeof(b->path), "%s/traces/trace-16-1.jsonl", b->dir);
        snprintf(text, sizeof(text), "[daemon]\nstate_dir=%s\n[tenant a]\nlimit=1MiB\n", b->dir);
        world_init(&b->w, "fake");
        world_serve(&b->w, text, 16);
        b->w.server.life.keeps_state = true;
        b->c = connect_client(&b->w, getpid(), NULL);
        b->a = list_first(&peer_of(&b->w, b->c)->member->attachments, struct attach, member_link);
}

static void end(struct bench *b)
{
        char command[128];

        world_end(&b->w);
        snprintf(command, sizeof(command), "rm -r %s", b->dir);
        assert_int_equal(system(command), 0);
}

#define SCENE(fn, ...) TEST_ON(fn, struct bench, b, begin, end, ##__VA_ARGS__)

static struct recorder *recorder(struct bench *b)
{
        return &b->w.server.recorder;
}

static void turn_on(struct bench *b, uint64_t max_bytes, uint32_t max_files)
{
        struct detail d = {""};

        if (recorder_start(&b->w.server, max_bytes, max_files, &d) != 0)
                fail_msg("%s", d.text);
}

static void flush(struct bench *b)
{
        AWAIT(&b->w, list_is_empty(&b->w.server.disk.jobs) && !recorder(b)->filling);
}

/* Keys first..first+n-1 name a text: published from a root as a request, unless cached; unpinned.
 */
static void publish(struct bench *b, uint64_t request, unsigned first, unsigned n, uint32_t tokens)
{
        uint32_t pages[64], sealed[64], n_sealed;
        uint8_t keys[64 * KEY_BYTES] = {0};
        struct publish p = {
                .pages = pages, .keys = keys, .n = n, .last_tokens = tokens, .request = request};

        for (unsigned i = 0; i < n; i++)
                memcpy(keys + i * KEY_BYTES, &(unsigned){first + i + 1}, sizeof(unsigned));
        assert_int_equal(lease_pages(b->a, n, clock_now_nsec(), pages, NULL), 0);
        assert_true(publish_pages(b->a, &p, clock_now_nsec(), sealed, &n_sealed, NULL) >= 0);
        assert_int_equal(n_sealed, n);
        for (unsigned i = 0; i < n; i++)
                if (sealed[i] != pages[i])
                        assert_int_equal(free_pages(b->a, &pages[i], 1, NULL), 0);
        assert_int_equal(release_pages(b->a, sealed, n, clock_now_nsec(), NULL), 0);
}

static void look_up(struct bench *b, uint64_t request, unsigned first, unsigned n)
{
        uint8_t keys[64 * KEY_BYTES] = {0};
        uint32_t pages[64], found;
        uint64_t tokens;

        for (unsigned i = 0; i < n; i++)
                memcpy(keys + i * KEY_BYTES, &(unsigned){first + i + 1}, sizeof(unsigned));
        if (lookup_pages(b->a, &(struct lookup_request){keys, n, clock_now_nsec(), request}, pages,
                    &found, &tokens, NULL) == 0)
                assert_int_equal(release_pages(b->a, pages, found, clock_now_nsec(), NULL), 0);
}

/* Odd requests have one ending, even ones none. */
static void end_request(struct bench *b, uint64_t request)
{
        request_end(b->a, request, request % 2, clock_now_nsec());
}

static void read_back(const char *path, struct trace *ret)
{
        struct trace_error e = {0};

        if (trace_read(&(struct trace_source){&path, 1, 0, TOKENS}, ret, &e) != 0)
                fail_msg("%s line %u: %s", path, (unsigned)e.line, e.text);
}

/* Requests that find, publish, both, or neither; texts that share a beginning share its ids. */
SCENE(test_is_a_trace)
{
        const struct sim_trace *s;
        struct trace t;
        struct stat st;

        publish(b, 9, 0, 2, TOKENS); /* before it is on: isn't recorded, but known to the cache */
        turn_on(b, 0, 0);
        look_up(b, 1, 0, 2);
        publish(b, 1, 0, 4, 5); /* two duplicates, two new ones, 5 tokens in the last */
        look_up(b, 1, 0, 1);    /* not as deep */
        end_request(b, 1);
        look_up(b, 2, 0, 3);
        look_up(b, 0, 0, 2); /* no request */
        end_request(b, 2);
        look_up(b, 3, 40, 3); /* finds nothing */
        end_request(b, 3);
        publish(b, 4, 20, 1, TOKENS);
        look_up(b, 5, 20, 1);
        end_request(b, 4);
        end_request(b, 4);
        end_request(b, 5);
        assert_int_equal(recorder(b)->n_recorded, 4); /* also before the disk has it */
        flush(b);
        assert_int_equal(recorder(b)->n_recorded, 4);
        assert_int_equal(recorder(b)->n_lost, 0);
        assert_string_equal(recorder(b)->path, b->path);
        assert_int_equal(stat(b->path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(recorder(b)->n_bytes, (uint64_t)st.st_size);

        read_back(b->path, &t);
        s = &t.sim;
        assert_int_equal(s->n_requests, 4);
        assert_int_equal(s->requests[0].input_tokens, 3 * TOKENS + 5);
        assert_int_equal(s->requests[1].input_tokens, 3 * TOKENS);
        assert_int_equal(s->requests[0].n_blocks, 4);
        assert_int_equal(s->requests[1].n_blocks, 3);
        assert_int_not_equal(s->requests[0].ending, 0);
        assert_int_not_equal(s->requests[0].ending, 1); /* hidden */
        assert_int_equal(s->requests[1].ending, 0);
        assert_int_equal(s->requests[3].ending, s->requests[0].ending);
        assert_int_equal(s->n_unique, 5); /* 4 of the first text, 1 of the other */
        assert_string_equal(t.tenants[0], "a");
        trace_free(&t);
}

/* The number of a line's first id. */
static uint64_t first_id(const char *path)
{
        char *text = NULL;
        uint64_t id;
        size_t len;

        assert_int_equal(file_read(path, 1 << 20, &text, &len), 0);
        id = strtoull(strchr(text, '[') + 1, NULL, 10);
        free(text);
        return id;
}

/* Another recording has another secret, and other files; nothing of a key is in them. */
SCENE(test_secret)
{
        char other[128];
        uint64_t id;

        turn_on(b, 0, 0);
        publish(b, 1, 0, 1, TOKENS);
        recorder_stop(&b->w.server); /* what is under way is written */
        flush(b);
        id = first_id(b->path);
        assert_true(id > 0 && id < UINT64_C(1) << 53);
        turn_on(b, 0, 0);
        publish(b, 1, 0, 1, TOKENS);
        recorder_stop(&b->w.server);
        flush(b);
        snprintf(other, sizeof(other), "%s/traces/trace-16-2.jsonl", b->dir);
        assert_int_not_equal(first_id(other), id);
        assert_int_equal(recorder(b)->secret.k0, 0);
}

/* A request without an end is written after a minute; one whose page is evicted is lost. */
TEST(test_idle)
{
        uint8_t key[KEY_BYTES] = {1}; /* of page 0 of text 0 */
        uint64_t now, n_pages;
        struct bench b;
        uint32_t page;

        begin(&b);
        turn_on(&b, 0, 0);
        publish(&b, 1, 0, 2, TOKENS);
        now = b.w.server.store.now_nsec;
        assert_int_not_equal(recorder_end_idle(&b.w.server, now + 59 * NSEC_PER_SEC), UINT64_MAX);
        assert_int_equal(recorder(&b)->n_running, 1);
        assert_int_equal(recorder_end_idle(&b.w.server, now + 60 * NSEC_PER_SEC), UINT64_MAX);
        flush(&b);
        assert_int_equal(recorder(&b)->n_recorded, 1);

        publish(&b, 2, 0, 2, TOKENS);
        assert_int_equal(ns_invalidate(b.a->ns, CAUSE_NAMESPACE, &n_pages), 0);
        end_request(&b, 2);
        assert_int_equal(recorder(&b)->n_lost, 1);
        publish(&b, 3, 0, 2, TOKENS);
        recorder_forget(&b.w.server, b.a->ns); /* as when the namespace goes */
        assert_int_equal(recorder(&b)->n_lost, 2);
        assert_int_equal(recorder(&b)->n_running, 0);
        publish(&b, 4, 0, 1, TOKENS); /* its page carries another text by the end */
        page = ns_find_page(b.a->ns, key);
        assert_int_equal(invalidate_key(b.a, key, &n_pages, NULL), 0);
        publish(&b, 0, 50, 1, TOKENS);
        assert_int_equal(ns_page(b.a->ns, page)->state, PAGE_SEALED);
        end_request(&b, 4);
        assert_int_equal(recorder(&b)->n_lost, 3);
        recorder_stop(&b.w.server);
        end(&b);
}

static unsigned count_files(struct bench *b, unsigned *ret_first)
{
        char path[160];
        unsigned n = 0;
        struct stat st;

        for (unsigned i = 1; i < 100; i++) {
                snprintf(path, sizeof(path), "%s/traces/trace-16-%u.jsonl", b->dir, i);
                if (stat(path, &st) < 0)
                        continue;
                if (n++ == 0)
                        *ret_first = i;
        }
        return n;
}

TEST(test_rotates)
{
        unsigned first = 0, i;
        struct bench b;

        begin(&b);
        turn_on(&b, RECORDER_MIN_BYTES, 3);
        publish(&b, 1, 0, 40, TOKENS); /* some 700 bytes a line */
        for (i = 0; i < 60; i++) {
                look_up(&b, 100 + i, 0, 40);
                end_request(&b, 100 + i);
                flush(&b);
        }
        assert_int_equal(count_files(&b, &first), 3);
        assert_true(first > 3);
        assert_int_equal(recorder(&b)->n_recorded, 60);
        assert_int_equal(recorder(&b)->n_lost, 0);
        end(&b); /* the stop writes what is under way */
}

/* Calls that name no request: what is published goes on where a lookup, or what was published
 * before, has got to. */
SCENE(test_unnamed)
{
        const struct sim_trace *s;
        unsigned lengths = 0;
        struct trace t;

        turn_on(b, 0, 0);
        publish(b, 0, 0, 3, TOKENS);
        publish(b, 0, 20, 2, TOKENS);
        assert_int_equal(recorder(b)->n_running, 2);
        look_up(b, 0, 0, 3); /* another request for the first text */
        flush(b);
        assert_int_equal(recorder(b)->n_recorded, 1);
        look_up(b, 0, 0, 2);
        publish(b, 0, 0, 4, TOKENS); /* goes on with that, and with the text of before */
        look_up(b, 7, 20, 1);
        end_request(b, 7);
        recorder_stop(&b->w.server);
        flush(b);
        assert_int_equal(recorder(b)->n_lost, 0);
        assert_int_equal(recorder(b)->n_unnamed, 5);
        assert_int_equal(recorder(b)->n_running, 0);
        read_back(b->path, &t);
        s = &t.sim;
        assert_int_equal(s->n_requests, 4);
        for (unsigned i = 0; i < 4; i++) /* those of one millisecond in any order */
                lengths |= 1u << s->requests[i].n_blocks;
        assert_int_equal(lengths, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4);
        trace_free(&t);
}

/* Where requests without a number are too many, the one that was idle longest is written. */
SCENE(test_many_unnamed)
{
        turn_on(b, 0, 0);
        publish(b, 0, 0, 2, TOKENS);
        for (unsigned i = 1; i < RECORDER_REQUESTS_MAX; i++)
                look_up(b, i, 0, 1);
        assert_int_equal(recorder(b)->n_running, RECORDER_REQUESTS_MAX);
        look_up(b, 0, 0, 1);
        assert_int_equal(recorder(b)->n_lost, 0);
        flush(b);
        assert_int_equal(recorder(b)->n_recorded, 1);
}

/* The file system keeps a twentieth free: older files go, and then requests are lost. */
SCENE(test_room)
{
        struct detail d = {""};
        unsigned first = 0;

        fs_all = 1000;
        fs_free = 50;
        assert_int_equal(recorder_start(&b->w.server, 0, 0, &d), -ENOSPC);
        assert_non_null(strstr(d.text, "keeps 50 MiB free, and has 0 B more: make room"));
        fs_free = 51;
        turn_on(b, RECORDER_MIN_BYTES, 8);
        publish(b, 1, 0, 40, TOKENS);
        for (unsigned i = 0; i < 20; i++) {
                look_up(b, 100 + i, 0, 40);
                end_request(b, 100 + i);
                flush(b);
        }
        assert_true(count_files(b, &first) > 2);
        assert_string_equal(recorder(b)->trouble, "");
        fs_free = 50;
        look_up(b, 200, 0, 40);
        end_request(b, 200);
        flush(b);
        assert_int_equal(count_files(b, &first), 1); /* the one that is written */
        assert_int_equal(recorder(b)->n_recorded, 20);
        assert_int_equal(recorder(b)->n_lost, 1);
        assert_non_null(strstr(recorder(b)->trouble, "whose file system keeps 50 MiB free"));
        fs_free = 51;
        look_up(b, 201, 0, 40);
        end_request(b, 201);
        flush(b);
        assert_int_equal(recorder(b)->n_recorded, 21);
        fs_all = fs_free = 1 << 20;
}

/* More under way than it keeps in mind, and a disk that doesn't take what is written. */
SCENE(test_bounds)
{
        struct detail d = {""};

        assert_int_equal(recorder_start(&b->w.server, 1, 0, &d), -EINVAL);
        assert_int_equal(recorder_start(&b->w.server, 0, RECORDER_FILES_MAX + 1, &d), -EINVAL);
        publish(b, 0, 0, 1, TOKENS);
        turn_on(b, 0, 0);
        assert_int_equal(recorder_start(&b->w.server, 0, 0, &d), -EBUSY);
        for (unsigned i = 1; i <= RECORDER_REQUESTS_MAX + 10; i++)
                look_up(b, i, 0, 1);
        assert_int_equal(recorder(b)->n_running, RECORDER_REQUESTS_MAX);
        assert_int_equal(recorder(b)->n_lost, 10);
        /* No turn of the loop: the disk takes none of this. */
        recorder_stop(&b->w.server);
        assert_true(recorder(b)->waiting_bytes <= RECORDER_WAITING_MAX);
        assert_true(recorder(b)->n_lost > 10);
        flush(b);
        assert_int_equal(recorder(b)->n_recorded + recorder(b)->n_lost, RECORDER_REQUESTS_MAX + 10);
        assert_int_equal(recorder(b)->waiting_bytes, 0);
}

SCENE(test_no_disk)
{
        char traces[96];
        struct detail d = {""};

        snprintf(traces, sizeof(traces), "%s/traces", b->dir);
        turn_on(b, 0, 0);
        assert_int_equal(rmdir(traces), 0);
        assert_int_equal(file_replace(traces, "", 0, 0600), 0); /* a file in its place */
        publish(b, 1, 0, 1, TOKENS);
        end_request(b, 1);
        flush(b);
        assert_int_equal(recorder(b)->n_recorded, 0);
        assert_int_equal(recorder(b)->n_lost, 1);
        recorder_stop(&b->w.server);
        flush(b);
        assert_true(recorder_start(&b->w.server, 0, 0, &d) < 0);
        assert_non_null(strstr(d.text, traces));
        assert_false(recorder(b)->on);
}

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
