#include "policy/pgi-table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define CELLS (PGI_CLASSES * PGI_BINS)

/* Weight of the prior of a class or group, in spells that reached a bin. Not tuned: from 5 to 100
 * the results differ by less than 0.2 points of hits. */
#define PSEUDO_SPELLS 10

/*
 * Pages of a text are used together, so long requests give many spells from few, possibly unusual,
 * requests. Agents with contexts of 40 to 300 pages could lose a point of hits to LRU in their
 * first thousand requests. So each page that a request uses beyond LONG_REQUEST adds FEW_REQUESTS
 * pseudo-spells, divided by the number of requests seen. Tuned on such agents. A value below 50
 * pages costs other traffic more than it saves them.
 */
#define LONG_REQUEST 50
#define FEW_REQUESTS 4000

/* All counts are halved when they have more uses than this, because traffic changes. */
#define MAX_EVENTS (UINT64_C(1) << 22)

/* The saved form: magic, version, bins, classes, events, censored (counts of 32 bits), and the
 * FNV-1a of all that. Little-endian. */
#define MAGIC   UINT32_C(0x4947504b) /* "KPGI" */
#define VERSION 1
#define HEADER  16
#define SAVED   (HEADER + 2 * CELLS * 4 + 8)
/* Limit of a saved count, which has 32 bits, and of n_lost, which outgrows n_events in some
 * traffic. Sums of all cells can't overflow. */
#define MAX_COUNT (UINT32_C(1) << 30)

int pgi_table_init(struct pgi_table *t)
{
        *t = (struct pgi_table){
                .events = calloc(CELLS, sizeof(*t->events)),
                .lost = calloc(CELLS, sizeof(*t->lost)),
                .alive = calloc(CELLS, sizeof(*t->alive)),
                .counting = calloc(CELLS, sizeof(*t->counting)),
                .index = calloc(CELLS, sizeof(*t->index)),
                .hazard = calloc(CELLS, sizeof(*t->hazard)),
        };
        if (t->events && t->lost && t->alive && t->counting && t->index && t->hazard)
                return 0;
        pgi_table_deinit(t);
        return -ENOMEM;
}

void pgi_table_deinit(struct pgi_table *t)
{
        free(t->events);
        free(t->lost);
        free(t->alive);
        free(t->counting);
        free(t->index);
        free(t->hazard);
        *t = (struct pgi_table){0};
}

uint64_t pgi_table_bytes(void)
{
        return (uint64_t)CELLS * (4 * sizeof(uint32_t) + 2 * sizeof(float));
}

/* 2^(k/4) in units of 2^-31, k = 1..3. Integers: the same bin on every machine. */
static const uint32_t quarters[] = {2553802834, 3037000500, 3611622603};

uint32_t pgi_age_bin(uint32_t age_ticks)
{
        uint32_t octave, mantissa, bin;

        if (age_ticks < PGI_FIRST_TICKS)
                return 0;
        octave = 31 - (uint32_t)__builtin_clz(age_ticks);
        mantissa = age_ticks << (31 - octave);
        bin = 1 + 4 * (octave - 4) + (mantissa >= quarters[0]) + (mantissa >= quarters[1]) +
              (mantissa >= quarters[2]);
        return MIN(bin, PGI_BINS - 1);
}

double pgi_bin_start(uint32_t bin)
{
        uint32_t octave, quarter;

        if (bin == 0)
                return 0;
        octave = (bin - 1) / 4;
        quarter = (bin - 1) % 4;
        return (double)(PGI_FIRST_TICKS << octave) *
               (quarter == 0 ? 1 : (double)quarters[quarter - 1] / 2147483648.0);
}

void pgi_table_count(struct pgi_table *t, uint32_t class, uint32_t age_ticks)
{
        if (class != PGI_PASSED)
                t->counting[pgi_cell(class, age_ticks)]++;
}

void pgi_table_drop_pass(struct pgi_table *t)
{
        memset(t->counting, 0, CELLS * sizeof(*t->counting));
}

void pgi_at_risk(const uint32_t events[PGI_BINS], const double censored[PGI_BINS],
        double ret_at_risk[PGI_BINS])
{
        double reached = 0;

        for (uint32_t b = PGI_BINS; b-- > 0;) {
                reached += events[b] + censored[b];
                ret_at_risk[b] = reached - censored[b] / 2;
        }
}

/* Slope from point i to point j of the curve (ticks kept, chance of use). */
static double slope(const double *kept, const double *used, uint32_t i, uint32_t j)
{
        return kept[j] > kept[i] ? (used[j] - used[i]) / (kept[j] - kept[i]) : 0;
}

/*
 * P and E both have the chance of reaching bin b as a factor, which cancels. So the index is the
 * steepest slope from the curve's point b to a later one. Only the later points' upper hull
 * matters. Its points are kept on a stack with the next one on top: linear, while trying all points
 * is quadratic.
 */
void pgi_gittins(const double hazard[PGI_BINS], float ret_index[PGI_BINS])
{
        double kept[PGI_BINS + 1] = {0}, used[PGI_BINS + 1] = {0}, left = 1, after;
        uint32_t hull[PGI_BINS + 1] = {PGI_BINS}, n = 1;

        for (uint32_t b = 0; b < PGI_BINS; b++) {
                after = left * (1 - hazard[b]);
                kept[b + 1] =
                        kept[b] + (pgi_bin_start(b + 1) - pgi_bin_start(b)) * (left + after) / 2;
                used[b + 1] = 1 - after;
                left = after;
        }
        for (uint32_t b = PGI_BINS; b-- > 0;) {
                while (n > 1 &&
                        slope(kept, used, b, hull[n - 1]) <= slope(kept, used, b, hull[n - 2]))
                        n--;
                ret_index[b] = (float)slope(kept, used, b, hull[n - 1]);
                hull[n++] = b;
        }
}

/* Statistics of all pages, of a group of classes, or of one class. */
struct level {
        double events[PGI_BINS], at_risk[PGI_BINS], hazard[PGI_BINS];
};

static void level_add(struct level *to, const struct level *l)
{
        for (uint32_t b = 0; b < PGI_BINS; b++) {
                to->events[b] += l->events[b];
                to->at_risk[b] += l->at_risk[b];
        }
}

static double pseudo_spells(const struct pgi_table *t, double request_pages)
{
        double n_requests;

        if (request_pages <= LONG_REQUEST)
                return PSEUDO_SPELLS;
        n_requests = (double)(t->n_events + 1) / request_pages;
        return PSEUDO_SPELLS + (request_pages - LONG_REQUEST) * FEW_REQUESTS / n_requests;
}

/* drawn_to: the prior; NULL: no use at all. */
static void level_hazard(struct level *l, const struct level *drawn_to, double pseudo)
{
        for (uint32_t b = 0; b < PGI_BINS; b++)
                l->hazard[b] = (l->events[b] + pseudo * (drawn_to ? drawn_to->hazard[b] : 0)) /
                               (l->at_risk[b] + pseudo);
}

static void level_of_class(const struct pgi_table *t, uint32_t class, struct level *ret)
{
        const uint32_t *events = &t->events[class * PGI_BINS];
        double censored[PGI_BINS];

        for (uint32_t b = 0; b < PGI_BINS; b++) {
                ret->events[b] = events[b];
                censored[b] =
                        (double)t->lost[class * PGI_BINS + b] + t->alive[class * PGI_BINS + b];
        }
        pgi_at_risk(events, censored, ret->at_risk);
}

/* First class of each group. Classes 0 to PGI_BODY - 1 (partial and shared pages) form no group. */
static const uint32_t groups[] = {0, PGI_BODY, PGI_CONTINUES, PGI_DONE, PGI_RETURNS, PGI_CLASSES};

static void add_classes(const struct pgi_table *t, uint32_t from, uint32_t to, struct level *sum)
{
        struct level l;

        for (uint32_t c = from; c < to; c++) {
                level_of_class(t, c, &l);
                level_add(sum, &l);
        }
}

static void index_classes(
        struct pgi_table *t, uint32_t from, uint32_t to, const struct level *group, double pseudo)
{
        struct level l;

        for (uint32_t c = from; c < to; c++) {
                level_of_class(t, c, &l);
                level_hazard(&l, group, pseudo);
                pgi_gittins(l.hazard, &t->index[c * PGI_BINS]);
                for (uint32_t b = 0; b < PGI_BINS; b++)
                        t->hazard[c * PGI_BINS + b] = (float)l.hazard[b];
        }
}

static void make_index(struct pgi_table *t, double request_pages)
{
        struct level all = {0}, group;
        double pseudo = pseudo_spells(t, request_pages);

        add_classes(t, 0, PGI_CLASSES, &all);
        level_hazard(&all, NULL, pseudo);
        index_classes(t, groups[0], groups[1], &all, pseudo);
        for (uint32_t g = 1; g + 1 < ARRAY_SIZE(groups); g++) {
                group = (struct level){0};
                add_classes(t, groups[g], groups[g + 1], &group);
                level_hazard(&group, &all, pseudo);
                index_classes(t, groups[g], groups[g + 1], &group, pseudo);
        }
        t->ready = true;
}

/* A bin that is covered in part counts with that part of its hazard. */
double pgi_table_chance(
        const struct pgi_table *t, uint32_t class, uint32_t age_ticks, uint32_t within_ticks)
{
        double from = age_ticks, to = from + within_ticks, left = 1, start, end, part;

        if (class == PGI_PASSED)
                return 0;
        for (uint32_t b = pgi_age_bin(age_ticks); b < PGI_BINS && pgi_bin_start(b) < to; b++) {
                start = pgi_bin_start(b);
                end = pgi_bin_start(b + 1);
                part = (MIN(to, end) - MAX(from, start)) / (end - start);
                if (part > 0)
                        left *= 1 - (double)t->hazard[class * PGI_BINS + b] * part;
        }
        return 1 - left;
}

static void halve(struct pgi_table *t)
{
        t->n_events = t->n_lost = 0;
        for (uint32_t i = 0; i < CELLS; i++) {
                t->events[i] /= 2;
                t->lost[i] /= 2;
                t->n_events += t->events[i];
                t->n_lost += t->lost[i];
        }
}

static void fade(struct pgi_table *t)
{
        while (t->n_events > MAX_EVENTS || t->n_lost > MAX_COUNT)
                halve(t);
}

void pgi_table_rebuild(struct pgi_table *t, double request_pages)
{
        uint32_t *counted = t->counting;

        t->counting = t->alive;
        t->alive = counted;
        pgi_table_drop_pass(t);
        fade(t);
        make_index(t, request_pages);
}

static void put_u32(uint8_t *at, uint32_t v)
{
        for (int i = 0; i < 4; i++)
                at[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get_u32(const uint8_t *at)
{
        return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* http://www.isthe.com/chongo/tech/comp/fnv/: against damage, not against intent. */
static uint64_t fnv1a(const uint8_t *bytes, size_t n)
{
        uint64_t h = UINT64_C(0xcbf29ce484222325);

        for (size_t i = 0; i < n; i++)
                h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
        return h;
}

/* Pages that are cached or remembered are saved as censored, at their age in the last pass. */
size_t pgi_table_save(const struct pgi_table *t, void *buf, size_t size)
{
        const uint32_t header[] = {MAGIC, VERSION, PGI_BINS, PGI_CLASSES};
        uint8_t *at = buf;
        uint64_t sum, censored;

        if (size < SAVED)
                return SAVED;
        for (size_t i = 0; i < ARRAY_SIZE(header); i++)
                put_u32(&at[4 * i], header[i]);
        for (size_t i = 0; i < CELLS; i++) {
                censored = (uint64_t)t->lost[i] + t->alive[i];
                put_u32(&at[HEADER + 4 * i], MIN(t->events[i], MAX_COUNT));
                put_u32(&at[HEADER + 4 * (CELLS + i)], (uint32_t)MIN(censored, MAX_COUNT));
        }
        sum = fnv1a(at, SAVED - 8);
        put_u32(&at[SAVED - 8], (uint32_t)sum);
        put_u32(&at[SAVED - 4], (uint32_t)(sum >> 32));
        return SAVED;
}

static bool is_saved_form(const uint8_t *at, size_t size)
{
        const uint32_t header[] = {MAGIC, VERSION, PGI_BINS, PGI_CLASSES};
        uint64_t sum;

        if (size != SAVED)
                return false;
        for (size_t i = 0; i < ARRAY_SIZE(header); i++)
                if (get_u32(&at[4 * i]) != header[i])
                        return false;
        for (size_t i = 0; i < 2 * CELLS; i++)
                if (get_u32(&at[HEADER + 4 * i]) > MAX_COUNT)
                        return false;
        sum = fnv1a(at, SAVED - 8);
        return get_u32(&at[SAVED - 8]) == (uint32_t)sum &&
               get_u32(&at[SAVED - 4]) == (uint32_t)(sum >> 32);
}

int pgi_table_load(struct pgi_table *t, const void *buf, size_t size)
{
        const uint8_t *at = buf;

        if (!is_saved_form(at, size))
                return -EINVAL;
        t->n_events = t->n_lost = 0;
        for (size_t i = 0; i < CELLS; i++) {
                t->events[i] = get_u32(&at[HEADER + 4 * i]);
                t->lost[i] = get_u32(&at[HEADER + 4 * (CELLS + i)]);
                t->n_events += t->events[i];
                t->n_lost += t->lost[i];
        }
        memset(t->alive, 0, CELLS * sizeof(*t->alive));
        fade(t);
        make_index(t, 0);
        return 0;
}
