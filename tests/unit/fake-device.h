/*
 * A device without memory: extents are counted and nothing else, so that state can be tested in
 * bytes rather than mebibytes and an extent that is lost shows. Calls can be made to fail, and to
 * block until they are let go: what is tested on a queue waits for conditions, never for time.
 */
#ifndef KVL_TESTS_FAKE_DEVICE_H
#define KVL_TESTS_FAKE_DEVICE_H

#include <pthread.h>

#include "gpu/device.h"

#define FAKE_LOG_BYTES 512

struct fake_device {
        struct device device;
        unsigned n_extents; /* alive */
        unsigned fail_in;   /* the n-th creation from now fails; 0: none */
        unsigned n_exports;
        uint64_t registered_bytes; /* of the host's memory */
        bool closed;

        /* Under the lock, as is everything above where the device is on a queue. */
        pthread_mutex_t lock;
        pthread_cond_t changed;
        pthread_t caller; /* every call comes from it, where `has_caller` */
        bool has_caller, wrong_caller;
        bool hands_out_fds;  /* exports are descriptors, rather than bytes that count up */
        const char *blocked; /* the call that doesn't return */
        bool inside;         /* one is in it */
        const char *failing; /* the call that fails, `fail_skip` calls from now on */
        unsigned fail_skip;
        int fail_result; /* until it is 0 */
        bool batch_done[2];
        char log[FAKE_LOG_BYTES]; /* calls since it was emptied: "create export destroy " */
};

/* The device is embedded in *f, which outlives it. */
void fake_device_init(struct fake_device *f, const char *name, uint64_t granularity_bytes);

/* Bytes of an extent, at most 4 KiB. Copies between extents move them, and nothing else reads them.
 * Not while a copy runs. */
uint8_t *fake_bytes(struct extent *e);

/* Makes it a device behind a queue: calls may block, and by_fd hands out descriptors. */
void fake_device_make_slow(struct fake_device *f, bool by_fd);

/* Makes it copy in batches, which fake_device_end_batch() ends, and register host memory. */
void fake_device_add_batches(struct fake_device *f);
void fake_device_end_batch(struct fake_device *f, enum device_direction direction);

/* The call ("create", "export", "destroy", "let-go" (not by the last owner), "zero", "copy",
 * "read", "write", "start", "poll", "register", "unregister", "close") blocks from now on. */
void fake_device_block(struct fake_device *f, const char *call);

/* Waits until a thread is in the call that blocks; aborts after 10 s. */
void fake_device_wait_inside(struct fake_device *f);
void fake_device_unblock(struct fake_device *f);

/* The n-th such call from now (from 1) and all after it fail; result 0 ends it. */
void fake_device_fail(struct fake_device *f, const char *call, unsigned n, int result);

unsigned fake_device_count(struct fake_device *f);
void fake_device_wait_closed(struct fake_device *f);

/* Calls since the last time, polls left out. */
const char *fake_device_take_log(struct fake_device *f, char buf[FAKE_LOG_BYTES]);

/* Destroys its lock and condition, which no thread uses any more. */
void fake_device_deinit(struct fake_device *f);

#endif
