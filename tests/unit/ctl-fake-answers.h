/*
 * Answers of the scripted kvleased of ctl-fake.h: fixed tables with a row for each answer, chosen
 * by its mode. Test code: failures assert.
 */
#ifndef KVL_TESTS_CTL_FAKE_ANSWERS_H
#define KVL_TESTS_CTL_FAKE_ANSWERS_H

#include "proto/arena.h"
#include "proto/msg.h"
#include "tests/unit/ctl-fake.h"

struct fake_answers {
        enum fake_mode mode;
        struct arena *arena; /* borrowed */
        unsigned n_status;   /* asked so often how many clients there are */
};

/* Namespace sets, and memory of eviction policies, in the answer to AdminStatus. */
#define STATUS_OF_CATALOG                                                  \
        .n_ns_sets = 2, .set_keys_complete = 9, .set_keys_incomplete = 40, \
        .policy_page_bytes = 96 << 20, .policy_ghost_bytes = 3 << 20,      \
        .policy_table_bytes = 900 << 10, .policy_ghosts = 150000,          \
        .policy_ghost_limit_bytes = 48 << 20

/* The reply, in the arena; borrowed. */
ProtobufCMessage *fake_answer(
        struct fake_answers *f, const struct msg_info *info, const ProtobufCMessage *request);

#endif
