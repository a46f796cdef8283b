#include "daemon/server/peers/loop.h"

#include "base/macros.h"

static void on_work(uv_idle_t *idle)
{
        struct loop *l = container_of(idle, struct loop, work);

        uv_idle_stop(idle); /* a kick from here on gets another turn */
        l->turn(l);
}

void loop_kick(struct loop *l)
{
        /* No more turns while the loop is being closed. */
        if (!uv_is_closing((uv_handle_t *)&l->work))
                uv_idle_start(&l->work, on_work);
}

void loop_start_timer(uv_timer_t *timer, uv_timer_cb fn, uint64_t msec)
{
        const uv_handle_t *handle = (const uv_handle_t *)timer;

        if (!uv_is_active(handle) && !uv_is_closing(handle))
                uv_timer_start(timer, fn, msec, 0);
}

int loop_init(struct loop *l, loop_turn_fn turn)
{
        int r = uv_loop_init(&l->uv);

        if (r < 0)
                return r;
        l->turn = turn;
        return uv_idle_init(&l->uv, &l->work);
}
