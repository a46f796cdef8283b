/*
 * The loader over the driver double. Each case is a process of its own, as the driver is loaded
 * once per process: this program again, with the double's environment.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/cuda_load.h"
#include "tests/unit/child.h"
#include "tests/unit/test-support.h"

static const char *program;
static const char *dir;

/* ---- the other process ----------------------------------------------------------------------- */

/* "RESULT VERSION CAPABILITIES SENTENCE" for each time it asks. */
static int child(unsigned n_times)
{
        char why[CUDA_WHY_BYTES] = "";
        const struct cuda *cuda = NULL;

        for (unsigned i = 0; i < n_times; i++) {
                int r = cuda_get(&cuda, why);

                printf("%d %d %u %s\n", r, r == 0 ? cuda->version : 0,
                        r == 0 ? cuda->capabilities : 0, r == 0 ? "" : why);
        }
        return 0;
}

static int child_forks(void)
{
        char why[CUDA_WHY_BYTES] = "";
        const struct cuda *cuda = NULL;
        int r = cuda_get(&cuda, why), status;
        pid_t pid;

        if (r < 0)
                return 1;
        pid = child_fork();
        if (pid == 0) {
                printf("%d %s\n", cuda_get(&cuda, why), why);
                fflush(stdout);
                _exit(0);
        }
        return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1;
}

/* ---- asking it ------------------------------------------------------------------------------- */

struct answer {
        int result, version;
        unsigned capabilities;
        char why[CUDA_WHY_BYTES];
};

static char output[4096];

/* env: "NAME=value ..." before the program's name. */
static void run(const char *env, const char *words)
{
        char command[1024];
        size_t n;
        FILE *f;

        snprintf(
                command, sizeof(command), "env FAKECUDA_DIR=%s %s %s %s", dir, env, program, words);
        f = popen(command, "re");
        assert_non_null(f);
        n = fread(output, 1, sizeof(output) - 1, f);
        output[n] = '\0';
        assert_int_equal(pclose(f), 0);
}

static struct answer parse(const char *line)
{
        struct answer a = {0};
        int at = 0;

        assert_int_equal(
                sscanf(line, "%d %d %u %n", &a.result, &a.version, &a.capabilities, &at), 3);
        snprintf(a.why, sizeof(a.why), "%.*s", (int)strcspn(line + at, "\n"), line + at);
        return a;
}

static struct answer ask(const char *env)
{
        run(env, "child 1");
        return parse(output);
}

static void assert_refused(const char *env, int result, const char *sentence)
{
        struct answer a = ask(env);

        assert_int_equal(a.result, result);
        if (!strstr(a.why, sentence))
                fail_msg("'%s' doesn't say '%s'", a.why, sentence);
}

/* ---- tests ----------------------------------------------------------------------------------- */

#define ALL_BUT_BATCH (CUDA_HAS_VMM | CUDA_HAS_IPC | CUDA_HAS_UUID2 | CUDA_HAS_KERNEL)

TEST(test_capabilities_by_version)
{
        struct answer a = ask("FAKECUDA_VERSION=13000");

        assert_int_equal(a.result, 0);
        assert_int_equal(a.version, 13000);
        assert_int_equal(a.capabilities, ALL_BUT_BATCH | CUDA_HAS_BATCH | CUDA_HAS_BATCH2);
        a = ask("FAKECUDA_VERSION=12080");
        assert_int_equal(a.version, 12080);
        assert_int_equal(a.capabilities, ALL_BUT_BATCH | CUDA_HAS_BATCH);
        assert_int_equal(ask("FAKECUDA_VERSION=12000").capabilities, ALL_BUT_BATCH);
        /* The form of cuGetProcAddress() with four arguments; no UUIDs of MIG instances. */
        a = ask("FAKECUDA_VERSION=11030");
        assert_int_equal(a.result, 0);
        assert_int_equal(a.capabilities, ALL_BUT_BATCH & ~(unsigned)CUDA_HAS_UUID2);
}

TEST(test_groups_are_whole_or_absent)
{
        assert_int_equal(ask("FAKECUDA_NO=vmm").capabilities & ALL_BUT_BATCH,
                ALL_BUT_BATCH & ~(unsigned)CUDA_HAS_VMM);
        assert_int_equal(ask("FAKECUDA_NO=ipc").capabilities & ALL_BUT_BATCH,
                ALL_BUT_BATCH & ~(unsigned)CUDA_HAS_IPC);
}

TEST(test_sentences)
{
        assert_refused("FAKECUDA_FAIL=cuInit:34", -ELIBBAD, "stub of the CUDA toolkit");
        assert_refused("FAKECUDA_FAIL=cuInit:100", -ENODEV, "finds no device");
        assert_refused("CUDA_VISIBLE_DEVICES=7 FAKECUDA_FAIL=cuInit:100", -ENODEV,
                "CUDA_VISIBLE_DEVICES is '7'");
        assert_refused("FAKECUDA_FAIL=cuInit:803", -ELIBBAD, "don't go together");
        assert_refused("FAKECUDA_FAIL=cuInit:804", -ELIBBAD, "don't go together");
        assert_refused("FAKECUDA_FAIL=cuInit:802", -EAGAIN, "nvidia-fabricmanager");
        assert_refused("FAKECUDA_FAIL=cuInit:3", -EIO, "cuInit: CUDA_ERROR_NOT_INITIALIZED (3)");
        assert_refused("FAKECUDA_VERSION=11020", -ELIBBAD, "older than 11.3");
        assert_refused("FAKECUDA_FAIL=cuDriverGetVersion:1", -ELIBBAD, "older than 11.3");
        assert_refused("LD_LIBRARY_PATH=/nonexistent", -ENODEV, "no CUDA driver is installed");
}

/* The outcome stays, but for a fabric manager that may come up. */
TEST(test_only_not_ready_is_tried_again)
{
        run("FAKECUDA_FAIL=cuInit:802:1:1", "child 2");
        assert_int_equal(parse(output).result, -EAGAIN);
        assert_int_equal(parse(strchr(output, '\n') + 1).result, 0);
        run("FAKECUDA_FAIL=cuInit:803:1:1", "child 2");
        assert_int_equal(parse(output).result, -ELIBBAD);
        assert_int_equal(parse(strchr(output, '\n') + 1).result, -ELIBBAD);
}

TEST(test_not_in_a_child)
{
        char start[16];

        snprintf(start, sizeof(start), "%d ", -ECHILD);
        run("FAKECUDA_LENIENT=exit", "child-forks");
        assert_true(strncmp(output, start, strlen(start)) == 0);
        assert_non_null(strstr(output, "child of the process"));
}

TEST(test_errnos)
{
        static const struct {
                cu_result result;
                int error;
        } rows[] = {
                {CU_OK, 0},
                {CU_OUT_OF_MEMORY, -ENOMEM},
                {CU_NO_DEVICE, -ENODEV},
                {CU_INVALID_DEVICE, -ENODEV},
                {CU_INVALID_VALUE, -EINVAL},
                {CU_INVALID_HANDLE, -EINVAL},
                {CU_INVALID_CONTEXT, -EINVAL},
                {CU_INVALID_IMAGE, -EINVAL},
                {CU_NOT_READY, -EBUSY},
                {CU_NOT_SUPPORTED, -EOPNOTSUPP},
                {CU_NOT_PERMITTED, -EACCES},
                {CU_SYSTEM_NOT_READY, -EAGAIN},
                {CU_STUB_LIBRARY, -ELIBBAD},
                {CU_SYSTEM_DRIVER_MISMATCH, -ELIBBAD},
                {CU_COMPAT_NOT_SUPPORTED_ON_DEVICE, -ELIBBAD},
                {CU_ECC_UNCORRECTABLE, -ENXIO},
                {CU_ILLEGAL_ADDRESS, -ENXIO},
                {CU_LAUNCH_FAILED, -ENXIO},
                {CU_DEVICE_UNAVAILABLE, -ENXIO},
                {717, -ENXIO}, /* invalid address space */
                {720, -EIO},   /* cooperative launch too large: the context is fine */
                {CU_OPERATING_SYSTEM, -EIO},
        };
        char text[64];

        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                assert_int_equal(cuda_errno(rows[i].result), rows[i].error);
                assert_int_equal(cuda_is_fatal(rows[i].result), rows[i].error == -ENXIO);
        }
        /* No driver is loaded in this process. */
        assert_string_equal(
                cuda_describe("cuMemCreate", 2, text, sizeof(text)), "cuMemCreate: CUDA error 2");
}

int main(int argc, char **argv)
{
        int r;

        if (argc > 2 && strcmp(argv[1], "child") == 0)
                return child((unsigned)atoi(argv[2]));
        if (argc > 1 && strcmp(argv[1], "child-forks") == 0)
                return child_forks();
        program = argv[0];
        dir = test_dir_make();
        r = test_run_all(NULL, NULL);
        test_dir_remove(dir);
        return r;
}
