#include "tests/unit/disk-sim.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/test-support.h"

static uint32_t (*below)(uint32_t n); /* the test's */

void sim_set_random(uint32_t (*random_below)(uint32_t n))
{
        below = random_below;
}

static struct sim *sim_of(struct disk_engine *e)
{
        return container_of(e, struct sim, engine);
}

/* ---- what may reach the disk ----------------------------------------------------------------- */

static void gather(const struct disk_op *op, char *to)
{
        for (unsigned i = 0; i < op->n_iov; i++) {
                memcpy(to, op->iov[i].iov_base, op->iov[i].iov_len);
                to += op->iov[i].iov_len;
        }
}

static void expect_alone(struct sim *s, const struct disk_op *op)
{
        list_for_each (w, &s->writes, struct sim_write, link)
                if (w->op && w->offset < op->offset + op->bytes && op->offset < w->offset + w->len)
                        fail_msg("two operations on %#llx", (unsigned long long)op->offset);
}

static void note_write(struct sim *s, struct disk_op *op)
{
        struct sim_write *w;

        expect_alone(s, op);
        if (op->kind == DISK_OP_READ)
                return;
        w = calloc(1, sizeof(*w) + op->bytes);
        assert_non_null(w);
        w->op = op;
        w->offset = op->offset;
        w->len = op->bytes;
        if (op->kind == DISK_OP_WRITE)
                gather(op, w->data);
        list_append(&s->writes, &w->link);
}

static void note_flush(struct sim *s)
{
        list_for_each (w, &s->writes, struct sim_write, link)
                w->in_flush = !w->op;
}

static void flushed(struct sim *s)
{
        s->n_flushes++;
        list_for_each_safe (w, &s->writes, struct sim_write, link) {
                if (!w->in_flush)
                        continue;
                memcpy(s->durable + w->offset, w->data, w->len);
                list_remove(&w->link);
                free(w);
        }
}

static void note_done(struct sim *s, struct disk_op *op)
{
        list_for_each (w, &s->writes, struct sim_write, link)
                if (w->op == op)
                        w->op = NULL;
}

static void apply(char *image, const struct sim_write *w, enum sim_tear tear, unsigned part)
{
        uint64_t unit = tear == SIM_WHOLE ? w->len : tear == SIM_PAGES ? DISK_ALIGN : 512;
        uint64_t n = (w->len + unit - 1) / unit, head = 0;

        if (tear == SIM_HEADS && below(256) < part)
                head = below((uint32_t)n + 1);
        for (uint64_t i = 0; i < n; i++)
                if (tear == SIM_HEADS ? i < head : below(256) < part)
                        memcpy(image + w->offset + i * unit, w->data + i * unit,
                                MIN(unit, w->len - i * unit));
}

char *sim_cut(struct sim *s, enum sim_tear tear, unsigned part)
{
        struct sim_write **all, *w;
        char *image = malloc(s->bytes);
        uint32_t n = 0;

        assert_non_null(image);
        memcpy(image, s->durable, s->bytes);
        for (struct list_link *l = s->writes.next; l != &s->writes; l = l->next)
                n++;
        all = calloc(n + 1, sizeof(struct sim_write *));
        assert_non_null(all);
        n = 0;
        list_for_each (one, &s->writes, struct sim_write, link)
                all[n++] = one;
        for (; n > 0; n--) {
                uint32_t i = below(n);

                w = all[i];
                all[i] = all[n - 1];
                apply(image, w, tear, part);
        }
        free(all);
        return image;
}

/* ---- the engine ------------------------------------------------------------------------------ */

/* disk_op_run() changes what says where it was: afterwards the op is known by its address alone. */
static void happen(struct sim *s, struct disk_op *op)
{
        list_remove(&op->link);
        s->n_waiting--;
        if (s->fails & 1u << op->kind)
                op->result = s->error;
        else if (s->knows_power && op->kind == DISK_OP_FLUSH)
                op->result = 0;
        else
                disk_op_run(s->fd, op);
        if (s->knows_power && op->kind == DISK_OP_FLUSH && op->result == 0)
                flushed(s);
        note_done(s, op);
        list_append(&s->done, &op->link);
        disk_ring(s->event_fd);
}

static void submit(struct disk_engine *e, struct disk_op *op)
{
        struct sim *s = sim_of(e);

        list_append(&s->waiting, &op->link);
        s->n_waiting++;
        if (s->knows_power && op->kind == DISK_OP_FLUSH)
                note_flush(s);
        else if (s->knows_power)
                note_write(s, op);
        if (!s->is_manual)
                happen(s, op);
}

bool sim_step(struct sim *s)
{
        uint32_t i = s->n_waiting > 0 ? below(s->n_waiting) : 0;

        list_for_each (op, &s->waiting, struct disk_op, link)
                if (i-- == 0) {
                        happen(s, op);
                        return true;
                }
        return false;
}

void sim_run(struct sim *s)
{
        while (sim_step(s))
                ;
}

static void reap(struct disk_engine *e, struct list_link *ret_done)
{
        list_take_all(&sim_of(e)->done, ret_done);
}

static bool close_sim(struct disk_engine *e, unsigned msec)
{
        struct sim *s = sim_of(e);

        while (!list_is_empty(&s->writes)) {
                struct sim_write *w = list_first(&s->writes, struct sim_write, link);

                list_remove(&w->link);
                free(w);
        }
        free(TAKE(s->durable));
        return list_is_empty(&s->waiting);
}

static const struct disk_engine_ops ops = {"sim", submit, reap, close_sim};

static int read_durable(struct sim *s)
{
        struct stat st;

        if (fstat(s->fd, &st) < 0)
                return -errno;
        s->bytes = (uint64_t)st.st_size;
        s->durable = disk_buffer_new(s->bytes);
        assert_non_null(s->durable);
        return pread(s->fd, s->durable, s->bytes, 0) == (ssize_t)s->bytes ? 0 : -EIO;
}

int sim_start(int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine)
{
        struct sim *s = data;

        s->engine.ops = &ops;
        s->fd = fd;
        s->event_fd = event_fd;
        list_init(&s->writes);
        list_init(&s->waiting);
        list_init(&s->done);
        s->n_waiting = 0;
        *ret_engine = &s->engine;
        return s->knows_power ? read_durable(s) : 0;
}
