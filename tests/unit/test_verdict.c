/* First lines of kvleasectl status: each finding where it is due, and "all well" without any. */
#include "tests/unit/test-support.h"

#include <stdlib.h>
#include <string.h>

#include "client/ctl/verdict.h"

/* protobuf-c has its strings writable. */
#pragma GCC diagnostic ignored "-Wdiscarded-qualifiers"

#define GIB (UINT64_C(1) << 30)

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

TEST(test_well)
{
        struct scene s;
        struct verdict v;

        scene_init(&s);
        v = judge(&s);
        assert_int_equal(v.n_findings, 0);
        verdict_deinit(&v);
}

static void break_device(struct scene *s)
{
        s->device.state = "broken";
}
static void break_missing(struct scene *s)
{
        s->device.missing_bytes = GIB;
}
static void break_no_device(struct scene *s)
{
        s->device.tier = "host"; /* what lies below a device is none */
}
static void break_culprits(struct scene *s)
{
        s->status.clients_lost = 2;
}
static void break_refused(struct scene *s)
{
        s->status.tenants_refused = 1;
}
static void break_draining(struct scene *s)
{
        s->status.draining = true;
}
static void break_no_tenant(struct scene *s)
{
        s->status.n_tenants = 0;
}
static void break_options(struct scene *s)
{
        s->status.options_pending = 3;
}
static void break_recording(struct scene *s)
{
        s->status.recording = true;
        s->status.recording_lost = 4;
        s->status.recording_trouble = "no room in /var";
}

static void break_unknown(struct scene *s)
{
        s->status.options_unknown = 2;
}

static void break_connects(struct scene *s)
{
        s->status.connects_refused = 9;
}
static void break_disk(struct scene *s)
{
        s->status.disk_state = "off";
        s->status.disk_why = "it is full of holes";
}
static void break_host_memory(struct scene *s)
{
        s->status.host.damaged = 7;
}
static void break_disk_pages(struct scene *s)
{
        s->status.disk.damaged = 8;
}
static void break_fragmentation(struct scene *s)
{
        s->status.fragmentation = 301;
}
static void break_muted(struct scene *s)
{
        s->status.peers_muted = 1;
}
static void break_pending(struct scene *s)
{
        s->status.pending_bytes = 800;
}
static void break_guard(struct scene *s)
{
        s->status.segments = "memfd (not permitted)";
}
static void break_room(struct scene *s)
{
        s->status.tenants_without_room = 2;
        s->status.no_room = "tenant a can lease no page";
}
static void break_paused(struct scene *s)
{
        s->status.tenants_paused = 1;
}
static void break_violations(struct scene *s)
{
        s->status.violations = 5;
}
static void break_overflows(struct scene *s)
{
        s->status.pending_overflows = 6;
}
static void break_lost_pages(struct scene *s)
{
        s->status.took_over = true;
        s->status.pages_lost_parent = 4;
}
static void break_excess(struct scene *s)
{
        s->status.memory_excess = "the group may have less";
}
static void break_deaths(struct scene *s)
{
        s->status.deaths = 3; /* two may be chance */
}
static void break_deaths_for_memory(struct scene *s)
{
        s->status.deaths = 2;
        s->status.deaths_for_memory = 1;
}
static void break_nothing_kept(struct scene *s)
{
        s->status.kept_max = s->status.kept_fds = 0;
}
static void break_kept_full(struct scene *s)
{
        s->status.kept_fds = 90;
}
static void break_kept_needed(struct scene *s)
{
        s->status.kept_needed = 101;
}
static void break_open_files(struct scene *s)
{
        s->status.open_files_needed++;
}

static const struct {
        void (*damage)(struct scene *s);
        enum severity severity;
        const char *what, *remedy; /* parts of them */
} cases[] = {
        {break_device, SEVERITY_ERROR, "host is broken", "nvidia-smi"},
        {break_missing, SEVERITY_WARNING, "1 GiB of what is reserved on host", "regions"},
        {break_no_device, SEVERITY_WARNING, "there is no device", "'devices' in [daemon]"},
        {break_culprits, SEVERITY_ERROR, "not taken over: 2,", "kvleasectl restart"},
        {break_refused, SEVERITY_ERROR, "refused: 1)", "kvleasectl restart"},
        {break_draining, SEVERITY_WARNING, "grants nothing new", "drain --off"},
        {break_no_tenant, SEVERITY_WARNING, "there is no tenant", "tenants add"},
        {break_options, SEVERITY_NOTE, "wait for a restart: 3", "kvleasectl config names"},
        {break_room, SEVERITY_WARNING, "no page: 2; tenant a can lease", "kvleasectl tenants set"},
        {break_recording, SEVERITY_WARNING, "the recording: 4: no room in /var",
                "trace record status"},
        {break_unknown, SEVERITY_NOTE, "skips: 2", "a newer kvleased knows them"},
        {break_connects, SEVERITY_NOTE, "by max_connects: 9", "tenants show"},
        {break_disk, SEVERITY_ERROR, "the disk tier is off: it is full of holes", "dmesg"},
        {break_host_memory, SEVERITY_WARNING, "host memory, which were dropped: 7", "dmesg"},
        {break_disk_pages, SEVERITY_WARNING, "disk, which were dropped: 8", "dmesg"},
        {break_fragmentation, SEVERITY_NOTE, "30.1 %", "compact = on"},
        {break_muted, SEVERITY_WARNING, "have mapped: 1", "kvleasectl clients"},
        {break_pending, SEVERITY_WARNING, "800 B of 1000 B", "kvleasectl clients"},
        {break_guard, SEVERITY_WARNING, "memfd (not permitted)", "CAP_SYS_ADMIN"},
        {break_paused, SEVERITY_NOTE, "max_requests: 1", "tenants show"},
        {break_violations, SEVERITY_NOTE, "since the start: 5", "--kind violation"},
        {break_overflows, SEVERITY_NOTE, "didn't read: 6", "log"},
        {break_lost_pages, SEVERITY_WARNING, "namespaces: 0, pages: 4", "log"},
        {break_excess, SEVERITY_WARNING, "the group may have less", "doctor compares"},
        {break_deaths, SEVERITY_WARNING, "died 3 times", "log"},
        {break_deaths_for_memory, SEVERITY_WARNING, "1 of them probably killed", "doctor compares"},
        {break_nothing_kept, SEVERITY_NOTE, "a restart empties the cache", "restart --check"},
        {break_kept_full, SEVERITY_WARNING, "90 of 100 descriptors", "FileDescriptorStoreMax="},
        {break_kept_needed, SEVERITY_WARNING, "need 101", "kvleasectl doctor"},
        {break_open_files, SEVERITY_WARNING, "need 1025", "LimitNOFILE="},
};

/* Each alone is found alone. */
TEST(test_each_finding)
{
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct scene s;
                struct verdict v;

                scene_init(&s);
                cases[i].damage(&s);
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
                "leases refused in the last 5min: 7, the last to tenant chat (quota): it holds 1 "
                "GiB of its limit of 1 GiB");
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
        break_options(&s);
        v = judge(&s);
        verdict_to_json(&v, object);
        assert_true(json_is_true(json_object_get(object, "well")));
        verdict_deinit(&v);

        break_draining(&s);
        break_disk(&s);
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
