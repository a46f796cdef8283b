/*
 * A device without memory: extents are counted and nothing else, so that state can be tested in
 * bytes rather than mebibytes and an extent that is lost shows. Creation can be made to fail.
 */
#ifndef KVL_TESTS_FAKE_DEVICE_H
#define KVL_TESTS_FAKE_DEVICE_H

#include "gpu/device.h"

struct fake_device {
        struct device device;
        unsigned n_extents; /* alive */
        unsigned fail_in;   /* the n-th creation from now fails; 0: none */
        unsigned n_exports;
        bool closed;
};

/* The device is embedded in *f, which outlives it. */
void fake_device_init(struct fake_device *f, const char *name, uint64_t granularity_bytes);

#endif
