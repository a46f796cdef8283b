/*
 * Test processes that use the driver double: each starts in a fork of a test that never calls the
 * driver itself (none may be used after a fork).
 */
#ifndef KVL_TESTS_FAKECUDA_PROCESS_H
#define KVL_TESTS_FAKECUDA_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/fakecuda/fake.h"

#define MIB    ((size_t)1 << 20)
#define EXTENT (4 * MIB)

/* In a test process, where cmocka's assertions don't work. */
#define CHECK(x)                                             \
        do {                                                 \
                if (!(x))                                    \
                        child_fails(__FILE__, __LINE__, #x); \
        } while (0)
#define OK(call)          child_expects(__FILE__, __LINE__, #call, call, CU_OK)
#define GIVES(call, want) child_expects(__FILE__, __LINE__, #call, call, want)

_Noreturn void child_fails(const char *file, int line, const char *what);
void child_expects(const char *file, int line, const char *what, int got, int want);

typedef void (*child_fn)(void);

/* Runs fn in a process of its own, with a fresh $FAKECUDA_DIR. It must end by itself without a word
 * on stderr; or abort with the one line "fakecuda: LINE" (a prefix of it). */
void expect_clean(child_fn fn);
void expect_abort(child_fn fn, const char *line);

/* In a test process, before the driver is used: a second one, and a socket between the two. */
struct peer {
        pid_t pid;
        int fd;
};
struct peer peer_start(void (*fn)(int fd));
/* The peer must exit with 0, or be killed by the signal. */
void peer_join(struct peer *p);
void peer_kill(struct peer *p);

/* A byte, an fd or bytes over the socket. */
void say(int fd);
void hear(int fd);
void send_bytes(int fd, const void *data, size_t len);
void receive_bytes(int fd, void *data, size_t len);
void send_fd(int fd, int sent);
int receive_fd(int fd);

/* Device 0 with its primary context current; the end of that. */
cu_context begin(void);
void end(void);

/* An extent of EXTENT bytes; mapped with access. */
cu_mem_allocation_prop prop_of(int ordinal);
cu_mem_handle create(void);
cu_deviceptr map(cu_mem_handle handle);
void set_access(cu_deviceptr at, int flags);
void unmap(cu_deviceptr at);

/* Every byte has this value. Synchronous. */
void fill(cu_deviceptr at, uint8_t value);
bool holds(cu_deviceptr at, size_t bytes, uint8_t value);

#endif
