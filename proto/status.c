#include "proto/status.h"

#include <stddef.h>
#include <string.h>

#include "base/macros.h"

struct status_row {
        uint32_t wire;
        int code;
        const char *text;
};

static const struct status_row rows[] = {
#define X(name, wire, code, text) {wire, code, text},
        STATUS_TABLE(X)
#undef X
};

static const struct status_row *find_code(int code)
{
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                if (rows[i].code == code)
                        return &rows[i];
        return NULL;
}

int status_from_wire(uint32_t wire)
{
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                if (rows[i].wire == wire)
                        return rows[i].code;
        return -EPROTO;
}

uint32_t status_to_wire(int code)
{
        const struct status_row *row = find_code(code);

        return row ? row->wire : WIRE_IO;
}

const char *status_text(int code)
{
        const struct status_row *row = find_code(code);

        if (row)
                return row->text;
        if (code > 0)
                return "unknown outcome";
        /* Unsigned, as -INT_MIN doesn't exist. Thread-safe since glibc 2.32. */
        return strerror((int)-(unsigned)code);
}
