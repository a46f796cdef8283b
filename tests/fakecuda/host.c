/* Registered host memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/fakecuda/fake.h"

/* Measured by others: one call of 512 GiB fails on R580 and later; 64 GiB works. */
#define PIECE_MAX ((size_t)64 << 30)

static struct list_link regs = {&regs, &regs};

unsigned host_count(void)
{
        unsigned n = 0;

        for (struct list_link *l = regs.next; l != &regs; l = l->next)
                n++;
        return n;
}

/* Is all of it mapped for the CPU, and readable (and writable)? */
static bool is_accessible(uintptr_t at, size_t bytes, bool writes)
{
        FILE *f = fopen("/proc/self/maps", "re");
        uintptr_t from, to, pos = at;
        char mode[5], *line = NULL;
        size_t size = 0;

        if (!f)
                return true;
        while (pos < at + bytes && getline(&line, &size, f) > 0) {
                if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &from, &to, mode) != 3 ||
                        to <= pos)
                        continue;
                if (from > pos || mode[0] != 'r' || (writes && mode[1] != 'w'))
                        break;
                pos = to;
        }
        free(line);
        fclose(f);
        return pos >= at + bytes;
}

struct host_reg *host_find(const void *host, size_t bytes)
{
        uintptr_t at = (uintptr_t)host;

        list_for_each (reg, &regs, struct host_reg, link) {
                if (at >= reg->at + reg->bytes || at + bytes <= reg->at)
                        continue;
                if (at < reg->at || at + bytes > reg->at + reg->bytes)
                        fake_die("%zu bytes at %p straddle the border of a host registration",
                                bytes, host);
                return reg;
        }
        return NULL;
}

static bool overlaps(uintptr_t at, size_t bytes)
{
        list_for_each (reg, &regs, struct host_reg, link) {
                if (at < reg->at + reg->bytes && at + bytes > reg->at)
                        return true;
        }
        return false;
}

cu_result cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags)
{
        cu_result r = fake_enter("cuMemHostRegister", ENTER_BOUND);
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        struct host_reg *reg;

        if (r != CU_OK)
                return r;
        if (!bytes || (uintptr_t)at % page || bytes % page)
                fake_die("%zu bytes at %p: not whole pages", bytes, at);
        if (bytes > PIECE_MAX)
                fake_die("%zu bytes: more than 64 GiB in one call", bytes);
        if (flags & ~(unsigned)(CU_HOST_REGISTER_PORTABLE | CU_HOST_REGISTER_DEVICEMAP |
                                CU_HOST_REGISTER_READ_ONLY))
                return CU_INVALID_VALUE;
        if ((flags & CU_HOST_REGISTER_READ_ONLY) && fake_lacks("read-only-host"))
                return CU_NOT_SUPPORTED;
        if (!is_accessible((uintptr_t)at, bytes, !(flags & CU_HOST_REGISTER_READ_ONLY)))
                return CU_INVALID_VALUE;
        reg = calloc(1, sizeof(*reg));
        if (!reg)
                return CU_OUT_OF_MEMORY;
        *reg = (struct host_reg){
                .at = (uintptr_t)at, .bytes = bytes, .flags = flags, .context = fake_current()};
        fake_lock();
        if (overlaps(reg->at, bytes)) {
                free(reg);
                r = CU_HOST_MEMORY_ALREADY_REGISTERED;
        } else {
                list_append(&regs, &reg->link);
                reg->context->registrations++;
        }
        fake_unlock();
        return r;
}

/* Locked. The one that starts there, or NULL. */
static struct host_reg *find_start(uintptr_t at)
{
        list_for_each (reg, &regs, struct host_reg, link) {
                if (reg->at == at)
                        return reg;
        }
        return NULL;
}

cu_result cuMemHostUnregister(void *at)
{
        cu_result r = fake_enter("cuMemHostUnregister", ENTER_BOUND | ENTER_FREES);
        struct host_reg *reg;

        if (r != CU_OK)
                return r;
        fake_lock();
        reg = find_start((uintptr_t)at);
        if (!reg) {
                fake_unlock();
                return CU_HOST_MEMORY_NOT_REGISTERED;
        }
        if (reg->pins)
                fake_die("%p is used by copies that aren't done", at);
        if (!is_accessible(reg->at, reg->bytes, false))
                fake_die("%p was unmapped while registered", at);
        list_remove(&reg->link);
        reg->context->registrations--;
        fake_unlock();
        free(reg);
        return CU_OK;
}
