/* Clients make the daemon's own system calls slow. Others are served meanwhile, and no iteration of
 * the loop is long. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/status.h"
#include "tests/fault/good.h"
#include "tests/fault/raw-shm.h"

static const struct private_tenant two[] = {
        {"a", "limit = 64MiB\n"}, {"b", "limit = 64MiB\n"}, {NULL, NULL}};
static const struct private_options plain = {.tenants = two};
static const struct private_options tiered = {
        .tenants = two, .device_lines = "memory = 64MiB\nextent = 2MiB\nhost_memory = 16MiB\n"};

/* Returns the answer, borrowed until the next. Every reply begins with its status. */
static const Kvlease__V1__SimpleReply *ask(struct raw *r, uint16_t type, const ProtobufCMessage *m)
{
        const ProtobufCMessage *reply;

        assert_true(raw_request(r, type, 0, m));
        reply = raw_answer(r);
        assert_non_null(reply);
        return (const Kvlease__V1__SimpleReply *)reply;
}

static uint32_t lease_page(struct raw *r, uint32_t ns_id)
{
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        const Kvlease__V1__LeaseReply *reply;

        lease.ns_id = ns_id;
        lease.n_pages = 1;
        reply = (const Kvlease__V1__LeaseReply *)ask(r, MSG_LEASE, &lease.base);
        assert_int_equal(reply->status, WIRE_OK);
        return reply->pages[0];
}

/* status names the longest iterations: of a millisecond and more, of which there may be none. */
static void assert_turns_told(struct harness *h)
{
        json_t *status = ctl_json(h, "status"), *turn;
        uint64_t longest =
                (uint64_t)json_integer_value(json_object_get(status, "longest_turn_nsec"));
        json_t *turns = json_object_get(status, "longest_turns");
        size_t i;

        assert_true(json_is_array(turns) && json_is_array(json_object_get(status, "recent_turns")));
        if (longest >= 1000000)
                assert_int_equal(
                        json_integer_value(json_object_get(json_array_get(turns, 0), "nsec")),
                        longest);
        json_array_foreach(turns, i, turn)
                assert_true(json_is_integer(json_object_get(turn, "time_msec")) &&
                            json_is_integer(json_object_get(turn, "what_nsec")) &&
                            json_object_get(turn, "what") && json_object_get(turn, "tenant"));
        json_decref(status);
}

static void others_are_served(struct harness *h)
{
        struct good g;

        good_start(&g, h, "b");
        good_round(&g);
        good_stop(&g);
        ctl(h, "purge b --remove");
}

/* Closes so that the daemon doesn't wait for this process. */
static void close_client(struct raw *r, uint32_t ns_id)
{
        Kvlease__V1__NsCloseRequest end = KVLEASE__V1__NS_CLOSE_REQUEST__INIT;

        end.ns_id = ns_id;
        assert_int_equal(ask(r, MSG_NS_CLOSE, &end.base)->status, WIRE_OK);
        raw_close(r);
}

/* ---- a lease of a file ----------------------------------------------------------------------- */

/* A page in the lower tier: published, and demoted. */
static uint32_t page_below(struct raw *r, uint32_t ns_id)
{
        Kvlease__V1__PublishRequest publish = KVLEASE__V1__PUBLISH_REQUEST__INIT;
        Kvlease__V1__FetchRequest fetch = KVLEASE__V1__FETCH_REQUEST__INIT;
        uint32_t page = lease_page(r, ns_id);
        uint8_t key[32] = {1};
        const Kvlease__V1__FetchReply *reply;

        publish.ns_id = fetch.ns_id = ns_id;
        publish.pages = fetch.pages = &page;
        publish.n_pages = fetch.n_pages = 1;
        publish.keys = (ProtobufCBinaryData){sizeof(key), key};
        publish.last_tokens = 16;
        assert_int_equal(ask(r, MSG_PUBLISH, &publish.base)->status, WIRE_OK);
        fetch.down = true;
        reply = (const Kvlease__V1__FetchReply *)ask(r, MSG_FETCH, &fetch.base);
        assert_int_equal(reply->status, WIRE_OK);
        assert_int_equal(reply->statuses[0], WIRE_OK);
        assert_int_not_equal(reply->pages[0], page);
        return reply->pages[0];
}

static uint32_t map_set(struct raw *r, uint32_t ns_id, uint32_t set, int *ret_fd)
{
        Kvlease__V1__MapRequest map = KVLEASE__V1__MAP_REQUEST__INIT;
        const Kvlease__V1__SimpleReply *reply;

        map.ns_id = ns_id;
        map.set_index = set;
        r->fds = ret_fd;
        r->n_fds = ret_fd ? 1 : 0;
        reply = ask(r, MSG_MAP, &map.base);
        if (reply->status == WIRE_BUSY)
                assert_non_null(strstr(reply->detail, "F_SETLEASE"));
        return reply->status;
}

/* Without O_NONBLOCK an open of the file waits 45 s for the holder of its lease. */
HARNESS_TEST(test_lease_of_a_file, &tiered)
{
        struct raw holder, other;
        uint32_t ns_id, other_id, set_pages, page;
        const Kvlease__V1__NsOpenReply *open;
        int fd = -1, again = -1;

        assert_true(signal(SIGIO, SIG_IGN) != SIG_ERR);
        raw_open(&holder, h, NULL);
        ns_id = raw_attach(&holder);
        raw_open(&other, h, NULL);
        assert_true(raw_authenticate(&other, raw_hello(&other, 1, 1)));
        open = raw_try_ns(&other, "raw");
        assert_int_equal(open->status, WIRE_OK);
        other_id = open->ns_id;
        set_pages = open->set_pages;
        page = page_below(&holder, ns_id);
        assert_int_equal(map_set(&holder, ns_id, page / set_pages, &fd), WIRE_OK);
        if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0) {
                print_message("no lease here: %s\n", strerror(errno));
        } else {
                assert_int_equal(map_set(&other, other_id, page / set_pages, NULL), WIRE_BUSY);
                others_are_served(h);
                harness_assert_prompt(h);
        }
        fd_close(fd); /* ends the lease */
        assert_int_equal(map_set(&other, other_id, page / set_pages, &again), WIRE_OK);
        fd_close(again);
        close_client(&holder, ns_id);
        close_client(&other, other_id);
        ctl_wait_status(h, "n_clients", 0);
}

/* ---- many that wait -------------------------------------------------------------------------- */

/* Waking all of these at once takes an iteration of 30 ms or more. */
#define N_HERD 12000

struct herd {
        const _Atomic uint64_t *word;
        uint32_t value;
        _Atomic unsigned n_awake, n_asleep;
};

static void *sleep_on(void *data)
{
        struct herd *herd = data;

        herd->n_asleep++;
        while ((uint32_t)*herd->word == herd->value)
                syscall(SYS_futex, herd->word, FUTEX_WAIT, herd->value, NULL, NULL, 0);
        herd->n_awake++;
        return NULL;
}

static unsigned start_herd(struct herd *herd, pthread_t *threads)
{
        pthread_attr_t attr;
        unsigned n = 0;

        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, 65536);
        while (n < N_HERD && pthread_create(&threads[n], &attr, sleep_on, herd) == 0)
                n++;
        pthread_attr_destroy(&attr);
        while (herd->n_asleep < n)
                sleep_msec(1);
        sleep_msec(100); /* the last ones, until they sleep: else there are fewer to wake */
        return n;
}

HARNESS_TEST(test_herd, &plain)
{
        static pthread_t threads[N_HERD];
        Kvlease__V1__AnnounceRequest announce = KVLEASE__V1__ANNOUNCE_REQUEST__INIT;
        Kvlease__V1__FreeRequest give = KVLEASE__V1__FREE_REQUEST__INIT;
        uint8_t key[32] = {2};
        struct herd herd = {0};
        struct raw_shm s;
        uint32_t page;
        unsigned n;

        raw_share(&s, h, "good");
        page = lease_page(&s.raw, s.ns_id);
        announce.ns_id = give.ns_id = s.ns_id;
        announce.pages = give.pages = &page;
        announce.n_pages = give.n_pages = 1;
        announce.keys = (ProtobufCBinaryData){sizeof(key), key};
        assert_int_equal(ask(&s.raw, MSG_ANNOUNCE, &announce.base)->status, WIRE_OK);
        herd.word = &((const struct shm_line *)(const void *)((const uint8_t *)s.index +
                                                              s.index->lines_offset))[page]
                             .state;
        herd.value = (uint32_t)*herd.word;
        n = start_herd(&herd, threads);
        assert_int_equal(ask(&s.raw, MSG_FREE, &give.base)->status, WIRE_OK);
        for (unsigned i = 0; i < n; i++) /* none is forgotten: they have no timeout */
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(herd.n_awake, n);
        harness_assert_prompt(h);
        others_are_served(h);
        assert_turns_told(h);
        close_client(&s.raw, s.ns_id);
        fd_close(s.client_fd);
        fd_close(s.index_fd);
        fd_close(s.pins_fd);
        ctl_wait_status(h, "n_clients", 0);
}
