/*
 * The configuration: values of its files (base/conf-files.h), the command line and the defaults,
 * checked as a whole. Plain values, no references into the running daemon.
 *
 * If several files have an option, the last one's value counts; the command line's overrides all.
 * Values that are lists are replaced, not added up. Within one file, an option may stand only once.
 */
#ifndef KVL_SERVER_CONFIG_H
#define KVL_SERVER_CONFIG_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/conf-files.h"
#include "base/parse.h"
#include "daemon/core/state/codecs.h"
#include "daemon/server/config/options.h"
#include "daemon/core/state/detail.h"
#include "gpu/device.h"

#define CONFIG_DEFAULT_FILE    "/etc/kvlease/kvleased.conf"
#define CONFIG_FILE_MAX        (1024 * 1024) /* bytes of a configuration file; not tuned */
#define CONFIG_PATH_MAX        255
#define CONFIG_SOCKET_PATH_MAX 107 /* of a socket elsewhere: sun_path, but for its NUL */
/* The longest name of a socket in runtime_dir itself, "/monitor.sock", must fit in sun_path
 * (unix(7)), NUL included. Tenants' sockets are checked separately. */
#define CONFIG_RUNTIME_DIR_MAX (108 - (int)sizeof("/monitor.sock"))
#define CONFIG_GROUP_MAX       32   /* useradd(8) */
#define CONFIG_TENANTS_MAX     4096 /* not tuned */
#define CONFIG_DEVICES_MAX     16   /* not tuned */
#define CONFIG_DEVICES_TEXT    511
#define CONFIG_REMOTES_MAX     8 /* each has threads and connections; not tuned */
#define CONFIG_ADDRESSES_TEXT  511
#define CONFIG_USER_MAX        128
#define CONFIG_HOST_MAX        253 /* bytes of a DNS name as text (RFC 1035, 2.3.4) */

/* Origin of a value. */
struct origin {
        uint32_t file : 8;  /* number of the file, from 1; or one of these */
        uint32_t line : 24; /* of the file, from 1 */
};
#define ORIGIN_DEFAULT      0
#define ORIGIN_COMMAND_LINE 255
static_assert(1 + CONF_DROP_INS_MAX < ORIGIN_COMMAND_LINE, "a number for each file");
static_assert(CONFIG_FILE_MAX < 1 << 24, "a number for each line");

/* Origins of a section and of each of its options, by option_index(). */
struct origins {
        struct origin section, of[SECTION_OPTIONS_MAX];
        bool is_spoilt; /* an option was refused: the meaning of the others isn't known */
};

enum liveness { LIVENESS_AUTO, LIVENESS_CHALLENGE };

enum keep_state { KEEP_STATE_AUTO, KEEP_STATE_OFF };

struct daemon_config {
        struct origins from;
        char runtime_dir[CONFIG_PATH_MAX + 1];
        char exchange_socket[CONFIG_PATH_MAX + 1]; /* of kvlease-exchange */
        char state_dir[CONFIG_PATH_MAX + 1];
        char devices[CONFIG_DEVICES_TEXT + 1];
        unsigned evict;                 /* index into config_evict_names */
        unsigned log_level, log_target; /* enum log_level, enum log_target */
        uint32_t max_clients;
        uint64_t max_pending_bytes;
        bool default_socket;
        char admin_group[CONFIG_GROUP_MAX + 1];
        char monitor_group[CONFIG_GROUP_MAX + 1];
        unsigned liveness; /* enum liveness */
        uint64_t hello_timeout_nsec, stop_timeout_nsec;
        uint64_t revoke_timeout_nsec;
        bool revoke_kill;
        uint64_t sizer_window_nsec, sizer_interval_nsec, sizer_cooldown_nsec;
        bool compact;
        unsigned keep_state; /* enum keep_state */
};

#define DEVICE_MEMORY_AUTO 0
#define DEVICE_RATIO_AUTO  0

enum transport_choice { TRANSPORT_CHOICE_AUTO, TRANSPORT_CHOICE_VMM, TRANSPORT_CHOICE_CUDAIPC };

struct device_config {
        struct origins from;
        char name[TENANT_NAME_MAX + 1];
        char members[DEVICE_MEMBERS_TEXT + 1]; /* "": it spans no others */
        uint64_t memory_bytes;                 /* of each member; DEVICE_MEMORY_AUTO */
        uint32_t memory_ratio;                 /* percent; DEVICE_RATIO_AUTO */
        uint64_t extent_bytes;
        unsigned transport; /* enum transport_choice */
        uint64_t driver_timeout_nsec, death_grace_nsec;
        uint64_t host_memory_bytes; /* 0: no such tier */
        bool host_huge_pages;
        bool huge_pages, populate;      /* of a host device */
        char disk[CONFIG_PATH_MAX + 1]; /* "": no such tier */
        uint64_t disk_bytes;            /* > 0 if there is a disk */
};

/* A cluster, or one server, through which hosts exchange pages, as the file has it. remote-config.h
 * checks it and makes the options of daemon/remote from it. */
struct remote_config {
        struct origins from;
        char name[TENANT_NAME_MAX + 1];
        char addresses[CONFIG_ADDRESSES_TEXT + 1];
        char user[CONFIG_USER_MAX + 1];
        char secret_file[CONFIG_PATH_MAX + 1]; /* "": no secret */
        bool tls;
        char tls_ca[CONFIG_PATH_MAX + 1], tls_host[CONFIG_HOST_MAX + 1];
        char tls_cert[CONFIG_PATH_MAX + 1], tls_key[CONFIG_PATH_MAX + 1];
        uint32_t connections; /* for large values, to each node */
        uint64_t connect_timeout_nsec, silence_timeout_nsec, probe_timeout_nsec;
        uint64_t bandwidth_bytes; /* a second, of one node, until measured */
        uint64_t expiry_nsec;     /* of written values */
};

/* A tenant's exchange with other hosts. */
struct tenant_remote_config {
        char name[TENANT_NAME_MAX + 1];        /* of [remote NAME]; "": nothing is exchanged */
        uint64_t write_bytes;                  /* a second; 0: nothing is written */
        char secret_file[CONFIG_PATH_MAX + 1]; /* "": pages aren't encrypted */
        uint32_t prefill;                      /* tokens a second; 0: as measured */
};

#define TENANT_LIMIT_NONE    UINT64_MAX
#define TENANT_RESERVE_AUTO  UINT64_MAX
#define TENANT_SCHEDULE_MAX  511
#define TENANT_WARM_TAGS_MAX 255
#define TENANT_PINS_MAX      1000000000 /* a uint32_t; not tuned */
#define TENANT_PLACEMENT_MAX (sizeof("device=") - 1 + DEVICE_NAME_MAX)

/* A tenant's reservation on each device. */
struct reservation_config {
        uint64_t bytes;
        uint64_t min_bytes, max_bytes; /* TENANT_RESERVE_AUTO */
        unsigned sizer;                /* enum sizing_mode */
        char schedule[TENANT_SCHEDULE_MAX + 1];
        bool lends_idle;
};

/* Users and groups that may be a tenant's clients, and that may publish. */
struct access_config {
        bool share_group;
        struct id_list uids, gids;
        struct id_list publish_uids, publish_gids;
        char group[CONFIG_GROUP_MAX + 1];
};

/* Choice of the pages of a tenant that are evicted first. */
struct eviction_config {
        unsigned policy;              /* index into config_tenant_evict_names */
        unsigned miss_cost;           /* enum miss_cost */
        uint32_t attention_crossover; /* tokens */
};

/* Cost of a missed page: the same for all, or the cost to compute it again. */
enum miss_cost { MISS_COST_TOKENS, MISS_COST_COMPUTE };

struct tenant_config {
        struct origins from;
        uint64_t set; /* options that were given, by option_bit() */
        char name[TENANT_NAME_MAX + 1];
        uint64_t limit_bytes;                        /* TENANT_LIMIT_NONE: no limit */
        uint64_t host_limit_bytes, disk_limit_bytes; /* TENANT_LIMIT_NONE; 0: keeps out */
        uint32_t weight, priority, max_clients, max_pins;
        uint32_t max_connects, max_requests; /* a second; 0: no limit */
        unsigned class, when_full, burst;    /* enums of core/tenant.h */
        struct reservation_config reservation;
        uint64_t max_wait_nsec;
        struct eviction_config eviction;
        uint64_t expire_nsec, expire_unused_nsec; /* 0: never */
        uint64_t session_expire_nsec;             /* likewise */
        uint32_t free_ahead;                      /* percent */
        uint32_t prefetch_steps;                  /* pages; 0: nothing is guessed */
        char warm_tags[TENANT_WARM_TAGS_MAX + 1];
        char host_codec[CODEC_OPTION_MAX + 1], disk_codec[CODEC_OPTION_MAX + 1];
        uint64_t events_bytes; /* 0: off */
        char placement[TENANT_PLACEMENT_MAX + 1];
        bool exclusive;
        struct tenant_remote_config remote;
        struct access_config access;
};

/* Tenants by name, in order of appearance. */
struct tenant_table {
        struct tenant_config *rows; /* owned */
        size_t n;
};

struct config {
        struct daemon_config daemon;
        struct device_config devices[CONFIG_DEVICES_MAX];
        size_t n_devices;
        struct remote_config remotes[CONFIG_REMOTES_MAX];
        size_t n_remotes;
        struct tenant_table tenants;
        struct conf_files files; /* files that were read, by their numbers; owned */
        bool has_file;           /* the first of them was there */
};

/* Source of the configuration, the same at start and at every reload. All borrowed. */
struct config_source {
        const char *file;             /* NULL: the default file, which may be missing. Its drop-ins
                                       * are read with it */
        const char *const *overrides; /* "daemon.max_clients=7", "tenant.NAME.limit=4GiB" */
        size_t n_overrides;
};

/* Gets one sentence without newline for each error (is_error) or notice. */
typedef void (*config_report_fn)(void *data, bool is_error, const char *sentence);

/*
 * Loads the configuration. Returns 0 with an owned *ret_config; -EINVAL: it has errors; -errno: a
 * file can't be read, with -EBADFD or -EISDIR for one that isn't regular, without waiting.
 * /dev/null counts as an empty file. All errors are reported, except those behind a line without
 * valid syntax, and checks of a section that need a refused option.
 */
int config_load(const struct config_source *source, struct config *ret_config,
        config_report_fn report, void *data);
void config_deinit(struct config *c);

/* Returns the end of a sentence for a negative result of file_read_regular() with a bound of
 * CONFIG_FILE_MAX. Never NULL; static. */
const char *config_read_error(int error);

/* Writes "FILE:LINE", "command line" or "default". Returns buf. */
#define CONFIG_ORIGIN_MAX 320
char *config_origin(const struct config *c, struct origin o, char buf[CONFIG_ORIGIN_MAX]);

/* Names of evict policies in the order of daemon_config.evict; NULL at the end. */
extern const char *const config_evict_names[];

/* Names of evict policies in the order of eviction_config.policy: "default" first. */
extern const char *const config_tenant_evict_names[];

/* Names of enum miss_cost. */
extern const char *const config_miss_cost_names[];

/* Names of the values of class, when_full, burst and reservation.sizer of tenant_config. */
extern const char *const config_class_names[], *const config_when_full_names[];
extern const char *const config_burst_names[], *const config_sizer_names[];

/* Bytes of a disk's file that pages can be charged with: the rest is for indexes and partly filled
 * chunks. */
uint64_t config_disk_budget(uint64_t file_bytes);

/* True if the device is named in an option 'devices'. Always false for "auto". */
bool config_lists_device(const char *names, const char *name);

const struct device_config *config_find_device(const struct config *c, const char *name);

/* Borrowed from the configuration; NULL. */
const struct remote_config *config_find_remote(const struct config *c, const char *name);

void tenant_config_init(struct tenant_config *t, const char *name);

/* Finds a tenant. Borrowed, valid until the table changes; NULL: there is none. */
struct tenant_config *tenant_table_find(const struct tenant_table *t, const char *name);

/* Appends a tenant with defaults. Returns 0; -ENOMEM; -ENOSPC: the table has CONFIG_TENANTS_MAX. */
int tenant_table_add(struct tenant_table *t, const char *name, struct tenant_config **ret_row);
void tenant_table_remove(struct tenant_table *t, const char *name);
int tenant_table_copy(const struct tenant_table *t, struct tenant_table *ret_copy);
void tenant_table_deinit(struct tenant_table *t);

/* Options that this version doesn't know, as another version of kvleased wrote them. */
struct unknown_option {
        char *section; /* "[tenant a]"; owned, as is the next */
        char *line;    /* "key = value" */
};

struct unknown_options {
        struct unknown_option *rows; /* owned */
        size_t n;
};

/* Removes row i. */
void unknown_options_remove(struct unknown_options *u, size_t i);
void unknown_options_deinit(struct unknown_options *u);

/*
 * Parses text of [tenant NAME] sections alone into *ret_table. Returns 0, -EINVAL or -ENOMEM. For
 * the daemon's own file (tenantdb.h) and the fuzzer; `file` is for messages. Unknown options and
 * sections are reported as notices and put into *ret_unknown; if that is NULL they are errors.
 */
int config_parse_tenants(const char *file, const char *text, size_t len,
        struct tenant_table *ret_table, struct unknown_options *ret_unknown,
        config_report_fn report, void *data);

/* Parses a whole configuration from text, without checks of this machine. */
int config_parse(const char *file, const char *text, size_t len, struct config *ret_config,
        config_report_fn report, void *data);

/* Applies one "key=value" to a tenant and notes it in `set`; "key+=value" and "key-=value" add to a
 * list, and remove from it. Returns 0, or -EINVAL with the sentence. */
int tenant_config_apply(struct tenant_config *t, const char *assignment, char *err, size_t err_len);

/* Checks that runtime_dir is short enough for this tenant's socket. Returns 0, or -EINVAL with the
 * sentence. */
int config_check_socket_path(
        const char *runtime_dir, const char *tenant, char *err, size_t err_len);

/* Gets one sentence without newline for each error, and its option or section. */
typedef void (*config_check_fn)(void *data, struct origin o, const char *sentence);

/* Checks the whole configuration. Checks that need a refused option are left out. Reads the files
 * of secrets. */
void config_check_whole(const struct config *c, config_check_fn fn, void *data);

/* Reports each warning as a notice. Asks no device: if 'devices' is auto, only certain facts are
 * used. */
void config_warn(const struct config *c, config_report_fn report, void *data);

/* Compares `bytes` of host memory, all that may be leased, with the memory of the machine, or of
 * this process's control group. Returns true, with the sentence, if that has less. */
bool config_exceeds_host(uint64_t bytes, struct detail *d);
bool config_exceeds_cgroup(uint64_t bytes, struct detail *d);

#endif
