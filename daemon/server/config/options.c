#include "daemon/relay/relay.h"
#include "daemon/server/config/options.h"

#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/parse.h"
#include "base/words.h"
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
                .help = "Directory of the sockets and the lock file. It is made if it is missing. "
                        "The kernel takes paths of sockets of at most 107 bytes, so this path and a tenant's name may have 99 together."},
        {SECTION_DAEMON, "exchange_socket", OPTION_PATH, AT(daemon_config, exchange_socket), 1,
                CONFIG_SOCKET_PATH_MAX, .default_text = RELAY_SOCKET,
                .help = "Socket of kvlease-exchange, which has the network for [remote NAME]. kvleased connects to it if there is such a section."},
        {SECTION_DAEMON, "state_dir", OPTION_PATH, AT(daemon_config, state_dir), 1, CONFIG_PATH_MAX,
                .default_text = "/var/lib/kvlease",
                .help = "Directory of the state that survives a restart: tenants made by kvleasectl."},
        {SECTION_DAEMON, "devices", OPTION_TEXT, AT(daemon_config, devices), 1, CONFIG_DEVICES_TEXT,
                .default_text = "auto",
                .help = "Devices to own, separated by commas: UUIDs of GPUs, or 'host'. 'auto' "
                        "takes every GPU, and the host's memory if there is none. 'host-1', "
                        "'host-2', ... are further devices of the host's memory. A section "
                        "[device NAME] with 'members' is a device that spans several."},
        {SECTION_DAEMON, "evict", OPTION_ENUM, AT(daemon_config, evict),
                .choices = config_evict_names, .default_text = "pgi",
                .help = "Policy that chooses the cached pages to evict first. It applies to later "
                        "namespaces of tenants without a policy of their own."},
        {SECTION_DAEMON, "max_clients", OPTION_UINT, AT(daemon_config, max_clients), 1, 65535,
                .default_text = "1024", .reloadable = true,
                .help = "Most connections of all tenants together. Administrators have a reserve of their own."},
        {SECTION_DAEMON, "max_pending", OPTION_BYTES, AT(daemon_config, max_pending_bytes), MIB,
                64 * GIB, .default_text = "64MiB", .reloadable = true,
                .help = "Most memory for unread answers and waiting requests, of all tenants "
                        "together. Near this limit kvleased reads nothing more from the client with most of it, until that client reads its answers."},
        {SECTION_DAEMON, "default_socket", OPTION_BOOL, AT(daemon_config, default_socket),
                .default_text = "on",
                .help = "Serve runtime_dir/sock, where the peer's uid selects the one tenant whose 'uids' names it."},
        {SECTION_DAEMON, "admin_group", OPTION_TEXT, AT(daemon_config, admin_group), 0,
                CONFIG_GROUP_MAX, .default_text = "kvlease-admin",
                .help = "Members of this group may use the admin socket, besides root and the daemon's own user. Empty: no other user may."},
        {SECTION_DAEMON, "monitor_group", OPTION_TEXT, AT(daemon_config, monitor_group), 0,
                CONFIG_GROUP_MAX, .default_text = "kvlease-monitor",
                .help = "Members of this group, and administrators, may use "
                        "runtime_dir/monitor.sock. It only reads: figures, lists and events of "
                        "all tenants, for example for kvlease-exporter. Empty: administrators only."},
        {SECTION_DAEMON, "liveness", OPTION_ENUM, AT(daemon_config, liveness),
                .choices = liveness_names, .default_text = "auto", .reloadable = true,
                .help = "How a client's process is watched. 'auto' asks the kernel for the peer's "
                        "pidfd. Otherwise, and with 'challenge', the client must send back a nonce."},
        {SECTION_DAEMON, "hello_timeout", OPTION_DURATION, AT(daemon_config, hello_timeout_nsec),
                100 * NSEC_PER_MSEC, 3600 * NSEC_PER_SEC, .default_text = "10s", .reloadable = true,
                .help = "How long a connection may take to introduce itself before it is closed."},
        {SECTION_DAEMON, "stop_timeout", OPTION_DURATION, AT(daemon_config, stop_timeout_nsec), 0,
                3600 * NSEC_PER_SEC, .default_text = "2s", .reloadable = true,
                .help = "How long a stop waits until clients have taken their last messages."},
        {SECTION_DAEMON, "revoke_timeout", OPTION_DURATION, AT(daemon_config, revoke_timeout_nsec),
                10 * NSEC_PER_MSEC, 3600 * NSEC_PER_SEC, .default_text = "5s", .reloadable = true,
                .help = "How long clients may take to give back memory that is recalled before it is quarantined."},
        {SECTION_DAEMON, "revoke_kill", OPTION_BOOL, AT(daemon_config, revoke_kill),
                .default_text = "off", .reloadable = true,
                .help = "Kill clients (SIGKILL) that haven't given recalled memory back in time."},
        {SECTION_DAEMON, "sizer_window", OPTION_DURATION, AT(daemon_config, sizer_window_nsec),
                NSEC_PER_SEC, 7 * 24 * 3600 * NSEC_PER_SEC, .default_text = "10min",
                .reloadable = true,
                .help = "Demand of that long decides how large reservations are (99th percentile)."},
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
                .help = "Whether cached pages and clients outlive the process. 'auto': if systemd "
                        "(FileDescriptorStoreMax= of the service) or 'kvleased --keep' stores its descriptors. 'off': a restart empties the cache."},
        {SECTION_DAEMON, "log_level", OPTION_ENUM, AT(daemon_config, log_level),
                .choices = log_level_names, .default_text = "info", .reloadable = true,
                .help = "Least severe level that is logged."},
        {SECTION_DAEMON, "log_target", OPTION_ENUM, AT(daemon_config, log_target),
                .choices = log_target_names, .default_text = "auto", .reloadable = true,
                .help = "Target of the log. 'auto' takes the journal if stderr is the journal, else text on stderr."},

        {SECTION_DEVICE, "members", OPTION_TEXT, AT(device_config, members), 0, DEVICE_MEMBERS_TEXT,
                .default_text = "",
                .help = "GPUs that this device spans, as UUIDs separated by commas, or 'all'. "
                        "Each holds equally many planes of every page: those of one rank of an "
                        "engine. The section has a name of your choice, and 'devices' lists it in "
                        "place of the GPUs. Empty: the device is the one of this name."},
        {SECTION_DEVICE, "memory", OPTION_BYTES, AT(device_config, memory_bytes), MIB,
                1024 * 1024 * GIB, .word = "auto", .word_value = DEVICE_MEMORY_AUTO,
                .default_text = "auto",
                .help = "Most memory of the device, or of each of its members, that is leased. "
                        "'auto': 90 % of a GPU's memory; a quarter of the host's memory, at most 64 GiB."},
        {SECTION_DEVICE, "memory_ratio", OPTION_UINT, AT(device_config, memory_ratio), 1, 100,
                .word = "auto", .word_value = DEVICE_RATIO_AUTO, .default_text = "auto",
                .help = "Percent of the device's memory that is leased at most, if 'memory' is auto. 'auto': as described there."},
        {SECTION_DEVICE, "extent", OPTION_BYTES, AT(device_config, extent_bytes), 2 * MIB, GIB,
                .default_text = "64MiB",
                .help = "Wanted size of an extent set, the unit in which tenants are charged."},
        {SECTION_DEVICE, "transport", OPTION_ENUM, AT(device_config, transport),
                .choices = transport_names, .default_text = "auto",
                .help = "How a GPU's memory is handed to clients. 'vmm': file descriptors. "
                        "'cudaipc': legacy IPC, with which a restart of kvleased loses the cache. 'auto': vmm if the GPU can."},
        {SECTION_DEVICE, "driver_timeout", OPTION_DURATION, AT(device_config, driver_timeout_nsec),
                10 * NSEC_PER_MSEC, 3600 * NSEC_PER_SEC, .default_text = "10s",
                .help = "How long one call of a GPU's driver may take before requests that wait for it are refused."},
        {SECTION_DEVICE, "death_grace", OPTION_DURATION, AT(device_config, death_grace_nsec), 0,
                3600 * NSEC_PER_SEC, .default_text = "1s",
                .help = "How long the GPU memory of a dead client isn't reused, because its work may still be writing. Not for host devices."},

        {SECTION_DEVICE, "huge_pages", OPTION_BOOL, AT(device_config, huge_pages),
                .default_text = "off",
                .help = "Have huge pages for a host device's memory. With 'populate', kvleased "
                        "makes them (Linux 6.1). Without it, clients ask the kernel, which gives "
                        "them if /sys/kernel/mm/transparent_hugepage/shmem_enabled is 'advise' or "
                        "more. A process then has one page fault for 2 MiB instead of 512, and memory becomes resident by 2 MiB. Not for GPUs."},

        {SECTION_DEVICE, "populate", OPTION_BOOL, AT(device_config, populate),
                .default_text = "off",
                .help = "Touch a host device's memory before clients get it. The kernel then "
                        "charges the memory to kvleased's control group, else to that of the "
                        "client that writes it first. New extents take longer. Not for GPUs."},

        {SECTION_DEVICE, "host_memory", OPTION_BYTES, AT(device_config, host_memory_bytes), 0,
                1024 * 1024 * GIB, .default_text = "0",
                .help = "Host memory below the device, to which cached pages move if the device "
                        "needs room, and from which they move back. 0: none. Pages are then evicted, or move to 'disk'."},
        {SECTION_DEVICE, "host_huge_pages", OPTION_BOOL, AT(device_config, host_huge_pages),
                .default_text = "off",
                .help = "Ask the kernel for huge pages for 'host_memory'. The kernel gives them "
                        "if /sys/kernel/mm/transparent_hugepage/shmem_enabled is 'advise' or more."},
        {SECTION_DEVICE, "disk", OPTION_PATH, AT(device_config, disk), 0, CONFIG_PATH_MAX,
                .default_text = "",
                .help = "File to which cached pages move from 'host_memory', or from the device "
                        "if there is none. It is made if it is missing. Empty: none. Each device "
                        "needs a file of its own, on a disk that takes many writes."},
        {SECTION_DEVICE, "disk_size", OPTION_BYTES, AT(device_config, disk_bytes), 0,
                1024 * 1024 * GIB, .default_text = "0",
                .help = "Size of that file, all of it allocated at once."},

        {SECTION_REMOTE, "addresses", OPTION_TEXT, AT(remote_config, addresses), 0,
                CONFIG_ADDRESSES_TEXT, .default_text = "",
                .help = "Servers of Redis or Valkey through which hosts exchange pages: host:port "
                        "or [address]:port, up to 16, separated by spaces or commas. Any node leads to the others of its cluster."},
        {SECTION_REMOTE, "user", OPTION_TEXT, AT(remote_config, user), 0, CONFIG_USER_MAX,
                .default_text = "", .help = "User of the servers' ACL. Empty: 'default'."},
        {SECTION_REMOTE, "secret_file", OPTION_PATH, AT(remote_config, secret_file), 0,
                CONFIG_PATH_MAX, .default_text = "",
                .help = "File with that user's password. Only its owner (root, or the user of "
                        "kvlease-exchange, which reads it) may write it, and others can't read it. Empty: no AUTH is sent."},
        {SECTION_REMOTE, "tls", OPTION_BOOL, AT(remote_config, tls), .default_text = "off",
                .help = "Connections are TLS, and servers' certificates are verified."},
        {SECTION_REMOTE, "tls_ca", OPTION_PATH, AT(remote_config, tls_ca), 0, CONFIG_PATH_MAX,
                .default_text = "",
                .help = "PEM file with the certificates of trusted authorities. Empty: the system's."},
        {SECTION_REMOTE, "tls_host", OPTION_TEXT, AT(remote_config, tls_host), 0, CONFIG_HOST_MAX,
                .default_text = "",
                .help = "Name that servers' certificates must have. Empty: the address of the connection."},
        {SECTION_REMOTE, "tls_cert", OPTION_PATH, AT(remote_config, tls_cert), 0, CONFIG_PATH_MAX,
                .default_text = "",
                .help = "PEM file with the certificate by which servers know this host. Empty: "
                        "none. Redis requires one unless it has 'tls-auth-clients no'."},
        {SECTION_REMOTE, "tls_key", OPTION_PATH, AT(remote_config, tls_key), 0, CONFIG_PATH_MAX,
                .default_text = "", .help = "PEM file with the key of tls_cert."},
        {SECTION_REMOTE, "connections", OPTION_UINT, AT(remote_config, connections), 1, 4,
                .default_text = "2",
                .help = "Connections to each node for pages, with a thread each. One more is for questions."},
        {SECTION_REMOTE, "connect_timeout", OPTION_DURATION,
                AT(remote_config, connect_timeout_nsec), NSEC_PER_MSEC, 60 * NSEC_PER_SEC,
                .default_text = "250ms",
                .help = "How long making a connection may take, TLS and AUTH included."},
        {SECTION_REMOTE, "silence_timeout", OPTION_DURATION,
                AT(remote_config, silence_timeout_nsec), NSEC_PER_MSEC, 60 * NSEC_PER_SEC,
                .default_text = "500ms",
                .help = "How long sent bytes may stay unacknowledged before a connection counts "
                        "as lost. A node that owes answers is left alone if it sends and takes no byte for this time."},
        {SECTION_REMOTE, "probe_timeout", OPTION_DURATION, AT(remote_config, probe_timeout_nsec),
                NSEC_PER_MSEC, NSEC_PER_SEC, .default_text = "5ms", .reloadable = true,
                .help = "How long the question whether pages are there may take. Later answers count as misses."},
        {SECTION_REMOTE, "bandwidth", OPTION_BYTES, AT(remote_config, bandwidth_bytes), MIB,
                1024 * GIB, .default_text = "1GiB", .reloadable = true,
                .help = "Bytes a second that all servers together are expected to send to this "
                        "host, until this was measured for a tenant. Pages are loaded if that is faster than computing them."},
        {SECTION_REMOTE, "expiry", OPTION_DURATION, AT(remote_config, expiry_nsec), NSEC_PER_SEC,
                365 * 24 * 3600 * NSEC_PER_SEC, .default_text = "1d", .reloadable = true,
                .help = "How long pages and records of sessions that this host writes stay there "
                        "at most. Epochs stay for a year. Together with remote_write of a tenant it bounds the bytes of the tenant's pages there."},

        {SECTION_TENANT, "limit", OPTION_BYTES, AT(tenant_config, limit_bytes), MIB,
                1024 * 1024 * GIB, .word = "none", .word_value = TENANT_LIMIT_NONE,
                .default_text = "none", .reloadable = true,
                .help = "Most bytes of extent sets that the tenant may hold on devices. 'none': no limit."},
        {SECTION_TENANT, "host_limit", OPTION_BYTES, AT(tenant_config, host_limit_bytes), 0,
                1024 * 1024 * GIB, .word = "none", .word_value = TENANT_LIMIT_NONE,
                .default_text = "none", .reloadable = true,
                .help = "The same for 'host_memory'. 0: the tenant has no pages there."},
        {SECTION_TENANT, "disk_limit", OPTION_BYTES, AT(tenant_config, disk_limit_bytes), 0,
                1024 * 1024 * GIB, .word = "none", .word_value = TENANT_LIMIT_NONE,
                .default_text = "none", .reloadable = true,
                .help = "The same for 'disk'. 0: the tenant's pages are never written to a disk."},
        {SECTION_TENANT, "weight", OPTION_UINT, AT(tenant_config, weight), 1, 1000,
                .default_text = "100", .reloadable = true,
                .help = "Share of a full device in proportion to the other tenants' weights."},
        {SECTION_TENANT, "priority", OPTION_UINT, AT(tenant_config, priority), 0, 100,
                .default_text = "50", .reloadable = true,
                .help = "If several tenants are equally far over their share, pages of the lowest "
                        "priority are evicted first. Waiting leases of the highest are served first."},
        {SECTION_TENANT, "class", OPTION_ENUM, AT(tenant_config, class),
                .choices = config_class_names, .default_text = "dynamic", .reloadable = true,
                .help = "'pinned': the tenant has a reservation that no other tenant can use up. 'dynamic': it shares the memory that isn't reserved."},
        {SECTION_TENANT, "reserve", OPTION_BYTES, AT(tenant_config, reservation.bytes), 0,
                1024 * 1024 * GIB, .default_text = "0", .reloadable = true,
                .help = "Bytes reserved for a pinned tenant, in whole extents, over all devices "
                        "on which it is placed. With a sizer: the reservation to begin with. A "
                        "reservation that doesn't fit is refused; at a start it is made as large as possible, and an error is logged."},
        {SECTION_TENANT, "reserve_min", OPTION_BYTES, AT(tenant_config, reservation.min_bytes), 0,
                1024 * 1024 * GIB, .word = "auto", .word_value = TENANT_RESERVE_AUTO,
                .default_text = "auto", .reloadable = true,
                .help = "Least reservation that the sizer makes. 'auto': as 'reserve'."},
        {SECTION_TENANT, "reserve_max", OPTION_BYTES, AT(tenant_config, reservation.max_bytes), 0,
                1024 * 1024 * GIB, .word = "auto", .word_value = TENANT_RESERVE_AUTO,
                .default_text = "auto", .reloadable = true,
                .help = "Largest reservation that the sizer makes. 'auto': as 'reserve'."},
        {SECTION_TENANT, "sizer", OPTION_ENUM, AT(tenant_config, reservation.sizer),
                .choices = config_sizer_names, .default_text = "off", .reloadable = true,
                .help = "Whether the reservation follows the tenant's demand between reserve_min "
                        "and reserve_max. 'dry-run' changes nothing, and shows its decisions in 'kvleasectl regions'."},
        {SECTION_TENANT, "schedule", OPTION_TEXT, AT(tenant_config, reservation.schedule), 0,
                TENANT_SCHEDULE_MAX, .default_text = "", .reloadable = true,
                .help = "Other minima and maxima by time of day, local time: '08:00-20:00 "
                        "8GiB-16GiB, 20:00-22:30 4GiB-8GiB'. Without a sizer the minimum is reserved."},
        {SECTION_TENANT, "burst", OPTION_ENUM, AT(tenant_config, burst),
                .choices = config_burst_names, .default_text = "pool", .reloadable = true,
                .help = "Memory that a pinned tenant uses beyond its reservation: the memory that "
                        "all tenants share ('pool'), or none ('none'). With 'none' further leases are refused, or wait, as 'when_full' says."},
        {SECTION_TENANT, "lend_idle_reserve", OPTION_BOOL,
                AT(tenant_config, reservation.lends_idle), .default_text = "off",
                .reloadable = true,
                .help = "Other tenants may use the idle part of a pinned tenant's reservation, if "
                        "their engines keep safe points. The memory is taken back when it is needed, which takes until their next step."},
        {SECTION_TENANT, "when_full", OPTION_ENUM, AT(tenant_config, when_full),
                .choices = config_when_full_names, .default_text = "reject", .reloadable = true,
                .help = "A lease without free memory is refused ('reject'), waits at most "
                        "max_wait ('queue'), or gets fewer pages, if its client can use fewer ('degrade')."},
        {SECTION_TENANT, "max_wait", OPTION_DURATION, AT(tenant_config, max_wait_nsec), 0,
                3600 * NSEC_PER_SEC, .default_text = "1s", .reloadable = true,
                .help = "How long a lease may wait for memory."},
        {SECTION_TENANT, "evict", OPTION_ENUM, AT(tenant_config, eviction.policy),
                .choices = config_tenant_evict_names, .default_text = "default", .reloadable = true,
                .help = "Policy that chooses the tenant's cached pages to evict first, in later namespaces. 'default': as [daemon] has it."},
        {SECTION_TENANT, "miss_cost", OPTION_ENUM, AT(tenant_config, eviction.miss_cost),
                .choices = config_miss_cost_names, .default_text = "tokens", .reloadable = true,
                .help = "Cost of a missed page for evict = pgi, in later namespaces. 'tokens': "
                        "each token costs the same. 'compute': tokens deep in a text cost more, "
                        "because attention makes them more expensive to compute."},
        {SECTION_TENANT, "attention_crossover", OPTION_UINT,
                AT(tenant_config, eviction.attention_crossover), 1, RECOMPUTE_CROSSOVER_MOST,
                .default_text = "30632", .reloadable = true,
                .help = "For miss_cost = compute: the position in a text, in tokens, at which "
                        "attention costs a token as much as everything else. It is the model's "
                        "parameters / (2 * layers * query heads * elements of a head). The default is that of Llama 3 8B."},
        {SECTION_TENANT, "expire", OPTION_DURATION, AT(tenant_config, expire_nsec), 0,
                365 * 24 * 3600 * NSEC_PER_SEC, .default_text = "0", .reloadable = true,
                .help = "Cached pages that no client has used for this time are dropped. 0: "
                        "never. A client that makes a namespace can choose another time."},
        {SECTION_TENANT, "expire_unused", OPTION_DURATION, AT(tenant_config, expire_unused_nsec), 0,
                365 * 24 * 3600 * NSEC_PER_SEC, .default_text = "0", .reloadable = true,
                .help = "Cached pages that no client has found for this time since they were "
                        "published are dropped. So pages that are used once don't fill the cache. 0: never."},
        {SECTION_TENANT, "session_expire", OPTION_DURATION, AT(tenant_config, session_expire_nsec),
                0, 365 * 24 * 3600 * NSEC_PER_SEC, .default_text = "1d", .reloadable = true,
                .help = "Sessions that no client has open or has used for this time are "
                        "forgotten. Their pages stay cached. 0: never. A client can choose another time for a session."},
        {SECTION_TENANT, "free_ahead", OPTION_UINT, AT(tenant_config, free_ahead), 0, 50,
                .default_text = "0", .reloadable = true,
                .help = "Percent of the tenant's pages in a namespace that are kept free while it "
                        "leases, by evicting idle pages ahead of the next lease. If more memory can be had, none is evicted."},
        {SECTION_TENANT, "prefetch_steps", OPTION_UINT, AT(tenant_config, prefetch_steps), 0, 256,
                .default_text = "64", .reloadable = true,
                .help = "Pages that are moved to the device ahead of a client that reads a text "
                        "piece by piece. Sessions whose next turn is likely are moved, too. Either stops by itself while it is of no use. 0: neither."},
        {SECTION_TENANT, "warm_tags", OPTION_TEXT, AT(tenant_config, warm_tags), 0,
                TENANT_WARM_TAGS_MAX, .default_text = "", .reloadable = true,
                .help = "Tags, as numbers separated by spaces or commas, at most 8. When kvleased "
                        "starts, pages that were published with them, and the pages before those, are moved to the device, as by 'kvleasectl warm'."},
        {SECTION_TENANT, "host_codec", OPTION_TEXT, AT(tenant_config, host_codec), 1,
                CODEC_OPTION_MAX, .default_text = "none", .reloadable = true,
                .help = "Codec of cached pages in host memory below a device: 'none', 'int8', "
                        "'fp8' or 'int4'. Or one for each range of layers, from layer 0 on: "
                        "'0-7:none,8-23:int8,24-:int4'. It applies to later namespaces whose "
                        "client names no codec, and whose layout can have it. Pages travel to "
                        "other hosts in the same form, and those hosts need the same codec."},
        {SECTION_TENANT, "disk_codec", OPTION_TEXT, AT(tenant_config, disk_codec), 1,
                CODEC_OPTION_MAX, .default_text = "none", .reloadable = true,
                .help = "Codec of cached pages on a disk, as host_codec."},
        {SECTION_TENANT, "events", OPTION_BYTES, AT(tenant_config, events_bytes), 0, 1024 * GIB,
                .word = "off", .word_value = 0, .default_text = "off", .reloadable = true,
                .help = "Most memory for events, by which routers learn of the tenant's cached "
                        "pages and their token ids, if engines give them. A namespace reserves "
                        "192 bytes and 4 for each token for every page of all tiers, and 8 MiB. "
                        "One that doesn't fit has no events. Clients of the tenant and members of "
                        "monitor_group can follow them: token ids are prompts. 'off' ends all "
                        "events of the tenant. A larger value applies to later namespaces, and to all after a restart."},
        {SECTION_TENANT, "placement", OPTION_TEXT, AT(tenant_config, placement), 1,
                TENANT_PLACEMENT_MAX, .default_text = "pack", .reloadable = true,
                .help = "Devices of reservations, and of namespaces whose clients name no device: "
                        "'pack' on as few devices as possible, 'spread' over all, 'device=UUID' on that one."},
        {SECTION_TENANT, "exclusive", OPTION_BOOL, AT(tenant_config, exclusive),
                .default_text = "off", .reloadable = true,
                .help = "No other tenant is placed on the devices of this one."},
        {SECTION_TENANT, "remote", OPTION_TEXT, AT(tenant_config, remote.name), 0, TENANT_NAME_MAX,
                .default_text = "", .reloadable = true,
                .help = "Name of the section [remote NAME] through which pages are exchanged with "
                        "tenants of the same name on other hosts. Empty: none are exchanged."},
        {SECTION_TENANT, "remote_write", OPTION_BYTES, AT(tenant_config, remote.write_bytes), 0,
                16 * GIB, .default_text = "64MiB", .reloadable = true,
                .help = "Bytes a second of the tenant's pages that this host writes there at "
                        "most. Records of sessions and epochs don't count. 0: it only reads."},
        {SECTION_TENANT, "remote_secret", OPTION_PATH, AT(tenant_config, remote.secret_file), 0,
                CONFIG_PATH_MAX, .default_text = "", .reloadable = true,
                .help = "File with a secret of 16 to 256 random bytes, the same on all hosts. "
                        "Only its owner (root, or the daemon's user) may write it, and others "
                        "can't read it. The tenant's pages are encrypted there, and their names can't be guessed. Empty: pages only have checksums."},
        {SECTION_TENANT, "remote_prefill", OPTION_UINT, AT(tenant_config, remote.prefill), 0,
                10000000, .default_text = "0", .reloadable = true,
                .help = "Tokens of prompts that the tenant's engines compute in a second. Pages "
                        "are loaded if that is faster. 0: as engines measure it, and 10000 until one has."},
        {SECTION_TENANT, "share_group", OPTION_BOOL, AT(tenant_config, access.share_group),
                .default_text = "off", .reloadable = true,
                .help = "The tenant is shared by clients of several others. They find it by its own socket alone, never through the default socket."},
        {SECTION_TENANT, "publish_uids", OPTION_UIDS, AT(tenant_config, access.publish_uids),
                .default_text = "", .reloadable = true,
                .help = "Users whose clients may lease, publish and invalidate. If publish_uids "
                        "and publish_gids are empty, all clients may. Other clients only look up."},
        {SECTION_TENANT, "publish_gids", OPTION_GIDS, AT(tenant_config, access.publish_gids),
                .default_text = "", .reloadable = true,
                .help = "Groups whose members' clients may, too."},
        {SECTION_TENANT, "max_clients", OPTION_UINT, AT(tenant_config, max_clients), 1,
                TENANT_MAX_CLIENTS, .default_text = "64", .reloadable = true,
                .help = "Most connections of the tenant."},
        {SECTION_TENANT, "max_pins", OPTION_UINT, AT(tenant_config, max_pins), 1, TENANT_PINS_MAX,
                .default_text = "4194304", .reloadable = true,
                .help = "Most pins of one client of the tenant over the socket; at most 65535 of "
                        "them on one page. Further pins are refused. Pins in shared memory don't count."},
        {SECTION_TENANT, "max_connects", OPTION_UINT, AT(tenant_config, max_connects), 1,
                BUCKET_MAX_RATE, .word = "none", .word_value = 0, .default_text = "1000",
                .reloadable = true,
                .help = "Most connections a second to the tenant, beyond 'max_clients' at once. "
                        "Further ones are refused. A process of an engine connects once."},
        {SECTION_TENANT, "max_requests", OPTION_UINT, AT(tenant_config, max_requests), 1,
                BUCKET_MAX_RATE, .word = "none", .word_value = 0, .default_text = "none",
                .reloadable = true,
                .help = "Most requests a second of all clients of the tenant together, also in "
                        "shared memory. Further requests wait. Hits in shared memory are no "
                        "requests. Without this limit tenants share the daemon's time evenly."},
        {SECTION_TENANT, "uids", OPTION_UIDS, AT(tenant_config, access.uids), .default_text = "",
                .reloadable = true,
                .help = "Users that may use the tenant's socket, and that find it through the default socket: names or numbers, separated by commas."},
        {SECTION_TENANT, "gids", OPTION_GIDS, AT(tenant_config, access.gids), .default_text = "",
                .reloadable = true,
                .help = "Groups whose members may use the tenant's socket. If uids and gids are "
                        "empty, any process that reaches the socket may. If both are set, one of them is enough."},
        {SECTION_TENANT, "group", OPTION_TEXT, AT(tenant_config, access.group), 0, CONFIG_GROUP_MAX,
                .default_text = "", .reloadable = true,
                .help = "Owning group (name or number) of the directory of the tenant's socket, which others can't enter. Empty: the daemon's own."},
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

/* Returns a key of the section; NULL for an option of another one. */
static const char *key_of_section(const void *data, size_t i)
{
        const enum option_section *s = data;

        return options[i].section == *s ? options[i].key : NULL;
}

const char *option_nearest(enum option_section s, const char *key)
{
        return nearest_name(key, n_options, key_of_section, &s);
}
