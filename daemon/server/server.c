#include "daemon/server/server.h"

#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/core/catalog/shared.h"
#include "daemon/core/ground/discard.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/objects/ns.h"
#include "daemon/core/objects/tenant.h"
#include "daemon/server/keeping/takeover.h"
#include "daemon/server/peers/inbound.h"
#include "daemon/server/peers/listener.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/services/compact-timer.h"
#include "daemon/server/services/descriptors.h"
#include "daemon/server/services/devices.h"
#include "daemon/server/services/learnt.h"
#include "daemon/server/services/leasables.h"
#include "daemon/server/services/queues.h"
#include "daemon/server/services/sizing-timer.h"
#include "daemon/server/services/upkeep-timer.h"
#include "daemon/server/services/warming.h"
#include "daemon/server/system/crash.h"
#include "daemon/server/system/log.h"
#include "daemon/server/system/notify.h"
#include "daemon/server/tenants/reload.h"
#include "daemon/server/tenants/tenant-changes.h"
#include "daemon/server/tenants/tenants.h"
#include "daemon/server/waits/events.h"
#include "daemon/server/waits/followers.h"
#include "daemon/server/waits/parked.h"
#include "daemon/server/waits/recalls.h"
#include "gpu/queue.h"

/* Stale pages swept in one loop turn: some 25 microseconds of work, 100 with 64 clients. Not
 * tuned. */
#define SWEEP_PAGES_PER_TURN 256

/*
 * How soon it is looked whether a peer has taken its descriptors: soon at first, and seldom where
 * nobody does, as looking costs. Not tuned.
 */
#define LOOK_MIN_MSEC 2u
#define LOOK_MAX_MSEC 32u

/*
 * Touches don't wake the daemon before there are many. How old they may be when it evicts: short
 * against the seconds between two uses of a page that is worth keeping. Not tuned.
 */
#define QUIET_MSEC 100

static void log_report(void *data, bool is_error, const char *sentence)
{
        log_event(is_error ? LEVEL_ERROR : LEVEL_NOTICE, NULL, "%s", sentence);
}

/* One turn for each peer of no tenant that had work when the turn began. */
static void run_backlog(struct server *s)
{
        struct list_link turn;

        list_take_all(&s->backlog, &turn);
        while (!list_is_empty(&turn))
                peer_turn(list_first(&turn, struct peer, backlog_link));
}

static void on_work(uv_idle_t *idle)
{
        struct server *s = container_of(idle, struct server, work);
        bool more;

        uv_idle_stop(idle); /* whoever kicks from here on gets another turn */
        leasables_expect(s);
        run_backlog(s);
        more = store_work(&s->store, SWEEP_PAGES_PER_TURN);
        more |= recalls_turn(s);
        more |= queues_work(s);
        more |= turns_do_chores(s);
        more |= parked_work(s);
        more |= key_waits_work(s);
        compact_timer_turn(s);
        movement_turn(s);
        if (more || !list_is_empty(&s->backlog) || turns_are_due(s))
                server_kick(s);
}

void server_kick(struct server *s)
{
        /* While the loop is being closed there are no turns any more. */
        if (!uv_is_closing((uv_handle_t *)&s->work))
                uv_idle_start(&s->work, on_work);
}

static void on_hello_timeout(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, hello_timer);
        uint64_t now = clock_now_nsec(), timeout = s->config.daemon.hello_timeout_nsec;
        struct peer *p;

        while ((p = list_first(&s->hellos, struct peer, hello_link)) &&
                now - p->connected_nsec >= timeout)
                peer_end(p);
        if (p)
                server_await_hello(s);
}

void server_await_hello(struct server *s)
{
        const struct peer *oldest = list_first(&s->hellos, struct peer, hello_link);
        uint64_t age = clock_now_nsec() - oldest->connected_nsec;
        uint64_t timeout = s->config.daemon.hello_timeout_nsec, left = timeout - MIN(age, timeout);

        uv_timer_start(&s->hello_timer, on_hello_timeout, left / NSEC_PER_MSEC + 1, 0);
}

static void look_at_ring(struct peer *p)
{
        leasables_expect(p->server);
        peer_take_submissions(p, PEER_SUBMISSIONS_PER_TURN);
}

void server_look_at_rings(struct server *s)
{
        turns_begin_visits(s, s->turns_share_nsec);
        list_for_each (p, &s->peers, struct peer, link)
                if (ring_is_open(&p->ring))
                        turns_visit(p, look_at_ring);
}

static void work_on_policies(struct server *s)
{
        s->policies_nsec = server_now(s);
        store_policy_work(&s->store, s->policies_nsec);
}

static void on_quiet(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, quiet_timer);

        server_look_at_rings(s);
        work_on_policies(s);
}

void server_expect_quiet(struct server *s)
{
        uv_handle_t *timer = (uv_handle_t *)&s->quiet_timer;

        if (!uv_is_active(timer) && !uv_is_closing(timer))
                uv_timer_start(&s->quiet_timer, on_quiet, QUIET_MSEC, 0);
        compact_timer_expect(s);
        upkeep_timer_expect(s);
        /* By a clock that is ahead of the timers, that much may have passed between two requests.
         */
        if (s->clock.nsec && server_now(s) - s->policies_nsec >= QUIET_MSEC * NSEC_PER_MSEC)
                work_on_policies(s);
}

void server_wake(struct server *s)
{
        bool was_quiet = !uv_is_active((uv_handle_t *)&s->quiet_timer);

        server_expect_quiet(s);
        if (was_quiet)
                server_look_at_rings(s);
}

/* Every peer that waits; one that goes on waiting comes back to the list. */
static void on_look(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, look_timer);
        unsigned next_msec = MIN(2 * s->look_msec, LOOK_MAX_MSEC);
        struct list_link turn;

        list_take_all(&s->unread, &turn);
        while (!list_is_empty(&turn))
                peer_look(list_first(&turn, struct peer, unread_link));
        if (list_is_empty(&s->unread))
                return;
        s->look_msec = next_msec;
        uv_timer_start(timer, on_look, next_msec, 0);
}

void server_look_later(struct server *s, struct peer *p)
{
        if (!list_is_empty(&p->unread_link) || uv_is_closing((uv_handle_t *)&s->look_timer))
                return;
        list_append(&s->unread, &p->unread_link);
        if (uv_is_active((uv_handle_t *)&s->look_timer) &&
                uv_timer_get_due_in(&s->look_timer) <= LOOK_MIN_MSEC)
                return;
        s->look_msec = LOOK_MIN_MSEC;
        uv_timer_start(&s->look_timer, on_look, s->look_msec, 0);
}

static void on_ns(struct ns *ns, bool goes, void *data)
{
        struct server *s = data;

        if (!goes) {
                learnt_load(s, ns);
                return;
        }
        if (ns->was_idle)
                learnt_forget_ns(s, ns);
        else
                learnt_save(s, ns);
        recorder_forget(s, ns);
}

/* Everything that can't fail and needs nothing from the machine but memory. */
static int init_base(struct server *s, struct config *config)
{
        int r;

        memset(s, 0, sizeof(*s));
        r = uv_loop_init(&s->loop);
        if (r < 0)
                return r;
        r = arena_init(&s->arena, ARENA_BUDGET_BYTES);
        if (r < 0) {
                uv_loop_close(&s->loop);
                return r;
        }
        s->config = *config;
        *config = (struct config){0};
        s->rundir.lock_fd = s->db.lock_fd = s->spare_fd = -1;
        for (unsigned i = 0; i < DESCRIPTORS_ADMIN; i++)
                s->admin_fds[i] = -1;
        s->start_nsec = clock_now_nsec();
        list_init(&s->tenancies);
        list_init(&s->peers);
        list_init(&s->backlog);
        list_init(&s->hellos);
        list_init(&s->unread);
        list_init(&s->queues);
        list_init(&s->lingering);
        s->look_msec = LOOK_MIN_MSEC;
        uv_idle_init(&s->loop, &s->work);
        uv_prepare_init(&s->loop, &s->queue_prepare);
        uv_timer_init(&s->loop, &s->hello_timer);
        uv_timer_init(&s->loop, &s->stop_timer);
        uv_timer_init(&s->loop, &s->look_timer);
        uv_timer_init(&s->loop, &s->quiet_timer);
        uv_timer_init(&s->loop, &s->watchdog);
        uv_timer_init(&s->loop, &s->grace_timer);
        for (size_t i = 0; i < ARRAY_SIZE(s->signals); i++)
                uv_signal_init(&s->loop, &s->signals[i]);
        store_init(&s->store, evict_find(config_evict_names[s->config.daemon.evict]));
        events_attach(s);
        followers_init(s);
        recalls_init(s);
        compact_timer_init(s);
        movement_init(s);
        upkeep_timer_init(s);
        leasables_init(s);
        disk_init(&s->disk, &s->loop);
        s->db.disk = &s->disk;
        tenant_changes_init(s);
        recorder_init(s);
        s->store.on_ns = on_ns;
        parked_init(s);
        key_waits_init(s);
        turns_init(s);
        turn_watch_init(&s->turn_watch, &s->loop);
        sizing_timer_init(s);
        reaping_init(s);
        return 0;
}

/* Where segments come from that clients can't write, whoever they are. */
static void open_room(struct server *s)
{
        struct segment_room *room = &s->store.room;

        segment_room_open(room);
        if (room->guard != SEGMENT_READ_ONLY_MOUNT)
                log_notice("no read-only mount for what clients share (%s): processes of uid %u "
                           "could write the index; run kvleased with CAP_SYS_ADMIN, or clients "
                           "under other uids",
                        strerror(-room->why), (unsigned)geteuid());
}

/* Before anything that is the process' own alone. 0 or -errno, logged. */
static int prepare_process(void)
{
        int r = disk_start();

        descriptors_raise_limit(); /* what was kept may be as many */
        if (r < 0)
                log_error("kvleased can start no thread for its files (%s): raise TasksMax or "
                          "LimitNPROC of kvleased.service, or ulimit -u",
                        strerror(-r));
        return r;
}

/* What whoever started this process gives it. 0 or -errno, logged. */
static int take_descriptors(struct server *s)
{
        int r = activation_init(&s->activation);

        if (r < 0)
                log_error("cannot take the descriptors passed to kvleased: %s", strerror(-r));
        return r < 0 ? r : keeping_open(s);
}

static int start_discards(struct server *s)
{
        int r = discards_start(&s->store.discards);

        if (r < 0)
                log_error("no thread to give memory back to the system: %s", strerror(-r));
        return r;
}

static int start_reaper(struct server *s)
{
        int r = reaping_start(s);

        if (r < 0)
                log_error("cannot prepare to give memory back to the system: %s", strerror(-r));
        return r;
}

enum exit_code server_init(
        struct server *s, struct config *config, const struct config_source *source)
{
        enum exit_code code = EXIT_OK;
        struct detail d = {""};
        int r = init_base(s, config);

        if (r < 0) {
                log_error("cannot start: %s", strerror(-r));
                return EXIT_OTHER;
        }
        s->source = *source;
        s->old_sockets = getenv(INBOUND_TEST_VARIABLE) != NULL;
        if (s->old_sockets)
                log_warning("clients may send file descriptors (" INBOUND_TEST_VARIABLE
                            "), as on kernels before 6.16: for tests alone");
        open_room(s);
        if (prepare_process() < 0 || take_descriptors(s) < 0)
                code = EXIT_OTHER;
        else if (test_clock_open(&s->clock, &d) < 0)
                code = EXIT_CONFIG;
        else if (takeover_begin(s, &d) < 0)
                code = EXIT_OTHER;
        else if (devices_open(s) < 0)
                code = EXIT_DEVICE;
        else if (start_discards(s) < 0 || start_reaper(s) < 0)
                code = EXIT_OTHER;
        else if (movement_start(s) < 0)
                code = EXIT_DEVICE;
        else if (rundir_open(&s->rundir, s->config.daemon.runtime_dir, &d) < 0)
                code = EXIT_SOCKET;
        else if (tenantdb_open(&s->db, s->config.daemon.state_dir, &s->disk, log_report, NULL) < 0)
                code = EXIT_STATE;
        s->keeps_state = code == EXIT_OK;
        if (code == EXIT_OK && tenants_load(s) < 0)
                code = EXIT_CONFIG;
        if (code == EXIT_OK)
                crash_watch(&s->store);
        if (code == EXIT_OK && takeover_end(s, &d) < 0)
                code = EXIT_OTHER;
        if (code == EXIT_OK) {
                space_erase_strangers(&s->store);
                warming_start(s);
        }
        if (code != EXIT_OK && d.text[0])
                log_error("%s", d.text);
        if (code != EXIT_OK)
                server_deinit(s);
        return code;
}

int server_init_for_test(struct server *s, struct config *config, struct device *device,
        uint64_t budget_bytes, uint64_t extent_bytes)
{
        struct detail d;
        int r = init_base(s, config);

        if (r < 0)
                return r;
        r = devices_add(s, device, budget_bytes, extent_bytes, &d);
        s->budget_bytes = budget_bytes;
        strcpy(s->db.path,
                "/dev/null/tenants.conf"); /* can't be written: changes are rolled back */
        if (r == 0)
                r = tenants_load(s);
        if (r < 0)
                server_deinit(s);
        return r;
}

static int open_sockets(struct server *s, struct detail *d)
{
        int r = listener_open(s, LISTEN_ADMIN, NULL, &s->admin_listener, d);

        if (r == 0)
                r = listener_open(s, LISTEN_MONITOR, NULL, &s->monitor_listener, d);
        if (r == 0 && s->config.daemon.default_socket)
                r = listener_open(s, LISTEN_DEFAULT, NULL, &s->default_listener, d);
        list_for_each (t, &s->tenancies, struct tenancy, link)
                if (r == 0)
                        r = tenancy_listen(t, d);
        return r;
}

static void on_stop_signal(uv_signal_t *signal, int number)
{
        struct server *s = container_of(signal, struct server, signals[number == SIGTERM ? 0 : 1]);

        if (s->stopping) /* asked twice: waits for nobody any more */
                uv_stop(&s->loop);
        else
                server_stop(s);
}

static void on_reload_signal(uv_signal_t *signal, int number)
{
        (void)reload_config(container_of(signal, struct server, signals[2]), NULL, NULL);
}

static void on_watchdog(uv_timer_t *timer)
{
        notify_now("WATCHDOG=1");
}

static void start_handles(struct server *s)
{
        uint64_t watchdog_usec = 0;

        uv_signal_start(&s->signals[0], on_stop_signal, SIGTERM);
        uv_signal_start(&s->signals[1], on_stop_signal, SIGINT);
        uv_signal_start(&s->signals[2], on_reload_signal, SIGHUP);
        if (sd_watchdog_enabled(0, &watchdog_usec) > 0) {
                uint64_t half_msec = MAX(watchdog_usec / 2000, UINT64_C(1));

                uv_timer_start(&s->watchdog, on_watchdog, half_msec, half_msec);
        }
}

#define STATUS_BYTES 64 /* of the line below, with room */

static const char *format_status(const struct server *s, char line[STATUS_BYTES])
{
        unsigned n = 0;

        list_for_each (t, &s->tenancies, struct tenancy, link)
                n++;
        snprintf(line, STATUS_BYTES, "STATUS=%u tenant%s%s", n, n == 1 ? "" : "s",
                s->store.draining ? ", draining" : "");
        return line;
}

void server_notify_status(struct server *s)
{
        char line[STATUS_BYTES];

        notify_now(format_status(s, line));
}

/* What there is from the beginning. */
static void note_start(struct server *s)
{
        const struct recovery *r = &s->recovery;
        char detail[CHRONICLE_DETAIL_MAX + 1] = "the cache starts empty";

        if (s->took_over)
                snprintf(detail, sizeof(detail),
                        "taken over: %" PRIu64 " pages in %u namespaces, %u clients; lost: %u "
                        "namespaces, %u clients over which kvleased died",
                        r->n_pages, r->n_namespaces, r->n_clients, r->n_lost, r->n_culprits);
        server_note(s, &(struct chronicle_note){.kind = EVENT_DAEMON,
                               .reason = "started",
                               .pages = s->took_over ? r->n_pages : 0,
                               .detail = detail});
}

static void say_ready(struct server *s)
{
        char budget[FORMAT_BYTES_MAX], status[STATUS_BYTES];

        if (list_is_empty(&s->tenancies))
                log_notice("there is no tenant yet: add one with 'kvleasectl tenants add NAME "
                           "limit=4GiB' or a [tenant NAME] section in %s",
                        s->source.file ? s->source.file : CONFIG_DEFAULT_FILE);
        log_message(LOG_READY, LOG_FIELDS({"RUNTIME_DIR", s->rundir.path}),
                "ready in %s, %s to lease", s->rundir.path, format_bytes(s->budget_bytes, budget));
        note_start(s);
        /* These may block; nobody is served yet who would wait with them. */
        sd_notify(0, format_status(s, status));
        s->ready_nsec = clock_now_nsec();
        sd_notify(0, "READY=1");
}

enum exit_code server_start(struct server *s)
{
        struct detail d = {""};
        int r = kept_sockets_load(s);

        s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        descriptors_attach(s);
        s->serving = true;
        if (r == 0)
                r = open_sockets(s, &d);
        if (r < 0) {
                log_error("%s", d.text[0] ? d.text : strerror(-r));
                return EXIT_SOCKET;
        }
        activation_deinit(&s->activation);
        kept_sockets_release(s);
        keeping_release_rest(s);
        keeping_say(s);
        keeping_settle(s); /* who is READY may be killed: nobody is served yet who would wait */
        start_handles(s);
        if (s->took_over)
                upkeep_timer_expect(s); /* for what nobody comes back to */
        say_ready(s);
        return EXIT_OK;
}

enum exit_code server_run(struct server *s)
{
        turn_watch_start(&s->turn_watch);
        uv_run(&s->loop, UV_RUN_DEFAULT);
        return s->restarting ? EXIT_RESTART : EXIT_OK;
}

void server_output_drained(struct server *s)
{
        if (!s->stopping || tenant_changes_are_left(s))
                return;
        list_for_each (p, &s->peers, struct peer, link)
                if (p->state != PEER_GONE && !outqueue_is_empty(&p->out))
                        return;
        uv_stop(&s->loop);
}

static void on_stop_timeout(uv_timer_t *timer)
{
        uv_stop(timer->loop);
}

static void close_listeners(struct server *s)
{
        s->serving = false;
        listener_leave(s->admin_listener);
        listener_leave(s->monitor_listener);
        listener_leave(s->default_listener);
        s->admin_listener = s->monitor_listener = s->default_listener = NULL;
        list_for_each (t, &s->tenancies, struct tenancy, link) {
                listener_leave(t->listener);
                t->listener = NULL;
        }
}

void server_stop(struct server *s)
{
        if (s->stopping)
                return;
        s->stopping = true;
        culprits_forget(&s->store);
        log_message(LOG_STOPPING, NULL, "stopping");
        server_note(s, &(struct chronicle_note){.kind = EVENT_DAEMON,
                               .reason = s->restarting ? "restarting" : "stopping"});
        notify_now("STOPPING=1");
        close_listeners(s);
        if (!keeping_is_on(&s->keeping)) /* else they ask the next daemon again */
                parked_refuse(s);
        events_to_all(s, KVLEASE__V1__NOTICE_EVENT__KIND__SHUTDOWN, "kvleased stops");
        followers_end(s);
        uv_timer_start(&s->stop_timer, on_stop_timeout,
                s->config.daemon.stop_timeout_nsec / NSEC_PER_MSEC, 0);
        server_output_drained(s);
}

void server_restart(struct server *s)
{
        s->restarting = true;
        server_stop(s);
}

static size_t count_mapping(const struct server *s)
{
        size_t n = 0;

        list_for_each (p, &s->peers, struct peer, link)
                n += p->member && p->member->n_mapped_sets > 0;
        return n;
}

/*
 * From here to its end the process takes no signal that stops or reloads it: libuv gives each back
 * its default, death, when its handle closes, and a second SIGTERM would end an orderly exit. Held
 * back meanwhile by the mask, as no thread of the daemon's own takes signals.
 */
static void leave_signals(struct server *s)
{
        static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
        sigset_t set;

        sigemptyset(&set);
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
                sigaddset(&set, numbers[i]);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
                uv_signal_stop(&s->signals[i]);
                signal(numbers[i], SIG_IGN);
        }
}

static void close_loop(struct server *s)
{
        uv_handle_t *handles[] = {
                (uv_handle_t *)&s->work,
                (uv_handle_t *)&s->queue_prepare,
                (uv_handle_t *)&s->hello_timer,
                (uv_handle_t *)&s->stop_timer,
                (uv_handle_t *)&s->look_timer,
                (uv_handle_t *)&s->quiet_timer,
                (uv_handle_t *)&s->watchdog,
                (uv_handle_t *)&s->recall_timer,
                (uv_handle_t *)&s->wait_timer,
                (uv_handle_t *)&s->grace_timer,
                (uv_handle_t *)&s->compact_timer,
                (uv_handle_t *)&s->upkeep_timer,
                (uv_handle_t *)&s->leasables_timer,
                (uv_handle_t *)&s->follow_timer,
                (uv_handle_t *)&s->sizing_timer,
                (uv_handle_t *)&s->reaping.timer,
                (uv_handle_t *)&s->turns_timer,
                (uv_handle_t *)&s->turns_check,
                (uv_handle_t *)&s->turn_watch.prepare,
                (uv_handle_t *)&s->signals[0],
                (uv_handle_t *)&s->signals[1],
                (uv_handle_t *)&s->signals[2],
        };
        int r;

        queues_stop(s);
        movement_stop(s);
        reaping_leave_loop(s);
        turn_watch_stop(&s->turn_watch);
        leave_signals(s);
        for (size_t i = 0; i < ARRAY_SIZE(handles); i++)
                uv_close(handles[i], NULL);
        /* The last peer's end may have stopped the loop once more: a run ends at that first. */
        while (uv_run(&s->loop, UV_RUN_DEFAULT) != 0)
                ;
        r = uv_loop_close(&s->loop);
        assert(r == 0);
        (void)r;
}

/* Clients may go on reading for a while, but not memory that ends with this process. */
static void end_indexes(struct server *s)
{
        list_for_each (t, &s->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (ns->device.pool->props->transport == TRANSPORT_CUDAIPC)
                                shared_end(&ns->shared);
}

/* State and devices stay as they are, with the threads of the latter. */
static void leave_store(struct server *s)
{
        end_indexes(s);
        discards_stop(&s->store.discards);
        s->left_behind |= !store_close_disks(&s->store);
        transfer_deinit(&s->store); /* its threads; pages are as they are */
        list_for_each (pool, &s->store.pools, struct pool, link)
                s->left_behind |= pool->queue != NULL;
}

static void free_store(struct server *s)
{
        if (!store_deinit(&s->store))
                s->left_behind = true;
        if (s->left_behind)
                log_warning("a GPU's driver hangs or is slow: kvleased ends without it");
}

void server_deinit(struct server *s)
{
        size_t n_mapping = count_mapping(s);
        bool goes_on = keeping_is_on(&s->keeping), leaves = goes_on || n_mapping > 0;

        crash_unwatch();
        if (n_mapping > 0 && !goes_on)
                log_notice(
                        "%zu clients still map memory: it stays theirs until they exit", n_mapping);
        s->leaving = true;
        close_listeners(s);
        keeping_stop(s);
        list_for_each_safe (p, &s->peers, struct peer, link) {
                /*
                 * Giving back what is mapped would show zeros to a process that may be reading: the
                 * state is left to the end of this process, the memory to the kernel and its users;
                 * or to the process that comes next.
                 */
                if (leaves)
                        p->member = NULL;
                peer_end(p);
        }
        recorder_stop(s);
        learnt_save_all(s);
        s->store.on_ns = NULL; /* what goes from here on is kept */
        tenants_free(s);
        close_loop(s);
        map_deinit(&s->recorder.requests);
        key_waits_deinit(s);
        if (leaves)
                leave_store(s);
        else
                free_store(s);
        if (!s->left_behind)
                keeping_free(s);
        kept_sockets_deinit(s);
        activation_deinit(&s->activation);
        tenantdb_close(&s->db);
        arena_deinit(&s->arena);
        config_deinit(&s->config);
        s->spare_fd = fd_close(s->spare_fd);
        descriptors_open(s);
        if (goes_on)
                rundir_leave(&s->rundir);
        else
                rundir_close(&s->rundir);
        test_clock_close(&s->clock);
}
