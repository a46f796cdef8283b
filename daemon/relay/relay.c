#include "daemon/relay/relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/macros.h"
#include "daemon/relay/relay-impl.h"

#define MAX_OPS 8192 /* as remote_options.max_ops */

/* Descriptors of a lane: its event, connection and arena. */
#define PER_LANE 3

static struct relay *relay_of(struct remote_store *of)
{
        return container_of(of, struct relay, of);
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct relay_lane *choose_lane(struct relay *r, enum remote_class of_class)
{
        struct relay_lane *best = &r->lanes[1];

        if (of_class == REMOTE_SMALL)
                return &r->lanes[0];
        for (unsigned i = 2; i < RELAY_LANES; i++)
                if (atomic_load(&r->lanes[i].bytes) < atomic_load(&best->bytes))
                        best = &r->lanes[i];
        return best;
}

static int begin_task(struct remote_store *of, struct remote_task *t, const uint16_t *slots)
{
        struct relay *r = relay_of(of);
        struct relay_lane *l = choose_lane(r, t->io.of_class);
        struct relay_loan *n = relay_loan_new(t, r->next_id);
        bool wakes;

        (void)slots;
        if (!n)
                return -ENOMEM;
        r->next_id++;
        atomic_fetch_add(&l->bytes, n->value_bytes);
        pthread_mutex_lock(&of->lock);
        wakes = list_is_empty(&l->inbox);
        list_append(&l->inbox, &n->link);
        pthread_mutex_unlock(&of->lock);
        if (wakes)
                relay_lane_wake(l);
        return 0;
}

static void cancel_task(struct remote_store *of, struct remote_task *t)
{
        struct relay *r = relay_of(of);
        const unsigned first = t->io.of_class == REMOTE_SMALL ? 0 : 1;
        const unsigned end = t->io.of_class == REMOTE_SMALL ? 1 : RELAY_LANES;

        for (unsigned i = first; i < end; i++) {
                atomic_store(&r->lanes[i].has_canceled, true);
                relay_lane_wake(&r->lanes[i]);
        }
}

/* ---- figures --------------------------------------------------------------------------------- */

static void copy_stats(struct remote_store *of, struct remote_stats *ret_stats)
{
        struct relay *r = relay_of(of);

        pthread_mutex_lock(&of->lock);
        *ret_stats = r->stats;
        pthread_mutex_unlock(&of->lock);
}

static unsigned count_descriptors(struct remote_store *of)
{
        return PER_LANE * RELAY_LANES;
}

static bool next_node(struct remote_store *of, unsigned *iter, struct remote_node_stats *ret_stats)
{
        struct relay *r = relay_of(of);
        bool is_found;

        pthread_mutex_lock(&of->lock);
        is_found = *iter < r->stats.n_nodes;
        if (is_found)
                *ret_stats = r->nodes[(*iter)++];
        pthread_mutex_unlock(&of->lock);
        return is_found;
}

void relay_note_fault(struct relay *r, const char *why)
{
        pthread_mutex_lock(&r->of.lock);
        r->stats = (struct remote_stats){0};
        snprintf(r->stats.fault, sizeof(r->stats.fault), "%s", why);
        for (char *c = r->stats.fault; *c; c++)
                *c = *c >= ' ' && *c <= '~' ? *c : '?';
        pthread_mutex_unlock(&r->of.lock);
}

void relay_note_ready(struct relay *r)
{
        pthread_mutex_lock(&r->of.lock);
        r->stats.fault[0] = '\0';
        pthread_mutex_unlock(&r->of.lock);
}

/* Returns 0 for what is no -errno. */
static int known_errno(int error)
{
        return error < 0 && error > -4096 ? error : 0;
}

/* Mends what a stranger may have written. */
static void take_node(struct remote_node_stats *n, uint64_t now_nsec)
{
        n->breaker = MIN(n->breaker, (enum breaker_state)BREAKER_HALF_OPEN);
        n->open_until_nsec = now_nsec + MIN(n->open_until_nsec, 3600 * NSEC_PER_SEC);
        n->last_error = known_errno(n->last_error);
        n->name[sizeof(n->name) - 1] = '\0';
        for (char *c = n->name; *c; c++)
                *c = *c > ' ' && *c < 0x7f ? *c : '?';
}

int relay_take_status(struct relay *r, const uint8_t *bytes, size_t n)
{
        const uint64_t now_nsec = clock_now_nsec();
        struct remote_stats from = {0};

        if (n < RELAY_STATUS_BYTES)
                return -EPROTO;
        memcpy(&from, bytes, RELAY_STATUS_BYTES);
        if (from.n_nodes > REMOTE_NODES_MAX ||
                n != RELAY_STATUS_BYTES + from.n_nodes * sizeof(r->nodes[0]))
                return -EPROTO;
        if (now_nsec < r->status_nsec + RELAY_STATUS_NSEC / 2)
                return 0;
        r->status_nsec = now_nsec;
        from.is_known = from.is_known != 0;
        from.is_cluster = from.is_cluster != 0;
        from.refresh_error = known_errno(from.refresh_error);
        pthread_mutex_lock(&r->of.lock);
        r->stats = from;
        memcpy(r->nodes, bytes + RELAY_STATUS_BYTES, n - RELAY_STATUS_BYTES);
        for (uint32_t i = 0; i < from.n_nodes; i++)
                take_node(&r->nodes[i], now_nsec);
        pthread_mutex_unlock(&r->of.lock);
        return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void stop_lanes(struct remote_store *of)
{
        struct relay *r = relay_of(of);

        for (unsigned i = 0; i < RELAY_LANES; i++)
                relay_lane_stop(&r->lanes[i]);
}

static void free_relay(struct remote_store *of)
{
        struct relay *r = relay_of(of);

        free(r->socket);
        free(r->hello);
        free(r);
}

static const struct remote_ops relay_ops = {
        .begin = begin_task,
        .cancel = cancel_task,
        .stop = stop_lanes,
        .free = free_relay,
        .descriptors = count_descriptors,
        .stats = copy_stats,
        .node_next = next_node,
};

static char *join_addresses(const struct remote_options *o)
{
        char *text = NULL, *longer;

        for (unsigned i = 0; i < o->n_addresses; i++) {
                if (asprintf(&longer, "%s%s%s", text ? text : "", text ? " " : "",
                            o->addresses[i]) < 0)
                        longer = NULL;
                free(text);
                text = longer;
                if (!text)
                        return NULL;
        }
        return text;
}

/* Writes the greeting of the lanes. Returns 0 or -errno. */
static int write_hello(struct relay *r, const struct relay_options *o)
{
        _cleanup_free_ char *addresses = join_addresses(&o->remote);
        const char *const texts[N_RELAY_TEXTS] = {[RELAY_ADDRESSES] = addresses,
                [RELAY_USER] = o->remote.user,
                [RELAY_SECRET_FILE] = o->secret_file,
                [RELAY_TLS_CA] = o->remote.tls_ca,
                [RELAY_TLS_HOST] = o->remote.tls_host,
                [RELAY_TLS_CERT] = o->remote.tls_cert,
                [RELAY_TLS_KEY] = o->remote.tls_key};
        struct relay_open open = {.version = RELAY_VERSION,
                .large_threads = o->remote.large_threads,
                .connect_msec = o->remote.connect_msec,
                .silence_msec = o->remote.silence_msec,
                .is_tls = o->remote.is_tls};
        uint8_t *at;

        if (!addresses)
                return -ENOMEM;
        if (getrandom(&open.store, sizeof(open.store), 0) != sizeof(open.store))
                return -EIO;
        r->hello_bytes = sizeof(open);
        for (unsigned i = 0; i < N_RELAY_TEXTS; i++)
                r->hello_bytes += strlen(texts[i] ? texts[i] : "") + 1;
        if (r->hello_bytes > RELAY_MESSAGE_MAX)
                return -EINVAL;
        r->hello = malloc(r->hello_bytes);
        if (!r->hello)
                return -ENOMEM;
        memcpy(r->hello, &open, sizeof(open));
        at = r->hello + sizeof(open);
        for (unsigned i = 0; i < N_RELAY_TEXTS; i++)
                at = (uint8_t *)stpcpy((char *)at, texts[i] ? texts[i] : "") + 1;
        return 0;
}

int relay_open(const struct relay_options *options, struct remote_store **ret_store)
{
        struct relay *r = calloc(1, sizeof(*r));
        int e;

        if (!r)
                return -ENOMEM;
        for (unsigned i = 0; i < RELAY_LANES; i++)
                r->lanes[i] = (struct relay_lane){.relay = r, .index = i, .event_fd = -1};
        e = remote_store_init(&r->of, &relay_ops, MAX_OPS);
        r->socket = strdup(options->socket);
        if (e == 0)
                e = r->socket ? write_hello(r, options) : -ENOMEM;
        for (unsigned i = 0; i < RELAY_LANES && e == 0; i++)
                e = relay_lane_start(&r->lanes[i]);
        if (e < 0) {
                remote_close(&r->of);
                return e;
        }
        *ret_store = &r->of;
        return 0;
}
