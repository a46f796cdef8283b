/* The client of daemon/remote alone, without a daemon: the time to read values from a server. */
#ifndef KVL_BENCH_REMOTE_PLAIN_H
#define KVL_BENCH_REMOTE_PLAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct remote_store;

#define PLAIN_FLIGHTS 8 /* reads that are submitted at once */

struct plain_flight {
        bool is_free;
        int result;
        struct iovec iov;
};

struct plain {
        struct remote_store *store;
        uint64_t value_bytes;
        uint8_t *buffers; /* a value for each flight */
        struct plain_flight flights[PLAIN_FLIGHTS];
};

/* Zeroed before. Writes as many values as there are flights. Returns 0 or -errno, with a message.
 * Call plain_close() in any case. */
int plain_open(struct plain *p, const char *address, unsigned n_connections, uint64_t value_bytes);
void plain_close(struct plain *p);

/* Reads so many values over all connections. Returns 0 or -errno, with a message. */
int plain_read(struct plain *p, uint32_t n_values, uint64_t *ret_nsec);

/* Probes for a value. Returns 0 or -errno, with a message. */
int plain_probe(struct plain *p, uint64_t *ret_nsec);

#endif
