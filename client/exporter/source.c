#include "client/exporter/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/exporter/calls.h"
#include "client/lib/connection/conn.h"
#include "client/lib/connection/error.h"
#include "proto/figures.h"
#include "proto/status.h"

/* Limit on the calls of one scrape: no daemon's lists are longer. 64 KiB each; not tuned. */
#define SOURCE_MAX_CALLS 1000

struct source {
        const char *path; /* borrowed */
        uint64_t timeout_nsec;
        struct conn *conn; /* owned; NULL: away */
        char why[ERROR_TEXT_BYTES];
};

/* ---- answers --------------------------------------------------------------------------------- */

/* A reply lives as long as its arena. */
struct source_arenas {
        struct source_arenas *next;
        struct arena arena;
};

static struct arena *add_arena(struct facts *f)
{
        struct source_arenas *a = calloc(1, sizeof(*a));

        if (!a || arena_init(&a->arena, ARENA_BUDGET_BYTES) < 0) {
                free(a);
                return NULL;
        }
        a->next = f->arenas;
        f->arenas = a;
        return &a->arena;
}

void facts_deinit(struct facts *f)
{
        for (size_t i = 0; i < N_SOURCE_LISTS; i++)
                free(f->lists[i].rows);
        while (f->arenas) {
                struct source_arenas *a = f->arenas;

                f->arenas = a->next;
                arena_deinit(&a->arena);
                free(a);
        }
        *f = (struct facts){0};
}

/* Adds `n` rows of that size, one behind the other. */
static int add_rows(struct source_rows *r, const void *rows, size_t n, size_t row_size)
{
        size_t size = MAX(r->size, (size_t)16);
        const void **more;

        while (size < r->n + n)
                size *= 2;
        more = size > r->size ? realloc(r->rows, size * sizeof(*more)) : r->rows;
        if (!more)
                return error_set(-ENOMEM, "out of memory");
        r->rows = more;
        r->size = size;
        for (size_t i = 0; i < n; i++)
                r->rows[r->n++] = (const char *)rows + i * row_size;
        return 0;
}

/* ---- connection ------------------------------------------------------------------------------ */

static void hang_up(struct source *s)
{
        conn_close(TAKE(s->conn));
}

static int connect_to(struct source *s, uint64_t until)
{
        const struct conn_hello hello = {.client_name = "kvlease-exporter"};
        struct conn_welcome welcome;
        int r = conn_open(s->path, until, &s->conn);

        if (r < 0) {
                s->conn = NULL;
                if (r == -EACCES) /* the library's sentence is about tenants' sockets */
                        error_set(r,
                                "permission denied on %s: run it as a member of group kvlease-monitor",
                                s->path);
                return r;
        }
        r = conn_hello(s->conn, &hello, until, &welcome);
        if (r == 0 && welcome.tenant[0])
                r = error_set(-EINVAL, "%s is the socket of a tenant: name monitor.sock", s->path);
        if (r > 0)
                r = error_set(-EPROTO, "refused: %s", status_text(r));
        if (r < 0)
                hang_up(s);
        return r;
}

/* Makes a call. A reply's status is an answer as well: *ret_reply is set if there is one. */
static int call(struct source *s, uint16_t type, const ProtobufCMessage *m, struct facts *f,
        uint64_t until, const ProtobufCMessage **ret_reply, struct arena **ret_arena)
{
        struct arena *a = f->n_calls < SOURCE_MAX_CALLS ? add_arena(f) : NULL;
        const ProtobufCMessage *reply = NULL;
        int r;

        if (!a)
                return f->n_calls < SOURCE_MAX_CALLS
                               ? error_set(-ENOMEM, "out of memory")
                               : error_set(-EPROTO, "kvleased's lists don't end");
        f->n_calls++;
        r = conn_request(s->conn, type, m, a, until, &reply);
        if (reply) {
                *ret_reply = reply;
                *ret_arena = a;
                return 0;
        }
        return r < 0 ? r : error_set(-EPROTO, "kvleased's answer makes no sense");
}

/* Every reply starts like SimpleReply (client/lib asserts it). */
static const Kvlease__V1__SimpleReply *outcome(const ProtobufCMessage *reply)
{
        return (const Kvlease__V1__SimpleReply *)reply;
}

/* ---- what is asked --------------------------------------------------------------------------- */

static int ask_one(struct source *s, enum source_list list, uint16_t type,
        const ProtobufCMessage *m, struct facts *f, uint64_t until)
{
        const ProtobufCMessage *reply = NULL;
        struct arena *arena;
        int r = call(s, type, m, f, until, &reply, &arena);

        if (r < 0 || outcome(reply)->status == WIRE_UNSUPPORTED)
                return r;
        /* BUSY: a restart would lose something. */
        if (outcome(reply)->status != WIRE_OK && outcome(reply)->status != WIRE_BUSY)
                return error_set(-EPROTO, "kvleased refused: %s", outcome(reply)->detail);
        return add_rows(&f->lists[list], reply, 1, 0);
}

static const struct list {
        uint16_t type;
        const struct figure_table *table;
} lists[N_SOURCE_LISTS] = {[SOURCE_STATUS] = {MSG_ADMIN_STATUS, &figures_table_status},
#define X(name, scope) [SOURCE_##name] = {MSG_ADMIN_##name, &figures_table_##scope},
        SOURCE_TABLE(X)
#undef X
};

/* *cursor: the page's start, then the next one's; 0: none. */
static int ask_page(
        struct source *s, enum source_list which, struct facts *f, uint64_t until, uint64_t *cursor)
{
        Kvlease__V1__AdminListRequest m = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;
        const struct figure_table *table = lists[which].table;
        const Kvlease__V1__AdminRowsReply *rows;
        const ProtobufCMessage *reply = NULL;
        struct arena *arena;
        const void *first;
        size_t n;
        int r;

        m.after = *cursor;
        r = call(s, lists[which].type, &m.base, f, until, &reply, &arena);
        if (r < 0)
                return r;
        if (outcome(reply)->status == WIRE_UNSUPPORTED && which != SOURCE_STATUS) {
                *cursor = 0; /* older daemons have no such list */
                return 0;
        }
        if (outcome(reply)->status != WIRE_OK)
                return error_set(-EPROTO, "kvleased refused to list %s: %s", table->name,
                        outcome(reply)->detail);
        rows = (const Kvlease__V1__AdminRowsReply *)reply;
        if (rows->next && rows->next <= *cursor)
                return error_set(-EPROTO, "kvleased's list of %s goes in circles", table->name);
        r = figures_read(rows, table, arena, &first, &n);
        if (r < 0)
                return error_set(r, "kvleased's list of %s makes no sense", table->name);
        *cursor = rows->next;
        return add_rows(&f->lists[which], first, n, table->size);
}

static int ask_list(struct source *s, enum source_list which, struct facts *f, uint64_t until)
{
        uint64_t cursor = 0;
        int r;

        do
                r = ask_page(s, which, f, until, &cursor);
        while (r == 0 && cursor);
        return r;
}

static int ask_counters(struct source *s, struct facts *f, uint64_t until)
{
        Kvlease__V1__AdminCountersRequest m = KVLEASE__V1__ADMIN_COUNTERS_REQUEST__INIT;
        int r = ask_one(s, SOURCE_COUNTERS, MSG_ADMIN_COUNTERS, &m.base, f, until);

        if (r == 0 && f->lists[SOURCE_COUNTERS].n > 0 &&
                !calls_make_sense(f->lists[SOURCE_COUNTERS].rows[0]))
                r = error_set(-EPROTO, "kvleased's histograms make no sense");
        return r;
}

static int ask_figures(struct source *s, struct facts *f, uint64_t until)
{
        int r = ask_list(s, SOURCE_STATUS, f, until);

        if (r == 0 && f->lists[SOURCE_STATUS].n != 1)
                r = error_set(-EPROTO, "kvleased's status makes no sense");
        return r == 0 ? ask_counters(s, f, until) : r;
}

static int ask_lists(struct source *s, struct facts *f, uint64_t until)
{
        Kvlease__V1__AdminRestartRequest restart = KVLEASE__V1__ADMIN_RESTART_REQUEST__INIT;
        int r;

        restart.check = true; /* else it would restart */
        r = ask_one(s, SOURCE_RESTART, MSG_ADMIN_RESTART, &restart.base, f, until);
        for (size_t i = SOURCE_COUNTERS + 1; r == 0 && i < N_SOURCE_LISTS; i++)
                r = ask_list(s, (enum source_list)i, f, until);
        return r;
}

/* ---- the source ------------------------------------------------------------------------------ */

static bool left_behind(int r)
{
        return r == -ECONNRESET || r == -ENOTCONN || r == -EPIPE;
}

static int ask_once(struct source *s, bool only_figures, struct facts *f, uint64_t until)
{
        int r = s->conn ? 0 : connect_to(s, until);

        if (r == 0)
                r = ask_figures(s, f, until);
        return r == 0 && !only_figures ? ask_lists(s, f, until) : r;
}

int source_ask(struct source *s, bool only_figures, struct facts *ret_facts)
{
        uint64_t until = clock_now_nsec() + s->timeout_nsec;
        struct facts f = {0};
        bool kept = s->conn != NULL;
        int r = ask_once(s, only_figures, &f, until);

        if (kept && left_behind(r)) {
                facts_deinit(&f);
                hang_up(s);
                r = ask_once(s, only_figures, &f, until);
        }
        s->why[0] = '\0';
        if (r == 0) {
                *ret_facts = f;
                return 0;
        }
        snprintf(s->why, sizeof(s->why), "%s", error_get());
        facts_deinit(&f);
        hang_up(s);
        return r;
}

const char *source_why(const struct source *s)
{
        return s->why;
}

int source_new(const char *path, uint64_t timeout_nsec, struct source **ret)
{
        struct source *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;
        s->path = path;
        s->timeout_nsec = timeout_nsec;
        *ret = s;
        return 0;
}

void source_free(struct source *s)
{
        if (!s)
                return;
        hang_up(s);
        free(s);
}
