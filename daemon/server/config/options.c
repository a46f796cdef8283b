#include "daemon/server/config/options.h"

#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/config/config.h"
#include "policy/bucket.h"
#include "policy/recompute.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static const char *const log_level_names[] = {"error", "warning", "notice", "info", "debug", NULL};
static const char *const log_target_names[] = {"auto", "journal", "text", NULL};
static const char *const transport_names[] = {"auto", "vmm", "cudaipc", NULL};
static const char *const keep_state_names[] = {"auto", "off", NULL};
static const char *const liveness_names[] = {"auto", "challenge", NULL};
/* The names of evict_policies[] (policy/evict.c), in the same order. */
const char *const config_evict_names[] = {"pgi", "lru", NULL};
const char *const config_tenant_evict_names[] = {"default", "pgi", "lru", NULL};
const char *const config_miss_cost_names[] = {"tokens", "compute", NULL};
const char *const config_class_names[] = {"dynamic", "pinned", NULL};
const char *const config_when_full_names[] = {"reject", "queue", "degrade", NULL};
const char *const config_burst_names[] = {"pool", "none", NULL};
const char *const config_sizer_names[] = {"off", "dry-run", "on", NULL};

#define AT(type, member) offsetof(struct type, member)

const struct option options[] = {
        {SECTION_DAEMON, "runtime_dir", OPTION_PATH, AT(daemon_config, runtime_dir), 1,
                CONFIG_RUNTIME_DIR_MAX, .default_text = "/run/kvlease",
                .help = "Directory of the sockets and the lock file. Made where it is missing. The "
                        "kernel takes paths of sockets of at most 107 bytes: with the name of a "
                        "tenant it may have 99 together."},
        {SECTION_DAEMON, "state_dir", OPTION_PATH, AT(daemon_config, state_dir), 1, CONFIG_PATH_MAX,
                .default_text = "/var/lib/kvlease",
                .help = "Directory of what survives a restart: tenants made by kvleasectl."},
        {SECTION_DAEMON, "devices", OPTION_TEXT, AT(daemon_config, devices), 1, CONFIG_DEVICES_TEXT,
                .default_text = "auto",
                .help = "Devices to own, separated by commas: UUIDs of GPUs or 'host'; 'auto' "
                        "takes every GPU, and the host's memory where there is none. 'host-1', "
                        "'host-2', ... are further devices of the host's memory. A section "
                        "[device NAME] with 'members' is a device that spans several."},
        {SECTION_DAEMON, "evict", OPTION_ENUM, AT(daemon_config, evict),
                .choices = config_evict_names, .default_text = "pgi",
                .help = "Which cached pages give way first, of tenants that say nothing else: in "
                        "namespaces made from then on."},
        {SECTION_DAEMON, "max_clients", OPTION_UINT, AT(daemon_config, max_clients), 1, 65535,
                .default_text = "1024", .reloadable = true,
                .help = "Most connections of all tenants together; administrators find some room "
                        "beyond."},
        {SECTION_DAEMON, "max_pending", OPTION_BYTES, AT(daemon_config, max_pending_bytes), MIB,
                64 * GIB, .default_text = "64MiB", .reloadable = true,
                .help = "Most memory for answers that clients haven't taken and requests that "
                        "wait, of all tenants together. Near to it, who has most isn't read from "
                        "until it takes its answers. A client that reads has next to nothing "
                        "there."},
        {SECTION_DAEMON, "default_socket", OPTION_BOOL, AT(daemon_config, default_socket),
                .default_text = "on",
                .help = "Serve runtime_dir/sock, where the peer's uid picks the one tenant whose "
                        "'uids' names it."},
        {SECTION_DAEMON, "admin_group", OPTION_TEXT, AT(daemon_config, admin_group), 0,
                CONFIG_GROUP_MAX, .default_text = "kvlease-admin",
                .help = "Members of this group may use the admin socket, besides root and the "
                        "daemon's own user; empty: nobody else may."},
        {SECTION_DAEMON, "monitor_group", OPTION_TEXT, AT(daemon_config, monitor_group), 0,
                CONFIG_GROUP_MAX, .default_text = "kvlease-monitor",
                .help = "Members of this group may use runtime_dir/monitor.sock, which answers "
                        "what only reads: figures, lists and events of all tenants. It is for "
                        "kvlease-exporter. Administrators may, too; empty: nobody else."},
        {SECTION_DAEMON, "liveness", OPTION_ENUM, AT(daemon_config, liveness),
                .choices = liveness_names, .default_text = "auto", .reloadable = true,
                .help = "How a client's process is watched: 'auto' asks the kernel for the peer's "
                        "pidfd and falls back to 'challenge', a nonce that the client sends back."},
        {SECTION_DAEMON, "hello_timeout", OPTION_DURATION, AT(daemon_config, hello_timeout_nsec),
                100 * NSEC_PER_MSEC, 3600 * NSEC_PER_SEC, .default_text = "10s", .reloadable = true,
                .help = "How long a connection may take to introduce itself before it is closed."},
        {SECTION_DAEMON, "stop_timeout", OPTION_DURATION, AT(daemon_config, stop_timeout_nsec), 0,
                3600 * NSEC_PER_SEC, .default_text = "2s", .reloadable = true,
                .help = "How long a stop waits until clients have taken their last messages."},
        {SECTION_DAEMON, "revoke_timeout", OPTION_DURATION, AT(daemon_config, revoke_timeout_nsec),
                10 * NSEC_PER_MSEC, 3600 * NSEC_PER_SEC, .default_text = "5s", .reloadable = true,
                .help = "How long clients may take to give back memory that is recalled before it "
                        "is quarantined."},
        {SECTION_DAEMON, "revoke_kill", OPTION_BOOL, AT(daemon_config, revoke_kill),
                .default_text = "off", .reloadable = true,
                .help = "Kill clients (SIGKILL) that haven't given recalled memory back in time."},
        {SECTION_DAEMON, "sizer_window", OPTION_DURATION, AT(daemon_config, sizer_window_nsec),
                NSEC_PER_SEC, 7 * 24 * 3600 * NSEC_PER_SEC, .default_text = "10min",
                .reloadable = true,
                .help = "Demand of that long decides how large reservations are (99th "
                        "percentile)."},
        {SECTION_DAEMON, "sizer_interval", OPTION_DURATION, AT(daemon_config, sizer_interval_nsec),
                10 * NSEC_PER_MSEC, 3600 * NSEC_PER_SEC, .default_text = "1s", .reloadable = true,
                .help = "How often demand is sampled."},
        {SECTION_DAEMON, "sizer_cooldown", OPTION_DURATION, AT(daemon_config, sizer_cooldown_nsec),
                0, 7 * 24 * 3600 * NSEC_PER_SEC, .default_text = "1min", .reloadable = true,
                .help = "How long after a change a reservation isn't made smaller."},
        {SECTION_DAEMON, "compact", OPTION_BOOL, AT(daemon_config, compact), .default_text = "on",
                .reloadable = true,
                .help = "Whether extent sets with few live pages are emptied by moving these."},
        {SECTION_DAEMON, "keep_state", OPTION_ENUM, AT(daemon_config, keep_state),
                .choices = keep_state_names, .default_text = "auto",
                .help = "Whether cached pages and clients outlive the process. 'auto': where "
                        "somebody keeps its descriptors for the next one: a service manager "
                        "(FileDescriptorStoreMax= of the service), or 'kvleased --keep'."},
        {SECTION_DAEMON, "log_level", OPTION_ENUM, AT(daemon_config, log_level),
                .choices = log_level_names, .default_text = "info", .reloadable = true,
                .help = "What is logged: this level and what is worse."},
        {SECTION_DAEMON, "log_target", OPTION_ENUM, AT(daemon_config, log_target),
                .choices = log_target_names, .default_text = "auto", .reloadable = true,
                .help = "Where to: 'auto' takes the journal where stderr is the journal, else text "
                        "on stderr."},

        {SECTION_DEVICE, "members", OPTION_TEXT, AT(device_config, members), 0, DEVICE_MEMBERS_TEXT,
                .default_text = "",
                .help = "GPUs that this device spans, as UUIDs separated by commas, or 'all'. "
                        "Each holds equally many planes of every page: those of one rank of an "
                        "engine. NAME of the section is of your choice; 'devices' lists it in "
                        "place of the GPUs. Empty: the device is the one of this name."},
        {SECTION_DEVICE, "memory", OPTION_BYTES, AT(device_config, memory_bytes), MIB,
                1024 * 1024 * GIB, .word = "auto", .word_value = DEVICE_MEMORY_AUTO,
                .default_text = "auto",
                .help = "Memory of the device, or of each of its members, that is leased at most. "
                        "'auto': nine tenths of a GPU's; of the host's a quarter of what the "
                        "machine has, at most 64 GiB."},
        {SECTION_DEVICE, "memory_ratio", OPTION_UINT, AT(device_config, memory_ratio), 1, 100,
                .word = "auto", .word_value = DEVICE_RATIO_AUTO, .default_text = "auto",
                .help = "Percent of the device's memory that is leased at most, where 'memory' is "
                        "auto. 'auto': as said there."},
        {SECTION_DEVICE, "extent", OPTION_BYTES, AT(device_config, extent_bytes), 2 * MIB, GIB,
                .default_text = "64MiB",
                .help = "Wanted size of an extent set, the unit in which tenants are charged."},
        {SECTION_DEVICE, "transport", OPTION_ENUM, AT(device_config, transport),
                .choices = transport_names, .default_text = "auto",
                .help = "How a GPU's memory is handed to clients: 'vmm' (file descriptors), "
                        "'cudaipc' (legacy IPC: a restart of kvleased loses the cache), or 'auto', "
                        "vmm where the GPU can."},
        {SECTION_DEVICE, "driver_timeout", OPTION_DURATION, AT(device_config, driver_timeout_nsec),
                10 * NSEC_PER_MSEC, 3600 * NSEC_PER_SEC, .default_text = "10s",
                .help = "How long one call of a GPU's driver may take before requests that wait "
                        "for it are refused."},
        {SECTION_DEVICE, "death_grace", OPTION_DURATION, AT(device_config, death_grace_nsec), 0,
                3600 * NSEC_PER_SEC, .default_text = "1s",
                .help = "How long what a dead client held on a GPU isn't reused: work it had "
                        "started may still be writing. Not on the host."},

        {SECTION_DEVICE, "huge_pages", OPTION_BOOL, AT(device_config, huge_pages),
                .default_text = "off",
                .help = "Have clients ask the kernel for huge pages for a host device's memory, "
                        "which it gives where /sys/kernel/mm/transparent_hugepage/shmem_enabled is "
                        "'advise' or more: a process' first access to memory costs a 512th, and "
                        "where one byte is written 2 MiB become resident. Not on GPUs."},

        {SECTION_DEVICE, "populate", OPTION_BOOL, AT(device_config, populate),
                .default_text = "off",
                .help = "Touch a host device's memory before clients get it: the kernel charges it "
                        "to kvleased's control group then, and else to that of the client that "
                        "writes it first, which may have less than the tenant's limit. New extents "
                        "take longer. Not on GPUs."},

        {SECTION_DEVICE, "host_memory", OPTION_BYTES, AT(device_config, host_memory_bytes), 0,
                1024 * 1024 * GIB, .default_text = "0",
                .help = "Memory of the host that cached pages go to when the device needs the "
                        "room, and come back from. 0: none; they are dropped, or go to 'disk'."},
        {SECTION_DEVICE, "host_huge_pages", OPTION_BOOL, AT(device_config, host_huge_pages),
                .default_text = "off",
                .help = "Ask the kernel for huge pages for 'host_memory', which it gives where "
                        "/sys/kernel/mm/transparent_hugepage/shmem_enabled is 'advise' or more."},
        {SECTION_DEVICE, "disk", OPTION_PATH, AT(device_config, disk), 0, CONFIG_PATH_MAX,
                .default_text = "",
                .help = "File that cached pages go to from 'host_memory', or from the device where "
                        "there is none; made where it is missing. Empty: none. On a disk that "
                        "takes many writes, and for no other device."},
        {SECTION_DEVICE, "disk_size", OPTION_BYTES, AT(device_config, disk_bytes), 0,
                1024 * 1024 * GIB, .default_text = "0",
                .help = "Size of that file, all of it allocated at once."},

        {SECTION_REMOTE, "addresses", OPTION_TEXT, AT(remote_config, addresses), 0,
                CONFIG_ADDRESSES_TEXT, .default_text = "",
                .help = "Where the servers (Redis or Valkey, a cluster or one) are found through "
                        "which hosts exchange pages: host:port or [address]:port, up to 16, "
                        "separated by spaces or commas. Any node leads to the others of its "
                        "cluster."},
        {SECTION_REMOTE, "user", OPTION_TEXT, AT(remote_config, user), 0, CONFIG_USER_MAX,
                .default_text = "", .help = "User of the servers' ACL. Empty: 'default'."},
        {SECTION_REMOTE, "secret_file", OPTION_PATH, AT(remote_config, secret_file), 0,
                CONFIG_PATH_MAX, .default_text = "",
                .help = "File with that user's password, which only its owner (root, or the "
                        "daemon's user) may write and others can't read. Empty: no AUTH is sent."},
        {SECTION_REMOTE, "tls", OPTION_BOOL, AT(remote_config, tls), .default_text = "off",
                .help = "Connections are TLS, and servers' certificates are verified."},
        {SECTION_REMOTE, "tls_ca", OPTION_PATH, AT(remote_config, tls_ca), 0, CONFIG_PATH_MAX,
                .default_text = "",
                .help = "PEM file with the certificates of whom to believe. Empty: the system's."},
        {SECTION_REMOTE, "tls_host", OPTION_TEXT, AT(remote_config, tls_host), 0, CONFIG_HOST_MAX,
                .default_text = "",
                .help = "Name that servers' certificates must have. Empty: the address that is "
                        "connected to."},
        {SECTION_REMOTE, "tls_cert", OPTION_PATH, AT(remote_config, tls_cert), 0, CONFIG_PATH_MAX,
                .default_text = "",
                .help = "PEM file with the certificate by which servers know this host. Empty: "
                        "none; Redis wants one unless it has 'tls-auth-clients no'."},
        {SECTION_REMOTE, "tls_key", OPTION_PATH, AT(remote_config, tls_key), 0, CONFIG_PATH_MAX,
                .default_text = "", .help = "PEM file with the key of tls_cert."},
        {SECTION_REMOTE, "connections", OPTION_UINT, AT(remote_config, connections), 1, 4,
                .default_text = "2",
                .help = "Connections to each node for pages, with a thread each; one more is for "
                        "questions."},
        {SECTION_REMOTE, "connect_timeout", OPTION_DURATION,
                AT(remote_config, connect_timeout_nsec), NSEC_PER_MSEC, 60 * NSEC_PER_SEC,
                .default_text = "250ms",
                .help = "How long a connection may take to stand, TLS and AUTH included."},
        {SECTION_REMOTE, "silence_timeout", OPTION_DURATION,
                AT(remote_config, silence_timeout_nsec), NSEC_PER_MSEC, 60 * NSEC_PER_SEC,
                .default_text = "500ms",
                .help = "How long what was sent may stay without acknowledgement of the other "
                        "host's kernel before the connection counts as lost, and how long a node "
                        "that owes answers may say nothing, and take nothing of a value, before "
                        "it is left alone."},
        {SECTION_REMOTE, "probe_timeout", OPTION_DURATION, AT(remote_config, probe_timeout_nsec),
                NSEC_PER_MSEC, NSEC_PER_SEC, .default_text = "5ms", .reloadable = true,
                .help = "How long the question whether pages are there may take: later answers "
                        "count as misses."},
        {SECTION_REMOTE, "bandwidth", OPTION_BYTES, AT(remote_config, bandwidth_bytes), MIB,
                1024 * GIB, .default_text = "1GiB", .reloadable = true,
                .help = "Bytes a second that all servers together are expected to send to this "
                        "host, for a tenant until that was measured: pages are loaded where that "
                        "is sooner than computing them."},
        {SECTION_REMOTE, "expiry", OPTION_DURATION, AT(remote_config, expiry_nsec), NSEC_PER_SEC,
                365 * 24 * 3600 * NSEC_PER_SEC, .default_text = "1d", .reloadable = true,
                .help = "How long pages and records of sessions that this host writes stay there "
                        "at most; epochs stay for a year. With remote_write of a tenant it bounds "
                        "the bytes of pages that the tenant has there."},

        {SECTION_TENANT, "limit", OPTION_BYTES, AT(tenant_config, limit_bytes), MIB,
                1024 * 1024 * GIB, .word = "none", .word_value = TENANT_LIMIT_NONE,
                .default_text = "none", .reloadable = true,
                .help = "Most bytes of extent sets the tenant may hold on devices. 'none': all "
                        "there is."},
        {SECTION_TENANT, "host_limit", OPTION_BYTES, AT(tenant_config, host_limit_bytes), 0,
                1024 * 1024 * GIB, .word = "none", .word_value = TENANT_LIMIT_NONE,
                .default_text = "none", .reloadable = true,
                .help = "The same of 'host_memory' below devices. 0: nothing of the tenant goes "
                        "there."},
        {SECTION_TENANT, "disk_limit", OPTION_BYTES, AT(tenant_config, disk_limit_bytes), 0,
                1024 * 1024 * GIB, .word = "none", .word_value = TENANT_LIMIT_NONE,
                .default_text = "none", .reloadable = true,
                .help = "The same of 'disk': tenants whose contents mustn't be written to one "
                        "have 0."},
        {SECTION_TENANT, "weight", OPTION_UINT, AT(tenant_config, weight), 1, 1000,
                .default_text = "100", .reloadable = true,
                .help = "Share of a full device in proportion to the other tenants' weights."},
        {SECTION_TENANT, "priority", OPTION_UINT, AT(tenant_config, priority), 0, 100,
                .default_text = "50", .reloadable = true,
                .help = "Among tenants equally far over their share the lowest gives way first."},
        {SECTION_TENANT, "class", OPTION_ENUM, AT(tenant_config, class),
                .choices = config_class_names, .default_text = "dynamic", .reloadable = true,
                .help = "'pinned': has a reservation that nobody else can use up; 'dynamic': "
                        "shares "
                        "what isn't reserved."},
        {SECTION_TENANT, "reserve", OPTION_BYTES, AT(tenant_config, reservation.bytes), 0,
                1024 * 1024 * GIB, .default_text = "0", .reloadable = true,
                .help = "Bytes reserved for a pinned tenant, in whole extents, over all devices it "
                        "is placed on. With a sizer: to begin with."},
        {SECTION_TENANT, "reserve_min", OPTION_BYTES, AT(tenant_config, reservation.min_bytes), 0,
                1024 * 1024 * GIB, .word = "auto", .word_value = TENANT_RESERVE_AUTO,
                .default_text = "auto", .reloadable = true,
                .help = "What the sizer reserves at least. 'auto': as 'reserve'."},
        {SECTION_TENANT, "reserve_max", OPTION_BYTES, AT(tenant_config, reservation.max_bytes), 0,
                1024 * 1024 * GIB, .word = "auto", .word_value = TENANT_RESERVE_AUTO,
                .default_text = "auto", .reloadable = true,
                .help = "What the sizer reserves at most. 'auto': as 'reserve'."},
        {SECTION_TENANT, "sizer", OPTION_ENUM, AT(tenant_config, reservation.sizer),
                .choices = config_sizer_names, .default_text = "off", .reloadable = true,
                .help = "Whether the reservation follows the tenant's demand between reserve_min "
                        "and "
                        "reserve_max; 'dry-run' only says what it would do ('kvleasectl "
                        "regions')."},
        {SECTION_TENANT, "schedule", OPTION_TEXT, AT(tenant_config, reservation.schedule), 0,
                TENANT_SCHEDULE_MAX, .default_text = "", .reloadable = true,
                .help = "Other minima and maxima by time of day, local time: '08:00-20:00 "
                        "8GiB-16GiB, 20:00-22:30 4GiB-8GiB'. Without a sizer the minimum is what "
                        "is "
                        "reserved."},
        {SECTION_TENANT, "burst", OPTION_ENUM, AT(tenant_config, burst),
                .choices = config_burst_names, .default_text = "pool", .reloadable = true,
                .help = "Beyond its reservation a pinned tenant uses what all share ('pool'), or "
                        "nothing ('none'): leases beyond it are refused, or wait, as 'when_full' "
                        "says."},
        {SECTION_TENANT, "lend_idle_reserve", OPTION_BOOL,
                AT(tenant_config, reservation.lends_idle), .default_text = "off",
                .reloadable = true,
                .help = "Others may use what a pinned tenant has reserved and doesn't hold, if "
                        "their "
                        "engines keep safe points: it is taken back when it is needed, which takes "
                        "until their next step."},
        {SECTION_TENANT, "when_full", OPTION_ENUM, AT(tenant_config, when_full),
                .choices = config_when_full_names, .default_text = "reject", .reloadable = true,
                .help = "A lease for which there is no room is refused ('reject'), waits at most "
                        "max_wait ('queue'), or gets what there is, if its client can use less "
                        "('degrade')."},
        {SECTION_TENANT, "max_wait", OPTION_DURATION, AT(tenant_config, max_wait_nsec), 0,
                3600 * NSEC_PER_SEC, .default_text = "1s", .reloadable = true,
                .help = "How long a lease may wait for room."},
        {SECTION_TENANT, "evict", OPTION_ENUM, AT(tenant_config, eviction.policy),
                .choices = config_tenant_evict_names, .default_text = "default", .reloadable = true,
                .help = "Which cached pages of the tenant give way first, in namespaces made from "
                        "then on. 'default': as [daemon] has it."},
        {SECTION_TENANT, "miss_cost", OPTION_ENUM, AT(tenant_config, eviction.miss_cost),
                .choices = config_miss_cost_names, .default_text = "tokens", .reloadable = true,
                .help = "What counts for a page that is missed, in namespaces made from then on: "
                        "its tokens, each alike ('tokens'), or what it takes to compute them "
                        "again, which is more the deeper they are in a text ('compute'). Only "
                        "evict = pgi goes by it."},
        {SECTION_TENANT, "attention_crossover", OPTION_UINT,
                AT(tenant_config, eviction.attention_crossover), 1, RECOMPUTE_CROSSOVER_MOST,
                .default_text = "30632", .reloadable = true,
                .help = "For miss_cost = compute: the position in a text, in tokens, at which "
                        "attention costs a token as much as everything else: the model's "
                        "parameters / (2 * layers * query heads * elements of a head)."},
        {SECTION_TENANT, "expire", OPTION_DURATION, AT(tenant_config, expire_nsec), 0,
                365 * 24 * 3600 * NSEC_PER_SEC, .default_text = "0", .reloadable = true,
                .help = "Cached pages that nobody has used for so long go. 0: never. A client that "
                        "makes a namespace can say another time for it."},
        {SECTION_TENANT, "expire_unused", OPTION_DURATION, AT(tenant_config, expire_unused_nsec), 0,
                365 * 24 * 3600 * NSEC_PER_SEC, .default_text = "0", .reloadable = true,
                .help = "Cached pages that nobody has found so long after they were published go: "
                        "what is used once doesn't fill the cache. 0: never."},
        {SECTION_TENANT, "session_expire", OPTION_DURATION, AT(tenant_config, session_expire_nsec),
                0, 365 * 24 * 3600 * NSEC_PER_SEC, .default_text = "1d", .reloadable = true,
                .help = "Sessions that nobody has open and nobody has used for so long are "
                        "forgotten; their pages stay cached as any others. 0: never. A client can "
                        "say another time for a session."},
        {SECTION_TENANT, "free_ahead", OPTION_UINT, AT(tenant_config, free_ahead), 0, 50,
                .default_text = "0", .reloadable = true,
                .help = "Percent of the pages that the tenant holds in a namespace that are kept "
                        "free while it leases, by evicting idle ones ahead of the next lease. "
                        "Where more memory can be had, none is evicted."},
        {SECTION_TENANT, "prefetch_steps", OPTION_UINT, AT(tenant_config, prefetch_steps), 0, 256,
                .default_text = "64", .reloadable = true,
                .help = "How many pages ahead of a client that reads a text piece by piece are "
                        "brought up from below the device. Sessions whose next turn is likely "
                        "come up, too. Both go off by themselves while they are of no use; 0: "
                        "both are off for good."},
        {SECTION_TENANT, "warm_tags", OPTION_TEXT, AT(tenant_config, warm_tags), 0,
                TENANT_WARM_TAGS_MAX, .default_text = "", .reloadable = true,
                .help = "Tags, as numbers separated by spaces or commas: when kvleased starts, "
                        "pages that were published with them, and what comes before these, are "
                        "brought up from below the device, as 'kvleasectl warm' does. At most 8."},
        {SECTION_TENANT, "host_codec", OPTION_TEXT, AT(tenant_config, host_codec), 1,
                CODEC_OPTION_MAX, .default_text = "none", .reloadable = true,
                .help = "In which fewer bytes cached pages lie in the host's memory below a "
                        "device: 'none' (as they are), 'int8', 'fp8' or 'int4', or one for each "
                        "range of layers, from layer 0 on: '0-7:none,8-23:int8,24-:int4'. For "
                        "namespaces made from then on whose client names none; a layout that it "
                        "isn't for (another number format, or number of layers) has none. Where "
                        "the tenant "
                        "has a remote, its pages travel so, too, between hosts that have the "
                        "same."},
        {SECTION_TENANT, "disk_codec", OPTION_TEXT, AT(tenant_config, disk_codec), 1,
                CODEC_OPTION_MAX, .default_text = "none", .reloadable = true,
                .help = "In which fewer bytes cached pages lie on a disk: as host_codec."},
        {SECTION_TENANT, "placement", OPTION_TEXT, AT(tenant_config, placement), 1,
                TENANT_PLACEMENT_MAX, .default_text = "pack", .reloadable = true,
                .help = "Where namespaces of clients that name no device go, and reservations: "
                        "'pack' on as few devices as will do, 'spread' over all, 'device=UUID' on "
                        "that one."},
        {SECTION_TENANT, "exclusive", OPTION_BOOL, AT(tenant_config, exclusive),
                .default_text = "off", .reloadable = true,
                .help = "No other tenant on the devices this one is on."},
        {SECTION_TENANT, "remote", OPTION_TEXT, AT(tenant_config, remote.name), 0, TENANT_NAME_MAX,
                .default_text = "", .reloadable = true,
                .help = "Name of the section [remote NAME] through which the tenant's pages are "
                        "exchanged with other hosts that have a tenant of this name. Empty: they "
                        "aren't."},
        {SECTION_TENANT, "remote_write", OPTION_BYTES, AT(tenant_config, remote.write_bytes), 0,
                16 * GIB, .default_text = "64MiB", .reloadable = true,
                .help = "Bytes a second of the tenant's pages that this host writes there at most; "
                        "records of sessions, and epochs, don't count. 0: it only reads."},
        {SECTION_TENANT, "remote_secret", OPTION_PATH, AT(tenant_config, remote.secret_file), 0,
                CONFIG_PATH_MAX, .default_text = "", .reloadable = true,
                .help = "File with a secret of 16 to 256 random bytes, the same on all hosts, "
                        "which only its owner (root, or the daemon's user) may write and others "
                        "can't read. The tenant's pages are encrypted there, and their names "
                        "can't be guessed. Empty: neither; they only have sums."},
        {SECTION_TENANT, "remote_prefill", OPTION_UINT, AT(tenant_config, remote.prefill), 0,
                10000000, .default_text = "0", .reloadable = true,
                .help = "Tokens of prompts that the tenant's engines compute in a second: pages "
                        "are loaded where that is sooner. 0: as engines measure it, and 10000 "
                        "before one has."},
        {SECTION_TENANT, "share_group", OPTION_BOOL, AT(tenant_config, access.share_group),
                .default_text = "off", .reloadable = true,
                .help = "The tenant is shared by clients of several others: they find it by its "
                        "own "
                        "socket alone, never through the default one."},
        {SECTION_TENANT, "publish_uids", OPTION_UIDS, AT(tenant_config, access.publish_uids),
                .default_text = "", .reloadable = true,
                .help = "Users whose clients may lease, publish and invalidate. Where both "
                        "publish_uids and publish_gids are empty, all clients may; the others only "
                        "look up."},
        {SECTION_TENANT, "publish_gids", OPTION_GIDS, AT(tenant_config, access.publish_gids),
                .default_text = "", .reloadable = true,
                .help = "Groups whose members' clients may, too."},
        {SECTION_TENANT, "max_clients", OPTION_UINT, AT(tenant_config, max_clients), 1,
                TENANT_MAX_CLIENTS, .default_text = "64", .reloadable = true,
                .help = "Most connections of the tenant."},
        {SECTION_TENANT, "max_pins", OPTION_UINT, AT(tenant_config, max_pins), 1, TENANT_PINS_MAX,
                .default_text = "4194304", .reloadable = true,
                .help = "Most pins of one client of the tenant that it took over the socket, and "
                        "of these at most 65535 on one page; what would go beyond is refused. "
                        "Pins in shared memory aren't counted by it."},
        {SECTION_TENANT, "max_connects", OPTION_UINT, AT(tenant_config, max_connects), 1,
                BUCKET_MAX_RATE, .word = "none", .word_value = 0, .default_text = "1000",
                .reloadable = true,
                .help = "Most connections a second that are made to the tenant, beyond "
                        "'max_clients' at once; further ones are refused. A process of an engine "
                        "connects once."},
        {SECTION_TENANT, "max_requests", OPTION_UINT, AT(tenant_config, max_requests), 1,
                BUCKET_MAX_RATE, .word = "none", .word_value = 0, .default_text = "none",
                .reloadable = true,
                .help = "Most requests a second of all the tenant's clients together that are "
                        "handled, those in shared memory included; what is beyond waits. Hits in "
                        "shared memory are no requests. Without it tenants share the daemon's "
                        "time evenly."},
        {SECTION_TENANT, "uids", OPTION_UIDS, AT(tenant_config, access.uids), .default_text = "",
                .reloadable = true,
                .help = "Users that may use the tenant's socket, and who find it through the "
                        "default socket: names or numbers, separated by commas."},
        {SECTION_TENANT, "gids", OPTION_GIDS, AT(tenant_config, access.gids), .default_text = "",
                .reloadable = true,
                .help = "Groups whose members may use the tenant's socket. Where both uids and "
                        "gids "
                        "are empty, whoever reaches the socket may; where both are given, either "
                        "will do."},
        {SECTION_TENANT, "group", OPTION_TEXT, AT(tenant_config, access.group), 0, CONFIG_GROUP_MAX,
                .default_text = "", .reloadable = true,
                .help = "Owning group (name or number) of the directory of the tenant's socket, "
                        "which others can't enter. Empty: the daemon's own."},
};
const size_t n_options = ARRAY_SIZE(options);

const char *option_section_name(enum option_section s)
{
        static const char *const names[N_SECTIONS] = {"daemon", "device", "remote", "tenant"};

        return names[s];
}

const struct option *option_find(enum option_section s, const char *key)
{
        for (size_t i = 0; i < n_options; i++)
                if (options[i].section == s && strcmp(options[i].key, key) == 0)
                        return &options[i];
        return NULL;
}

unsigned option_index(const struct option *o)
{
        const struct option *first = options;

        while (first->section != o->section)
                first++;
        return (unsigned)(o - first);
}

uint64_t option_bit(const struct option *o)
{
        return UINT64_C(1) << option_index(o);
}

/* Levenshtein distance of two keys. A key longer than the table's is far from all. */
static unsigned distance(const char *a, const char *b)
{
        unsigned row[32];
        size_t len = strlen(b);

        if (len >= ARRAY_SIZE(row))
                return UINT32_MAX;
        for (unsigned j = 0; j <= len; j++)
                row[j] = j;
        for (unsigned i = 1; *a; a++, i++) {
                unsigned diagonal = row[0];

                row[0] = i;
                for (size_t j = 1; j <= len; j++) {
                        unsigned replaced = diagonal + (*a != b[j - 1]);
                        unsigned shifted = MIN(row[j], row[j - 1]) + 1;

                        diagonal = row[j];
                        row[j] = MIN(replaced, shifted);
                }
        }
        return row[len];
}

const struct option *option_nearest(enum option_section s, const char *key)
{
        const struct option *best = NULL;
        unsigned best_distance = 4; /* more typing errors than that are another word */

        for (size_t i = 0; i < n_options; i++) {
                unsigned d = options[i].section == s ? distance(options[i].key, key) : UINT32_MAX;

                if (d < best_distance) {
                        best = &options[i];
                        best_distance = d;
                }
        }
        return best;
}
