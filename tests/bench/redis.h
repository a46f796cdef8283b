/*
 * redis-server on a Unix socket of its own, without persistence, spoken to in RESP by hand. Built
 * requests are kept and sent again, so that the client's part costs it nothing but the system
 * calls.
 */
#ifndef KVL_BENCH_REDIS_H
#define KVL_BENCH_REDIS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct redis {
        char dir[32]; /* "": none */
        pid_t pid;
        int fd; /* -1: none */
};

#define REDIS_INIT ((struct redis){.fd = -1})

/* A request and the answer it must get. Zeroed: empty. */
struct redis_request {
        uint8_t *out, *expected; /* owned */
        size_t out_len, out_size, expected_len, expected_size;
};

/* Starts it, pinned to `core` (-1: not). Returns 0; -ENOENT after a note on stderr: it isn't
 * installed; another -errno, with a message. */
int redis_start(struct redis *r, int core);
void redis_stop(struct redis *r);

/* Each appends one command, or aborts without memory. Keys have 32 bytes; all that is asked for is
 * there. */
void redis_add_set(
        struct redis_request *q, const uint8_t *key, const void *value, size_t value_len);
void redis_add_get(
        struct redis_request *q, const uint8_t *key, const void *value, size_t value_len);
void redis_add_exists(struct redis_request *q, const uint8_t *key);
void redis_add_mget(struct redis_request *q, const uint8_t *keys, unsigned n_keys,
        const void *value, size_t value_len); /* all have the same value */
void redis_request_reset(struct redis_request *q);
void redis_request_free(struct redis_request *q);

/* Sends all and reads all answers. 0; -EBADMSG: other answers; -errno. */
int redis_call(struct redis *r, const struct redis_request *q);

#endif
