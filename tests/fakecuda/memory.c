#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/fakecuda/fake.h"

static struct list_link ranges = {&ranges, &ranges};

/* Physical memory */

struct phys *phys_new(int fd, const char *name, const struct store_name *parsed)
{
        struct phys *p = calloc(1, sizeof(*p));

        if (!p)
                fake_die("out of the host's memory");
        snprintf(p->name, sizeof(p->name), "%s", name);
        p->fd = fd;
        p->device = parsed->device;
        p->bytes = parsed->bytes;
        return p;
}

void phys_unref(struct phys *p, unsigned *count)
{
        --*count;
        if (!p->handles && p->fd >= 0) {
                close(p->fd);
                p->fd = -1;
        }
        if (p->handles || p->mappings)
                return;
        store_forget(p->name);
        free(p);
}

/* Ranges */

static void *reserve(size_t bytes, size_t alignment, uint64_t wanted)
{
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        char *at, *aligned;

        if (wanted) {
                at = mmap((void *)(uintptr_t)wanted, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE,
                        -1, 0);
                if (at == (void *)(uintptr_t)wanted) {
                        (void)madvise(at, bytes, MADV_DONTFORK);
                        return at;
                }
                if (at != MAP_FAILED)
                        munmap(at, bytes);
        }
        at = mmap(NULL, bytes + alignment, PROT_NONE, flags, -1, 0);
        if (at == MAP_FAILED)
                return NULL;
        aligned = (char *)round_up_u64((uintptr_t)at, alignment);
        if (aligned > at)
                munmap(at, (size_t)(aligned - at));
        munmap(aligned + bytes, (size_t)(at + alignment - aligned));
        (void)madvise(aligned, bytes, MADV_DONTFORK);
        return aligned;
}

struct range *range_new(enum range_kind kind, size_t bytes, size_t alignment, uint64_t wanted)
{
        struct range *r = calloc(1, sizeof(*r));

        if (!r)
                return NULL;
        r->kind = kind;
        r->bytes = bytes;
        r->slots = calloc(bytes / FAKE_GRANULARITY, sizeof(*r->slots));
        r->at = (uintptr_t)reserve(bytes, MAX(alignment, FAKE_GRANULARITY), wanted);
        r->alias = r->at ? reserve(bytes, FAKE_GRANULARITY, 0) : NULL;
        if (!r->slots || !r->alias) {
                if (r->at)
                        munmap((void *)(uintptr_t)r->at, bytes);
                free(r->slots);
                free(r);
                return NULL;
        }
        list_append(&ranges, &r->link);
        return r;
}

void range_free(struct range *r)
{
        munmap((void *)(uintptr_t)r->at, r->bytes);
        munmap(r->alias, r->bytes);
        list_remove(&r->link);
        free(r->slots);
        free(r);
}

struct range *range_find(uint64_t at)
{
        list_for_each (r, &ranges, struct range, link) {
                if (at >= r->at && at - r->at < r->bytes)
                        return r;
        }
        return NULL;
}

struct range *range_next(const struct range *r)
{
        const struct list_link *l = r ? r->link.next : ranges.next;

        return l == &ranges ? NULL : list_entry(l, struct range, link);
}

bool fake_is_device(uint64_t at)
{
        return range_find(at) != NULL;
}

static struct mapping **slot_of(struct range *r, uint64_t at)
{
        return &r->slots[(at - r->at) / FAKE_GRANULARITY];
}

/* Mappings */

static void set_slots(struct mapping *m, struct mapping *value)
{
        for (size_t done = 0; done < m->bytes; done += FAKE_GRANULARITY)
                *slot_of(m->range, m->at + done) = value;
}

struct mapping *mapping_new(struct range *r, uint64_t at, size_t bytes, struct phys *p)
{
        char *alias = r->alias + (at - r->at);
        struct mapping *m = calloc(1, sizeof(*m));

        if (!m)
                fake_die("out of the host's memory");
        if (mmap(alias, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, p->fd, 0) != alias)
                fake_die("can't map %zu bytes: %s", bytes, strerror(errno));
        (void)madvise(alias, bytes, MADV_DONTFORK);
        *m = (struct mapping){.range = r, .phys = p, .at = at, .bytes = bytes};
        p->mappings++;
        set_slots(m, m);
        return m;
}

void mapping_free(struct mapping *m)
{
        struct range *r = m->range;

        if (m->pins)
                fake_die("%#llx is used by work that isn't done", (unsigned long long)m->at);
        if (mmap(r->alias + (m->at - r->at), round_up_u64(m->bytes, FAKE_GRANULARITY), PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
                fake_die("can't unmap: %s", strerror(errno));
        set_slots(m, NULL);
        phys_unref(m->phys, &m->phys->mappings);
        free(m);
}

static void pins_add(struct pins *pins, struct mapping *m)
{
        struct mapping **more;

        for (size_t i = pins->n; i-- > 0;) {
                if (pins->mappings[i] == m)
                        return;
        }
        more = realloc(pins->mappings, (pins->n + 1) * sizeof(*more));
        if (!more)
                fake_die("out of the host's memory");
        pins->mappings = more;
        pins->mappings[pins->n++] = m;
        m->pins++;
}

void pins_drop(struct pins *pins)
{
        for (size_t i = 0; i < pins->n; i++)
                pins->mappings[i]->pins--;
        free(pins->mappings);
        *pins = (struct pins){0};
}

char *fake_pin(
        struct pins *pins, uint64_t at, size_t bytes, int device, bool writes, const char *what)
{
        int wanted = writes ? CU_ACCESS_READ_WRITE : CU_ACCESS_READ;
        struct range *r = range_find(at);
        unsigned long long shown = at;

        if (!r)
                fake_die("%s: %#llx is no device memory", what, shown);
        if (bytes > r->bytes - (at - r->at))
                fake_die("%s: %zu bytes at %#llx go past the end of the address range", what, bytes,
                        shown);
        for (uint64_t pos = at; pos < at + bytes;) {
                struct mapping *m = *slot_of(r, pos);

                if (!m || pos >= m->at + m->bytes)
                        fake_die("%s: nothing is mapped at %#llx", what, (unsigned long long)pos);
                if ((m->access[device] & wanted) != wanted)
                        fake_die("%s: no %s access to %#llx", what, writes ? "write" : "read",
                                (unsigned long long)pos);
                pins_add(pins, m);
                pos = m->at + m->bytes;
        }
        return r->alias + (at - r->at);
}

void memory_leaks(char *text, size_t size)
{
        unsigned reserved = 0, allocated = 0, opened = 0, mapped = 0;

        list_for_each (r, &ranges, struct range, link) {
                reserved += r->kind == RANGE_RESERVED;
                allocated += r->kind == RANGE_ALLOCATED;
                opened += r->kind == RANGE_OPENED;
                for (size_t i = 0; r->kind == RANGE_RESERVED && i < r->bytes / FAKE_GRANULARITY;
                        i++) {
                        struct mapping *m = r->slots[i];

                        mapped += m && m->at == r->at + i * FAKE_GRANULARITY;
                }
        }
        leak_add(text, size, vmm_handles(), "handle");
        leak_add(text, size, reserved, "reservation");
        leak_add(text, size, mapped, "mapping");
        leak_add(text, size, allocated, "allocation");
        leak_add(text, size, opened, "opened IPC handle");
}
