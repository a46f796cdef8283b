#include "tests/integration/certificate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/macros.h"
#include "tests/integration/private-daemon.h"

static void openssl_run(const char *const *words)
{
        struct proc_output output;

        assert_int_equal(proc_run(words, NULL, 20000, &output), 0);
        if (output.status != 0)
                fail_msg("openssl: %s", output.err);
        proc_output_free(&output);
}

void certificate_make(const char *dir, const char *name, const char *alternative)
{
        char key[128], crt[128], ca_key[128], ca_crt[128], subject[64];
        const char *words[32] = {"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", key, "-out", crt,
                "-subj", subject};
        unsigned n = 16;

        snprintf(key, sizeof(key), "%s/%s.key", dir, name);
        snprintf(crt, sizeof(crt), "%s/%s.crt", dir, name);
        snprintf(ca_key, sizeof(ca_key), "%s/ca.key", dir);
        snprintf(ca_crt, sizeof(ca_crt), "%s/ca.crt", dir);
        snprintf(subject, sizeof(subject), "/CN=%s", name);
        if (alternative) {
                const char *const more[] = {"-CA", ca_crt, "-CAkey", ca_key, "-addext", alternative,
                        "-addext", "basicConstraints=critical,CA:FALSE"};

                for (unsigned i = 0; i < ARRAY_SIZE(more); i++)
                        words[n++] = more[i];
        }
        openssl_run(words);
}
