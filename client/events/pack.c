#include "client/events/pack.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define SIZE_MIN 4096

void pack_deinit(struct pack *p)
{
        free(p->data);
        *p = (struct pack){0};
}

static bool make_room(struct pack *p, size_t len)
{
        size_t size = MAX(p->size, (size_t)SIZE_MIN);
        uint8_t *data;

        if (p->failed || p->size - p->len >= len)
                return !p->failed;
        while (size - p->len < len)
                size *= 2;
        data = realloc(p->data, size);
        if (!data) {
                p->failed = true;
                return false;
        }
        p->data = data;
        p->size = size;
        return true;
}

void pack_bytes(struct pack *p, const void *data, size_t len)
{
        if (len == 0 || !make_room(p, len))
                return;
        memcpy(p->data + p->len, data, len);
        p->len += len;
}

/* Appends a type's byte and the low `len` bytes of a value, big-endian. */
static void add_number(struct pack *p, uint8_t type, uint64_t value, size_t len)
{
        uint64_t be = htobe64(value);
        uint8_t bytes[1 + sizeof(be)] = {type};

        memcpy(bytes + 1, (const uint8_t *)&be + sizeof(be) - len, len);
        pack_bytes(p, bytes, 1 + len);
}

void pack_nil(struct pack *p)
{
        add_number(p, 0xc0, 0, 0);
}

void pack_uint(struct pack *p, uint64_t value)
{
        if (value < 0x80)
                add_number(p, (uint8_t)value, 0, 0);
        else if (value <= UINT8_MAX)
                add_number(p, 0xcc, value, 1);
        else if (value <= UINT16_MAX)
                add_number(p, 0xcd, value, 2);
        else if (value <= UINT32_MAX)
                add_number(p, 0xce, value, 4);
        else
                add_number(p, 0xcf, value, 8);
}

void pack_double(struct pack *p, double value)
{
        uint64_t bits;

        memcpy(&bits, &value, sizeof(bits));
        add_number(p, 0xcb, bits, 8);
}

void pack_text(struct pack *p, const char *text)
{
        size_t len = strlen(text);

        if (len < 32)
                add_number(p, (uint8_t)(0xa0 | len), 0, 0);
        else if (len <= UINT8_MAX)
                add_number(p, 0xd9, len, 1);
        else
                add_number(p, 0xda, len, 2);
        pack_bytes(p, text, len);
}

void pack_array(struct pack *p, uint32_t n)
{
        if (n < 16)
                add_number(p, (uint8_t)(0x90 | n), 0, 0);
        else if (n <= UINT16_MAX)
                add_number(p, 0xdc, n, 2);
        else
                add_number(p, 0xdd, n, 4);
}

void pack_map(struct pack *p, uint8_t n)
{
        add_number(p, 0x80 | n, 0, 0);
}
