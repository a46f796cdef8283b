/* The monitor socket answers requests that read, and refuses those that change anything. Every
 * administrative message is classed in a table here; a new one fails the test until it is in it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/macros.h"
#include "proto/status.h"
#include "tests/fault/raw.h"
#include "tests/integration/exporter.h"
#include "tests/integration/harness.h"

enum class {
        UNKNOWN,
        READS,   /* figures, lists, events */
        CHANGES, /* or takes more of the daemon's time than a list, or tells of keys */
};

static const struct {
        uint16_t type;
        enum class class;
} classes[] = {
        {MSG_ADMIN_PROCESS, CHANGES}, /* for kvleasectl alone */
        {MSG_ADMIN_STATUS, READS},
        {MSG_ADMIN_DEVICES, READS},
        {MSG_ADMIN_TENANTS, READS},
        {MSG_ADMIN_TENANT_SET, CHANGES},
        {MSG_ADMIN_TENANT_REMOVE, CHANGES},
        {MSG_ADMIN_NAMESPACES, READS},
        {MSG_ADMIN_CLIENTS, READS},
        {MSG_ADMIN_PURGE, CHANGES},
        {MSG_ADMIN_DRAIN, CHANGES},
        {MSG_ADMIN_CHECK, CHANGES}, /* walks every page */
        {MSG_ADMIN_RECALL, CHANGES},
        {MSG_ADMIN_REGIONS, READS},
        {MSG_ADMIN_EVICTIONS, READS},
        {MSG_ADMIN_SESSIONS, READS},
        {MSG_ADMIN_EXPLAIN, CHANGES}, /* whether a key is cached */
        {MSG_ADMIN_SETS, READS},
        {MSG_ADMIN_SESSION_PURGE, CHANGES},
        {MSG_ADMIN_RECORD, CHANGES},
        {MSG_ADMIN_RESTART, CHANGES},
        {MSG_ADMIN_RELOAD, CHANGES},
        {MSG_ADMIN_WARM, CHANGES},
        {MSG_ADMIN_EVENTS, READS},
        {MSG_ADMIN_CONFIG, READS},
        {MSG_ADMIN_COUNTERS, READS},
        {MSG_ADMIN_CODECS, READS},
        {MSG_ADMIN_EXCHANGES, READS},
        {MSG_ADMIN_REMOTES, READS},
};

static enum class class_of(uint16_t type) {
        for (size_t i = 0; i < ARRAY_SIZE(classes);
                i++) if (classes[i].type == type) return classes[i]
                .class;
        return UNKNOWN;
}

static char *monitor_path(const struct harness *h, char buf[PRIVATE_PATH_MAX])
{
        snprintf(buf, PRIVATE_PATH_MAX, "%.80s/monitor.sock", h->daemon.runtime);
        return buf;
}

/* An empty request of this type. Returns its answer's beginning. */
static const Kvlease__V1__SimpleReply *ask(struct raw *r, const struct msg_info *info)
{
        _Alignas(max_align_t) uint8_t storage[1024];
        ProtobufCMessage *m = (ProtobufCMessage *)storage;

        assert_true(info->request->sizeof_message <= sizeof(storage));
        protobuf_c_message_init(info->request, storage);
        assert_true(raw_request(r, info->type, 0, m));
        return (const Kvlease__V1__SimpleReply *)raw_answer(r);
}

/* Draining, purging, removing, restarting: nothing of it happens. */
static void test_every_message(void **state)
{
        struct harness *h = *state;
        struct worker *w = worker_start(h, "a", "n", 1);
        unsigned n_read = 0, n_refused = 0;
        char path[PRIVATE_PATH_MAX];
        uint32_t pages[4];
        struct raw r;

        worker_publish_chain(w, 1, 4, pages);
        raw_open(&r, h, monitor_path(h, path));
        assert_int_equal(raw_hello(&r, 1, 1)->status, 0);
        for (unsigned i = 0; msg_at(i); i++) {
                const struct msg_info *info = msg_at(i);
                const Kvlease__V1__SimpleReply *reply;

                if (strncmp(info->name, "ADMIN_", 6) != 0)
                        continue;
                reply = ask(&r, info);
                assert_non_null(reply);
                switch (class_of(info->type)) {
                case READS:
                        if (reply->status != WIRE_OK)
                                fail_msg("%s: %s", info->name, reply->detail);
                        n_read++;
                        break;
                case CHANGES:
                        if (reply->status != WIRE_DENIED)
                                fail_msg("%s: status %u", info->name, reply->status);
                        assert_non_null(strstr(reply->detail, info->name));
                        assert_non_null(strstr(reply->detail, "admin.sock"));
                        n_refused++;
                        break;
                case UNKNOWN:
                        fail_msg("%s is in no class: does it only read? See proto/msg.h, too",
                                info->name);
                }
        }
        assert_int_equal(n_read + n_refused, ARRAY_SIZE(classes));
        raw_close(&r);
        assert_int_equal(ctl_status(h, "pages_sealed"), 4);
        worker_stop(w);
}

/* Older programs ask for lists by other numbers: they are told that they are older. */
static void test_older_programs(void **state)
{
        struct harness *h = *state;
        const Kvlease__V1__SimpleReply *reply;
        char path[PRIVATE_PATH_MAX];
        struct raw r;

        raw_open(&r, h, monitor_path(h, path));
        assert_int_equal(raw_hello(&r, 1, 1)->status, 0);
        for (uint16_t type = 64; type < 96; type++) {
                if (msg_find(type) && type != MSG_ADMIN_PROCESS)
                        continue;
                assert_true(raw_frame(&r, (struct frame_header){.type = type}));
                reply = (const Kvlease__V1__SimpleReply *)raw_answer(&r);
                assert_non_null(reply);
                assert_int_equal(
                        reply->status, type == MSG_ADMIN_PROCESS ? WIRE_DENIED : WIRE_UNSUPPORTED);
                assert_non_null(strstr(reply->detail, "kvlease-exporter"));
        }
        raw_close(&r);
}

/* A client's message there is a broken rule, as on the admin socket. */
static void test_no_client(void **state)
{
        struct harness *h = *state;
        Kvlease__V1__LeaseRequest m = KVLEASE__V1__LEASE_REQUEST__INIT;
        char path[PRIVATE_PATH_MAX];
        struct raw r;

        raw_open(&r, h, monitor_path(h, path));
        assert_int_equal(raw_hello(&r, 1, 1)->status, 0);
        assert_true(raw_request(&r, MSG_LEASE, 0, &m.base));
        assert_true(raw_hung_up(&r));
        raw_close(&r);
        h->violations = 1;
}

/* By kvleasectl, and with options that would change something. */
static void test_ctl(void **state)
{
        struct harness *h = *state;
        static const char *const reads[] = {"status", "tenants", "namespaces", "clients", "regions",
                "evictions", "sessions", "sets", "devices", "events --count 3"};
        static const char *const changes[] = {"tenants add c", "tenants set a weight=3",
                "tenants remove a --force", "purge a", "recall a", "drain", "drain --off",
                "sessions purge a", "trace record on", "restart --force", "warm a n --all"};
        char path[PRIVATE_PATH_MAX], admin[PRIVATE_PATH_MAX];
        struct proc_output o;

        strcpy(admin, h->daemon.admin);
        strcpy(h->daemon.admin, monitor_path(h, path));
        for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
                ctl(h, reads[i]);
        for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
                if (ctl_run(h, changes[i], &o) != 1 || !strstr(o.err, "which is for reading"))
                        fail_msg("kvleasectl %s: %s%s", changes[i], o.out, o.err);
                proc_output_free(&o);
        }
        strcpy(h->daemon.admin, admin);
        assert_int_equal(ctl_status(h, "n_tenants"), 1);
}

/* Readers don't take the room of clients and administrators. */
static void test_most(void **state)
{
        struct harness *h = *state;
        const Kvlease__V1__HelloReply *hello;
        char path[PRIVATE_PATH_MAX];
        struct raw r[33];

        monitor_path(h, path);
        for (size_t i = 0; i + 1 < ARRAY_SIZE(r); i++) {
                raw_open(&r[i], h, path);
                assert_int_equal(raw_hello(&r[i], 1, 1)->status, 0);
        }
        raw_open(&r[32], h, path);
        hello = raw_hello(&r[32], 1, 1);
        assert_int_equal(hello->status, status_to_wire(-EMFILE));
        assert_non_null(strstr(hello->detail, "the most there may be"));
        for (size_t i = 0; i < ARRAY_SIZE(r); i++)
                raw_close(&r[i]);
}

/* All that kvlease-exporter asks for is there. */
static void test_exporter(void **state)
{
        struct harness *h = *state;
        char path[PRIVATE_PATH_MAX];
        const char *words[] = {"--socket", monitor_path(h, path), NULL};
        _cleanup_free_ char *m = NULL;
        struct exporter e;

        exporter_start(&e, h, words);
        m = exporter_metrics(&e);
        assert_true(metric_of(m, "kvlease_up") == 1);
        assert_true(metric_of(m, "kvlease_tenants") == 1);
        assert_true(metric_of(m, "kvlease_exporter_failed_scrapes_total") == 0);
        exporter_stop(&e);
}

/* Without a group it is root's and the daemon's own, also after a restart. */
static void test_file(void **state)
{
        struct harness *h = *state;
        char path[PRIVATE_PATH_MAX];
        struct stat st;

        assert_int_equal(stat(monitor_path(h, path), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        harness_restart(h);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
}

/* A request that would wait for an event, read after its client has hung up, is dropped. */
static void test_left_follower(void **state)
{
        struct harness *h = *state;
        Kvlease__V1__AdminCheckRequest check = KVLEASE__V1__ADMIN_CHECK_REQUEST__INIT;
        Kvlease__V1__AdminEventsRequest events = KVLEASE__V1__ADMIN_EVENTS_REQUEST__INIT;
        const Kvlease__V1__AdminEventsReply *reply;
        struct raw r;

        raw_open(&r, h, h->daemon.admin);
        assert_int_equal(raw_hello(&r, 1, 1)->status, 0);
        assert_true(raw_request(&r, MSG_ADMIN_EVENTS, 0, &events.base));
        reply = (const Kvlease__V1__AdminEventsReply *)raw_answer(&r);
        assert_non_null(reply);
        events.after = reply->next;
        events.wait_msec = 20;
        assert_int_equal(kill(h->daemon.pid, SIGSTOP), 0);
        assert_true(raw_request(&r, MSG_ADMIN_CHECK, 0, &check.base));
        assert_true(raw_request(&r, MSG_ADMIN_EVENTS, 0, &events.base)); /* waits for the check */
        raw_close(&r);
        assert_int_equal(kill(h->daemon.pid, SIGCONT), 0);
        raw_open(&r, h, h->daemon.admin);
        assert_int_equal(raw_hello(&r, 1, 1)->status, 0);
        events.wait_msec = 200;
        assert_true(raw_request(&r, MSG_ADMIN_EVENTS, 0, &events.base));
        assert_non_null(raw_answer(&r)); /* the first one's time was up before */
        raw_close(&r);
}

static const struct private_options no_group = {.daemon_lines = "monitor_group =\n"};

int main(void)
{
        const struct CMUnitTest tests[] = {
                harness_test(test_every_message, NULL),
                harness_test(test_older_programs, NULL),
                harness_test(test_no_client, NULL),
                harness_test(test_ctl, NULL),
                harness_test(test_most, NULL),
                harness_test(test_exporter, NULL),
                harness_test(test_left_follower, NULL),
                harness_test(test_file, (void *)&no_group),
        };

        return cmocka_run_group_tests_name("monitor", tests, NULL, NULL);
}
