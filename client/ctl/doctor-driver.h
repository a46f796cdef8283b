/* Asks this host's GPU driver in a process of its own: a driver that hangs or crashes affects only
 * that process, and its open files end there. Plain data. */
#ifndef KVL_CTL_DOCTOR_DRIVER_H
#define KVL_CTL_DOCTOR_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
