#include "daemon/core/chronicle.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

static const struct {
        const char *name;
        bool merges;
} kinds[] = {
#define X(id, name, merges, what) [EVENT_##id] = {name, merges},
        EVENT_KIND_TABLE(X)
#undef X
};
_Static_assert(EVENT_KINDS <= 32, "a filter has a bit for each");

int chronicle_open(struct chronicle *c)
{
        struct chronicle_event *events =
                calloc(CHRONICLE_EVENTS + CHRONICLE_OPEN_EVENTS, sizeof(*events));

        if (!events)
                return -ENOMEM;
        c->ring = events;
        c->open = events + CHRONICLE_EVENTS;
        return 0;
}

void chronicle_close(struct chronicle *c)
{
        free(c->ring);
        *c = (struct chronicle){0};
}

static struct chronicle_event *slot(const struct chronicle *c, uint64_t number)
{
        return &c->ring[number % CHRONICLE_EVENTS];
}

static const char *text_of(const char *s)
{
        return s ? s : "";
}

/* As much of it as fits, zeros after it. A character that is cut in half goes: protobuf's strings
 * are UTF-8. */
static void copy_text(char *to, size_t size, const char *from)
{
        size_t len = strnlen(text_of(from), size);

        if (len == size)
                for (len--; len > 0 && ((unsigned char)from[len] & 0xc0) == 0x80;)
                        len--;
        memcpy(to, text_of(from), len);
        memset(to + len, 0, size - len);
}

/* One that was cut lacks a character at most. */
#define CUT_MAX 4

static bool is_same_text(const char *kept, size_t size, const char *text)
{
        size_t len = strlen(kept);

        return strncmp(kept, text_of(text), len) == 0 &&
               (text_of(text)[len] == '\0' || len + CUT_MAX >= size);
}

#define SAME(e, n, field) is_same_text((e)->field, sizeof((e)->field), (n)->field)

static bool is_alike(const struct chronicle_event *e, const struct chronicle_note *n)
{
        return e->kind == n->kind && SAME(e, n, tenant) && SAME(e, n, ns) &&
               SAME(e, n, by_tenant) && SAME(e, n, reason) && SAME(e, n, by) && e->tier == n->tier;
}

static void begin(struct chronicle_event *e, uint64_t number, uint64_t now_nsec,
        const struct chronicle_note *n)
{
        e->number = number;
        e->kind = n->kind;
        e->first_nsec = now_nsec;
        e->count = e->pages = e->bytes = 0;
        e->before_bytes = n->before_bytes;
        e->tier = n->tier;
        copy_text(e->tenant, sizeof(e->tenant), n->tenant);
        copy_text(e->ns, sizeof(e->ns), n->ns);
        copy_text(e->by_tenant, sizeof(e->by_tenant), n->by_tenant);
        copy_text(e->by, sizeof(e->by), n->by);
        copy_text(e->reason, sizeof(e->reason), n->reason);
        e->detail[0] = '\0';
}

static void add(struct chronicle_event *e, uint64_t now_nsec, const struct chronicle_note *n)
{
        e->last_nsec = MAX(now_nsec, e->first_nsec);
        e->count++;
        e->pages += n->pages;
        e->bytes += n->bytes;
        if (n->detail)
                copy_text(e->detail, sizeof(e->detail), n->detail);
}

/* The first of the open ones goes to the ring. */
static void close_first(struct chronicle *c)
{
        struct chronicle_event *e;

        assert(c->n_open > 0);
        e = slot(c, ++c->last);
        *e = c->open[0];
        e->number = c->last;
        c->n_open--;
        memmove(c->open, c->open + 1, c->n_open * sizeof(*c->open));
        c->recent = 0;
}

static bool is_over(const struct chronicle_event *e, uint64_t now_nsec)
{
        return now_nsec >= e->first_nsec + CHRONICLE_WINDOW_NSEC;
}

void chronicle_settle(struct chronicle *c, uint64_t now_nsec, bool all)
{
        while (c->n_open > 0 && (all || is_over(&c->open[0], now_nsec)))
                close_first(c);
}

/* An open event like this note, NULL where there is none. */
static struct chronicle_event *find_open(struct chronicle *c, const struct chronicle_note *n)
{
        /* One batch of evictions is one note after the other of the same. */
        if (c->recent < c->n_open && is_alike(&c->open[c->recent], n))
                return &c->open[c->recent];
        for (uint32_t i = 0; i < c->n_open; i++)
                if (is_alike(&c->open[i], n)) {
                        c->recent = i;
                        return &c->open[i];
                }
        return NULL;
}

static struct chronicle_event *open_one(
        struct chronicle *c, uint64_t now_nsec, const struct chronicle_note *n)
{
        if (c->n_open == CHRONICLE_OPEN_EVENTS)
                close_first(c);
        c->recent = c->n_open++;
        begin(&c->open[c->recent], 0, now_nsec, n);
        return &c->open[c->recent];
}

void chronicle_note(struct chronicle *c, uint64_t now_nsec, const struct chronicle_note *note)
{
        struct chronicle_note copy = *note, *n = &copy;
        struct chronicle_event *e;

        if (!c->ring)
                return;
        if (!n->by)
                n->by = c->by;
        chronicle_settle(c, now_nsec, false);
        if (kinds[n->kind].merges) {
                e = find_open(c, n);
                if (!e)
                        e = open_one(c, now_nsec, n);
        } else {
                /* What led to it comes first. */
                chronicle_settle(c, now_nsec, true);
                e = slot(c, ++c->last);
                begin(e, c->last, now_nsec, n);
        }
        add(e, now_nsec, n);
        if (c->on_note)
                c->on_note(c->data);
}

uint64_t chronicle_due(const struct chronicle *c)
{
        return c->n_open > 0 ? c->open[0].first_nsec + CHRONICLE_WINDOW_NSEC : UINT64_MAX;
}

uint64_t chronicle_first(const struct chronicle *c)
{
        return c->last > CHRONICLE_EVENTS ? c->last - CHRONICLE_EVENTS + 1 : 1;
}

static bool is_wanted(const struct chronicle_event *e, const struct chronicle_filter *f)
{
        const char *tenant = text_of(f->tenant), *ns = text_of(f->ns);

        return (f->kinds == 0 || (f->kinds & (UINT32_C(1) << e->kind))) &&
               e->last_nsec >= f->since_nsec && (*ns == '\0' || strcmp(e->ns, ns) == 0) &&
               (*tenant == '\0' || strcmp(e->tenant, tenant) == 0 ||
                       strcmp(e->by_tenant, tenant) == 0);
}

const struct chronicle_event *chronicle_next(
        const struct chronicle *c, const struct chronicle_filter *f, uint64_t after)
{
        if (after >= c->last)
                return NULL;
        for (uint64_t i = MAX(after + 1, chronicle_first(c)); i <= c->last; i++)
                if (is_wanted(slot(c, i), f))
                        return slot(c, i);
        return NULL;
}

uint64_t chronicle_before_last(
        const struct chronicle *c, const struct chronicle_filter *f, uint64_t n)
{
        uint64_t i = c->last;

        for (; i >= chronicle_first(c); i--) {
                if (!is_wanted(slot(c, i), f))
                        continue;
                if (n == 0)
                        return i;
                n--;
        }
        return i;
}

const char *chronicle_kind_name(enum event_kind kind)
{
        return kinds[kind].name;
}

enum event_kind chronicle_find_kind(const char *name)
{
        enum event_kind kind = 0;

        while (kind < EVENT_KINDS && strcmp(kinds[kind].name, name) != 0)
                kind++;
        return kind;
}
