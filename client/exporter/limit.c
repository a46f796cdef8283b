#include "client/exporter/limit.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct entry {
        struct list_link link;
        uint64_t key, round; /* of the last round with it */
        bool named;
        double last[]; /* of counters, by metric; none in a named row */
};

int limit_init(struct limit *l, const struct metric_table *table, size_t max)
{
        *l = (struct limit){.table = table, .max = max};
        list_init(&l->entries);
        map_init(&l->index);
        l->sums = calloc(table->n_metrics, sizeof(*l->sums));
        return l->sums ? 0 : -ENOMEM;
}

void limit_deinit(struct limit *l)
{
        list_for_each_safe (e, &l->entries, struct entry, link) {
                list_remove(&e->link);
                free(e);
        }
        map_deinit(&l->index);
        free(l->sums);
}

/* Keys of two rows collide only by chance: the seed is random. */
static uint64_t row_key(const struct limit *l, const void *row)
{
        uint64_t key = 0;

        for (size_t i = 0; i < METRIC_ROW_LABELS && l->table->labels[i].name; i++) {
                const char *value = metric_label(&l->table->labels[i], row);
                struct hash_seed seed = {l->index.seed.k0 ^ key, l->index.seed.k1};

                key = hash_bytes(seed, value, strlen(value));
        }
        return key == MAP_KEY_NONE ? 0 : key;
}

static struct entry *find_entry(const struct limit *l, uint64_t key)
{
        uint64_t *at = map_find(&l->index, key);

        return at ? (struct entry *)(uintptr_t)*at : NULL;
}

/* Returns NULL if there is no memory. */
static struct entry *add_entry(struct limit *l, uint64_t key)
{
        bool named = l->n_named < l->max;
        size_t n = named ? 0 : l->table->n_metrics;
        struct entry *e = calloc(1, sizeof(*e) + n * sizeof(e->last[0]));

        if (!e || map_put(&l->index, key, (uint64_t)(uintptr_t)e) < 0) {
                free(e);
                return NULL;
        }
        e->key = key;
        e->named = named;
        l->n_named += named;
        list_append(&l->entries, &e->link);
        return e;
}

static void forget_gone(struct limit *l)
{
        list_for_each_safe (e, &l->entries, struct entry, link) {
                if (e->round == l->round)
                        continue;
                l->n_named -= e->named;
                map_remove(&l->index, e->key);
                list_remove(&e->link);
                free(e);
        }
}

/* Sums a row without a name. A counter that fell began anew with the daemon. */
static void sum_row(struct limit *l, struct entry *e, const void *row)
{
        for (size_t i = 0; i < l->table->n_metrics; i++) {
                const struct metric *m = &l->table->metrics[i];
                double value;

                if (m->type == TEXT_INFO || !metric_is_of(l->table, m) || !metric_exists_in(m, row))
                        continue;
                value = metric_value(m, row);
                if (m->type != TEXT_COUNTER) {
                        l->sums[i] += value;
                        continue;
                }
                l->sums[i] += value >= e->last[i] ? value - e->last[i] : value;
                e->last[i] = value;
        }
}

static void begin_sums(struct limit *l)
{
        for (size_t i = 0; i < l->table->n_metrics; i++)
                if (l->table->metrics[i].type != TEXT_COUNTER)
                        l->sums[i] = 0;
}

/* Marks the rows that still exist, so that those of removed ones are freed first. */
static void meet(struct limit *l, const void *const *rows, size_t n)
{
        l->round++;
        l->n_rows = n;
        for (size_t i = 0; i < n; i++) {
                struct entry *e = find_entry(l, row_key(l, rows[i]));

                if (e)
                        e->round = l->round;
        }
        forget_gone(l);
}

int limit_rows(struct limit *l, const void **rows, size_t n, size_t *ret_n_named)
{
        size_t n_named = 0;

        meet(l, rows, n);
        begin_sums(l);
        for (size_t i = 0; i < n; i++) {
                uint64_t key = row_key(l, rows[i]);
                struct entry *e = find_entry(l, key);

                if (!e)
                        e = add_entry(l, key);
                if (!e)
                        return -ENOMEM;
                if (e->named)
                        rows[n_named++] = rows[i];
                else
                        sum_row(l, e, rows[i]);
        }
        *ret_n_named = n_named;
        return 0;
}

double limit_sum(const struct limit *l, size_t i)
{
        return l->sums[i];
}
