/*
 * The layout of stored state. The state of a small daemon, written when the layout got its version
 * (tests/fixtures/state-v3), is carried by this source, and equals state-v3.carried, line by line.
 *
 * If this fails because the layout was changed, that needs another STATE_LAYOUT_VERSION (state.h)
 * and its fixtures, which sh tests/fixtures/update.sh BUILD writes. Other versions are refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/core.h"
#include "daemon/core/state/state-root.h"
#include "daemon/core/state/state.h"
#include "tests/unit/state-image.h"
#include "tests/unit/state-scene.h"
#include "tests/unit/test-support.h"

/* ---- the same secrets each time -------------------------------------------------------------- */

static uint8_t next_secret; /* 0: as the kernel says */

/* In the place of libc's. */
ssize_t getrandom(void *to, size_t n, unsigned flags);
ssize_t getrandom(void *to, size_t n, unsigned flags)
{
        if (next_secret == 0)
                return syscall(SYS_getrandom, to, n, flags);
        memset(to, next_secret++, n);
        return (ssize_t)n;
}

/* ---- images ---------------------------------------------------------------------------------- */

static void live(struct fake_keep *k, void *data)
{
        struct scene s;

        next_secret = 0x40;
        scene_start(&s, &k->keep);
        scene_live(&s);
}

static struct fake_keep *make_keep(void)
{
        struct fake_keep *k = calloc(1, sizeof(*k));

        assert_non_null(k);
        fake_keep_init(k);
        return k;
}

static void free_keep(struct fake_keep *k)
{
        fake_keep_deinit(k);
        free(k);
}

/* Writes the image of the scene by this source. */
static void write_image(FILE *to)
{
        struct fake_keep *k = make_keep();

        assert_int_equal(fake_keep_fork(k, NULL, 0, live, NULL), 0);
        fprintf(to,
                "# State of a kvleased, layout version %u: see tests/unit/test_state_layout.c.\n",
                STATE_LAYOUT_VERSION);
        state_image_write(k, to);
        free_keep(k);
}

/* Static storage, until the next call. */
static const char *path_of(unsigned version, const char *end)
{
        static char path[512];

        snprintf(path, sizeof(path), FIXTURES_DIR "/state-v%u%s", version, end);
        return path;
}

static FILE *open_fixture(unsigned version)
{
        FILE *f = fopen(path_of(version, ""), "r");

        if (!f)
                fail_msg("%s is missing: sh tests/fixtures/update.sh BUILD", path_of(version, ""));
        return f;
}

/* ---- carried --------------------------------------------------------------------------------- */

/* Owned. */
static char *describe(FILE *image)
{
        struct fake_keep *k = make_keep();
        struct scene s;
        char *text = NULL;
        size_t len = 0;
        FILE *to = open_memstream(&text, &len);

        state_image_load(k, image);
        scene_start(&s, &k->keep);
        assert_int_equal(s.opened, 1);
        assert_string_equal(s.said, "");
        scene_describe(&s, to);
        fclose(to);
        scene_end(&s);
        free_keep(k);
        return text;
}

static void check_carried(FILE *image)
{
        char *text = describe(image), *expected;
        size_t len;

        assert_int_equal(
                file_read(path_of(STATE_LAYOUT_VERSION, ".carried"), 1 << 20, &expected, &len), 0);
        assert_string_equal(text, expected);
        free(text);
        free(expected);
}

TEST(test_carried)
{
        FILE *f = open_fixture(STATE_LAYOUT_VERSION);

        check_carried(f);
        fclose(f);
}

/* The fixture can be written again, and twice the same. */
TEST(test_written)
{
        char *text[2];
        size_t len[2];

        for (unsigned i = 0; i < 2; i++) {
                FILE *to = open_memstream(&text[i], &len[i]);

                write_image(to);
                fclose(to);
        }
        assert_string_equal(text[0], text[1]);
        {
                FILE *from = fmemopen(text[0], len[0], "r");

                check_carried(from);
                fclose(from);
        }
        free(text[0]);
        free(text[1]);
}

/* ---- refused --------------------------------------------------------------------------------- */

/* Only a new root and tables without clients are stored afterwards. */
static void check_refused(FILE *image, uint32_t version)
{
        struct fake_keep *k = make_keep();
        struct scene s;
        char expected[64];

        state_image_load(k, image);
        assert_int_equal(pwrite(fake_keep_find(k, KEEP_STATE, 0), &version, sizeof(version),
                                 offsetof(struct state_root, version)),
                sizeof(version));
        scene_start(&s, &k->keep);
        assert_int_equal(s.opened, 0);
        assert_true(s.is_lost);
        snprintf(expected, sizeof(expected), "layout version %u of its state, this one has %u",
                version, STATE_LAYOUT_VERSION);
        if (!strstr(s.d.text, expected))
                fail_msg("%s", s.d.text);
        assert_true(list_is_empty(&s.a->namespaces) && list_is_empty(&s.a->groups));
        assert_int_equal(k->n, 2);
        assert_int_equal(fake_keep_count(k, KEEP_STATE) + fake_keep_count(k, KEEP_CLIENTS), 2);
        scene_end(&s);
        free_keep(k);
}

TEST(test_refused)
{
        static const uint32_t others[] = {
                0, STATE_LAYOUT_VERSION - 1, STATE_LAYOUT_VERSION + 1, UINT32_MAX};

        for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
                FILE *f = open_fixture(STATE_LAYOUT_VERSION);

                check_refused(f, others[i]);
                fclose(f);
        }
}

/* For want of memory nothing is dropped: the next try may have some. */
static void try_without_memory(struct fake_keep *k, void *data)
{
        const struct rlimit none = {0};
        struct store store;
        struct detail d;
        bool is_lost;

        store_init(&store, &evict_lru);
        store.keep = k->keep;
        assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
        assert_int_equal(state_open(&store, &is_lost, &d), -ENOMEM);
        assert_false(is_lost);
        assert_non_null(strstr(d.text, "cannot map the root"));
}

TEST(test_no_memory)
{
        struct fake_keep *k = make_keep();
        FILE *f = open_fixture(STATE_LAYOUT_VERSION);
        uint32_t n;

        state_image_load(k, f);
        fclose(f);
        n = k->n;
        assert_int_equal(fake_keep_fork(k, NULL, 0, try_without_memory, NULL), 0);
        assert_int_equal(k->n, n);
        free_keep(k);
}

static int write_as_asked(const char *what)
{
        char *text;
        FILE *f;

        if (strcmp(what, "--write") == 0) {
                write_image(stdout);
                return 0;
        }
        if (strcmp(what, "--describe") != 0)
                return 2;
        f = open_fixture(STATE_LAYOUT_VERSION);
        text = describe(f);
        fputs(text, stdout);
        free(text);
        fclose(f);
        return 0;
}

int main(int argc, char **argv)
{
        if (argc > 1)
                return write_as_asked(argv[1]);
        return test_run_all(NULL, NULL);
}
