/* Codecs by layer (daemon/core/state/codecs.h): how they are written, which bytes of a page are
 * whose, and what is kept of them in records. */
#include "daemon/core/state/codecs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/state/detail.h"
#include "daemon/core/state/records.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"
#include "tests/unit/toy-layout.h"

/* ---- text ------------------------------------------------------------------------------------ */

static struct codec_layers read_well(const char *text, uint32_t n_layers)
{
        struct codec_layers l;
        struct detail d;

        if (codec_layers_parse(text, n_layers, &l, &d) < 0)
                fail_msg("%s: %s", text, d.text);
        return l;
}

/* Read and written again. */
static void check_text(const char *text, uint32_t n_layers, const char *expected)
{
        struct codec_layers l = read_well(text, n_layers), again;
        char buf[CODEC_LAYERS_TEXT_MAX];

        assert_string_equal(codec_layers_format(&l, n_layers, buf), expected);
        again = read_well(buf, n_layers);
        assert_true(codec_layers_equal(&l, &again));
}

TEST(test_read)
{
        check_text("none", 32, "none");
        check_text("int4", 32, "int4");
        check_text("0-7:none,8-23:int8,24-:int4", 32, "0-7:none,8-23:int8,24-31:int4");
        check_text("0-7:none,8-23:int8,24-31:int4", 32, "0-7:none,8-23:int8,24-31:int4");
        check_text("0:fp8,1-:none", 2, "0:fp8,1:none");
        /* Neighbours with one codec are one range; all layers with one are no ranges. */
        check_text("0:int8,1-2:int8,3-:none", 8, "0-2:int8,3-7:none");
        check_text("0-3:int8,4-:int8", 8, "int8");
        check_text("0-:none", 8, "none");
        assert_int_equal(read_well("0-:none", 8).n, 0);
        assert_int_equal(read_well("0-:none", 1).n, 0);
}

static void check_refused(const char *text, uint32_t n_layers, const char *why)
{
        struct codec_layers l = {.n = 77};
        struct detail d;

        assert_int_equal(codec_layers_parse(text, n_layers, &l, &d), -EINVAL);
        if (!strstr(d.text, why))
                fail_msg("%s: \"%s\" lacks \"%s\"", text, d.text, why);
        assert_int_equal(l.n, 77);
}

TEST(test_refused)
{
        static const char long_text[] =
                "0-1:none,00000000000000000000000000000000000000000000000000"
                "0000000000000000000000000000000000000000000000002:int8";
        char many[1024] = "";

        check_refused("", 4, "codec '' isn't known");
        check_refused("int5", 4, "codec 'int5' isn't known: none, int8, fp8 and int4 are");
        check_refused("int5\n", 4, "int5\\x0a");
        check_refused("0-1:int5,2-:none", 4, "codec 'int5' isn't known");
        check_refused("0-1:none,int8", 4, "it has no colon");
        check_refused("0-1:none,", 4, "it is empty");
        check_refused(",0-:none:", 4, "it is empty");
        check_refused(long_text, 4, "too long");
        check_refused("a-1:none", 4, "its first layer isn't a number");
        check_refused("-1:none", 4, "its first layer isn't a number");
        check_refused("0--1:none", 4, "its last layer isn't a number");
        check_refused("0-99999999999999999999:none", 4, "its last layer isn't a number");
        check_refused("0-1:none,3:int8", 4, "'3:int8' begins at layer 3, and layer 2 is the next");
        check_refused("1-:none", 4, "begins at layer 1, and layer 0 is the next one");
        check_refused("0-2:none,2-:int8", 4, "begins at layer 2, and layer 3 is the next one");
        check_refused("0-4:none", 4, "goes beyond the layout's 4 layers, which are 0 to 3");
        check_refused("0-3:none,4-:int8", 4, "goes beyond the layout's 4 layers");
        check_refused("0-4294967294:none", 4, "goes beyond");
        check_refused("0-1:none,2-1:int8", 4, "its last layer is before its first one");
        check_refused("0-1:none", 4, "end at layer 1 of the layout's 4");
        check_refused("0-:none", 0, "n_layers");
        for (unsigned i = 0; i <= CODEC_RANGES_MAX; i++) {
                size_t at = strlen(many);

                snprintf(many + at, sizeof(many) - at, "%s%u:%s", i > 0 ? "," : "", i,
                        i % 2 > 0 ? "int8" : "none");
        }
        check_refused(many, CODEC_RANGES_MAX + 1, "change more than 15 times");
}

/* Checked as an option before there is a layout, so any last layer is accepted. */
TEST(test_checked)
{
        struct detail d;

        assert_int_equal(codec_layers_check("none", &d), 0);
        assert_int_equal(codec_layers_check("0-7:none,8-:int8", &d), 0);
        assert_int_equal(codec_layers_check("0-7:none,8-23:int8,24-31:int4", &d), 0);
        assert_int_equal(codec_layers_check("0-7:none,9-:int8", &d), -EINVAL);
        assert_int_equal(codec_layers_check("int5", &d), -EINVAL);
        assert_int_equal(codec_layers_check("", &d), -EINVAL);
}

/* Any text gives codecs of the layout's layers, or is refused. */
TEST(test_any_text)
{
        static const char of[] = "0123456789-:,nonefp8int4", good[] = "0-3:none,4-6:int8,7-:int4";
        const struct ns_layout l = toy_layout(65536);
        unsigned n_read = 0;

        for (unsigned i = 0; i < 200000; i++) {
                struct codec_layers tiers[TIER_COUNT] = {{0}};
                struct ns_layout layout = l;
                char text[sizeof(good)];
                struct page_codecs c;

                layout.n_layers = 8;
                memcpy(text, good, sizeof(text));
                for (unsigned k = random_below(4); k > 0; k--)
                        text[random_below(sizeof(text))] = of[random_below(sizeof(of))];
                if (text[sizeof(text) - 1] != '\0' ||
                        codec_layers_parse(text, 8, &tiers[TIER_HOST], NULL) < 0)
                        continue;
                assert_int_equal(page_codecs_init(&c, &layout, tiers, NULL), 0);
                n_read++;
        }
        assert_true(n_read > 100);
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Matrices of 16 tokens by 64 numbers of 2 bytes. */
#define MATRIX_BYTES 2048
#define INT8_BYTES   (64 * 2 + 16 * 64)
#define INT4_BYTES   (64 * 2 + 8 * 64)

static struct ns_layout layout_of(uint32_t n_layers, uint32_t n_planes, uint32_t plane_matrices)
{
        struct ns_layout l = toy_layout((uint64_t)plane_matrices * MATRIX_BYTES);

        l.head_size = 64;
        l.n_layers = n_layers;
        l.n_planes = n_planes;
        return l;
}

struct part {
        uint32_t plane;
        enum codec codec;
        uint64_t plain_at, plain_bytes, stored_bytes;
};

static void check_parts(
        const struct ns_layout *l, const char *text, const struct part *expected, unsigned n)
{
        const struct codec_layers tiers[TIER_COUNT] = {[TIER_HOST] = read_well(text, l->n_layers)};
        struct page_part part = {0};
        struct page_codecs c;
        uint64_t stored = 0;
        struct detail d;

        if (page_codecs_init(&c, l, tiers, &d) < 0)
                fail_msg("%s", d.text);
        assert_int_equal(page_parts_count(&c, l, TIER_HOST), n);
        for (unsigned i = 0; i < n; i++) {
                assert_true(page_part_next(&c, l, TIER_HOST, &part));
                assert_int_equal(part.plane, expected[i].plane);
                assert_int_equal(part.codec, expected[i].codec);
                assert_int_equal(part.plain_at, expected[i].plain_at);
                assert_int_equal(part.plain_bytes, expected[i].plain_bytes);
                assert_int_equal(part.stored_at, stored);
                assert_int_equal(part.stored_bytes, expected[i].stored_bytes);
                stored += part.stored_bytes;
        }
        assert_false(page_part_next(&c, l, TIER_HOST, &part));
        assert_int_equal(c.stored_bytes[TIER_HOST], stored);
        assert_int_equal(c.stored_bytes[TIER_DEVICE], layout_page_bytes(l));
        assert_int_equal(page_parts_count(&c, l, TIER_DISK), l->n_planes);
}

#define M(n) ((n) * (uint64_t)MATRIX_BYTES)

TEST(test_parts)
{
        const struct ns_layout block = layout_of(4, 1, 8), layers = layout_of(3, 3, 2),
                               halves = layout_of(2, 4, 1), odd = layout_of(4, 2, 6);
        struct ns_layout bytes = layout_of(2, 2, 1);

        /* One plane: K and V of each layer. */
        check_parts(&block, "0:none,1-2:int8,3:int4",
                (const struct part[]){{0, CODEC_NONE, 0, M(2), M(2)},
                        {0, CODEC_INT8, M(2), M(4), 4 * INT8_BYTES},
                        {0, CODEC_INT4, M(6), M(2), 2 * INT4_BYTES}},
                3);
        /* A plane for each layer, and one for K and for V of each. */
        check_parts(&layers, "0:none,1-:int4",
                (const struct part[]){{0, CODEC_NONE, 0, M(2), M(2)},
                        {1, CODEC_INT4, 0, M(2), 2 * INT4_BYTES},
                        {2, CODEC_INT4, 0, M(2), 2 * INT4_BYTES}},
                3);
        check_parts(&halves, "0:int8,1:none",
                (const struct part[]){{0, CODEC_INT8, 0, M(1), INT8_BYTES},
                        {1, CODEC_INT8, 0, M(1), INT8_BYTES}, {2, CODEC_NONE, 0, M(1), M(1)},
                        {3, CODEC_NONE, 0, M(1), M(1)}},
                4);
        /* Two layers in each plane. */
        check_parts(&odd, "0:int4,1-2:none,3:int8",
                (const struct part[]){{0, CODEC_INT4, 0, M(3), 3 * INT4_BYTES},
                        {0, CODEC_NONE, M(3), M(3), M(3)}, {1, CODEC_NONE, 0, M(3), M(3)},
                        {1, CODEC_INT8, M(3), M(3), 3 * INT8_BYTES}},
                4);
        /* With one codec for all, each plane is a part; without a codec, of any numbers. */
        check_parts(&layers, "int8",
                (const struct part[]){{0, CODEC_INT8, 0, M(2), 2 * INT8_BYTES},
                        {1, CODEC_INT8, 0, M(2), 2 * INT8_BYTES},
                        {2, CODEC_INT8, 0, M(2), 2 * INT8_BYTES}},
                3);
        bytes.dtype = 6;
        check_parts(&bytes, "none",
                (const struct part[]){
                        {0, CODEC_NONE, 0, M(1), M(1)}, {1, CODEC_NONE, 0, M(1), M(1)}},
                2);
}

TEST(test_layers_that_cannot_be_told)
{
        const struct ns_layout l = layout_of(3, 2, 2); /* four matrices */
        struct ns_layout bytes = layout_of(2, 2, 1);
        struct codec_layers tiers[TIER_COUNT] = {{0}};
        struct page_codecs c;
        struct detail d;

        tiers[TIER_DISK] = read_well("0:none,1-:int8", 3);
        assert_int_equal(page_codecs_init(&c, &l, tiers, &d), -EINVAL);
        assert_non_null(strstr(d.text, "4 matrices"));
        assert_non_null(strstr(d.text, "no multiple of n_layers 3"));
        tiers[TIER_DISK] = codec_layers_all(CODEC_INT8);
        assert_int_equal(page_codecs_init(&c, &l, tiers, &d), 0);
        bytes.dtype = 6;
        tiers[TIER_DISK] = read_well("0:none,1:int8", 2);
        assert_int_equal(page_codecs_init(&c, &bytes, tiers, &d), -EINVAL);
        assert_non_null(strstr(d.text, "dtype"));
}

/* ---- records --------------------------------------------------------------------------------- */

static struct records_header header_of(const struct ns_layout *l, uint32_t codec, uint64_t bytes)
{
        struct records_header h = {0};
        struct tier_geometry *t = &h.identity.geometry.tiers[TIER_HOST];

        memcpy(h.identity.layout, l, RECORDS_LAYOUT_BYTES);
        *t = (struct tier_geometry){.codec = codec, .stored_bytes = bytes, .n_sets = 1};
        return h;
}

/* Records of an earlier daemon have one codec, by its number, and no ranges. */
TEST(test_records_before)
{
        const struct ns_layout l = layout_of(4, 1, 8);
        struct records_header h = header_of(&l, CODEC_INT8, 8 * INT8_BYTES);
        uint32_t sum = records_identity_sum(&h);
        struct page_codecs c;

        assert_int_equal(records_codecs(&h, &c), 0);
        assert_int_equal(codec_layers_number(&c.tiers[TIER_HOST]), CODEC_INT8);
        assert_int_equal(c.stored_bytes[TIER_HOST], 8 * INT8_BYTES);
        assert_int_equal(
                sum, (uint32_t)hash_bytes((struct hash_seed){RECORDS_MAGIC, sizeof(h.identity)},
                             &h.identity, sizeof(h.identity)));
        h.identity.geometry.tiers[TIER_HOST].stored_bytes--;
        assert_int_equal(records_codecs(&h, &c), -EINVAL);
}

TEST(test_records)
{
        const struct ns_layout l = layout_of(4, 1, 8);
        struct records_header h = header_of(&l, CODEC_BY_LAYER, M(2) + 6 * INT4_BYTES);
        struct codec_layers *k = &h.codecs[TIER_HOST];
        uint32_t sum;
        struct page_codecs c;

        *k = read_well("0:none,1-:int4", 4);
        sum = records_identity_sum(&h);
        assert_int_equal(records_codecs(&h, &c), 0);
        assert_true(codec_layers_equal(&c.tiers[TIER_HOST], k));
        assert_int_equal(c.stored_bytes[TIER_HOST], M(2) + 6 * INT4_BYTES);
        /* Damaged: the sum tells, and no other ranges are taken for some. */
        k->at[1].first_layer = 2;
        assert_int_not_equal(records_identity_sum(&h), sum);
        assert_int_equal(records_codecs(&h, &c), -EINVAL); /* there is no room for that */
        k->at[1].first_layer = 4;
        assert_int_equal(records_codecs(&h, &c), -EINVAL);
        k->at[1].first_layer = 0;
        assert_int_equal(records_codecs(&h, &c), -EINVAL);
        k->at[1] = (struct codec_range){1, N_CODECS};
        assert_int_equal(records_codecs(&h, &c), -EINVAL);
        k->n = CODEC_RANGES_MAX + 1;
        assert_int_equal(records_codecs(&h, &c), -EINVAL);
}

int main(void)
{
        random_start("test_codec_layers");
        return test_run_all(NULL, NULL);
}
