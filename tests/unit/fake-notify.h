/*
 * A service manager that keeps descriptors, as far as sd_notify(3) goes: a thread that hears what
 * this process says to $NOTIFY_SOCKET. It fails the test where something is wrong with a message.
 */
#ifndef KVL_TESTS_FAKE_NOTIFY_H
#define KVL_TESTS_FAKE_NOTIFY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_NOTIFY_KEPT 8192
#define FAKE_NOTIFY_LOG  4096

struct fake_notify {
        pthread_t thread;
        const char *dir;
        int fd, stop_fd;
        /* Under the lock. */
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool deaf;        /* barriers don't pass */
        int barriers[64]; /* owned; while deaf */
        unsigned n_held;
        unsigned n_barriers;
        struct {
                char name[8];
                int fd; /* owned */
        } kept[FAKE_NOTIFY_KEPT];
        unsigned n_kept;
        char log[FAKE_NOTIFY_LOG]; /* "+e1 -e1 | ", "|" is a barrier; as far as it goes */
};

/* Large: not on a stack. */
void fake_notify_start(struct fake_notify *n);
void fake_notify_stop(struct fake_notify *n);

/* Barriers don't pass until it is false again. */
void fake_notify_set_deaf(struct fake_notify *n, bool deaf);

/* Until so many barriers have come; fails after 10 s. */
void fake_notify_await(struct fake_notify *n, unsigned n_barriers);

/* A duplicate of what is kept by that name, owned; -1: nothing is. */
int fake_notify_get(struct fake_notify *n, const char *name);
unsigned fake_notify_count(struct fake_notify *n);

/* Returns the messages since the last call. */
const char *fake_notify_take_log(struct fake_notify *n, char buf[FAKE_NOTIFY_LOG]);

#endif
