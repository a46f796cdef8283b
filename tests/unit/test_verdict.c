/* First lines of kvleasectl status: each finding where it is due, and "all well" without any. */
#include "tests/unit/test-support.h"

#include <string.h>

#include "client/ctl/verdict.h"
#include "tests/unit/figure-text.h"

/* protobuf-c has its strings writable. */
#pragma GCC diagnostic ignored "-Wdiscarded-qualifiers"

typedef struct figures_status status_row;
typedef struct figures_device device_row;

/* A daemon of which all is well, and what lies below its device. */
struct scene {
        status_row status;
        device_row device;
};

static void scene_init(struct scene *s)
{
        figures_init(&figures_table_status, &s->status);
        figures_init(&figures_table_device, &s->device);
        s->device.name = "host";
        s->device.tier = "device";
        s->device.state = "ok";
        s->status.disk_state = "ok";
        s->status.n_tenants = 1;
        s->status.segments = "read-only mount";
        s->status.max_pending_bytes = 1000;
        s->status.pending_bytes = 799;
        s->status.fragmentation = 300;
        s->status.kept_max = 100;
        s->status.deaths = 2;
        s->status.kept_fds = 89;
        s->status.kept_needed = 100;
        s->status.open_files_needed = s->status.open_files_max = 1024;
}

/* Returns the first finding of a verdict, and the number of findings. */
static struct verdict judge(const struct scene *s)
{
        static const struct show_format format;
        struct verdict v = {.format = &format};

        verdict_of_device(&s->device, &v);
        verdict_of_status(&v, &s->status);
        return v;
}

static const struct {
        const char *device, *status; /* figures that differ, as text */
        enum severity severity;
        const char *what, *remedy; /* parts of them */
} cases[] = {
        {"state=broken", "", SEVERITY_ERROR, "host is broken", "nvidia-smi"},
        {"missing_bytes=1GiB", "", SEVERITY_WARNING, "1 GiB of the memory reserved on host",
                "regions"},
        /* A tier below a device is no device. */
        {"tier=host", "", SEVERITY_WARNING, "there is no device", "'devices' in [daemon]"},
        {"", "clients_lost=2", SEVERITY_ERROR, "not taken over: 2,", "kvleasectl restart"},
        {"", "tenants_refused=1", SEVERITY_ERROR, "refused: 1)", "kvleasectl restart"},
        {"", "draining=1", SEVERITY_WARNING, "grants nothing new", "drain --off"},
        {"", "n_tenants=0", SEVERITY_WARNING, "there is no tenant", "tenants add"},
        {"", "options_pending=3", SEVERITY_NOTE, "wait for a restart: 3",
                "kvleasectl config names"},
        {"", "tenants_without_room=2|no_room=tenant a can lease no page", SEVERITY_WARNING,
                "no page: 2; tenant a can lease", "kvleasectl tenants set"},
        {"", "namespaces_without_events=1|no_events=namespace x has none", SEVERITY_WARNING,
                "learn of: 1; namespace x has none", "events=SIZE"},
        {"", "recording=1|recording_lost=4|recording_trouble=no room in /var", SEVERITY_WARNING,
                "the recording: 4: no room in /var", "trace record status"},
        {"", "options_unknown=2", SEVERITY_NOTE, "skips: 2", "a newer kvleased knows them"},
        {"", "connects_refused=9", SEVERITY_NOTE, "by max_connects: 9", "tenants show"},
        {"", "disk_state=off|disk_why=it is full of holes", SEVERITY_ERROR,
                "the disk tier is off: it is full of holes", "dmesg"},
        {"", "host_damaged=7", SEVERITY_WARNING, "host memory, which were dropped: 7", "dmesg"},
        {"", "disk_damaged=8", SEVERITY_WARNING, "disk, which were dropped: 8", "dmesg"},
        {"", "fragmentation=301", SEVERITY_NOTE, "30.1 %", "compact = on"},
        {"", "peers_muted=1", SEVERITY_WARNING, "keep their memory: 1", "kvleasectl clients"},
        {"", "pending_bytes=800", SEVERITY_WARNING, "800 B of 1000 B", "kvleasectl clients"},
        {"", "segments=memfd (not permitted)", SEVERITY_WARNING, "memfd (not permitted)",
                "CAP_SYS_ADMIN"},
        {"", "tenants_paused=1", SEVERITY_NOTE, "max_requests: 1", "tenants show"},
        {"", "violations=5", SEVERITY_NOTE, "since the start: 5", "--kind violation"},
        {"", "pending_overflows=6", SEVERITY_NOTE, "didn't read: 6", "log"},
        {"", "took_over=1|pages_lost_parent=4", SEVERITY_WARNING, "namespaces: 0, pages: 4", "log"},
        {"", "memory_excess=the group may have less", SEVERITY_WARNING, "the group may have less",
                "doctor compares"},
        {"", "deaths=3", SEVERITY_WARNING, "died 3 times", "log"},
        {"", "deaths=2|deaths_for_memory=1", SEVERITY_WARNING, "1 of them probably killed",
                "doctor compares"},
        {"", "kept_max=0|kept_fds=0", SEVERITY_NOTE, "a restart empties the cache",
                "restart --check"},
        {"", "kept_fds=90", SEVERITY_WARNING, "90 of 100 descriptors", "FileDescriptorStoreMax="},
        {"", "kept_needed=101", SEVERITY_WARNING, "need 101", "kvleasectl doctor"},
        {"", "open_files_needed=1025", SEVERITY_WARNING, "need 1025", "LimitNOFILE="},
};

/* Each alone is found alone. */
TEST(test_each_finding)
{
        struct arena arena;

        assert_int_equal(arena_init(&arena, ARENA_BUDGET_BYTES), 0);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct scene s;
                struct verdict v;

                scene_init(&s);
                arena_reset(&arena);
                set_figures(&arena, &figures_table_device, cases[i].device, &s.device, NULL);
                set_figures(&arena, &figures_table_status, cases[i].status, &s.status, NULL);
                v = judge(&s);
                if (v.n_findings != 1)
                        fail_msg("case %zu: %zu findings", i, v.n_findings);
                if (!strstr(v.findings[0].what, cases[i].what) ||
                        !strstr(v.findings[0].remedy, cases[i].remedy))
                        fail_msg("case %zu: '%s'; '%s'", i, v.findings[0].what,
                                v.findings[0].remedy);
                assert_int_equal(v.findings[0].severity, cases[i].severity);
                verdict_deinit(&v);
        }
        arena_deinit(&arena);
}

/* Sentences on kvlease-exchange have its remedies, and others the nodes'. */
TEST(test_exchange)
{
        static const char *const rows[][2] = {
                {"kvlease-exchange isn't reached at /run/x",
                        "enable --now kvlease-exchange.socket"},
                {"kvlease-exchange refuses connections at /run/x", "give its socket to kvleased"},
                {"kvlease-exchange can't use it: a password", "correct that, then systemctl"},
                {"kvlease-exchange is gone: Broken pipe", "systemctl restart kvlease-exchange"},
                {"kvleased isn't let in (user, secret_file)", "restart kvlease-exchange"},
                {"the certificate isn't believed (tls_ca, tls_host)", "restart kvlease-exchange"},
                {"Connection refused", "kvleasectl remote shows"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct figures_remote remote;
                struct scene s;
                struct verdict v;

                scene_init(&s);
                figures_init(&figures_table_remote, &remote);
                remote.name = "rack";
                remote.state = "unreached";
                remote.error = rows[i][0];
                s.status.remotes = &remote;
                s.status.n_remotes = 1;
                v = judge(&s);
                assert_int_equal(v.n_findings, 1);
                assert_non_null(strstr(v.findings[0].what, rows[i][0]));
                assert_non_null(strstr(v.findings[0].remedy, rows[i][1]));
                verdict_deinit(&v);
        }
}

/* Some nodes refuse kvleased, and others serve: the nodes' remedy. */
TEST(test_refusing_node)
{
        struct figures_remote remote;
        struct scene s;
        struct verdict v;

        scene_init(&s);
        figures_init(&figures_table_remote, &remote);
        remote.name = "rack";
        remote.state = "reached";
        remote.error = "kvleased isn't let in (user, secret_file)";
        remote.node = "10.0.0.1:6379";
        remote.n_nodes = 2;
        remote.n_nodes_open = 1;
        s.status.remotes = &remote;
        s.status.n_remotes = 1;
        v = judge(&s);
        assert_int_equal(v.n_findings, 1);
        assert_non_null(strstr(v.findings[0].what, "1 of 2, 10.0.0.1:6379 among them"));
        assert_non_null(strstr(v.findings[0].remedy, "kvleasectl remote shows"));
        verdict_deinit(&v);
}

/* Recent refusals are a finding, though all is well by now. */
TEST(test_refusals)
{
        Kvlease__V1__AdminEvent last = KVLEASE__V1__ADMIN_EVENT__INIT;
        static const struct show_format format;
        struct verdict v = {.format = &format};

        last.tenant = "chat";
        last.reason = "quota";
        last.detail = "it holds 1 GiB of its limit of 1 GiB";
        verdict_of_refusals(&v, 0, NULL);
        assert_int_equal(v.n_findings, 0);
        verdict_of_refusals(&v, 7, &last);
        verdict_of_refusals(&v, 8, NULL);
        assert_int_equal(v.n_findings, 2);
        assert_int_equal(v.findings[0].severity, SEVERITY_WARNING);
        assert_string_equal(v.findings[0].what,
                "leases refused in the last 5min: 7, the last to tenant chat (quota): it holds 1 GiB of its limit of 1 GiB");
        assert_string_equal(v.findings[1].what, "leases refused in the last 5min: 8");
        verdict_deinit(&v);
}

/* In JSON the worst stands first, and notes alone leave all well. */
TEST(test_json)
{
        json_t *object = json_object();
        struct scene s;
        struct verdict v;

        scene_init(&s);
        s.status.options_pending = 3;
        v = judge(&s);
        verdict_to_json(&v, object);
        assert_true(json_is_true(json_object_get(object, "well")));
        verdict_deinit(&v);

        s.status.draining = true;
        s.status.disk_state = "off";
        s.status.disk_why = "it is full of holes";
        v = judge(&s);
        verdict_to_json(&v, object);
        assert_false(json_is_true(json_object_get(object, "well")));
        assert_int_equal(json_array_size(json_object_get(object, "findings")), 3);
        assert_string_equal(
                json_string_value(json_object_get(
                        json_array_get(json_object_get(object, "findings"), 0), "severity")),
                "error");
        verdict_deinit(&v);
        json_decref(object);
}
