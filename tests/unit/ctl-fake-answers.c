#include "tests/unit/ctl-fake-answers.h"

#include <string.h>

#include "proto/kvlease.pb-c.h"
#include "proto/status.h"
#include "tests/unit/test-support.h"

/* Generated messages have char * where they only read. */
#pragma GCC diagnostic ignored "-Wdiscarded-qualifiers"

#define M(name) Kvlease__V1__##name
#define GIB     (UINT64_C(1) << 30)

/* ---- what there is in the fake daemon -------------------------------------------------------- */

static M(AdminTier) host_tier = {
        .limit_bytes = 16 * GIB,
        .charged_bytes = 3 * GIB,
        .n_sets = 48,
        .pages_sealed = 1500,
        .pages_detached = 2,
        .pages_free = 34,
        .arrived = 9000,
        .damaged = 1,
};

static M(AdminPrefetch) streamed = {.begun = 1200,
        .useful = 1000,
        .wasted = 100,
        .given_up = 60,
        .at_stake = 40,
        .window = 256};
static M(AdminPrefetch) turned = {.begun = 32, .wasted = 32};
static M(AdminPrefetch) warmed = {.begun = 500, .useful = 100, .at_stake = 400};

static M(AdminTier) no_host_limit = {.limit_bytes = UINT64_MAX};

static M(AdminDevice) devices[] = {
        {.name = "host",
                .tier = "device",
                .backend = "host",
                .budget_bytes = 8 * GIB,
                .charged_bytes = 3 * GIB / 2,
                .extent_bytes = 64 << 20,
                .n_sets = 24,
                .total_bytes = 64 * GIB,
                .transport = "memfd",
                .state = "ok",
                .reserved_bytes = 2 * GIB,
                .missing_bytes = GIB / 2,
                .memory_ratio = 13},
        {.name = "GPU-6a3d1f52-8c1e-4b7a-9d0e-2f4b6c8d0e1f",
                .tier = "device",
                .backend = "cuda",
                .budget_bytes = 72 * GIB,
                .charged_bytes = 3 * GIB,
                .extent_bytes = 64 << 20,
                .n_sets = 46,
                .total_bytes = 80 * GIB,
                .transport = "vmm",
                .state = "stuck",
                .why = "the driver hasn't answered extent_create for 10 s",
                .n_preparing = 2,
                .exclusive = "search",
                .memory_ratio = 90,
                .prefetch_stream = &streamed,
                .prefetch_turn = &turned,
                .prefetch_warm = &warmed},
        {.name = "host of GPU-6a3d1f52-8c1e-4b7a-9d0e-2f4b6c8d0e1f",
                .tier = "host",
                .backend = "host",
                .budget_bytes = 16 * GIB,
                .charged_bytes = 3 * GIB,
                .extent_bytes = 64 << 20,
                .n_sets = 48,
                .total_bytes = 64 * GIB,
                .transport = "memfd",
                .state = "ok",
                .memory_ratio = 25,
                .registered_bytes = 3 * GIB},
};

static M(AdminOption) options[] = {
        {.section = "daemon", .key = "max_clients", .value = "1024", .origin = "default"},
        {.section = "device",
                .name = "host",
                .key = "memory",
                .value = "2GiB\x1b[2J",
                .origin = "/etc/kvlease/host.conf.d/50-m.conf:12",
                .configured = "128MiB",
                .waits = true},
};

static uint64_t refused_by[] = {0, 1, 2, 3, 4, 0, 5, 6, 7, 8}; /* the last: of a later daemon */

static M(AdminTenant) tenants[] = {
        {.name = "search",
                .limit_bytes = 4 * GIB,
                .weight = 200,
                .priority = 50,
                .max_clients = 64,
                .max_pins = 4194304,
                .charged_bytes = GIB,
                .max_connects = 1000,
                .max_requests = 50000,
                .requests = 777777,
                .paused = true,
                .pauses = 12,
                .pauses_msec = 3400,
                .connects_refused = 6,
                .verify_failures = 2,
                .pending_bytes = 300 << 10,
                .open_files = 40,
                .open_files_sure = 2000,
                .open_files_limit = 7000,
                .kept_fds = 30,
                .kept_fds_sure = 1750,
                .kept_fds_limit = 6250,
                .n_clients = 2,
                .n_namespaces = 1,
                .socket_path = "/run/kvlease/t/search/sock",
                .source = "config",
                .pages_granted = 4,
                .pages_sealed = 1200,
                .pages_detached = 1,
                .evictions = 17,
                .evict = "pgi",
                .miss_cost = "compute",
                .attention_crossover = 30632,
                .expire_sec = 86400,
                .session_expire_sec = 3600,
                .refusals = 2,
                .uids = "1000 1001",
                .gids = "",
                .group = "search",
                .class_ = "pinned",
                .reserve_bytes = 2 * GIB,
                .reserve_configured_bytes = 5 * GIB / 2,
                .reserve_min_bytes = GIB,
                .reserve_max_bytes = 3 * GIB,
                .sizer = "dry-run",
                .schedule = "08:00-20:00 2GiB-3GiB",
                .when_full = "queue",
                .max_wait_msec = 1500,
                .burst = "none",
                .lend_idle_reserve = true,
                .placement = "device=GPU-6a3d1f52-8c1e-4b7a-9d0e-2f4b6c8d0e1f",
                .exclusive = true,
                .share_group = true,
                .publish_uids = "1000",
                .publish_gids = "2000",
                .waiting = 3,
                .waits = 40,
                .waited_msec = 61000,
                .max_waited_msec = 900,
                .degraded = 5,
                .n_refused_by = ARRAY_SIZE(refused_by),
                .refused_by = refused_by,
                .fair_bytes = GIB / 4,
                .excess_bytes = GIB / 8,
                .host = &host_tier,
                .pages_promoted = 8000},
        {.name = "chat",
                .host = &no_host_limit,
                .limit_bytes = UINT64_MAX,
                .weight = 100,
                .priority = 50,
                .max_clients = 1024,
                .max_pins = 1000,
                .charged_bytes = GIB / 2,
                .class_ = "dynamic",
                .socket_path = "",
                .source = "admin",
                .uids = "",
                .gids = "",
                .group = "",
                .no_room = "tenant chat can lease no page: its limit of 1 MiB is less than an "
                           "extent set of device host (64 MiB); raise its limit"},
};

static uint8_t format[] = "vllm 0.33 flash NHD";

static M(NsLayout) layout = {
        .model = "llama-3-8b",
        .version = "v1",
        .dtype = 3,
        .n_layers = 32,
        .n_kv_heads = 8,
        .head_size = 128,
        .page_tokens = 16,
        .n_planes = 1,
        .plane_page_bytes = 2 << 20,
        .tp_size = 1,
        .format = {sizeof(format) - 1, format},
};

static M(AdminNamespace) namespaces[] = {
        {.tenant = "search",
                .name = "llama",
                .layout = &layout,
                .device = "host",
                .epoch = 3,
                .charged_bytes = GIB,
                .n_sets = 16,
                .pages_free = 20,
                .pages_granted = 4,
                .pages_sealed = 1200,
                .pages_pinned = 9,
                .pages_detached = 1,
                .n_clients = 2,
                .capacity_pages = 2048,
                .set_pages = 32,
                .stride_bytes = 2 << 20,
                .hits = 750,
                .keys = 1000,
                .pages_ready = 6,
                .host = &host_tier,
                .pages_promoted = 8000,
                .prefetch_stream = &streamed,
                .prefetch_turn = &turned,
                .prefetch_warm = &warmed},
        {.tenant = "chat", .name = "bare", .device = "host"},
};

static M(AdminClient) clients[] = {
        {.client_id = 7,
                .tenant = "search",
                .name = "decoder",
                .pid = 4711,
                .uid = 1000,
                .state = "not reading",
                .state_sec = 93784,
                .heard_sec = 4,
                .namespaces = 2,
                .recalled_sets = 3,
                .late = true,
                .killed = true,
                .waiting = 5,
                .pending_bytes = 300 << 10,
                .group = "0a1b2c3d",
                .pages_granted = 4,
                .pins = 9,
                .mapped_sets = 16,
                .quarantined_sets = 2,
                .safepoints = true,
                .requests = 12345,
                .connected_sec = 93784},
        /* Names are the clients' own: control sequences, quotes, bytes that aren't UTF-8. */
        {.client_id = 8,
                .tenant = "search",
                .name = "\033[31m\"evil\"\\\xff\n",
                .pid = 4712,
                .uid = 1000,
                .state = "waiting for exit",
                .state_sec = 7,
                .heard_sec = 59,
                .late = true,
                .metadata_only = true,
                .group = "0a1b2c3d",
                .violations = 1,
                .connected_sec = 59},
        {.client_id = UINT64_C(1) << 53,
                .tenant = "chat",
                .name = "d\u00e9mo",
                .pid = 1,
                .state = "muted",
                .connected_sec = 3599},
};

static M(AdminRegion) regions[] = {
        {.device = "GPU-6a3d1f52-8c1e-4b7a-9d0e-2f4b6c8d0e1f",
                .tenant = "search",
                .size_bytes = 2 * GIB,
                .used_bytes = 3 * GIB / 2,
                .fair_bytes = GIB,
                .min_bytes = GIB,
                .max_bytes = 3 * GIB,
                .demand_bytes = 5 * GIB / 2,
                .p99_bytes = 5 * GIB / 2,
                .target_bytes = 3 * GIB,
                .sizer = "dry-run",
                .decision = "grow",
                .why = "p99 is 125 % of it",
                .decided_sec_ago = 4,
                .changes = 7},
        {.device = "host",
                .tenant = "search",
                .size_bytes = GIB,
                .min_bytes = GIB,
                .max_bytes = GIB,
                .target_bytes = GIB,
                .sizer = "off",
                .lent_bytes = GIB / 2,
                .missing_bytes = GIB / 4,
                .taken_back_msec = 1200},
        {.device = "host",
                .tenant = "chat",
                .excess_bytes = GIB / 2,
                .fair_bytes = GIB / 4,
                .demand_bytes = GIB,
                .sizer = "on",
                .decision = "none"},
        {.device = "host", .size_bytes = 7 * GIB, .used_bytes = GIB / 2},
};

#include "tests/unit/ctl-fake-events.h"

/* Two events in the first answer, the rest in the next. A following client sees that some were
 * lost. */
static void answer_events(
        const struct fake_answers *f, M(AdminEventsReply) * m, const M(AdminEventsRequest) * q)
{
        static M(AdminEvent) * rows[ARRAY_SIZE(events)];
        size_t first = q->after == 0 ? 0 : 2;

        if (f->mode == FAKE_EMPTY)
                return;
        if (q->n_kinds == 1) { /* "refused", as kvleasectl status asks */
                rows[0] = &events[1];
                m->events = rows;
                m->n_events = f->mode != FAKE_WELL;
                return;
        }
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                rows[i] = &events[i];
        m->events = rows + first;
        m->n_events = first ? ARRAY_SIZE(rows) - first : 2;
        m->more = !first;
        m->next = events[first ? ARRAY_SIZE(rows) - 1 : 1].number;
        m->lost = q->wait_msec > 0 ? 6 : 0;
}

#include "tests/unit/ctl-fake-reuse.h"

static M(AdminTurn) turns[] = {
        {.base = PROTOBUF_C_MESSAGE_INIT(&kvlease__v1__admin_turn__descriptor),
                .time_msec = UINT64_C(1767225600123),
                .nsec = 3140000,
                .what = "LEASE",
                .tenant = "prod",
                .what_nsec = 3100000},
        {.base = PROTOBUF_C_MESSAGE_INIT(&kvlease__v1__admin_turn__descriptor),
                .time_msec = UINT64_C(1767225660000),
                .nsec = 1500000,
                .what = "",
                .tenant = ""},
};
static M(AdminTurn) * turn_list[] = {&turns[0], &turns[1]};

static M(AdminStatusReply) status = {
        .n_longest_turns = 2,
        .longest_turns = turn_list,
        .n_recent_turns = 1,
        .recent_turns = turn_list + 1,
        .host = &host_tier,
        .pages_promoted = 8000,
        .daemon_version = "0.1.0",
        .pid = 4242,
        .uptime_sec = 3723,
        .longest_turn_nsec = 3140000,
        .boot_epoch = UINT64_C(0xfedcba9876543210),
        .n_clients = 2,
        .n_tenants = 2,
        .n_namespaces = 2,
        .pending_bytes = 300 << 10,
        .max_pending_bytes = 64 << 20,
        .pending_overflows = 8,
        .peers_held = 1,
        .peers_new = 3,
        .tenants_paused = 1,
        .connects_refused = 6,
        .budget_bytes = 8 * GIB,
        .charged_bytes = 3 * GIB / 2,
        .pages_free = 20,
        .pages_granted = 4,
        .pages_sealed = 1200,
        .pages_pinned = 9,
        .pages_detached = 1,
        .lookups = 250,
        .lookup_keys = 1000,
        .lookup_hits = 750,
        .publishes = 1300,
        .duplicates = 40,
        .evictions = 17,
        .leases_refused = 2,
        .violations = 1,
        .config_file = "/etc/kvlease/kvleased.conf",
        .runtime_dir = "/run/kvlease",
        .state_dir = "/var/lib/kvlease",
        .members_waiting_exit = 1,
        .segments = "memfd (Operation not permitted)",
        .pages_ready = 6,
        .unindexed = 3,
        .touches_dropped = 12,
        .n_sharing = 1,
        .fragmentation = 125,
        .compacted_pages = 120,
        .compacted_sets = 4,
        .n_waiting = 3,
        .leases_waited = 40,
        .leases_degraded = 5,
        .pages_ahead = 64,
        .n_sessions = 2,
        .sessions_expired = 1,
        .pages_expired = 30,
        .announced = 500,
        .kept_fds = 120,
        .kept_max = 4096,
        .kept_needed = 3900,
        .open_files_needed = 4500,
        .open_files_max = 524288,
        .kept_released = 3,
        .took_over = true,
        .recovered_pages = 1190,
        .recovered_namespaces = 2,
        .recovered_sessions = 2,
        .namespaces_lost = 1,
        .pages_lost_checksum = 4,
        .pages_lost_parent = 5,
        .pages_lost_duplicate = 6,
        .pages_lost_index = 7,
        .clients_recovered = 6,
        .clients_resumed = 1,
        .clients_waiting = 2,
        .clients_expired = 3,
        .clients_lost = 2,
        .tenants_refused = 1,
        .tenants_without_room = 1,
        .memory_excess = "memory and host_memory are 8 GiB of the host together, and the control "
                         "group /sys/fs/cgroup/kvlease may have 4 GiB",
        .deaths = 4,
        .deaths_for_memory = 3,
        .no_room = "tenant chat can lease no page: its limit of 1 MiB is less than an extent set "
                   "of device host (64 MiB); raise its limit",
        .ready_msec = 35,
        .announces_pending = 60,
        .n_remotes = ARRAY_SIZE(remote_rows),
        .remotes = remote_rows,
        STATUS_OF_CATALOG,
        .recording = true,
};

/* ---- answers --------------------------------------------------------------------------------- */

/* Generated messages are initialised by a function each: their default strings aren't NULL. */
static ProtobufCMessage *message_new(struct fake_answers *f, const ProtobufCMessageDescriptor *d)
{
        ProtobufCMessage *m = arena_alloc(f->arena, d->sizeof_message);

        assert_non_null(m);
        d->message_init(m);
        return m;
}

/* Fills what the tables above leave out: descriptor and default strings. */
static void complete(struct fake_answers *f, void *p, const ProtobufCMessageDescriptor *d)
{
        ProtobufCMessage *m = p, *fresh = message_new(f, d);

        for (unsigned i = 0; i < d->n_fields; i++) {
                const ProtobufCFieldDescriptor *field = &d->fields[i];
                char **text = (char **)((char *)p + field->offset);

                if (field->type == PROTOBUF_C_TYPE_STRING &&
                        field->label != PROTOBUF_C_LABEL_REPEATED && !*text)
                        *text = *(char **)((char *)fresh + field->offset);
        }
        m->descriptor = d;
}

#define COMPLETE(f, row, name) complete(f, row, &kvlease__v1__##name##__descriptor)

/* One row per answer, so that every list of two needs two requests. */
#define LIST_ROW(f, reply, request, field, rows, name)                               \
        do {                                                                         \
                size_t at = (size_t)(request)->after;                                \
                                                                                     \
                if ((f)->mode == FAKE_EMPTY || at >= ARRAY_SIZE(rows))               \
                        break;                                                       \
                COMPLETE(f, &(rows)[at], name);                                      \
                (reply)->n_##field = 1;                                              \
                (reply)->field = arena_alloc((f)->arena, sizeof((reply)->field[0])); \
                (reply)->field[0] = &(rows)[at];                                     \
                (reply)->next = at + 1 < ARRAY_SIZE(rows) ? at + 1 : 0;              \
                if ((f)->mode == FAKE_CIRCLE)                                        \
                        (reply)->next = 1;                                           \
        } while (0)

static void answer_hello(struct fake_answers *f, M(HelloReply) * reply)
{
        reply->version = PROTO_VERSION_MAX;
        reply->min_version = PROTO_VERSION_MIN;
        reply->max_version = PROTO_VERSION_MAX;
        reply->daemon_version = "0.1.0";
        if (f->mode == FAKE_TENANT)
                reply->tenant = "search";
        if (f->mode == FAKE_VERSION) {
                reply->status = WIRE_VERSION;
                reply->version = 0;
                reply->detail = "the daemon speaks protocol 2 to 3, the client 1 to 1: upgrade "
                                "kvleasectl";
        }
}

static void answer_status(struct fake_answers *f, M(AdminStatusReply) * reply)
{
        M(AdminStatusReply) copy = status;
        bool gone = f->mode == FAKE_LEAVING && f->n_status++ > 0;

        COMPLETE(f, &copy, admin_status_reply);
        for (size_t i = 0; i < ARRAY_SIZE(remotes); i++)
                COMPLETE(f, &remotes[i], admin_remote);
        copy.detail = "";
        if (f->mode != FAKE_EMPTY)
                *reply = copy;
        if (gone || f->mode == FAKE_LINGERING)
                reply->n_clients = 0;
        if (f->mode == FAKE_LINGERING || f->mode == FAKE_WELL)
                reply->segments = "read-only mount";
        if (gone)
                reply->members_waiting_exit = 0;
        if (f->mode == FAKE_WELL) {
                reply->host = NULL;
                reply->remotes = &remote_rows[1]; /* with which nothing is wrong */
                reply->n_remotes = 2;
                reply->clients_lost = reply->tenants_refused = reply->tenants_paused = 0;
                reply->memory_excess = "";
                reply->tenants_without_room = reply->deaths = reply->deaths_for_memory = 0;
                reply->violations = reply->pending_overflows = reply->connects_refused = 0;
                reply->took_over = false;
        }
}

/* FAKE_WELL: removes all that `status` warns about. */
static void answer_devices(
        struct fake_answers *f, M(AdminDevicesReply) * reply, const M(AdminListRequest) * q)
{
        static M(AdminDevice) well, *one[1] = {&well};

        LIST_ROW(f, reply, q, devices, devices, admin_device);
        if (f->mode != FAKE_WELL)
                return;
        well = devices[0];
        well.missing_bytes = 0;
        reply->devices = one;
        reply->next = 0;
}

static void answer_tenants(
        struct fake_answers *f, M(AdminTenantsReply) * reply, const M(AdminListRequest) * q)
{
        bool gone = f->mode == FAKE_LEAVING && q->tenant[0] && f->n_status++ > 0;
        static M(AdminTenant) * one[1];

        if (!q->tenant[0]) {
                LIST_ROW(f, reply, q, tenants, tenants, admin_tenant);
                return;
        }
        for (size_t i = 0; i < ARRAY_SIZE(tenants); i++) {
                if (strcmp(tenants[i].name, q->tenant) != 0)
                        continue;
                COMPLETE(f, &tenants[i], admin_tenant);
                tenants[i].recalled_sets = gone ? 0 : 3;
                one[0] = &tenants[i];
                reply->n_tenants = 1;
                reply->tenants = one;
        }
}

/* An answer for each key; none from a daemon that is empty. */
static void answer_explain(
        struct fake_answers *f, M(ExplainReply) * reply, const M(AdminExplainRequest) * q)
{
        static M(Explanation) * rows[ARRAY_SIZE(explanations)];
        size_t n = f->mode == FAKE_EMPTY ? 0 : q->keys.len / 32;

        assert_true(n <= ARRAY_SIZE(rows));
        for (size_t i = 0; i < n; i++) {
                COMPLETE(f, &explanations[i], explanation);
                rows[i] = &explanations[i];
        }
        reply->n_explanations = n;
        reply->explanations = rows;
        reply->outlook_detail = "an import loads what remote cluster has, which answers: at least "
                                "256 tokens, where that is sooner than computing them "
                                "(10000 a second, as remote_prefill says)";
}

static void answer_record(
        struct fake_answers *f, M(AdminRecordReply) * reply, const M(AdminRecordRequest) * q)
{
        if (f->mode == FAKE_EMPTY)
                return;
        reply->on = q->action != KVLEASE__V1__ADMIN_RECORD_REQUEST__ACTION__OFF;
        reply->path = "/var/lib/kvlease/traces/trace-3.jsonl";
        reply->requests = 1234;
        reply->bytes = 98765;
        reply->lost = 1;
        reply->under_way = 4;
        if (!reply->on)
                return;
        reply->without_id = 30;
        reply->trouble = "no room in /var/lib/kvlease/traces";
}

/* Warming runs after BEGIN; with FAKE_LINGERING it never ends. */
static void answer_warm(
        struct fake_answers *f, M(AdminWarmReply) * reply, const M(AdminWarmRequest) * q)
{
        bool is_status = q->action == KVLEASE__V1__ADMIN_WARM_REQUEST__ACTION__STATUS;

        if (f->mode == FAKE_EMPTY)
                return;
        reply->running = f->mode == FAKE_LINGERING ||
                         q->action == KVLEASE__V1__ADMIN_WARM_REQUEST__ACTION__BEGIN;
        reply->there = 2;
        reply->came = is_status ? 18 : 4;
        reply->left = is_status ? 3 : 17;
        reply->full = is_status && !reply->running;
        reply->missing = f->mode == FAKE_LEAVING;
}

/* Half of it, and then all where clients leave; a server that doesn't answer, where they don't. */
static void answer_drain(
        struct fake_answers *f, M(AdminDrainReply) * reply, const M(AdminDrainRequest) * q)
{
        bool is_over = f->mode == FAKE_LEAVING && q->look;

        if (f->mode == FAKE_EMPTY || !(q->export_cached || q->look))
                return;
        reply->export_begun = true;
        reply->exporting = !is_over;
        reply->written_pages = is_over ? 40000 : 20000;
        reply->written_bytes = reply->written_pages << 17;
        reply->there_pages = 1234;
        reply->there_bytes = reply->there_pages << 17;
        reply->left_pages = is_over ? 12 : 20012;
        reply->left_bytes = reply->left_pages << 17;
        reply->old_pages = 345;
        reply->apart_pages = is_over ? 7 : 0;
        if (f->mode == FAKE_NORMAL)
                reply->obstacle = "no server of remote cluster answers: Connection refused";
}

static void answer(
        struct fake_answers *f, uint16_t type, const ProtobufCMessage *q, ProtobufCMessage *m)
{
        COMPLETE(f, &host_tier, admin_tier);
        COMPLETE(f, &no_host_limit, admin_tier);
        COMPLETE(f, &streamed, admin_prefetch);
        COMPLETE(f, &turned, admin_prefetch);
        COMPLETE(f, &warmed, admin_prefetch);
        switch (type) {
        case MSG_HELLO:
                answer_hello(f, (M(HelloReply) *)m);
                return;
        case MSG_ADMIN_STATUS:
                answer_status(f, (M(AdminStatusReply) *)m);
                return;
        case MSG_ADMIN_DEVICES:
                answer_devices(f, (M(AdminDevicesReply) *)m, (const M(AdminListRequest) *)q);
                return;
        case MSG_ADMIN_TENANTS:
                answer_tenants(f, (M(AdminTenantsReply) *)m, (const M(AdminListRequest) *)q);
                return;
        case MSG_ADMIN_NAMESPACES:
                COMPLETE(f, &layout, ns_layout);
                LIST_ROW(f, (M(AdminNamespacesReply) *)m, (const M(AdminListRequest) *)q,
                        namespaces, namespaces, admin_namespace);
                return;
        case MSG_ADMIN_CLIENTS:
                LIST_ROW(f, (M(AdminClientsReply) *)m, (const M(AdminListRequest) *)q, clients,
                        clients, admin_client);
                return;
        case MSG_ADMIN_REGIONS:
                LIST_ROW(f, (M(AdminRegionsReply) *)m, (const M(AdminListRequest) *)q, regions,
                        regions, admin_region);
                return;
        case MSG_ADMIN_CONFIG:
                LIST_ROW(f, (M(AdminConfigReply) *)m, (const M(AdminListRequest) *)q, options,
                        options, admin_option);
                return;
        case MSG_ADMIN_EVICTIONS:
                LIST_ROW(f, (M(AdminEvictionsReply) *)m, (const M(AdminListRequest) *)q, evictions,
                        evictions, admin_eviction);
                return;
        case MSG_ADMIN_EVENTS:
                answer_events(f, (M(AdminEventsReply) *)m, (const M(AdminEventsRequest) *)q);
                return;
        case MSG_ADMIN_SESSIONS:
                LIST_ROW(f, (M(AdminSessionsReply) *)m, (const M(AdminListRequest) *)q, sessions,
                        sessions, admin_session);
                return;
        case MSG_ADMIN_SETS:
                LIST_ROW(f, (M(AdminSetsReply) *)m, (const M(AdminListRequest) *)q, sets, sets,
                        admin_set);
                return;
        case MSG_ADMIN_CODECS:
                LIST_ROW(f, (M(AdminCodecsReply) *)m, (const M(AdminListRequest) *)q, codecs,
                        codecs, admin_codec);
                return;
        case MSG_ADMIN_EXCHANGES:
                for (size_t i = 0; i < ARRAY_SIZE(drops); i++)
                        COMPLETE(f, &drops[i], admin_exchange_drop);
                LIST_ROW(f, (M(AdminExchangesReply) *)m, (const M(AdminListRequest) *)q, exchanges,
                        exchanges, admin_exchange);
                return;
        case MSG_ADMIN_REMOTES:
                LIST_ROW(f, (M(AdminRemotesReply) *)m, (const M(AdminListRequest) *)q, nodes, nodes,
                        admin_remote_node);
                return;
        case MSG_ADMIN_EXPLAIN:
                answer_explain(f, (M(ExplainReply) *)m, (const M(AdminExplainRequest) *)q);
                return;
        case MSG_ADMIN_SESSION_PURGE:
                ((M(CountReply) *)m)->count = 5;
                return;
        case MSG_ADMIN_WARM:
                answer_warm(f, (M(AdminWarmReply) *)m, (const M(AdminWarmRequest) *)q);
                return;
        case MSG_ADMIN_DRAIN:
                answer_drain(f, (M(AdminDrainReply) *)m, (const M(AdminDrainRequest) *)q);
                return;
        case MSG_ADMIN_RECORD:
                answer_record(f, (M(AdminRecordReply) *)m, (const M(AdminRecordRequest) *)q);
                return;
        case MSG_ADMIN_PURGE:
                ((M(CountReply) *)m)->count = 42;
                ((M(CountReply) *)m)->kept = ((const M(AdminPurgeRequest) *)q)->remove;
                return;
        case MSG_ADMIN_RECALL:
                ((M(CountReply) *)m)->count = 3;
                return;
        case MSG_ADMIN_CHECK:
                ((M(AdminCheckReply) *)m)->pages = 1225;
                ((M(AdminCheckReply) *)m)->sets = 24;
                return;
        }
}

/* Every reply starts with status and detail. */
static void refuse(struct fake_answers *f, uint16_t type, ProtobufCMessage *m)
{
        M(SimpleReply) *reply = (M(SimpleReply) *)m;

        if (f->mode == FAKE_CORRUPT && type == MSG_ADMIN_CHECK) {
                reply->status = WIRE_CORRUPT;
                reply->detail = "page 17 of search/llama is in two places";
        }
        if (type == MSG_HELLO || (f->mode != FAKE_REFUSING && f->mode != FAKE_SILENT))
                return;
        reply->status = WIRE_BUSY;
        if (f->mode == FAKE_REFUSING)
                reply->detail = "tenant search has 2 clients: end them first";
}

ProtobufCMessage *fake_answer(
        struct fake_answers *f, const struct msg_info *info, const ProtobufCMessage *request)
{
        ProtobufCMessage *reply = message_new(f, info->reply);

        answer(f, info->type, request, reply);
        refuse(f, info->type, reply);
        return reply;
}
