/*
 * Facts about GPUs and their driver that the design relies on. A small program over our own loader
 * (gpu/cuda_load.h) checks each. It forks the processes that it needs before it loads the driver.
 *
 * If a needed call fails, the process ends. The fact's outcome is then "failed", with a sentence
 * that names the call. So functions here return errors only where they say so. Memory and
 * descriptors belong to the process and end with it.
 */
#ifndef KVL_TESTS_GPU_FACTS_H
#define KVL_TESTS_GPU_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpu/cuda_load.h"
#include "tests/gpu/more-calls.h"

#define FACT_VALUES_MAX 256
#define FACT_WHY_BYTES  512

enum outcome { FACT_FAILED, FACT_VERIFIED, FACT_REFUTED, FACT_SKIPPED };

struct fact_value {
        char name[64];
        const char *unit;
        double value;
};

/* Result of a fact. */
struct fact {
        const char *id, *claim;
        bool quick;
        enum outcome outcome;
        char why[FACT_WHY_BYTES];
        struct fact_value values[FACT_VALUES_MAX];
        unsigned n_values;
};

struct fact_row {
        const char *id;    /* "T1" */
        const char *claim; /* meaning of "verified"; without a full stop */
        void (*fn)(struct fact *f);
        unsigned seconds;    /* killed after it; a fifth of it with --quick */
        bool needs_vmm;      /* skipped where the device doesn't share it by descriptor */
        bool needs_ipc;      /* skipped where the driver has no legacy IPC */
        bool needs_kernels;  /* skipped where there are none */
        bool not_for_double; /* breaks a rule of the simulated driver */
};

/* Ends with a NULL id. */
extern const struct fact_row facts_life[], facts_cost[], facts_copy[], facts_sync[];

/* Records a figure; those beyond the maximum are dropped. unit: static. */
void fact_value(struct fact *f, const char *unit, double value, const char *name, ...)
        __attribute__((format(printf, 4, 5)));

/* Each fact ends with one of these; the last one counts. `why`: a sentence without a full stop. */
void fact_conclude(struct fact *f, bool holds, const char *why, ...)
        __attribute__((format(printf, 3, 4)));
void fact_skip(struct fact *f, const char *why, ...) __attribute__((format(printf, 2, 3)));

/* Ends this process: the fact has failed. */
void fact_die(const char *why, ...) __attribute__((format(printf, 1, 2), noreturn));

/* fact_die() for a result that isn't CU_OK. */
void need(cu_result result, const char *call);

/* The fact's process reports its death there; -1: stderr only. For main.c. */
void fact_die_into(struct fact *f, void (*finish)(struct fact *f));

/* ---- the device ----------------------------------------------------------------------------- */

/* Properties of the device, found by a process of its own; constant in all facts. */
struct device_facts {
        char name[128], uuid[48];
        int driver_version, compute_major, compute_minor;
        unsigned capabilities;
        bool is_double; /* tests/fakecuda: its figures mean nothing */
        bool has_posix_fd, has_read_only_host, has_memops;
        uint64_t total_bytes, free_bytes, granularity_bytes;
};
extern struct device_facts the_device;

struct gpu {
        const struct cuda *c;
        struct more_calls more;
        cu_device device;
        cu_context context; /* NULL: gpu_find() */
        cu_stream stream;   /* non-blocking */
        cu_module module;   /* NULL: no kernels (yet) */
};

/* Loads the driver and finds the device ($KVL_DEVICE_UUID, else the first), without a context. The
 * other also makes one current, with a stream. */
void gpu_find(struct gpu *g);
void gpu_open(struct gpu *g);
void gpu_close(struct gpu *g);

/* 0, or the errno of cuda_get() with its sentence. Nothing dies. */
int gpu_probe(struct device_facts *ret_facts, char why[CUDA_WHY_BYTES]);

uint64_t gpu_free_bytes(struct gpu *g);
void gpu_sync(struct gpu *g);

/* Waits until nothing is on the stream. False: it still is after this time. */
bool gpu_wait_idle(struct gpu *g, cu_stream stream, unsigned msec);

/* Returns false if the driver lacks the functions. On the simulated driver it needs
 * $KVL_GPU_FAKE_KERNELS, the kernels to run instead. */
bool gpu_has_kernels(void);

/* Starts a kernel of kernels.ptx with up to 4 arguments of 64 bits. */
void gpu_launch(struct gpu *g, cu_stream stream, const char *kernel, unsigned blocks,
        unsigned threads, const uint64_t *args, unsigned n_args);

/* ---- memory --------------------------------------------------------------------------------- */

/* Memory of cuMemCreate(), exportable. */
struct chunk {
        cu_mem_handle handle;
        cu_deviceptr at; /* 0: not mapped */
        uint64_t bytes;
};

void chunk_create(struct gpu *g, uint64_t bytes, struct chunk *ret);
int chunk_export(struct gpu *g, struct chunk *chunk); /* an owned fd */

/* Takes the fd. */
void chunk_import(struct gpu *g, int fd, uint64_t bytes, struct chunk *ret);

/* Reserves addresses for it; the other unmaps and frees them. */
void chunk_map(struct gpu *g, struct chunk *chunk);
void chunk_unmap(struct gpu *g, struct chunk *chunk);

/* Maps at an address that is reserved. */
void chunk_map_at(struct gpu *g, struct chunk *chunk, cu_deviceptr at);

/* Unmaps where it is mapped. */
void chunk_free(struct gpu *g, struct chunk *chunk);

cu_mem_allocation_prop chunk_prop(struct gpu *g);

/* Words made from a seed; the check counts those that differ. bytes: a multiple of 8. */
void pattern_put(struct gpu *g, cu_deviceptr at, uint64_t bytes, uint64_t seed);
uint64_t pattern_differs(struct gpu *g, cu_deviceptr at, uint64_t bytes, uint64_t seed);

uint64_t read_word(struct gpu *g, cu_deviceptr at);

/* Host memory of a memfd, mapped writable and touched; MAP_FAILED never. *ret_fd is owned. */
void *memfd_map(uint64_t bytes, int *ret_fd);

/* Returns `real` on hardware, `quick` with --quick, and little on the simulated driver. At most a
 * quarter of the free memory; a multiple of the granularity. */
uint64_t fact_bytes(const struct fact *f, uint64_t real, uint64_t quick);

/* ---- other processes ------------------------------------------------------------------------ */

/* A message; may come with a descriptor. */
struct note {
        uint32_t failed; /* the peer died: text gives the reason */
        uint64_t number[4];
        double value[8];
        uint8_t bytes[64];
        char text[256];
};

struct peer {
        pid_t pid;
        int sock;
        const char *name;
};

/* Forks a process that runs fn(sock, arg) and exits with 0. Before the driver is loaded here. */
void peer_start(
        struct peer *p, const char *name, void (*fn)(int sock, const void *arg), const void *arg);

/* fd: sent along where >= 0, and kept. NULL: an empty one. */
void note_send(int sock, const struct note *note, int fd);

/* Waits; ret_fd: NULL, none is expected; else there must be one. Dies with the peer. */
void note_wait(int sock, struct note *ret, int *ret_fd);

/* note_wait() if a note is there by now; else returns false. */
bool note_poll(int sock, struct note *ret);

void peer_end(struct peer *p);    /* waits until it has exited; dies where not with 0 */
double peer_kill(struct peer *p); /* SIGKILL; milliseconds until it was reaped */

/* ---- figures -------------------------------------------------------------------------------- */

double msec_since(uint64_t start_nsec);
double median_of(double *values, unsigned n); /* sorts; n > 0 */
double max_of(const double *values, unsigned n);

/* GB/s (10^9). */
double gb_per_s(uint64_t bytes, double msec);

#endif
