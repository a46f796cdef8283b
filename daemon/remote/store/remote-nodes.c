/* Nodes, their breakers and figures, and the map of slots to nodes. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/remote/store/remote-impl.h"

/* A round trip is an RTT_OFth of the average. Not tuned. */
#define RTT_OF 8

/* ---- nodes ----------------------------------------------------------------------------------- */

/* May another node have this one's place? Names resolve to more and more addresses as hosts change.
 * If places run out (`takes_seeds`), seeds without slots are replaced, too. */
static bool node_is_spare(const struct remote_node *n, bool takes_seeds)
{
        if (!n->is_used)
                return true;
        return !n->is_listed && n->n_conns == 0 && (!n->is_seed || (takes_seeds && !n->is_fixed));
}

/* REMOTE_NODES_MAX: there is none. */
static unsigned node_place(const struct remote_client *s)
{
        unsigned i;

        for (unsigned pass = 0; pass < 2; pass++) {
                for (i = 0; i < s->n_nodes; i++)
                        if (node_is_spare(&s->nodes[i], pass > 0))
                                return i;
                if (i < REMOTE_NODES_MAX)
                        return i;
        }
        return REMOTE_NODES_MAX;
}

static uint16_t node_add(struct remote_client *s, const char *host, uint16_t port)
{
        struct remote_node *n, made = {.is_used = true, .port = port};
        unsigned i;

        if (!remote_address_parse(host, port, &made.address, &made.address_len))
                return REMOTE_NO_NODE;
        i = node_place(s);
        if (i == REMOTE_NODES_MAX)
                return REMOTE_NO_NODE;
        n = &s->nodes[i];
        *n = made;
        snprintf(n->host, sizeof(n->host), "%s", host);
        snprintf(n->stats.name, sizeof(n->stats.name), strchr(host, ':') ? "[%s]:%u" : "%s:%u",
                host, port);
        s->n_nodes = MAX(s->n_nodes, i + 1);
        return (uint16_t)i;
}

uint16_t remote_node_get(struct remote_client *s, const char *host, uint16_t port, uint16_t beside)
{
        char copy[SLOT_HOST_BYTES];

        if (!host[0] && beside == REMOTE_NO_NODE)
                return REMOTE_NO_NODE;
        /* A copy: its entry may be reused for the new node. */
        snprintf(copy, sizeof(copy), "%s", host[0] ? host : s->nodes[beside].host);
        for (unsigned i = 0; i < s->n_nodes; i++)
                if (s->nodes[i].is_used && s->nodes[i].port == port &&
                        strcmp(s->nodes[i].host, copy) == 0)
                        return (uint16_t)i;
        return node_add(s, copy, port);
}

void remote_node_add_seed(struct remote_client *s, const struct sockaddr *address, bool is_fixed)
{
        char host[INET6_ADDRSTRLEN];
        uint16_t port, i;

        if (address->sa_family == AF_INET) {
                const struct sockaddr_in *v4 = (const void *)address;

                inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
                port = ntohs(v4->sin_port);
        } else if (address->sa_family == AF_INET6) {
                const struct sockaddr_in6 *v6 = (const void *)address;

                inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
                port = ntohs(v6->sin6_port);
        } else {
                return;
        }
        pthread_mutex_lock(&s->of.lock);
        i = remote_node_get(s, host, port, REMOTE_NO_NODE);
        if (i != REMOTE_NO_NODE) {
                s->nodes[i].is_seed = true;
                s->nodes[i].is_fixed |= is_fixed;
        }
        pthread_mutex_unlock(&s->of.lock);
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Forgets the map of slots. */
static void slots_forget(struct remote_client *s)
{
        for (unsigned i = 0; i < s->n_nodes; i++) {
                s->nodes[i].is_listed = false;
                s->nodes[i].stats.n_slots = 0;
        }
        for (unsigned slot = 0; slot < N_SLOTS; slot++)
                s->node_of[slot] = REMOTE_NO_NODE;
}

/* Lists the nodes of the table, making missing ones. Returns false if there is no room. */
static bool owners_list(struct remote_client *s, const struct slot_table *table, uint16_t asked,
        uint16_t nodes[SLOT_OWNERS_MAX])
{
        /* Listed nodes don't give their places to new ones. */
        for (unsigned i = 0; i < table->n_owners; i++) {
                const struct slot_owner *o = &table->owners[i];

                nodes[i] = remote_node_get(s, o->host, o->port, asked);
                if (nodes[i] == REMOTE_NO_NODE)
                        return false;
                s->nodes[nodes[i]].is_listed = true;
        }
        return true;
}

bool remote_nodes_learn(struct remote_client *s, const struct slot_table *table, uint16_t asked)
{
        uint16_t nodes[SLOT_OWNERS_MAX];
        bool fits;

        if (table && table->n_served == 0)
                return false;
        pthread_mutex_lock(&s->of.lock);
        slots_forget(s);
        s->nodes[asked].is_listed = true; /* while others look for places */
        fits = !table || owners_list(s, table, asked, nodes);
        s->nodes[asked].is_listed = !table;
        for (unsigned slot = 0; slot < N_SLOTS && fits; slot++) {
                uint16_t owner = table ? table->owner_of[slot] : 0;

                if (owner == SLOT_NOBODY)
                        continue;
                s->node_of[slot] = table ? nodes[owner] : asked;
                s->nodes[s->node_of[slot]].stats.n_slots++;
                s->nodes[s->node_of[slot]].is_listed = true;
        }
        s->map_version++;
        s->stats.is_known = fits;
        s->stats.is_cluster = table != NULL;
        s->stats.n_served = !fits ? 0 : table ? table->n_served : N_SLOTS;
        s->stats.n_refreshes++;
        pthread_mutex_unlock(&s->of.lock);
        return fits;
}

uint16_t remote_node_to_ask(
        struct remote_client *s, uint16_t last, uint64_t now_nsec, bool *ret_is_trial)
{
        unsigned n = s->n_nodes, first = last == REMOTE_NO_NODE ? 0 : last + 1u;

        for (unsigned k = 0; k < n; k++) {
                struct remote_node *node = &s->nodes[(first + k) % n];

                if (node->is_used && (node->is_seed || node->is_listed) &&
                        breaker_admits(&node->breaker, now_nsec, ret_is_trial))
                        return (uint16_t)((first + k) % n);
        }
        return REMOTE_NO_NODE;
}

/* ---- results --------------------------------------------------------------------------------- */

void remote_node_answered(struct remote_client *s, unsigned node, const struct remote_note *note)
{
        struct remote_node_stats *stats = &s->nodes[node].stats;
        struct breaker *breaker = &s->nodes[node].breaker;

        pthread_mutex_lock(&s->of.lock);
        if (!note->is_refresh || breaker->state != BREAKER_CLOSED)
                breaker_success(breaker);
        stats->n_ops++;
        stats->n_errors += note->is_error;
        stats->bytes_in += note->bytes_in;
        stats->bytes_out += note->bytes_out;
        if (note->rtt_nsec > 0)
                stats->rtt_nsec =
                        stats->rtt_nsec == 0
                                ? note->rtt_nsec
                                : (stats->rtt_nsec * (RTT_OF - 1) + note->rtt_nsec) / RTT_OF;
        pthread_mutex_unlock(&s->of.lock);
}

void remote_node_failed(struct remote_client *s, unsigned node, int why, bool trips)
{
        struct remote_node *n = &s->nodes[node];
        bool was_open;

        pthread_mutex_lock(&s->of.lock);
        was_open = n->breaker.state == BREAKER_OPEN;
        if (trips)
                breaker_trip(&n->breaker, clock_now_nsec());
        else
                breaker_failure(&n->breaker, clock_now_nsec());
        n->stats.n_trips += !was_open && n->breaker.state == BREAKER_OPEN;
        n->stats.last_error = why;
        n->stats.n_losses++;
        pthread_mutex_unlock(&s->of.lock);
        remote_refresh_want(s);
}

void remote_node_give_back(struct remote_client *s, unsigned node)
{
        pthread_mutex_lock(&s->of.lock);
        breaker_give_back(&s->nodes[node].breaker);
        pthread_mutex_unlock(&s->of.lock);
}

void remote_refresh_want(struct remote_client *s)
{
        bool is_first;

        pthread_mutex_lock(&s->of.lock);
        is_first = !s->is_refresh_wanted;
        s->is_refresh_wanted = true;
        pthread_mutex_unlock(&s->of.lock);
        if (is_first)
                remote_worker_wake(s->workers[0]);
}
