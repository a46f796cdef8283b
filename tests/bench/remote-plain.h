/* The client of daemon/remote alone, without a daemon: what reading values from a server takes. */
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

/* Zeroed before; plain_close() it in any case. As many values as there are flights are written. 0
 * or -errno, told. */
int plain_open(struct plain *p, const char *address, unsigned n_connections, uint64_t value_bytes);
void plain_close(struct plain *p);

/* Reads so many values, of all connections. 0 or -errno, told. */
int plain_read(struct plain *p, uint32_t n_values, uint64_t *ret_nsec);

/* Asks whether a value is there. 0 or -errno, told. */
int plain_probe(struct plain *p, uint64_t *ret_nsec);

#endif
