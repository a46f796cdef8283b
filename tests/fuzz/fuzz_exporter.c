/*
 * Input of kvlease-exporter: an Accept header, and answers of a daemon that may be hostile. The
 * first byte says which answer the rest is (0: a header). With any input the text has whole lines
 * only and is UTF-8 without control characters. Every sample is of the family above it.
 */
#include <string.h>

#include "client/exporter/accept.h"
#include "client/exporter/calls.h"
#include "client/exporter/metric.h"
#include "client/exporter/source.h"
#include "proto/arena.h"
#include "proto/figures.h"
#include "proto/msg.h"
#include "tests/fuzz/fuzz.h"

static const struct figure_table *const lists[N_SOURCE_LISTS] = {
        [SOURCE_STATUS] = &figures_table_status,
#define X(name, scope) [SOURCE_##name] = &figures_table_##scope,
        SOURCE_TABLE(X)
#undef X
};

static void check_line(const char *line, size_t len, const char **family, size_t *family_len)
{
        static const char type[] = "# TYPE ";

        CHECK(len > 0);
        for (size_t i = 0; i < len; i++)
                CHECK((unsigned char)line[i] >= 0x20 && line[i] != 0x7f);
        if (len > strlen(type) && memcmp(line, type, strlen(type)) == 0) {
                *family = line + strlen(type);
                *family_len = (size_t)((const char *)memchr(*family, ' ', len) - *family);
        } else if (line[0] != '#') {
                CHECK(*family && len > *family_len);
                CHECK(memcmp(line, *family, *family_len) == 0);
        }
}

static void check_text(const struct text *t)
{
        const char *at = t->data, *family = NULL;
        size_t family_len = 0;

        CHECK(!t->failed);
        while (at && *at) {
                const char *end = strchr(at, '\n');

                CHECK(end);
                check_line(at, (size_t)(end - at), &family, &family_len);
                at = end + 1;
        }
}

/* Writes one row's samples of a family like a scrape. */
static void tell_family(
        struct text *t, const struct metric_table *table, const char *family, const void *row)
{
        for (size_t i = 0; i < table->n_metrics; i++) {
                const struct metric *m = &table->metrics[i];
                struct text_labels labels = {.n = 0};

                if (!metric_is_of(table, m) || strcmp(m->family, family) != 0 ||
                        !metric_exists_in(m, row))
                        continue;
                metric_add_labels(m, &labels);
                for (size_t k = 0; k < METRIC_ROW_LABELS && table->labels[k].name; k++)
                        text_labels_add(&labels, table->labels[k].name,
                                metric_label(&table->labels[k], row));
                for (size_t k = 0; k < METRIC_INFO_LABELS && m->info[k].name; k++)
                        text_labels_add(&labels, m->info[k].name, metric_label(&m->info[k], row));
                text_sample(t, &labels, t->type == TEXT_INFO ? 1 : metric_value(m, row));
        }
}

static void tell(struct text *t, const struct metric_table *table, const void *row)
{
        for (size_t i = 0; i < table->n_metrics; i++) {
                const struct metric *m = &table->metrics[i];

                if (!metric_is_of(table, m) || !m->help)
                        continue;
                text_family(t, m->family, m->type, m->help);
                tell_family(t, table, m->family, row);
        }
}

static void tell_row(struct text *t, unsigned list, const void *row)
{
        for (size_t i = 0; i < n_metric_tables; i++)
                if (metric_tables[i].list == list &&
                        (!metric_tables[i].wants || metric_tables[i].wants(row)))
                        tell(t, &metric_tables[i], row);
}

static void tell_rows(struct text *t, unsigned list, const void *reply, struct arena *arena)
{
        const void *rows;
        size_t n;

        if (figures_read(reply, lists[list], arena, &rows, &n) == 0 && n > 0)
                tell_row(t, list, rows);
}

static const ProtobufCMessageDescriptor *answer_of(unsigned list)
{
        if (lists[list])
                return &kvlease__v1__admin_rows_reply__descriptor;
        return list == SOURCE_RESTART ? &kvlease__v1__admin_restart_reply__descriptor
                                      : &kvlease__v1__admin_counters_reply__descriptor;
}

static void tell_answer(struct text *t, unsigned list, const void *reply, struct arena *arena)
{
        if (lists[list])
                tell_rows(t, list, reply, arena);
        else if (list == SOURCE_RESTART)
                tell_row(t, list, reply);
        else if (calls_make_sense(reply))
                calls_tell(t, reply);
}

static void read_header(const uint8_t *data, size_t size)
{
        char header[1024];
        size_t len = size < sizeof(header) ? size : sizeof(header) - 1;

        memcpy(header, data, len);
        header[len] = '\0';
        (void)accept_choose(header);
}

static void read_answer(unsigned list, const uint8_t *data, size_t size)
{
        const ProtobufCMessage *m;
        struct arena arena;
        struct text t;

        CHECK(arena_init(&arena, ARENA_BUDGET_BYTES) == 0);
        m = msg_unpack(answer_of(list), &arena, data, size);
        if (m) {
                text_init(&t, size % 2 ? TEXT_OPENMETRICS : TEXT_PROMETHEUS);
                tell_answer(&t, list, m, &arena);
                check_text(&t);
                text_deinit(&t);
        }
        arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        unsigned what = size > 0 ? data[0] % (N_SOURCE_LISTS + 1) : 0;

        if (size == 0 || size - 1 > FRAME_MAX_PAYLOAD)
                return 0;
        if (what == 0)
                read_header(data + 1, size - 1);
        else
                read_answer(what - 1, data + 1, size - 1);
        return 0;
}
