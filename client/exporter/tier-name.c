#include "client/exporter/tier-name.h"

#include <string.h>

#include "base/macros.h"

static const struct {
        const char *before, *tier;
} lower_rows[] = {{"host of ", "host"}, {"disk of ", "disk"}};

const char *tier_device(const char *row_name)
{
        for (size_t i = 0; i < ARRAY_SIZE(lower_rows); i++)
                if (strncmp(row_name, lower_rows[i].before, strlen(lower_rows[i].before)) == 0)
                        return row_name + strlen(lower_rows[i].before);
        return row_name;
}

const char *tier_of_row(const char *row_name)
{
        for (size_t i = 0; i < ARRAY_SIZE(lower_rows); i++)
                if (strncmp(row_name, lower_rows[i].before, strlen(lower_rows[i].before)) == 0)
                        return lower_rows[i].tier;
        return "device";
}
