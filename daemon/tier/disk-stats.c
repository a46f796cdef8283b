#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/tier/disk-impl.h"

/* ---- latency --------------------------------------------------------------------------------- */

/* The three bits below the first one say which eighth of the octave. */
static unsigned bucket_of(uint64_t nsec)
{
        unsigned octave = nsec < 8 ? 3 : 63 - (unsigned)__builtin_clzll(nsec);

        return octave * 8 + (unsigned)(nsec >> (octave - 3) & 7);
}

static uint64_t bucket_end(unsigned bucket)
{
        return ((uint64_t)(8 + bucket % 8) + 1) << (bucket / 8 - 3);
}

/* The value below which `part` of the samples lie; 0: no samples. */
static uint64_t latency_quantile(const uint64_t histogram[DISK_HISTOGRAM], double part)
{
        uint64_t all = 0, seen = 0;

        for (unsigned i = 0; i < DISK_HISTOGRAM; i++)
                all += histogram[i];
        for (unsigned i = 0; i < DISK_HISTOGRAM && all > 0; i++) {
                seen += histogram[i];
                if ((double)seen >= part * (double)all)
                        return bucket_end(i);
        }
        return 0;
}

void disk_note_latency(struct disk_file *d, const struct disk_op *op)
{
        if (op->result == 0 && op->io)
                d->histograms[op->kind == DISK_OP_WRITE]
                             [bucket_of(clock_now_nsec() - op->since_nsec)]++;
}

/* ---- all of it ------------------------------------------------------------------------------- */

enum disk_state disk_state(const struct disk_file *d)
{
        if (d->is_off)
                return DISK_OFF;
        return d->n_row > 0 || d->n_late_now > 0 ? DISK_FAILING : DISK_OK;
}

static void set_state(const struct disk_file *d, struct disk_stats *s)
{
        s->state = disk_state(d);
        if (s->state == DISK_OK)
                return;
        if (d->is_off || d->n_late_now == 0)
                (void)snprintf(s->why, sizeof(s->why), "%s", d->why);
        else
                (void)snprintf(s->why, sizeof(s->why),
                        "the disk hasn't answered for %u ms (%u operations): %.150s",
                        d->deadline_msec, d->n_late_now, d->path);
}

void disk_stats(const struct disk_file *d, struct disk_stats *ret_stats)
{
        struct disk_stats *s = ret_stats;

        *s = d->counts;
        set_state(d, s);
        memcpy(s->note, d->note, sizeof(s->note));
        s->engine = d->engine->ops->name;
        s->is_direct = d->is_direct;
        s->bytes = d->super.bytes;
        s->chunk_bytes = d->super.chunk_bytes;
        s->n_chunks = d->layout.n_chunks;
        s->n_free = d->n_free;
        s->n_freeing = d->n_freeing;
        s->n_spaces = d->n_spaces;
        s->index_bytes = d->index_bytes;
        list_for_each (space, &d->spaces, struct disk_space, link)
                s->n_pages += space->n_pages;
        s->read_p50_nsec = latency_quantile(d->histograms[0], 0.5);
        s->read_p99_nsec = latency_quantile(d->histograms[0], 0.99);
        s->write_p50_nsec = latency_quantile(d->histograms[1], 0.5);
        s->write_p99_nsec = latency_quantile(d->histograms[1], 0.99);
}
