/*
 * Processes that use the CUDA backend with a simulated driver. Each is a fork of a test that never
 * calls the driver itself: it is loaded once per process, and not usable after a fork.
 */
#ifndef KVL_TESTS_CUDA_PROCESS_H
#define KVL_TESTS_CUDA_PROCESS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "gpu/cuda.h"
#include "gpu/device.h"

#define STEP  ((uint64_t)2 << 20)
#define UUID0 "GPU-fa4ecada-0000-0000-0000-000000000000"
#define UUID1 "GPU-fa4ecada-0000-0000-0000-000000000001"

/* In such a process, where cmocka's assertions don't work. */
#define CHECK(x)                                             \
        do {                                                 \
                if (!(x))                                    \
                        child_fails(__FILE__, __LINE__, #x); \
        } while (0)
#define GIVES(call, want) child_expects(__FILE__, __LINE__, #call, call, want)
#define OK(call)          GIVES(call, 0)

_Noreturn void child_fails(const char *file, int line, const char *what);
void child_expects(const char *file, int line, const char *what, int got, int want);

/* The program again with the double on its library path, where that isn't so yet. First in main().
 */
void use_double(char **argv);

/*
 * Runs fn in a process of its own, with a fresh $FAKECUDA_DIR and what `env` sets ("NAME=VALUE" by
 * spaces). It must end by itself, having released all memory of the double.
 */
void run(void (*fn)(void), const char *env);

/* Like run(), for a device that broke: memory and descriptors of the driver may be left. */
void run_broken(void (*fn)(void), const char *env);

/* The simulated driver must abort the process. */
void run_abort(void (*fn)(void));

/* Sets the process's rules for the simulated driver (a file of "fail=" and "delay=" lines). */
void control(const char *lines);

/* Before the driver is used: a second process, and a socket between the two. */
struct peer {
        pid_t pid;
        int fd;
};
struct peer peer_start(void (*fn)(int fd));
/* Waits for the peer, which must exit with 0. */
void peer_join(struct peer *p);

/* A byte; a handle (its fd is closed here). */
void say(int fd);
void hear(int fd);
void send_handle(int fd, struct extent_handle *handle);
struct extent_handle receive_handle(int fd);

struct device *open_gpu(enum device_side side, enum device_transport transport);
struct extent *create(struct device *d, uint64_t bytes);
struct extent_handle export(struct extent *e);
struct device_arena *reserve(struct device *d, uint64_t bytes);

/* Imported and mapped at `offset`, and the end of that. */
struct extent *import(struct device_arena *a, uint64_t offset, struct extent_handle handle);
void unimport(struct device_arena *a, uint64_t offset, struct extent *e);

void fill(struct extent *e, uint8_t value);
bool holds(struct extent *e, uint64_t offset, uint64_t len, uint8_t value);

/* Waits for the end of a batch; its result. */
int batch_wait(struct device *d, struct device_batch *b);

#endif
