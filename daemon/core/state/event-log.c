#include "daemon/core/state/event-log.h"

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

/* A tenant, or the daemon, that events belong to. */
struct owner {
        char name[TENANT_NAME_MAX + 1]; /* "": the daemon */
        uint32_t n;                     /* events; 0: the entry is free */
};

struct event_log_kept {
        uint32_t n, n_owners;                /* owners: 1 + the highest index in use */
        uint16_t order[EVENT_LOG_EVENTS];    /* places of events, by their numbers */
        uint16_t owner_of[EVENT_LOG_EVENTS]; /* by event */
        struct log_event events[EVENT_LOG_EVENTS];
        struct owner owners[EVENT_LOG_EVENTS]; /* each has an event */
        struct log_event open[EVENT_LOG_OPEN_EVENTS];
};

int event_log_open(struct event_log *c)
{
        struct event_log_kept *kept = calloc(1, sizeof(*kept));

        if (!kept)
                return -ENOMEM;
        c->kept = kept;
        c->open = kept->open;
        return 0;
}

void event_log_close(struct event_log *c)
{
        free(c->kept);
        *c = (struct event_log){0};
}

/* ---- closed events --------------------------------------------------------------------------- */

/* A tenant with many events loses its own: it can't push out those of others. */
static const char *owner_name(const struct log_event *e)
{
        return e->by_tenant[0] ? e->by_tenant : e->tenant;
}

static uint16_t find_owner(struct event_log_kept *k, const char *name)
{
        uint32_t free_at = k->n_owners;

        for (uint32_t i = k->n_owners; i-- > 0;) {
                if (k->owners[i].n > 0 && strcmp(k->owners[i].name, name) == 0)
                        return (uint16_t)i;
                if (k->owners[i].n == 0)
                        free_at = i;
        }
        assert(free_at < EVENT_LOG_EVENTS); /* there is space for an event, so an owner has none */
        k->n_owners = MAX(k->n_owners, free_at + 1);
        strcpy(k->owners[free_at].name, name);
        return (uint16_t)free_at;
}

/* Drops the oldest event of the owner with the most. Returns its place. */
static uint16_t drop_one(struct event_log_kept *k)
{
        uint32_t most = 0, i = 0;
        uint16_t at;

        for (uint32_t o = 1; o < k->n_owners; o++)
                if (k->owners[o].n > k->owners[most].n)
                        most = o;
        while (k->owner_of[k->order[i]] != most)
                i++;
        at = k->order[i];
        k->owners[most].n--;
        k->n--;
        memmove(&k->order[i], &k->order[i + 1], (k->n - i) * sizeof(k->order[0]));
        return at;
}

/* Keeps an event, whose number is higher than all before it. */
static struct log_event *keep(struct event_log *c, const struct log_event *e)
{
        struct event_log_kept *k = c->kept;
        /* Places are used in order until all are in use. */
        uint16_t at = k->n < EVENT_LOG_EVENTS ? (uint16_t)k->n : drop_one(k);
        uint16_t owner = find_owner(k, owner_name(e));

        k->order[k->n++] = at;
        k->owner_of[at] = owner;
        k->owners[owner].n++;
        k->events[at] = *e;
        return &k->events[at];
}

static const struct log_event *nth(const struct event_log *c, uint32_t i)
{
        return &c->kept->events[c->kept->order[i]];
}

/* Returns the number of kept events numbered up to `number`. */
static uint32_t count_to(const struct event_log *c, uint64_t number)
{
        uint32_t low = 0, high = c->kept ? c->kept->n : 0;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (nth(c, middle)->number <= number)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

uint64_t event_log_lost(const struct event_log *c, uint64_t after)
{
        return after < c->last ? c->last - after - (c->kept->n - count_to(c, after)) : 0;
}

/* ---- notes ----------------------------------------------------------------------------------- */

static const char *text_of(const char *s)
{
        return s ? s : "";
}

/* Copies as much as fits and fills up with zeros. A character that is cut in half is left out:
 * strings of protobuf are UTF-8. */
static void copy_text(char *to, size_t size, const char *from)
{
        size_t len = strnlen(text_of(from), size);

        if (len == size)
                for (len--; len > 0 && ((unsigned char)from[len] & 0xc0) == 0x80;)
                        len--;
        memcpy(to, text_of(from), len);
        memset(to + len, 0, size - len);
}

/* The most bytes that a cut text lacks: one character's. */
#define CUT_MAX 4

static bool is_same_text(const char *kept, size_t size, const char *text)
{
        size_t len = strlen(kept);

        return strncmp(kept, text_of(text), len) == 0 &&
               (text_of(text)[len] == '\0' || len + CUT_MAX >= size);
}

#define SAME(e, n, field) is_same_text((e)->field, sizeof((e)->field), (n)->field)

static bool is_alike(const struct log_event *e, const struct event_note *n)
{
        return e->kind == n->kind && SAME(e, n, tenant) && SAME(e, n, ns) &&
               SAME(e, n, by_tenant) && SAME(e, n, reason) && SAME(e, n, by) && e->tier == n->tier;
}

static void begin_event(
        struct log_event *e, uint64_t number, uint64_t now_nsec, const struct event_note *n)
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

static void add_note(struct log_event *e, uint64_t now_nsec, const struct event_note *n)
{
        e->last_nsec = MAX(now_nsec, e->first_nsec);
        e->count += MAX(n->count, UINT64_C(1));
        e->pages += n->pages;
        e->bytes += n->bytes;
        if (n->detail)
                copy_text(e->detail, sizeof(e->detail), n->detail);
}

/* Closes the open event whose last note is oldest; of several, the one opened first. Returns its
 * index among the open ones. */
static uint32_t close_stalest(struct event_log *c)
{
        uint32_t at = 0;

        assert(c->n_open > 0);
        for (uint32_t i = 1; i < c->n_open; i++)
                if (c->open[i].last_nsec < c->open[at].last_nsec)
                        at = i;
        c->open[at].number = ++c->last;
        (void)keep(c, &c->open[at]);
        c->n_open--;
        memmove(&c->open[at], &c->open[at + 1], (c->n_open - at) * sizeof(*c->open));
        c->recent = 0;
        return at;
}

/* Closes the open event that was opened first. Events that ended earlier are closed before it,
 * early: numbers are in the order of the events' ends. */
static void close_first(struct event_log *c)
{
        while (close_stalest(c) > 0)
                ;
}

static bool is_over(const struct log_event *e, uint64_t now_nsec)
{
        return now_nsec >= e->first_nsec + EVENT_LOG_WINDOW_NSEC;
}

void event_log_flush(struct event_log *c, uint64_t now_nsec, bool all)
{
        while (c->n_open > 0 && (all || is_over(&c->open[0], now_nsec)))
                close_first(c);
}

/* Returns an open event like this note; NULL: none. */
static struct log_event *find_open(struct event_log *c, const struct event_note *n)
{
        /* A batch of evictions repeats one note. */
        if (c->recent < c->n_open && is_alike(&c->open[c->recent], n))
                return &c->open[c->recent];
        for (uint32_t i = 0; i < c->n_open; i++)
                if (is_alike(&c->open[i], n)) {
                        c->recent = i;
                        return &c->open[i];
                }
        return NULL;
}

static struct log_event *open_one(
        struct event_log *c, uint64_t now_nsec, const struct event_note *n)
{
        if (c->n_open == EVENT_LOG_OPEN_EVENTS)
                (void)close_stalest(c);
        c->recent = c->n_open++;
        begin_event(&c->open[c->recent], 0, now_nsec, n);
        return &c->open[c->recent];
}

void event_note(struct event_log *c, uint64_t now_nsec, const struct event_note *note)
{
        struct event_note copy = *note, *n = &copy;
        struct log_event *e, alone;

        if (!c->kept)
                return;
        if (!n->by)
                n->by = c->by;
        /* A caller may have read its clock before a later note. */
        now_nsec = c->latest_nsec = MAX(now_nsec, c->latest_nsec);
        event_log_flush(c, now_nsec, false);
        if (kinds[n->kind].merges) {
                e = find_open(c, n);
                if (!e)
                        e = open_one(c, now_nsec, n);
        } else {
                /* Closes the open events, which led to this one, so that they come first. */
                event_log_flush(c, now_nsec, true);
                begin_event(&alone, ++c->last, now_nsec, n);
                e = keep(c, &alone);
        }
        add_note(e, now_nsec, n);
        if (c->on_note)
                c->on_note(c->data);
}

uint64_t event_log_due(const struct event_log *c)
{
        return c->n_open > 0 ? c->open[0].first_nsec + EVENT_LOG_WINDOW_NSEC : UINT64_MAX;
}

static bool is_wanted(const struct log_event *e, const struct event_log_filter *f)
{
        const char *tenant = text_of(f->tenant), *ns = text_of(f->ns);

        return (f->kinds == 0 || (f->kinds & (UINT32_C(1) << e->kind))) &&
               e->last_nsec >= f->since_nsec && (*ns == '\0' || strcmp(e->ns, ns) == 0) &&
               (*tenant == '\0' || strcmp(e->tenant, tenant) == 0 ||
                       strcmp(e->by_tenant, tenant) == 0);
}

const struct log_event *event_log_next(
        const struct event_log *c, const struct event_log_filter *f, uint64_t after)
{
        if (after >= c->last)
                return NULL;
        for (uint32_t i = count_to(c, after); i < c->kept->n; i++)
                if (is_wanted(nth(c, i), f))
                        return nth(c, i);
        return NULL;
}

uint64_t event_log_before_last(
        const struct event_log *c, const struct event_log_filter *f, uint64_t n)
{
        for (uint32_t i = c->kept ? c->kept->n : 0; i-- > 0;) {
                if (!is_wanted(nth(c, i), f))
                        continue;
                if (n == 0)
                        return nth(c, i)->number;
                n--;
        }
        return 0;
}

const char *event_log_kind_name(enum event_kind kind)
{
        return kinds[kind].name;
}

enum event_kind event_log_find_kind(const char *name)
{
        enum event_kind kind = 0;

        while (kind < EVENT_KINDS && strcmp(kinds[kind].name, name) != 0)
                kind++;
        return kind;
}
