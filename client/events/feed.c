#include "client/events/feed.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/parse.h"
#include "client/lib/kvlease.h"

#define EVENTS_PER_TURN 4096
/* Restarts of kvleased take less. Not tuned. */
#define AWAY_NSEC            (10 * NSEC_PER_SEC)
#define CONNECT_NSEC         NSEC_PER_SEC
#define CONNECT_TIMEOUT_MSEC 2000

struct feed {
        const struct feed_options *options;
        struct publisher *publisher;   /* borrowed */
        struct model *model;           /* owned */
        struct kvl_follower *follower; /* owned; NULL: not connected yet */
        /* Namespaces that match, newest first, linked by `user`. The first one is followed. */
        struct kvl_follow_ns *matching;
        bool is_live;    /* since SYNCED */
        bool is_cleared; /* kvleased is away, and routers were told that nothing is cached */
        bool is_waiting; /* no namespace matches, and routers were told the same */
        bool is_warned;  /* of pages of the namespace without token ids */
        uint64_t connect_nsec, seen_nsec;
        int why; /* the last failure that was printed */
};

static void tell_live(void *data, bool is_stored, const struct batch_blocks *blocks)
{
        struct feed *f = data;

        if (f->is_live)
                publisher_tell(f->publisher, is_stored, blocks);
}

/* ---- the namespace --------------------------------------------------------------------------- */

static bool matches(const struct feed *f, const struct kvl_follow_ns *ns)
{
        const struct feed_options *o = f->options;

        if (ns->layer_group != o->layer_group || ns->tp_rank != 0)
                return false;
        if (fnmatch(o->pattern, ns->name, 0) != 0 && fnmatch(o->pattern, ns->model, 0) != 0)
                return false;
        if (ns->page_tokens % o->block_tokens == 0)
                return true;
        fprintf(stderr,
                "kvlease-events: namespace %s of tenant %s has pages of %u tokens: --block-size %u "
                "doesn't divide that; give both the router and --block-size a divisor\n",
                ns->name, ns->tenant, ns->page_tokens, o->block_tokens);
        return false;
}

KVL_PRINTF(1, 2) static void say(const char *format, ...)
{
        va_list args;

        va_start(args, format);
        fputs("kvlease-events: ", stdout);
        vprintf(format, args);
        va_end(args);
        putchar('\n');
        fflush(stdout);
}

/* Begins with the first namespace of the list. The caller makes sure that a RESET follows. */
static void begin_namespace(struct feed *f)
{
        model_clear(f->model);
        f->is_live = false;
        f->is_waiting = false;
        f->is_warned = false;
        publisher_hold(f->publisher);
        if (f->matching)
                say("following namespace %s of tenant %s", f->matching->name, f->matching->tenant);
}

static void wait_for_namespace(struct feed *f)
{
        f->is_waiting = true;
        publisher_replace(f->publisher, NULL);
        say("no namespace matches; waiting for one: kvleasectl namespaces lists them, and the tenant needs the option events");
}

static void add_namespace(struct feed *f, struct kvl_follow_ns *ns)
{
        if (!matches(f, ns))
                return;
        ns->user = f->matching;
        f->matching = ns;
        begin_namespace(f);
}

static void drop_namespace(struct feed *f, const struct kvl_follow_ns *ns)
{
        bool is_followed = ns == f->matching;
        struct kvl_follow_ns *at = f->matching;

        if (is_followed) {
                f->matching = ns->user;
                begin_namespace(f);
                if (f->matching)
                        kvl_follow_reset(f->follower);
                return;
        }
        while (at && at->user != ns)
                at = at->user;
        if (at)
                at->user = ns->user;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void warn_without_ids(struct feed *f)
{
        if (!f->is_warned)
                fprintf(stderr,
                        "kvlease-events: namespace %s has pages without token ids from their "
                        "engine: neither they nor the pages behind them are published\n",
                        f->matching->name);
        f->is_warned = true;
}

/* Routers take text of UTF-8 alone, and a wrong one costs them the whole batch. */
static bool is_plain(const char *name)
{
        return !name || text_is_plain(name);
}

static int store(struct feed *f, const struct kvl_follow_event *e)
{
        struct model_stored s = {
                .key = e->key,
                .parent_key = e->parent_key,
                .token_ids = e->token_ids,
                .n_tokens = e->n_tokens,
                .tier = e->tier,
                .lora_name = e->lora_name,
                .cache_salt = e->cache_salt,
        };

        if (!is_plain(e->lora_name) || !is_plain(e->cache_salt))
                s.token_ids = NULL;
        if (!s.token_ids)
                warn_without_ids(f);
        return e->tier < KVL_TIERS ? model_store(f->model, &s) : 0;
}

static void reset(struct feed *f)
{
        model_clear(f->model);
        f->is_live = false;
        publisher_hold(f->publisher);
}

static void go_live(struct feed *f)
{
        f->is_live = true;
        publisher_replace(f->publisher, f->model);
}

static int handle_page(struct feed *f, const struct kvl_follow_event *e)
{
        switch (e->kind) {
        case KVL_FOLLOW_RESET:
                reset(f);
                return 0;
        case KVL_FOLLOW_SYNCED:
                go_live(f);
                return 0;
        case KVL_FOLLOW_STORED:
        case KVL_FOLLOW_MOVED:
                return store(f, e);
        case KVL_FOLLOW_REMOVED:
                model_remove(f->model, e->key);
                return 0;
        case KVL_FOLLOW_CLEARED:
                model_clear(f->model);
                if (f->is_live)
                        publisher_replace(f->publisher, f->model);
                return 0;
        default: /* of a newer library */
                return 0;
        }
}

static int handle_event(struct feed *f, const struct kvl_follow_event *e)
{
        if (e->kind == KVL_FOLLOW_NAMESPACE)
                add_namespace(f, e->ns);
        else if (e->kind == KVL_FOLLOW_GONE)
                drop_namespace(f, e->ns);
        else if (e->ns == f->matching)
                return handle_page(f, e);
        return 0;
}

/* ---- turns ----------------------------------------------------------------------------------- */

static int connect_to(struct feed *f, uint64_t now_nsec)
{
        const struct kvl_follow_options options = {
                .size = sizeof(options),
                .socket_path = f->options->socket,
                .client_name = "kvlease-events",
                .timeout_msec = CONNECT_TIMEOUT_MSEC,
                .tenant = f->options->tenant,
        };
        int r;

        if (now_nsec < f->connect_nsec)
                return 0;
        r = kvl_follow_open(&options, &f->follower);
        f->connect_nsec = clock_now_nsec() + CONNECT_NSEC;
        if (r == -ENOMEM)
                return r;
        if (r != 0 && r != f->why)
                fprintf(stderr,
                        "kvlease-events: %s; --socket names another one; trying again every second\n",
                        kvl_last_error());
        f->why = r;
        return 0;
}

/* Tells routers that nothing is cached if kvleased was away for too long. */
static void note_absence(struct feed *f, uint64_t now_nsec)
{
        if (f->follower && kvl_follow_is_connected(f->follower)) {
                f->seen_nsec = now_nsec;
                if (f->is_cleared)
                        kvl_follow_reset(f->follower);
                f->is_cleared = false;
                return;
        }
        if (f->is_cleared || now_nsec - f->seen_nsec < AWAY_NSEC)
                return;
        model_clear(f->model);
        f->is_live = false;
        f->is_cleared = true;
        publisher_replace(f->publisher, NULL);
}

/* Returns as feed_turn(). */
static int take_events(struct feed *f)
{
        struct kvl_follow_event e = {.size = sizeof(e)};
        int r = 1;

        for (unsigned i = 0; r == 1 && i < EVENTS_PER_TURN; i++) {
                r = kvl_follow_next(f->follower, 0, &e);
                if (r == 1 && handle_event(f, &e) < 0)
                        r = -ENOMEM;
        }
        return r;
}

int feed_turn(struct feed *f)
{
        uint64_t now_nsec = clock_now_nsec();
        int r = f->follower ? 0 : connect_to(f, now_nsec);

        if (r < 0)
                return r;
        note_absence(f, now_nsec);
        if (!f->follower)
                return 0;
        r = take_events(f);
        if (r == 0 && !f->matching && !f->is_waiting && !f->is_cleared)
                wait_for_namespace(f);
        return r;
}

const struct model *feed_model(const struct feed *f)
{
        return f->model;
}

bool feed_is_live(const struct feed *f)
{
        return f->is_live;
}

int feed_new(const struct feed_options *options, struct publisher *publisher, struct feed **ret)
{
        struct feed *f = calloc(1, sizeof(*f));
        int r;

        if (!f)
                return -ENOMEM;
        f->options = options;
        f->publisher = publisher;
        f->seen_nsec = clock_now_nsec();
        r = model_new(options->block_tokens, tell_live, f, &f->model);
        if (r < 0) {
                free(f);
                return r;
        }
        *ret = f;
        return 0;
}

void feed_free(struct feed *f)
{
        if (!f)
                return;
        kvl_follow_close(f->follower);
        model_free(f->model);
        free(f);
}
