/*
 * The life of a parent of kvleased --keep (daemon/keep/parent.h), for tests: the program of the
 * test is its child as well, and does what the test says. All assert, and wait for events.
 *
 *   life_begin() -> life_meet() -> (life_tell() .. -> a death -> life_meet()) .. -> life_end()
 */
#ifndef KVL_TESTS_KEEP_LIFE_H
#define KVL_TESTS_KEEP_LIFE_H

#include "base/clock.h"
#include "daemon/keep/notify.h"
#include "daemon/keep/parent.h"
#include "tests/unit/test-support.h"

#define LIFE_TEXT_BYTES 1024
#define LIFE_FOREVER    UINT64_C(3600000000000) /* longer than any test */

struct life {
        const char *dir;
        int above, meeting; /* the parent's own service manager; where children come to */
        pid_t parent, child;
        int fd;                      /* to the child */
        char about[LIFE_TEXT_BYTES]; /* as the child introduced itself */
        char text[NOTIFY_MAX_BYTES + 1];
};

/* main() of the child, where argv[1] is "child". */
int life_child(void);

/* A store of 8, 20 tries; every child may die young, and no watchdog runs. */
struct parent_options life_patient(void);

/* `prepare` sets up what is given to the parent, in its process; NULL: nothing. */
void life_begin(struct life *l, struct parent_options o, void (*prepare)(void));

/* The next child is there. */
void life_meet(struct life *l);

/* Both. */
void life_start(struct life *l, struct parent_options o);

/* The child's environment: "files=1024 store=8 usec=- wpid=0 pid=1 names=e7:e9 sizes=7,9,". wpid,
 * pid: whether WATCHDOG_PID and LISTEN_PID are its own. sizes: bytes behind each descriptor. */
void life_assert_about(const struct life *l, const char *text);

/*
 * An order to the child:
 *   say TEXT         to its parent, as sd_notify() would
 *   another TEXT     the same, with a descriptor, by a process that it starts
 *   keep NAME        a descriptor of so many bytes as the name's number says
 *   on N exit CODE   from now on at signal N
 *   stop aloud       saying STOPPING=1 then
 *   exit CODE, keep-and-exit CODE
 */
void life_order(struct life *l, const char *line);

/* Like life_order(), and waits until the order was carried out. */
void life_tell(struct life *l, const char *line);

void life_get_ready(struct life *l);

/* Waits until the child is dead, however it died. */
void life_await_death(struct life *l);

/* The next message above, as l->text. */
void life_hear(struct life *l);

/* The next of them that has the text. */
void life_expect(struct life *l, const char *text);

/* Waits for the parent's end; as of waitpid(). Nothing is left. */
int life_wait(struct life *l);

/* Ends it, and returns its exit code. */
int life_end(struct life *l);

/* Ends it by SIGTERM. */
void life_stop(struct life *l);

#define KEEP_LIFE_SCENE(fn, ...) TEST_ON(fn, struct life, l, life_start, life_stop, ##__VA_ARGS__)

#endif
