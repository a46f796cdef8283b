/*
 * Scripts of a server that the client of Redis is tested against: it notes what it is sent, and
 * answers with one text after another.
 */
#ifndef KVL_TESTS_REMOTE_RECORD_H
#define KVL_TESTS_REMOTE_RECORD_H

#include <stdio.h>
#include <string.h>

#include "tests/unit/fake-redis.h"

/* Answers commands that every script answers in the same way. Returns false for others. */
static inline bool answer_common(struct fake_conn *c, const struct fake_arg *args)
{
        if (fake_arg_is(&args[0], "CLUSTER")) {
                fake_say(c, "-ERR This instance has cluster support disabled\r\n");
                return true;
        }
        if (fake_arg_is(&args[0], "AUTH")) {
                fake_say(c, "+OK\r\n");
                return true;
        }
        return false;
}

struct record {
        char text[4096]; /* "SET key PX 600000;" */
        const char *const *answers;
};

/* CLUSTER isn't noted. */
static inline bool answer_record(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        struct record *r = e->data;
        size_t len = strlen(r->text);

        if (fake_arg_is(&args[0], "CLUSTER"))
                return answer_common(c, args);
        for (unsigned i = 0; i < n; i++)
                len += (size_t)snprintf(r->text + len, sizeof(r->text) - len, "%.*s%c",
                        (int)args[i].len, args[i].data, i + 1 < n ? ' ' : ';');
        if (!answer_common(c, args))
                fake_say(c, *r->answers++);
        return true;
}

/* Two of them. */
struct pair {
        struct fake_redis servers[2];
        struct record records[2];
};

static inline void pair_start(struct pair *p, const char *const *first, const char *const *second)
{
        memset(p, 0, sizeof(*p));
        p->records[0].answers = first;
        p->records[1].answers = second;
        for (unsigned i = 0; i < 2; i++)
                fake_redis_start(&p->servers[i], 0, answer_record, &p->records[i]);
}

static inline void pair_stop(struct pair *p)
{
        for (unsigned i = 0; i < 2; i++)
                fake_redis_stop(&p->servers[i]);
}

#endif
