/* Sessions whose log is kept, and a daemon that comes after: on top of session-fixture.h. */
#ifndef KVL_TESTS_SESSION_LOG_FIXTURE_H
#define KVL_TESTS_SESSION_LOG_FIXTURE_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/life/recover-sessions.h"
#include "daemon/core/sessions/session-impl.h"
#include "tests/unit/session-fixture.h"

/* Keeps one log. */
struct keeper {
        int fd;    /* owned; -1: none */
        int fails; /* what add() returns */
};

static inline int keeper_add(
        void *data, enum keep_kind kind, uint32_t number, int fd, struct detail *d)
{
        struct keeper *k = data;

        assert_int_equal(kind, KEEP_SESSIONS);
        if (k->fails < 0)
                return detail_set(d, k->fails, "no room to keep it");
        k->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        assert_true(k->fd >= 0);
        return 0;
}

static inline void keeper_drop(void *data, enum keep_kind kind, uint32_t number)
{
        struct keeper *k = data;

        k->fd = fd_close(k->fd);
}

static inline int keeper_take(void *data, enum keep_kind kind, uint32_t number)
{
        const struct keeper *k = data;

        return k->fd < 0 ? -ENOENT : fcntl(k->fd, F_DUPFD_CLOEXEC, 0);
}

static const struct keep_ops keeper_ops = {
        .add = keeper_add, .drop = keeper_drop, .take = keeper_take};

struct bench {
        struct fixture f;
        struct member *m;
        struct attach *a;
        struct ns *ns;
        struct keeper keeper;
        struct sessions_recovered found; /* by recover() */
};

/* Only logs are kept: the switch is on for what makes and takes one. */
static inline void keep_logs(struct bench *w, bool on)
{
        w->f.store.keep = (struct keep){on ? &keeper_ops : NULL, &w->keeper};
}

static inline void begin(struct bench *w, unsigned sets)
{
        *w = (struct bench){0};
        fixture_start(&w->f, sets, sets, sets);
        w->keeper.fd = -1;
        w->m = join(w->f.a);
        w->a = open_ns(w->m, "x");
        w->ns = w->a->ns;
        store_set_now(&w->f.store, 1);
}

static inline void end(struct bench *w)
{
        fixture_check(&w->f);
        member_free(w->m);
        fixture_end(&w->f);
        fd_close(w->keeper.fd);
}

static inline uint32_t open_logged(struct bench *w, const char *id)
{
        uint32_t handle;

        keep_logs(w, true);
        handle = open_session(w->a, id);
        keep_logs(w, false);
        return handle;
}

/* The process is gone with all that isn't kept: pages know of no sessions. */
static inline void forget(struct bench *w)
{
        if (w->ns->sessions)
                session_log_close(w->ns);
        sessions_close_all(w->a, w->f.store.now_nsec);
        sessions_free(w->ns);
        list_for_each (set, &w->ns->device.sets_bound, struct extent_set, link)
                for (uint32_t i = 0; i < SET_PAGES; i++) {
                        uint32_t page = set->index * SET_PAGES + i;
                        struct page_extra *extra = &w->ns->records.extras[page];

                        extra->tails = extra->n_windows = 0;
                }
}

/* Like store_recover_end(): frees pages that no client holds. */
static inline void free_unheld(struct bench *w)
{
        for (uint32_t i = 0; i < w->ns->geometry.capacity_pages; i++) {
                const struct page *p = ns_page(w->ns, i);

                if (p && p->state == PAGE_DETACHED && page_pins(p) == 0 &&
                        ns_extra(w->ns, i)->n_windows == 0)
                        ns_free_page(w->ns, i);
        }
        idle_sets_drain(&w->f.store);
}

static inline void recover(struct bench *w)
{
        keep_logs(w, true);
        w->found = sessions_recover(w->ns);
        keep_logs(w, false);
        free_unheld(w);
}

static inline void restart(struct bench *w)
{
        forget(w);
        recover(w);
        fixture_check(&w->f);
}

#define DUMP_BYTES 8192

static inline void add_text(char *text, const char *format, ...) KVL_PRINTF(2, 3);
static inline void add_text(char *text, const char *format, ...)
{
        size_t len = strlen(text);
        va_list args;

        va_start(args, format);
        vsnprintf(text + len, DUMP_BYTES - len, format, args);
        va_end(args);
}

static inline void dump_one(const struct session *s, char *text)
{
        struct session_info info;
        uint32_t page = session_tail(s);

        session_info(s, &info);
        add_text(text, "%.*s: %u pages, %llu tokens, %llu lost, expire %llu, hint %d%s%s:",
                (int)info.id_len, (const char *)info.id, info.n_pages,
                (unsigned long long)info.n_tokens, (unsigned long long)info.lost_tokens,
                (unsigned long long)info.expire_nsec, info.hint,
                info.is_truncated ? ", truncated" : "", s->told == SESSION_TOLD ? ", told" : "");
        for (; page != PAGE_NONE; page = tree_parent(&s->ns->tree, page))
                add_text(text, " %u", page);
        add_text(text, " |");
        for (uint32_t i = 0; i < s->window.n; i++)
                add_text(text, " %u", s->window.pages[i]);
        add_text(text, "\n");
}

static int compare_ids(const void *a, const void *b)
{
        const struct session *const *x = a, *const *y = b;
        size_t n = MIN((*x)->id_len, (*y)->id_len);
        int r = memcmp((*x)->id, (*y)->id, n);

        return r != 0 ? r : (int)(*x)->id_len - (int)(*y)->id_len;
}

/* All that there are, by their ids. */
static inline void dump(const struct ns *ns, char text[DUMP_BYTES])
{
        const struct session *all[64], *s;
        uint64_t number = 0;
        unsigned n = 0;

        while ((s = session_next(ns, number, &number)) && n < ARRAY_SIZE(all))
                all[n++] = s;
        qsort(all, n, sizeof(all[0]), compare_ids);
        text[0] = '\0';
        for (unsigned i = 0; i < n; i++)
                dump_one(all[i], text);
}

/* The daemon that comes after has the same. */
static inline void expect_restart(struct bench *w)
{
        char before[DUMP_BYTES], after[DUMP_BYTES];

        dump(w->ns, before);
        restart(w);
        dump(w->ns, after);
        assert_string_equal(before, after);
        assert_false(w->found.is_damaged);
}

static inline uint64_t log_memory(const struct bench *w)
{
        struct stat st;

        assert_int_equal(fstat(w->keeper.fd, &st), 0);
        return (uint64_t)st.st_blocks * 512;
}

#define SESSION_LOG_SCENE(fn, ...) TEST_ON(fn, struct bench, w, begin, end, ##__VA_ARGS__)

#endif
