#include "policy/hosts/values.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/macros.h"
#include "policy/hosts/mix.h"

#define NONE UINT32_MAX

/* Redis, src/evict.c: LFU_INIT_VAL, lfu-log-factor, lfu-decay-time. */
#define LFU_FIRST       5
#define LFU_LOG_FACTOR  10
#define LFU_DECAY_NSEC  UINT64_C(60000000000)
#define LFU_COUNTER_MAX 255

#define N_ORDERS (LFU_COUNTER_MAX + 1)

struct value {
        uint32_t prev, next; /* in its order, by use; of a free one, the next free one */
        uint32_t prev_write, next_write; /* of all, by when they were put */
        uint64_t used_nsec, put_nsec;
        uint32_t key;
        uint8_t counter; /* as of used_nsec; LRU: 0 */
};

/* A list; the first is the next victim. */
struct order {
        uint32_t first, last; /* NONE: empty */
};

struct values {
        struct values_options options;
        uint32_t *at_1;       /* of each key, where its value is, plus one; 0: absent */
        struct value *values; /* an array of base/array.h */
        uint32_t n_values;    /* its length */
        uint32_t n_begun;     /* of these have been in use */
        uint32_t first_free;
        struct order orders[N_ORDERS]; /* by counter */
        struct order writes;
        uint64_t draws; /* random numbers so far */
        struct values_stats stats;
};

int values_new(const struct values_options *options, struct values **ret_values)
{
        struct values *v = calloc(1, sizeof(*v));

        if (!v)
                return -ENOMEM;
        v->options = *options;
        v->options.capacity = MIN(options->capacity, options->n_keys);
        v->first_free = NONE;
        v->writes = (struct order){NONE, NONE};
        for (unsigned i = 0; i < N_ORDERS; i++)
                v->orders[i] = (struct order){NONE, NONE};
        v->at_1 = calloc((size_t)options->n_keys + 1, sizeof(*v->at_1));
        if (!v->at_1) {
                values_free(v);
                return -ENOMEM;
        }
        *ret_values = v;
        return 0;
}

void values_free(struct values *v)
{
        if (!v)
                return;
        array_free(v->values, v->n_values, sizeof(*v->values));
        free(v->at_1);
        free(v);
}

/* ---- orders ---------------------------------------------------------------------------------- */

static void use_append(struct values *v, uint32_t i)
{
        struct order *o = &v->orders[v->values[i].counter];

        v->values[i].prev = o->last;
        v->values[i].next = NONE;
        if (o->last != NONE)
                v->values[o->last].next = i;
        else
                o->first = i;
        o->last = i;
}

static void use_unlink(struct values *v, uint32_t i)
{
        const struct value *value = &v->values[i];
        struct order *o = &v->orders[value->counter];

        if (value->prev != NONE)
                v->values[value->prev].next = value->next;
        else
                o->first = value->next;
        if (value->next != NONE)
                v->values[value->next].prev = value->prev;
        else
                o->last = value->prev;
}

static void write_append(struct values *v, uint32_t i)
{
        v->values[i].prev_write = v->writes.last;
        v->values[i].next_write = NONE;
        if (v->writes.last != NONE)
                v->values[v->writes.last].next_write = i;
        else
                v->writes.first = i;
        v->writes.last = i;
}

static void write_unlink(struct values *v, uint32_t i)
{
        const struct value *value = &v->values[i];

        if (value->prev_write != NONE)
                v->values[value->prev_write].next_write = value->next_write;
        else
                v->writes.first = value->next_write;
        if (value->next_write != NONE)
                v->values[value->next_write].prev_write = value->prev_write;
        else
                v->writes.last = value->prev_write;
}

/* ---- coming and going ------------------------------------------------------------------------ */

static void drop_value(struct values *v, uint32_t i)
{
        use_unlink(v, i);
        write_unlink(v, i);
        v->at_1[v->values[i].key] = 0;
        v->values[i].next = v->first_free;
        v->first_free = i;
        v->stats.n--;
}

static void drop_expired(struct values *v, uint64_t now)
{
        uint64_t expiry = v->options.expiry_nsec;

        while (expiry > 0 && v->writes.first != NONE &&
                minus_u64(now, v->values[v->writes.first].put_nsec) >= expiry) {
                drop_value(v, v->writes.first);
                v->stats.expirations++;
        }
}

/* The counter, less one for each minute without a use. */
static uint8_t counter_now(const struct value *value, uint64_t now)
{
        uint64_t minutes = minus_u64(now, value->used_nsec) / LFU_DECAY_NSEC;

        return (uint8_t)minus_u64(value->counter, minutes);
}

/* In each order the first was used longest ago, so its counter has decayed most. There must be a
 * value. */
static uint32_t find_victim(const struct values *v, uint64_t now)
{
        uint32_t best = NONE;

        for (unsigned o = 0; o < N_ORDERS; o++) {
                uint32_t i = v->orders[o].first;
                uint8_t counter, least;

                if (i == NONE)
                        continue;
                counter = counter_now(&v->values[i], now);
                least = best == NONE ? 0 : counter_now(&v->values[best], now);
                if (best == NONE || counter < least ||
                        (counter == least && v->values[i].used_nsec < v->values[best].used_nsec))
                        best = i;
        }
        assert(best != NONE);
        return best;
}

static bool draws_use(struct values *v, uint8_t counter)
{
        uint64_t one_in =
                (uint64_t)(counter > LFU_FIRST ? counter - LFU_FIRST : 0) * LFU_LOG_FACTOR + 1;

        return hosts_mix(hosts_mix(v->options.seed) + ++v->draws) % one_in == 0;
}

static void use_value(struct values *v, uint32_t i, uint64_t now)
{
        struct value *value = &v->values[i];

        use_unlink(v, i);
        if (v->options.evict == VALUES_LFU) {
                value->counter = counter_now(value, now);
                if (value->counter < LFU_COUNTER_MAX && draws_use(v, value->counter))
                        value->counter++;
        }
        value->used_nsec = now;
        use_append(v, i);
}

bool values_has(struct values *v, uint32_t key, uint64_t now_nsec)
{
        drop_expired(v, now_nsec);
        return v->at_1[key] > 0;
}

bool values_use(struct values *v, uint32_t key, uint64_t now_nsec)
{
        if (!values_has(v, key, now_nsec))
                return false;
        use_value(v, v->at_1[key] - 1, now_nsec);
        return true;
}

bool values_use_again(struct values *v, uint32_t key, uint64_t within_nsec, uint64_t now_nsec)
{
        if (!values_has(v, key, now_nsec) ||
                minus_u64(now_nsec, v->values[v->at_1[key] - 1].used_nsec) < within_nsec)
                return false;
        use_value(v, v->at_1[key] - 1, now_nsec);
        return true;
}

/* One that is free, or never was in use. NONE: no memory. */
static uint32_t take_place(struct values *v)
{
        uint32_t i = v->first_free;

        if (i != NONE) {
                v->first_free = v->values[i].next;
                return i;
        }
        if (v->n_begun == v->n_values &&
                array_reserve((void **)&v->values, &v->n_values, v->n_begun + 1,
                        MAX(v->options.capacity, v->n_begun + 1), sizeof(*v->values)) < 0)
                return NONE;
        return v->n_begun++;
}

int values_put(struct values *v, uint32_t key, uint64_t now_nsec)
{
        uint32_t i;

        drop_expired(v, now_nsec);
        assert(v->at_1[key] == 0);
        if (v->options.capacity == 0)
                return 0;
        if (v->stats.n == v->options.capacity) {
                drop_value(v, find_victim(v, now_nsec));
                v->stats.evictions++;
        }
        i = take_place(v);
        if (i == NONE)
                return -ENOMEM;
        v->values[i] = (struct value){.used_nsec = now_nsec,
                .put_nsec = now_nsec,
                .key = key,
                .counter = v->options.evict == VALUES_LFU ? LFU_FIRST : 0};
        use_append(v, i);
        write_append(v, i);
        v->at_1[key] = i + 1;
        v->stats.n++;
        v->stats.most = MAX(v->stats.most, v->stats.n);
        return 0;
}

void values_stats(const struct values *v, struct values_stats *ret_stats)
{
        *ret_stats = v->stats;
}

const char *values_check(const struct values *v)
{
        uint32_t n = 0, n_written = 0;

        for (unsigned o = 0; o < N_ORDERS; o++)
                for (uint32_t i = v->orders[o].first, before = NONE; i != NONE;
                        before = i, i = v->values[i].next, n++) {
                        if (v->values[i].counter != o || v->values[i].prev != before)
                                return "a value is in an order that isn't its own";
                        if (before != NONE && v->values[before].used_nsec > v->values[i].used_nsec)
                                return "an order isn't that of uses";
                        if (v->at_1[v->values[i].key] != i + 1)
                                return "a value is not where its key says";
                }
        for (uint32_t i = v->writes.first; i != NONE; i = v->values[i].next_write)
                n_written++;
        if (n != v->stats.n || n_written != n || n > v->options.capacity)
                return "values are not as many as are counted";
        return NULL;
}
