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
                "0-1:none,000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000002:int8";
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

/* ---- pages ----------------------------------------------------------------------------------- */

/* Matrices of 16 tokens by 64 numbers of 2 bytes. */
#define MATRIX_BYTES 2048
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

#define M(n) ((n) * (uint64_t)MATRIX_BYTES)

/* ---- records --------------------------------------------------------------------------------- */

static struct records_header header_of(const struct ns_layout *l, uint32_t codec, uint64_t bytes)
{
        struct records_header h = {0};
        struct tier_geometry *t = &h.identity.geometry.tiers[TIER_HOST];

        memcpy(h.identity.layout, l, RECORDS_LAYOUT_BYTES);
        *t = (struct tier_geometry){.codec = codec, .stored_bytes = bytes, .n_sets = 1};
        return h;
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
