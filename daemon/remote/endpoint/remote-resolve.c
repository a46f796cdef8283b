#include "daemon/remote/endpoint/remote-resolve.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/thread.h"
#include "daemon/remote/endpoint/remote-address.h"

/* Intervals of rounds: while no node is known, and else, as names may change their hosts. */
#define SOON_NSEC  NSEC_PER_SEC
#define LATER_NSEC (60 * NSEC_PER_SEC)

#define STOP_NSEC NSEC_PER_SEC

struct resolver_name {
        char host[256], port[8];
};

struct remote_resolver {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        remote_resolved_fn found; /* NULL: it is stopped */
        void *data;
        bool is_over; /* the thread is */
        unsigned n;
        struct resolver_name names[REMOTE_ADDRESSES_MAX];
};

static void resolver_free(struct remote_resolver *r)
{
        pthread_mutex_destroy(&r->lock);
        pthread_cond_destroy(&r->changed);
        free(r);
}

/* True: some address was found. */
static bool name_resolve(struct remote_resolver *r, const struct resolver_name *name)
{
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found;

        if (getaddrinfo(name->host, name->port, &hints, &found) != 0)
                return false;
        pthread_mutex_lock(&r->lock);
        for (struct addrinfo *a = found; a && r->found; a = a->ai_next)
                r->found(a->ai_addr, r->data);
        pthread_mutex_unlock(&r->lock);
        freeaddrinfo(found);
        return true;
}

static void *resolver_run(void *data)
{
        struct remote_resolver *r = data;
        bool is_last;

        for (;;) {
                bool is_found = false, is_open;
                uint64_t until_nsec;

                for (unsigned i = 0; i < r->n; i++)
                        is_found |= name_resolve(r, &r->names[i]);
                until_nsec = clock_now_nsec() + (is_found ? LATER_NSEC : SOON_NSEC);
                pthread_mutex_lock(&r->lock);
                while (r->found && thread_cond_wait(&r->changed, &r->lock, until_nsec))
                        ;
                is_open = r->found;
                pthread_mutex_unlock(&r->lock);
                if (!is_open)
                        break;
        }
        pthread_mutex_lock(&r->lock);
        /* If the starter has stopped already, this thread is the last user. */
        is_last = r->is_over;
        r->is_over = true;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        if (is_last)
                resolver_free(r);
        return NULL;
}

void remote_resolver_stop(struct remote_resolver *r)
{
        const uint64_t until_nsec = clock_now_nsec() + STOP_NSEC;
        bool is_over;

        if (!r)
                return;
        pthread_mutex_lock(&r->lock);
        r->found = NULL;
        pthread_cond_broadcast(&r->changed);
        while (!r->is_over && thread_cond_wait(&r->changed, &r->lock, until_nsec))
                ;
        is_over = r->is_over;
        r->is_over = true;
        pthread_mutex_unlock(&r->lock);
        if (is_over)
                resolver_free(r);
}

static int start_thread(struct remote_resolver *resolver)
{
        pthread_attr_t attr;
        pthread_t thread;
        int r;

        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        r = thread_start(&thread, &attr, resolver_run, resolver);
        pthread_attr_destroy(&attr);
        return r;
}

static struct remote_resolver *resolver_new(remote_resolved_fn found, void *data)
{
        struct remote_resolver *r = calloc(1, sizeof(*r));

        if (!r)
                return NULL;
        r->found = found;
        r->data = data;
        pthread_mutex_init(&r->lock, NULL);
        thread_cond_init(&r->changed);
        return r;
}

int remote_resolver_start(const struct remote_options *options, remote_resolved_fn found,
        void *data, struct remote_resolver **ret_resolver)
{
        struct remote_resolver *r = resolver_new(found, data);
        int e = 0;

        if (!r)
                return -ENOMEM;
        for (unsigned i = 0; i < options->n_addresses; i++) {
                struct resolver_name *name = &r->names[r->n];
                struct sockaddr_storage address;
                socklen_t len;
                uint16_t port;

                if (!remote_address_split(options->addresses[i], name->host, &port))
                        continue;
                if (remote_address_parse(name->host, port, &address, &len))
                        continue;
                snprintf(name->port, sizeof(name->port), "%u", port);
                r->n++;
        }
        if (r->n > 0)
                e = start_thread(r);
        if (r->n == 0 || e < 0) {
                resolver_free(r);
                r = NULL;
        }
        if (e == 0)
                *ret_resolver = r;
        return e;
}
