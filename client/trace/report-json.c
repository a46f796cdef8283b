#include "base/macros.h"
#include "client/trace/report.h"

/* Takes the value. Drops the object if memory runs out. */
static void put_value(json_t **object, const char *key, json_t *value)
{
        if (*object && value && json_object_set_new(*object, key, value) == 0)
                return;
        if (!*object)
                json_decref(value);
        json_decref(*object);
        *object = NULL;
}

static void append_value(json_t **array, json_t *value)
{
        if (*array && value && json_array_append_new(*array, value) == 0)
                return;
        if (!*array)
                json_decref(value);
        json_decref(*array);
        *array = NULL;
}

json_t *report_number(uint64_t n)
{
        return json_integer((json_int_t)MIN(n, (uint64_t)INT64_MAX));
}

static json_t *ratio(uint64_t n, uint64_t of)
{
        return of > 0 ? json_real((double)n / (double)of) : json_null();
}

static json_t *dist_json(const struct dist *d)
{
        static const char *const keys[DIST_QUANTILES] = {
                "p1", "p5", "p25", "p50", "p75", "p90", "p95", "p99", "max"};
        json_t *object = json_object(), *bins = json_array();
        unsigned first, last;

        put_value(&object, "count", report_number(d->n));
        put_value(&object, "mean", d->n > 0 ? json_real(d->mean) : json_null());
        for (unsigned i = 0; i < DIST_QUANTILES; i++)
                put_value(
                        &object, keys[i], d->n > 0 ? report_number(d->quantiles[i]) : json_null());
        dist_range(d, &first, &last);
        for (unsigned i = first; d->n > 0 && i <= last; i++)
                append_value(
                        &bins, json_pack("{s:f, s:f, s:o}", "from", dist_bin_start(i), "to",
                                       dist_bin_start(i + 1), "count", report_number(d->bins[i])));
        put_value(&object, "histogram", bins);
        return object;
}

/* Adds the figures of a lower tier; the other hits are those in both. */
static void put_below(json_t *curve, const struct sim_result *r)
{
        put_value(&curve, "below_hit_tokens", report_number(r->below_tokens));
        put_value(&curve, "demotions", report_number(r->demotions));
        put_value(&curve, "promotions", report_number(r->promotions));
}

/* Adds the figures of expected requests. */
static void put_expected(json_t *curve, const struct expect_counters *e)
{
        put_value(&curve, "expected",
                json_pack("{s:o, s:o, s:o, s:o}", "received", report_number(e->received),
                        "fulfilled", report_number(e->fulfilled), "expired",
                        report_number(e->expired), "dropped", report_number(e->dropped)));
}

/* Adds the spread over several seeds; token_hit_ratio is the mean. */
static void put_spread(json_t *curve, const struct hit_spread *s)
{
        put_value(&curve, "token_hit_ratio_stddev", json_real(s->stddev));
        put_value(&curve, "token_hit_ratio_min", json_real(s->least));
        put_value(&curve, "token_hit_ratio_max", json_real(s->most));
}

/* Adds the figures of requests that take time. */
static void put_flight(json_t *curve, const struct curves *c, unsigned policy, unsigned capacity)
{
        const struct sim_flight_result *f = &c->results[policy][capacity].flight;

        put_value(&curve, "held_ratio", json_real(curves_held(c, policy, capacity)));
        put_value(&curve, "mean_wait_ms", report_number(curves_wait_msec(c, policy, capacity)));
        put_value(&curve, "waited_requests", report_number(f->waited_requests));
        put_value(&curve, "max_running", report_number(f->max_running));
        put_value(&curve, "uncached_blocks", report_number(f->uncached_blocks));
        put_value(&curve, "duplicate_blocks", report_number(f->duplicate_blocks));
}

/* Adds the figures of misses' cost. */
static void put_cost(json_t *curve, const struct curves *c, unsigned policy, unsigned capacity)
{
        put_value(&curve, "miss_cost", json_string(c->goes_by_cost[policy] ? "compute" : "tokens"));
        put_value(&curve, "attention_crossover", report_number(c->crossover));
        put_value(&curve, "compute_saved_ratio", json_real(curves_saved(c, policy, capacity)));
}

static void put_windows(json_t *curve, const struct curves *c, unsigned policy)
{
        put_value(&curve, "window_groups", report_number(c->windows.groups));
        put_value(&curve, "window_tokens", report_number(c->windows.tokens));
        put_value(&curve, "told_passed_windows", json_boolean(c->is_told_windows[policy]));
}

static void put_hints(json_t *curve, const struct curves *c, unsigned policy)
{
        if (c->hints[policy] > 0)
                put_value(&curve, "hints_right_percent",
                        report_number(c->hints_right[c->hints[policy] - 1]));
        put_value(&curve, "hints_have_times", json_boolean(c->hints_timed));
}

/* Adds the fields that not every replay has. */
static void put_more(json_t *curve, const struct curves *c, unsigned policy, unsigned capacity)
{
        if (c->crossover > 0)
                put_cost(curve, c, policy, capacity);
        if (c->n_seeds > 1)
                put_spread(curve, &c->spreads[policy][capacity]);
        if (c->below > 0)
                put_below(curve, &c->results[policy][capacity]);
        if (c->expect > 0)
                put_expected(curve, &c->results[policy][capacity].expected);
        if (sim_takes_time(&c->engine))
                put_flight(curve, c, policy, capacity);
        if (c->windows.groups > 0)
                put_windows(curve, c, policy);
        if (c->n_hints > 0)
                put_hints(curve, c, policy);
}

json_t *report_curves_json(const struct curves *c)
{
        json_t *array = json_array();

        for (unsigned p = 0; p < c->n_policies; p++)
                for (unsigned i = 0; i < c->n_capacities; i++) {
                        const struct sim_result *r = &c->results[p][i];
                        double percent = c->capacities[i].percent;

                        append_value(&array,
                                json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                                        "policy", c->policies[p]->name, "capacity_percent",
                                        percent > 0 ? json_real(percent) : json_null(),
                                        "capacity_pages", report_number(c->capacities[i].pages),
                                        "token_hit_ratio", ratio(r->hit_tokens, r->input_tokens),
                                        "requests", report_number(r->requests), "input_tokens",
                                        report_number(r->input_tokens), "hit_tokens",
                                        report_number(r->hit_tokens), "inserts",
                                        report_number(r->inserts), "evictions",
                                        report_number(r->evictions), "policy_bytes",
                                        report_number(r->policy_bytes)));
                        put_more(json_array_get(array, json_array_size(array) - 1), c, p, i);
                }
        return array;
}

static json_t *repeats_json(const struct analysis *a)
{
        const struct repeats *r = &a->repeats;
        uint64_t n = a->trace->sim.n_requests;

        return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "input_tokens",
                report_number(r->input_tokens), "output_tokens", report_number(r->output_tokens),
                "token_repeat_ratio", ratio(r->repeated_tokens, r->input_tokens),
                "block_repeat_ratio", ratio(r->repeated_blocks, r->blocks),
                "request_prefix_repeat_ratio", ratio(r->repeated_requests, n),
                "request_continues_ratio", ratio(r->continued, n));
}

static json_t *sessions_json(const struct sessions *s)
{
        return json_pack("{s:o, s:o, s:o, s:o}", "count", report_number(s->n), "turns",
                dist_json(&s->turns), "gap_ms", dist_json(&s->gap_msec), "duration_ms",
                dist_json(&s->duration_msec));
}

static json_t *page_sizes_json(const struct analysis *a)
{
        const struct page_sizes *p = &a->page_sizes;
        json_t *sizes = json_array();
        char advice[256];

        for (unsigned i = 0; i < PAGE_SIZES; i++)
                append_value(&sizes, json_pack("{s:o, s:f, s:f, s:b}", "page_tokens",
                                             report_number(p->sizes[i].tokens), "waste_ratio",
                                             page_size_waste(&p->sizes[i]), "token_hit_ratio",
                                             page_size_hit_ratio(&p->sizes[i], &a->repeats),
                                             "hit_ratio_estimated", (int)p->sizes[i].estimated));
        return json_pack("{s:o, s:o, s:s}", "sizes", sizes, "advised_page_tokens",
                report_number(p->sizes[p->advised].tokens), "reason",
                report_page_advice(p, advice, sizeof(advice)));
}

static json_t *demand_json(const struct analysis *a, uint32_t tenant)
{
        const struct demand *d = &a->demands[tenant];

        return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:o}", "tenant",
                a->trace->tenants[tenant], "requests", report_number(d->requests), "unique_pages",
                report_number(d->unique_pages), "p50_pages", report_number(d->p50_pages),
                "p99_pages", report_number(d->p99_pages), "max_pages", report_number(d->max_pages),
                "policy", evict_policies[d->best]->name, "token_hit_ratio_at_p99",
                ratio(d->at_p99[d->best].hit_tokens, d->at_p99[d->best].input_tokens));
}

static json_t *trace_json(const struct analysis *a)
{
        const struct trace *t = a->trace;

        return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "requests",
                report_number(t->sim.n_requests), "tenants", report_number(t->sim.n_tenants),
                "blocks", report_number(t->sim.n_blocks), "unique_blocks",
                report_number(t->sim.n_unique), "block_tokens", report_number(t->sim.block_tokens),
                "duration_ms", report_number(a->duration_msec), "lines_skipped",
                report_number(t->n_bad), "lines_late", report_number(t->n_late));
}

json_t *report_json(const struct analysis *a)
{
        json_t *object = json_object(), *demands = json_array();

        put_value(&object, "trace", trace_json(a));
        put_value(&object, "repeats", repeats_json(a));
        put_value(&object, "input_tokens", dist_json(&a->input_tokens));
        put_value(&object, "output_tokens", dist_json(&a->output_tokens));
        put_value(&object, "sessions", sessions_json(&a->sessions));
        put_value(&object, "first_reuse_age_ms", dist_json(&a->first_reuse_msec));
        put_value(&object, "reuse_age_ms", dist_json(&a->reuse_msec));
        put_value(&object, "curves", report_curves_json(&a->curves));
        put_value(&object, "page_size", page_sizes_json(a));
        for (uint32_t i = 0; i < a->trace->sim.n_tenants; i++)
                append_value(&demands, demand_json(a, i));
        put_value(&object, "reservation",
                json_pack("{s:o, s:o, s:o}", "page_tokens",
                        report_number(a->trace->sim.block_tokens), "hold_ms",
                        report_number(a->hold_msec), "tenants", demands));
        return object;
}
