#include "policy/sizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

/* A histogram: exact below 2^FINE_BITS steps, then as many bins for each power of two. */
#define FINE_BITS 7
#define FINE      (1u << FINE_BITS)
#define MAX_BITS  21
#define N_BINS    (FINE + (MAX_BITS - FINE_BITS) * FINE)

/* Parts of the samples, see the header. */
#define BEYOND_AT_MOST 100
#define BEYOND_GROWS   200
#define BEYOND_SHRUNK  400

#define HYSTERESIS 8  /* of the reservation */
#define AHEAD      16 /* of the demand */
#define FAR_AHEAD  8  /* the same for a long ramp */

struct bucket {
        uint32_t counts[N_BINS];
        uint32_t n;
};

struct sizer {
        /* The one that is filled, and those before it that make a whole window. */
        struct bucket buckets[SIZER_BUCKETS + 1];
        struct bucket sum;
        unsigned current;
        uint64_t bucket_nsec; /* when the current one began */
        uint64_t window_nsec, step_bytes;
        uint64_t demand_bytes;
        uint64_t first_nsec; /* of the first sample */
        uint64_t changed_nsec, grown_nsec;
        bool has_sample, has_changed, has_grown;
};

struct sizer *sizer_new(void)
{
        return calloc(1, sizeof(struct sizer));
}

void sizer_free(struct sizer *s)
{
        free(s);
}

static unsigned bin_of(uint64_t steps)
{
        unsigned exponent;

        if (steps < FINE)
                return (unsigned)steps;
        if (steps >> MAX_BITS)
                return N_BINS - 1;
        exponent = 63 - (unsigned)__builtin_clzll(steps);
        return FINE * (exponent - FINE_BITS) + (unsigned)(steps >> (exponent - FINE_BITS));
}

/* The largest number of steps that a bin counts. */
static uint64_t bin_end(unsigned bin)
{
        unsigned shift = bin < FINE ? 0 : bin / FINE - 1;
        uint64_t fine = bin < FINE ? bin : bin % FINE + FINE;

        return ((fine + 1) << shift) - 1;
}

static uint64_t steps_of(uint64_t bytes, uint64_t step_bytes)
{
        return bytes / step_bytes + (bytes % step_bytes > 0);
}

static void forget_window(struct sizer *s, const struct sizer_params *p, uint64_t now_nsec)
{
        memset(s->buckets, 0, sizeof(s->buckets));
        memset(&s->sum, 0, sizeof(s->sum));
        s->window_nsec = p->window_nsec;
        s->step_bytes = p->step_bytes;
        s->bucket_nsec = s->first_nsec = now_nsec;
        s->has_sample = true;
}

/* The oldest bucket's samples go, and it is the current one. */
static void slide(struct sizer *s)
{
        struct bucket *oldest;

        s->current = (s->current + 1) % ARRAY_SIZE(s->buckets);
        oldest = &s->buckets[s->current];
        if (oldest->n == 0)
                return;
        for (unsigned i = 0; i < N_BINS; i++)
                s->sum.counts[i] -= oldest->counts[i];
        s->sum.n -= oldest->n;
        memset(oldest, 0, sizeof(*oldest));
}

void sizer_sample(
        struct sizer *s, const struct sizer_params *p, uint64_t demand_bytes, uint64_t now_nsec)
{
        uint64_t part_nsec = MAX(p->window_nsec / SIZER_BUCKETS, UINT64_C(1));
        uint64_t n_parts;
        unsigned bin = bin_of(steps_of(demand_bytes, p->step_bytes));

        if (!s->has_sample || s->window_nsec != p->window_nsec || s->step_bytes != p->step_bytes)
                forget_window(s, p, now_nsec);
        n_parts = (now_nsec - s->bucket_nsec) / part_nsec;
        for (uint64_t i = 0; i < MIN(n_parts, (uint64_t)ARRAY_SIZE(s->buckets)); i++)
                slide(s);
        s->bucket_nsec += n_parts * part_nsec;
        s->buckets[s->current].counts[bin]++;
        s->buckets[s->current].n++;
        s->sum.counts[bin]++;
        s->sum.n++;
        s->demand_bytes = demand_bytes;
}

/* Bytes that all but one in `part` of the samples fit; 0 without samples. */
static uint64_t quantile_bytes(const struct sizer *s, uint32_t part)
{
        uint32_t beyond = 0;

        for (unsigned bin = N_BINS; bin-- > 0;) {
                beyond += s->sum.counts[bin];
                if (beyond > s->sum.n / part)
                        return bin_end(bin) * s->step_bytes;
        }
        return 0;
}

uint64_t sizer_p99(const struct sizer *s)
{
        return quantile_bytes(s, BEYOND_AT_MOST);
}

uint64_t sizer_demand(const struct sizer *s)
{
        return s->demand_bytes;
}

/* Is the demand of now beyond the reservation, and isn't it a rare spike? */
static bool is_peak(const struct sizer *s, uint64_t reserved_bytes)
{
        uint32_t beyond = 0;

        if (s->demand_bytes <= reserved_bytes)
                return false;
        for (unsigned bin = bin_of(reserved_bytes / s->step_bytes + 1); bin < N_BINS; bin++)
                beyond += s->sum.counts[bin];
        return beyond > s->sum.n / BEYOND_GROWS;
}

static struct sizer_decision decide_growth(const struct sizer *s, const struct sizer_params *p,
        uint64_t reserved_bytes, uint64_t now_nsec)
{
        bool climbs = s->has_grown && now_nsec - s->grown_nsec < p->window_nsec;
        struct sizer_decision d = {reserved_bytes, sizer_p99(s), SIZER_HOLD};
        uint64_t wanted = d.p99_bytes;

        if (is_peak(s, reserved_bytes)) {
                uint64_t peak = steps_of(s->demand_bytes, p->step_bytes);

                wanted = MAX(wanted, (peak + peak / (climbs ? FAR_AHEAD : AHEAD)) * p->step_bytes);
        }
        if (wanted <= reserved_bytes)
                return d;
        d.target_bytes = MAX(MIN(wanted, p->max_bytes), reserved_bytes);
        d.why = d.target_bytes > reserved_bytes ? SIZER_GROW : SIZER_AT_MAX;
        return d;
}

static void decide_shrinking(const struct sizer *s, const struct sizer_params *p,
        uint64_t reserved_bytes, uint64_t now_nsec, struct sizer_decision *d)
{
        uint64_t fits = MAX(quantile_bytes(s, BEYOND_SHRUNK), MIN(s->demand_bytes, reserved_bytes));
        uint64_t floor_bytes = MAX(round_up_u64(fits, p->step_bytes), p->min_bytes);
        uint64_t cut;

        if (fits >= reserved_bytes || reserved_bytes - fits <= reserved_bytes / HYSTERESIS)
                return;
        if (floor_bytes >= reserved_bytes) {
                d->why = reserved_bytes <= p->min_bytes ? SIZER_AT_MIN : SIZER_HOLD;
        } else if (now_nsec - s->first_nsec < p->window_nsec) {
                d->why = SIZER_LEARNING;
        } else if (s->has_changed && now_nsec - s->changed_nsec < p->cooldown_nsec) {
                d->why = SIZER_COOLDOWN;
        } else {
                cut = (reserved_bytes - floor_bytes) / 2 / p->step_bytes * p->step_bytes;
                d->target_bytes =
                        reserved_bytes - MIN(MAX(cut, p->step_bytes), reserved_bytes - floor_bytes);
                d->why = SIZER_SHRINK;
        }
}

struct sizer_decision sizer_decide(const struct sizer *s, const struct sizer_params *p,
        uint64_t reserved_bytes, uint64_t now_nsec)
{
        struct sizer_decision d = {reserved_bytes, sizer_p99(s), SIZER_NONE};

        if (reserved_bytes < p->min_bytes || reserved_bytes > p->max_bytes) {
                d.target_bytes = MIN(MAX(reserved_bytes, p->min_bytes), p->max_bytes);
                d.why = SIZER_NEW_LIMITS;
                return d;
        }
        if (s->sum.n == 0)
                return d;
        d = decide_growth(s, p, reserved_bytes, now_nsec);
        if (d.why == SIZER_HOLD)
                decide_shrinking(s, p, reserved_bytes, now_nsec, &d);
        return d;
}

void sizer_applied(struct sizer *s, const struct sizer_decision *d, uint64_t now_nsec)
{
        s->changed_nsec = now_nsec;
        s->has_changed = true;
        if (d->why != SIZER_GROW)
                return;
        s->grown_nsec = now_nsec;
        s->has_grown = true;
}

static const struct {
        const char *name, *text;
} whys[] = {
        [SIZER_NONE] = {"none", "nothing was decided yet"},
        [SIZER_GROW] = {"grow", "demand is more than is reserved"},
        [SIZER_SHRINK] = {"shrink", "less was needed for a whole window"},
        [SIZER_HOLD] = {"hold", "the reservation fits demand"},
        [SIZER_COOLDOWN] = {"cooldown",
                "less is needed, but the reservation was changed a moment ago (sizer_cooldown)"},
        [SIZER_AT_MAX] = {"at-max", "demand is more than the most that may be reserved"},
        [SIZER_AT_MIN] = {"at-min", "less is needed than the least that may be reserved"},
        [SIZER_NEW_LIMITS] = {"new-limits",
                "the least or most that may be reserved was changed, or is another at this time of the day"},
        [SIZER_REFUSED] = {"refused", "the device has no room for a larger reservation"},
        [SIZER_LEARNING] = {"learning",
                "less is needed, but demand wasn't seen for a whole window yet (sizer_window)"},
};

const char *sizer_why_text(enum sizer_why why)
{
        return whys[why].text;
}

const char *sizer_why_name(enum sizer_why why)
{
        return whys[why].name;
}
