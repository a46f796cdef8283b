/*
 * Sizes of pages of real models (docs/reference/PAGES.md). This program makes the table there, and
 * fails if the document differs. `test_page_models --print` shows it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/core-fixture.h"
#include "tests/unit/page-models.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)

/* In one plane. stride_bytes: 0 where kvleased chooses. */
static struct ns_geometry geometry_of(
        const struct page_model *m, uint64_t unit_bytes, uint64_t stride_bytes)
{
        const struct set_source source = {.wanted_bytes = 64 * MIB,
                .granularity_bytes = 2 * MIB,
                .unit_bytes = unit_bytes,
                .budget_bytes = 80 * GIB};
        struct ns_layout l = test_layout();
        struct ns_geometry g = {0};

        l.n_planes = 1;
        l.plane_page_bytes = page_model_bytes(m);
        if (ns_geometry_of(&l, &source, stride_bytes, &g, NULL) < 0)
                g.set_bytes = 0;
        return g;
}

static void print_mib(FILE *to, uint64_t bytes)
{
        if (bytes == 0)
                fprintf(to, " refused |");
        else if (bytes % MIB == 0)
                fprintf(to, " %llu |", (unsigned long long)(bytes / MIB));
        else
                fprintf(to, " %.1f |", (double)bytes / MIB);
}

static double loss_of(const struct ns_geometry *g, uint64_t page_bytes)
{
        uint64_t stride = geometry_stride(g);

        return 100.0 * (double)(stride - page_bytes) / (double)stride;
}

static void print_table(FILE *to)
{
        fprintf(to,
                "| model | dtype | block | layers | KV heads | head size | page | stride | lost | "
                "set | dense | host |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
        for (size_t i = 0; i < ARRAY_SIZE(page_models); i++) {
                const struct page_model *m = &page_models[i];
                struct ns_geometry g = geometry_of(m, 2 * MIB, 0);
                uint64_t page = page_model_bytes(m);

                fprintf(to, "| %s | %s | %u | %u | %u | %u | %llu | %llu | %.1f %% |", m->name,
                        m->dtype, m->block_tokens, m->n_layers, m->n_kv_heads, m->head_size,
                        (unsigned long long)page, (unsigned long long)geometry_stride(&g),
                        loss_of(&g, page));
                print_mib(to, g.set_bytes);
                print_mib(to, geometry_of(m, 2 * MIB, page).set_bytes);
                print_mib(to, geometry_of(m, 4 * KIB, 0).set_bytes);
                fprintf(to, "\n");
        }
}

/* Owned. */
static char *read_document(void)
{
        char *text = NULL;
        size_t n_bytes = 0;
        FILE *from = fopen(PAGES_DOCUMENT, "re"), *to = open_memstream(&text, &n_bytes);
        int c;

        assert_non_null(from);
        assert_non_null(to);
        while ((c = getc(from)) != EOF)
                putc(c, to);
        fclose(from);
        fclose(to);
        return text;
}

TEST(test_document)
{
        char *document = read_document(), *table = NULL;
        size_t n_bytes = 0;
        FILE *to = open_memstream(&table, &n_bytes);

        assert_non_null(to);
        print_table(to);
        fclose(to);
        if (!strstr(document, table))
                fail_msg("%s has another table than:\n%s", PAGES_DOCUMENT, table);
        free(table);
        free(document);
}

TEST(test_bounds)
{
        for (size_t i = 0; i < ARRAY_SIZE(page_models); i++) {
                struct ns_geometry gpu = geometry_of(&page_models[i], 2 * MIB, 0);
                struct ns_geometry host = geometry_of(&page_models[i], 4 * KIB, 0);
                uint64_t page = page_model_bytes(&page_models[i]);
                bool is_mla = page_models[i].n_matrices == 1;

                assert_true(gpu.set_bytes > 0 && gpu.set_bytes <= (is_mla ? 70 : 64) * MIB);
                assert_true(loss_of(&gpu, page) <= 4);
                assert_true(host.set_bytes > 0 && host.set_bytes <= 64 * MIB);
                assert_int_equal(geometry_stride(&host), page);
        }
}

/*
 * No stride that may be asked for makes sets of 64 MiB at most of DeepSeek's pages. Sets are
 * multiples of 2 MiB times the stride's odd factor; the first stride that has one of less than 32
 * is 9 times 512 KiB, and loses too much.
 */
TEST(test_deepseek)
{
        const struct page_model *m = &page_models[ARRAY_SIZE(page_models) - 1];
        uint64_t page = page_model_bytes(m), wide = 9 * 512 * KIB, least = UINT64_MAX;
        struct ns_geometry chosen = geometry_of(m, 2 * MIB, 0);

        assert_int_equal(m->n_matrices, 1);
        for (uint64_t stride = page; stride <= wide; stride += 64) {
                uint64_t set_bytes = geometry_of(m, 2 * MIB, stride).set_bytes;

                if (set_bytes > 0)
                        least = MIN(least, set_bytes);
        }
        assert_int_equal(least, 70 * MIB);
        assert_int_equal(chosen.set_bytes, least);
        assert_int_equal((wide - page) * 10000 / wide, 468);
}

int main(int argc, char **argv)
{
        if (argc > 1 && strcmp(argv[1], "--print") == 0) {
                print_table(stdout);
                return 0;
        }
        return test_run_all(NULL, NULL);
}
