/*
 * kvleasectl doctor: finds obstacles of kvleased on a host, and their remedies.
 *
 * First the facts are gathered (a struct doctor). Then each row of the table of checks looks at
 * them and at files, all below the doctor's root, and adds at least one finding. A check that can't
 * see its facts adds that as a finding. Nothing on the host is changed. The doctor owns all unless
 * stated otherwise. Not thread-safe.
 */
#ifndef KVL_CTL_DOCTOR_H
#define KVL_CTL_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "proto/figures.h"

/* ---- the driver ------------------------------------------------------------------------------ */

/* Asks this host's GPU driver in a process of its own: a driver that hangs or crashes affects only
 * that process, and its open files end there. Plain data. */
#define DRIVER_GPUS_MAX  64
#define DRIVER_USERS_MAX 16 /* processes of a GPU; more only count in used_bytes */
#define DRIVER_TEXT      128
#define DRIVER_WHY       256
#define DRIVER_MSEC      15000 /* until it counts as hung, as a GPU may wake up first. Not tuned */

enum driver_persistence { PERSISTENCE_UNKNOWN, PERSISTENCE_OFF, PERSISTENCE_ON };

struct driver_user {
        uint32_t pid;
        uint64_t bytes; /* UINT64_MAX: unknown */
};

struct driver_gpu {
        char name[DRIVER_TEXT]; /* "GPU-..." */
        uint64_t total_bytes;
        int numa_node; /* -1: unknown */
        bool has_vmm;  /* exports memory as descriptors */
        /* From the management library, if has_management. */
        bool has_management;
        enum driver_persistence persistence;
        uint64_t used_bytes;
        struct driver_user users[DRIVER_USERS_MAX];
        uint32_t n_users;
};

struct doctor_driver {
        bool asked;                      /* false: no answer, or another host: `why` */
        int result;                      /* from cuda_get() (gpu/cuda_load.h) */
        char why[DRIVER_WHY];            /* its sentence, or why there is no answer */
        int cuda_version;                /* 12040 for 12.4 */
        char version[DRIVER_TEXT];       /* "550.54.14"; "": not known */
        char management_why[DRIVER_WHY]; /* why has_management is false; "" */
        uint32_t n_gpus;
        struct driver_gpu gpus[DRIVER_GPUS_MAX];
};

/* Blocks, at most for timeout_msec (DRIVER_MSEC). */
void driver_ask(struct doctor_driver *ret, unsigned timeout_msec);

/* ---- findings ---------------------------------------------------------------------------------
 */

enum doctor_state { DOCTOR_OK, DOCTOR_UNCHECKED, DOCTOR_WARNING, DOCTOR_ERROR };

struct doctor_finding {
        const char *check; /* name of its row; static */
        const char *why;   /* of its row: why it matters; static */
        enum doctor_state state;
        char *found;
        char *remedy; /* NULL: nothing to do */
};

enum doctor_daemon_state {
        DAEMON_ABSENT,    /* no process listens */
        DAEMON_FORBIDDEN, /* this user may not ask */
        DAEMON_BROKEN,    /* a process answers, but wrongly */
        DAEMON_UP
};

/* Settings in the order of their files: "[section name] key = value". Owned copies. */
struct doctor_line {
        char *section, *name, *key, *value; /* name: "" if the section has none */
};

struct doctor_lines {
        struct doctor_line *lines;
        size_t n;
};

/* Data of a daemon that answers; zeros without one. The texts of rows are owned. */
struct doctor_daemon {
        enum doctor_daemon_state state;
        char *why;    /* a sentence, unless it is up */
        bool is_here; /* its pid is one of root/proc */
        uint64_t pid, uptime_sec, open_files_needed, open_files_max;
        uint32_t kept_fds, kept_max, kept_needed;
        bool draining;
        char *version, *segments, *config_file, *state_dir, *no_events;
        struct figures_device *devices;
        size_t n_devices;
        struct figures_tenant *tenants;
        size_t n_tenants;
        struct figures_client *clients;
        size_t n_clients;
        struct figures_exchange *exchanges;
        size_t n_exchanges;
        struct figures_remote *remotes;
        size_t n_remotes;
};

struct doctor {
        const char *root;        /* "" for this host; borrowed */
        const char *socket_path; /* admin socket, below root; borrowed */
        const char *binary;      /* kvleased as named by --binary; NULL; borrowed */
        struct doctor_daemon daemon;
        char **overrides; /* --option of the running daemon */
        size_t n_overrides;
        char *config_path;          /* below root */
        int config_error;           /* -errno of reading it, 0 */
        struct doctor_lines config; /* of the file and the overrides */
        char *unit_name;            /* "kvleased.service" */
        char *unit_path;            /* below root; NULL: no such unit */
        bool is_unit_run;           /* the running daemon runs as that unit */
        struct doctor_lines unit;   /* with its drop-ins */
        struct doctor_driver driver;

        struct doctor_finding *findings;
        size_t n_findings;
        const struct doctor_check *check; /* the row that runs */
        size_t n_before;                  /* findings before it */
};

typedef void doctor_check_run(struct doctor *d);

struct doctor_check {
        const char *name, *why;
        doctor_check_run *run;
        /* Returns whether there is something to check; else there is a finding on that. NULL: there
         * is. */
        bool (*applies)(struct doctor *d);
};

extern const struct doctor_check doctor_checks[];
extern const size_t n_doctor_checks;

/* By file: doctor-gpu.c, doctor-memory.c, doctor-daemon.c, doctor-disk.c, doctor-config.c,
 * doctor-remote.c. */
extern doctor_check_run doctor_check_kernel, doctor_check_clock, doctor_check_driver,
        doctor_check_device_nodes, doctor_check_gpu_transport, doctor_check_persistence,
        doctor_check_gpu_memory, doctor_check_numa, doctor_check_memory, doctor_check_cgroup,
        doctor_check_client_cgroups, doctor_check_overcommit, doctor_check_huge_pages,
        doctor_check_config, doctor_check_unit, doctor_check_daemon, doctor_check_devices,
        doctor_check_index_guard, doctor_check_open_files, doctor_check_locked_memory,
        doctor_check_fd_store, doctor_check_runtime_dir, doctor_check_admin_socket,
        doctor_check_admin_group, doctor_check_tenant_room, doctor_check_events,
        doctor_check_tenant_sockets, doctor_check_state_dir, doctor_check_disk,
        doctor_check_io_uring, doctor_check_remote, doctor_check_remote_keys;

/* Conditions of checks: a daemon that answers; a GPU. */
bool doctor_asked_daemon(struct doctor *d);
bool doctor_found_gpus(struct doctor *d);

/* Adds a finding to the check that runs. */
KVL_PRINTF(3, 4)
void doctor_find(struct doctor *d, enum doctor_state state, const char *found, ...);

/* Whether the check that runs has added a finding. */
bool doctor_has_found(const struct doctor *d);

/* Adds that all is well, unless the check that runs has added a finding. */
KVL_PRINTF(2, 3) void doctor_find_well(struct doctor *d, const char *found, ...);

/* Sets the remedy of the last finding. */
KVL_PRINTF(2, 3) void doctor_advise(struct doctor *d, const char *remedy, ...);

/* Runs only the row called `name`; for tests. Returns false if there is none. */
bool doctor_run(struct doctor *d, const char *name);

/* Asks daemon, driver, unit and configuration below d->root; d is zeroed except for its borrowed
 * fields. */
void doctor_gather(struct doctor *d);

/* Parts of doctor_gather(): the configuration of the daemon, if one is up, and the unit. They read
 * files only. */
void doctor_gather_config(struct doctor *d);
void doctor_gather_unit(struct doctor *d);

/* Asks a daemon that answers at the socket: doctor-ask.c. */
void doctor_ask_daemon(struct doctor *d);
void doctor_free_daemon(struct doctor_daemon *daemon);

/* Frees what it owns. */
void doctor_deinit(struct doctor *d);

/* ---- facts ----------------------------------------------------------------------------------- */

/* Returns the last value of that key; NULL: none. Borrowed. */
const char *lines_find(
        const struct doctor_lines *l, const char *section, const char *name, const char *key);

/* Reads kvleased.conf as far as possible; kvleased itself finds errors. */
void lines_read_config(struct doctor_lines *l, const char *text, size_t len);

/* Reads an argument of kvleased's --option: "daemon.KEY=VALUE", "device.NAME.KEY=VALUE". Ignores
 * others. */
void lines_read_option(struct doctor_lines *l, const char *option);

/* Reads a unit file of systemd; an empty value drops the earlier ones. */
void lines_read_unit(struct doctor_lines *l, const char *text);

void lines_free(struct doctor_lines *l);

/* Returns a path below the root, owned. */
KVL_PRINTF(2, 3) char *doctor_path(const struct doctor *d, const char *format, ...);

/* Returns the text of a small file below the root, owned, without its last newline; NULL with
 * errno. */
KVL_PRINTF(2, 3) char *doctor_read(const struct doctor *d, const char *format, ...);

/* Reads the number after `name` in lines such as "MemTotal:  123 kB" of a file's text. Returns
 * false if there is none. */
bool doctor_number(const char *text, const char *name, uint64_t *ret_value);

/* Finds a group's number by root/etc/group, or by this host's other sources; a number is itself. */
bool doctor_group(const struct doctor *d, const char *name, unsigned *ret_gid);

/* Returns a setting of the configuration; `name` of the section is "" for [daemon]. NULL: not set.
 * Borrowed. */
const char *doctor_setting(
        const struct doctor *d, const char *section, const char *name, const char *key);

/* Returns the bytes of a setting; `otherwise` if it isn't set or is a word. */
uint64_t doctor_setting_bytes(const struct doctor *d, const char *section, const char *name,
        const char *key, uint64_t otherwise);

/* Returns the last value of a key of the unit's [Service]. NULL: not set. Borrowed. */
const char *doctor_unit_setting(const struct doctor *d, const char *key);

/* Returns the most host memory that can be leased: host devices, and host_memory of devices. */
uint64_t doctor_host_bytes(const struct doctor *d);

/* Whether the configuration names a GPU; whether this host has one. */
bool doctor_names_gpu(const struct doctor *d);
bool doctor_has_gpu(const struct doctor *d);

/* Whether root/proc/PID is the running daemon's. */
bool doctor_has_process(const struct doctor *d);

#endif
