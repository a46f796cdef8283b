/* The configuration reader. Any text is accepted, or every error has a clean sentence. An accepted
 * text can be written, and read again to the same values. */
#include <string.h>

#include "daemon/server/config/config.h"
#include "tests/fuzz/fuzz.h"

struct reports {
        unsigned n_errors;
};

static void note_report(void *data, bool is_error, const char *sentence)
{
        struct reports *r = data;

        CHECK(*sentence && strlen(sentence) < 1024);
        for (const char *s = sentence; *s; s++)
                CHECK(((unsigned char)*s >= ' ' && *s != 0x7f) || *s == '\t' || *s == '\r');
        r->n_errors += is_error;
}

static void check_round_trip(const struct tenant_config *t)
{
        struct tenant_config again;
        char value[OPTION_VALUE_MAX], assignment[OPTION_VALUE_MAX + 64], err[1024];

        tenant_config_init(&again, t->name);
        for (size_t i = 0; i < n_options; i++) {
                const struct option *o = &options[i];

                if (o->section != SECTION_TENANT || !(t->set & option_bit(o)))
                        continue;
                snprintf(assignment, sizeof(assignment), "%s=%s", o->key,
                        option_format(o, t, value));
                CHECK(tenant_config_apply(&again, assignment, err, sizeof(err)) == 0);
        }
        CHECK(again.set == t->set && again.limit_bytes == t->limit_bytes);
        CHECK(again.weight == t->weight && again.priority == t->priority);
        CHECK(again.max_clients == t->max_clients &&
                strcmp(again.access.group, t->access.group) == 0);
        CHECK(again.access.uids.n == t->access.uids.n && again.access.gids.n == t->access.gids.n);
        CHECK(memcmp(again.access.uids.ids, t->access.uids.ids,
                      t->access.uids.n * sizeof(uint32_t)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct reports reports = {0};
        struct config config;
        int r = config_parse("file", (const char *)data, size, &config, note_report, &reports);

        CHECK((r == 0) == (reports.n_errors == 0));
        if (r < 0)
                return 0;
        for (size_t i = 0; i < config.tenants.n; i++) {
                CHECK(name_is_valid(config.tenants.rows[i].name, TENANT_NAME_MAX));
                check_round_trip(&config.tenants.rows[i]);
        }
        config_deinit(&config);
        return 0;
}
