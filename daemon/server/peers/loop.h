/*
 * The event loop: one thread waits for events and does all of the daemon's work. Work that can't be
 * done at once, or takes longer than one iteration (turn), is continued in the next ones. The code
 * that has such work kicks the loop. Loop thread only.
 */
#ifndef KVL_SERVER_LOOP_H
#define KVL_SERVER_LOOP_H

#include <stdint.h>

#include <uv.h>

struct loop;

/* Does a bounded part of the work, and kicks the loop if more is left. */
typedef void (*loop_turn_fn)(struct loop *l);

struct loop {
        uv_loop_t uv;
        uv_idle_t work; /* active while there may be work */
        loop_turn_fn turn;
};

/* 0 or -errno. */
int loop_init(struct loop *l, loop_turn_fn turn);

/* Calls `turn` in the next iteration: there may be work. Idempotent and cheap. */
void loop_kick(struct loop *l);

/* Starts a timer of the loop, unless it runs or is being closed. */
void loop_start_timer(uv_timer_t *timer, uv_timer_cb fn, uint64_t msec);

#endif
