/* A client without the library: sends right or wrong messages. Asserts by cmocka. One thread. */
#ifndef KVL_TEST_RAW_H
#define KVL_TEST_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/arena.h"
#include "proto/frame.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"
#include "tests/integration/harness.h"

struct raw {
        int fd; /* blocking; -1: none */
        uint64_t seq;
        struct frame_parser parser;
        struct arena arena; /* of the last answer */
        struct frame frame; /* the last answer */
        int *fds;       /* NULL, or where the next answer's descriptors go, owned by the caller */
        unsigned n_fds; /* how many are wanted; other numbers fail */
};

/* Connects to a path; NULL: tenant "a" of the harness. */
void raw_open(struct raw *r, struct harness *h, const char *path);
void raw_close(struct raw *r);

/* Sends bytes, with copies of a descriptor `n_fds` times. Returns true if all were sent. */
bool raw_send(struct raw *r, const void *data, size_t len, unsigned n_fds);

/* Sends a header with `length` zero bytes behind it; seq and version are filled in. */
bool raw_frame(struct raw *r, struct frame_header header);

/* Sends a request; version 1. */
bool raw_request(struct raw *r, uint16_t type, uint16_t flags, const ProtobufCMessage *m);

/* Waits for the next answer, skipping events. NULL: the daemon hung up. Borrowed until the next
 * call. */
const ProtobufCMessage *raw_answer(struct raw *r);

/* Waits until the daemon hangs up, and drops earlier input. False: it doesn't within 10 s. */
bool raw_hung_up(struct raw *r);

/* Sends a hello with these versions; returns the answer. */
const Kvlease__V1__HelloReply *raw_hello(struct raw *r, uint32_t min_version, uint32_t max_version);

/* After this answer to hello: proves the process's identity if the daemon asks for it. Returns true
 * if the client may continue. */
bool raw_authenticate(struct raw *r, const Kvlease__V1__HelloReply *hello);

/* Sends a hello in version 1, which must be accepted, and opens namespace "raw" of one plane.
 * Returns its id. */
uint32_t raw_attach(struct raw *r);

/* raw_attach() after a hello. */
uint32_t raw_open_ns(struct raw *r);

/* Tries to open a namespace like "raw" with this name, or also this model; returns the answer. */
const Kvlease__V1__NsOpenReply *raw_try_ns(struct raw *r, const char *name);
const Kvlease__V1__NsOpenReply *raw_try_model(struct raw *r, const char *name, const char *model);

#endif
