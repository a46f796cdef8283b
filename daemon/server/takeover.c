#include "daemon/server/takeover.h"

#include <inttypes.h>

#include "base/parse.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/state/state-root.h"
#include "daemon/core/state/suspect.h"
#include "daemon/core/state/state.h"
#include "daemon/core/life/canary.h"
#include "daemon/core/life/recover.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/resume.h"
#include "daemon/server/base/log.h"

int takeover_begin(struct server *s, struct detail *d)
{
        bool is_lost, are_clients_lost;
        int r = state_open(&s->store, &is_lost, d);
        int clients = r < 0 ? r : client_records_open(&s->store, &are_clients_lost, d);

        if (clients < 0)
                return clients;
        is_lost |= are_clients_lost;
        if (r == 1 && !is_lost && suspects_count(&s->store, server_now(s), d))
                log_error("%s", d->text);
        s->life.took_over = r == 1 && !is_lost;
        if (is_lost)
                log_warning("%s", d->text);
        else if (r == 0 && keeping_is_on(&s->keeping))
                log_notice("the cache starts empty: no state of an earlier kvleased is stored");
        return 0;
}

static void say_warning(const struct detail *d, void *data)
{
        log_warning("%s", d->text);
}

/* Reports clients whose pins or memory aren't fully known. */
static void report_clients(const struct recovery *r)
{
        if (r->n_pins_lost > 0)
                log_warning(
                        "pins of clients in %u of their namespaces weren't kept: every page there counts as read by them until they end",
                        r->n_pins_lost);
}

static void report_recovery(const struct server *s)
{
        const struct recovery *r = &s->life.recovery;
        char bytes[FORMAT_BYTES_MAX];
        uint64_t n_dropped = 0;

        for (unsigned i = 0; i < DROP_REASONS; i++)
                n_dropped += r->n_dropped[i];
        log_notice("taken over from an earlier kvleased in %.0f ms: %" PRIu64
                   " pages in %u namespaces (%s), %u clients; %" PRIu64 " pages dropped",
                (double)r->nsec / NSEC_PER_MSEC, r->n_pages, r->n_namespaces,
                format_bytes(r->n_bytes, bytes), s->peers.n_peers, n_dropped);
        for (unsigned i = 0; i < DROP_REASONS; i++)
                if (r->n_dropped[i] > 0)
                        log_warning("%" PRIu64 " pages dropped: %s", r->n_dropped[i],
                                recover_drop_name(i));
        report_clients(r);
}

int takeover_end(struct server *s, struct detail *d)
{
        int r;

        store_set_now(&s->store, server_now(s));
        r = canaries_open(&s->store, say_warning, NULL, d);
        if (r < 0)
                return r;
        if (s->life.took_over)
                store_recover(&s->store, &s->life.recovery, say_warning, NULL);
        r = resume_adopt(s, d);
        if (r < 0 || !s->life.took_over)
                return r;
        r = store_recover_end(&s->store, &s->life.recovery);
        if (r < 0)
                return detail_set(d, r, "no memory for the pages that clients had leased");
        resume_end_exited(s);
        atomic_store(&s->store.state->is_unsure, 0); /* affected clients are marked */
        report_recovery(s);
        return 0;
}
