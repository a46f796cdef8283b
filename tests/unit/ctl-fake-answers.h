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

/* The reply, in the arena; borrowed. */
ProtobufCMessage *fake_answer(
        struct fake_answers *f, const struct msg_info *info, const ProtobufCMessage *request);

#endif
