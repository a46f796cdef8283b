#include "daemon/server/server.h"

#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/core/core.h"
#include "daemon/core/memory/discard.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/shared.h"
#include "daemon/server/peers/keeping.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/events.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/idle-interval.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/services/devices.h"
#include "daemon/server/services/learnt.h"
#include "daemon/server/services/movement.h"
#include "daemon/server/services/remotes.h"
#include "daemon/server/services/queues.h"
#include "daemon/server/services/recorder.h"
#include "daemon/server/services/stop.h"
#include "daemon/server/services/timers.h"
#include "daemon/server/peers/descriptors.h"
#include "daemon/server/peers/kept-sockets.h"
#include "daemon/server/peers/listener.h"
#include "daemon/server/peers/reaping.h"
#include "daemon/server/base/crash.h"
#include "daemon/server/base/log.h"
#include "daemon/server/base/notify.h"
#include "daemon/server/takeover.h"
#include "daemon/server/services/reload.h"
#include "daemon/server/services/tenant-changes.h"
#include "daemon/server/services/tenants.h"
#include "daemon/server/peers/checks.h"
#include "daemon/server/peers/followers.h"
#include "daemon/server/peers/key-waits.h"
#include "daemon/server/peers/parked.h"
#include "daemon/server/peers/recalls.h"
#include "daemon/server/base/inbound.h"
#include "daemon/server/wiring.h"
#include "gpu/queue.h"

static void on_ns(struct ns *ns, bool goes, void *data)
{
        struct server *s = data;

        if (!goes) {
                learnt_load(s, ns);
                return;
        }
        if (ns->idle.was_idle)
                learnt_forget_ns(s, ns);
        else
                learnt_save(s, ns);
        recorder_forget(s, ns);
}

#define N_TIMERS 19

static void list_timers(struct server *s, uv_timer_t *ret[N_TIMERS])
{
        uv_timer_t *const timers[N_TIMERS] = {
                &s->peers.hello_timer,
                &s->life.stop_timer,
                &s->peers.look_timer,
                &s->peers.idle_timer,
                &s->life.watchdog,
                &s->recall_timer,
                &s->leases.timer,
                &s->peers.grace_timer,
                &s->services.compact_timer,
                &s->services.periodic_timer,
                &s->services.leasables_timer,
                &s->followers.timer,
                &s->services.sizing_timer,
                &s->reaping.timer,
                &s->turns.timer,
                &s->services.movement.timer,
                &s->services.movement.rings,
                &s->services.remotes.timer,
                &s->services.remotes.watch,
        };

        memcpy(ret, timers, sizeof(timers));
}

/* Initialises all parts that can't fail and need nothing but memory. */
static int init_base(struct server *s, struct config *config)
{
        uv_timer_t *timers[N_TIMERS];
        int r;

        memset(s, 0, sizeof(*s));
        r = loop_init(&s->loop, wiring_turn);
        if (r < 0)
                return r;
        r = arena_init(&s->scratch.arena, ARENA_BUDGET_BYTES);
        if (r < 0) {
                uv_loop_close(&s->loop.uv);
                return r;
        }
        s->config = *config;
        *config = (struct config){0};
        s->next = s->config;
        s->next.files = (struct conf_files){0};
        s->next.tenants = (struct tenant_table){0};
        s->rundir.lock_fd = s->db.lock_fd = s->sockets.spare_fd = -1;
        for (unsigned i = 0; i < SOCKETS_ADMIN_FDS; i++)
                s->sockets.admin_fds[i] = -1;
        wiring_init(s);
        s->life.start_nsec = clock_now_nsec();
        list_init(&s->tenancies.list);
        list_init(&s->peers.list);
        list_init(&s->peers.backlog);
        list_init(&s->peers.hellos);
        list_init(&s->peers.unread);
        list_init(&s->services.queues);
        list_init(&s->peers.lingering);
        uv_prepare_init(&s->loop.uv, &s->services.queue_prepare);
        list_timers(s, timers);
        for (size_t i = 0; i < N_TIMERS; i++)
                uv_timer_init(&s->loop.uv, timers[i]);
        for (size_t i = 0; i < ARRAY_SIZE(s->life.signals); i++)
                uv_signal_init(&s->loop.uv, &s->life.signals[i]);
        store_init(&s->store, evict_find(config_evict_names[s->config.daemon.evict]));
        events_attach(s);
        checks_init(s);
        followers_init(s);
        recalls_init(s);
        compact_timer_init(s);
        movement_init(s);
        remotes_init(s);
        disk_init(&s->disk, &s->loop.uv);
        s->db.disk = &s->disk;
        tenant_changes_init(s);
        recorder_init(s);
        s->store.owner.on_ns = on_ns;
        parked_init(s);
        key_waits_init(s);
        turns_init(s);
        turn_watch_init(&s->turn_watch, &s->loop.uv);
        return 0;
}

/* Opens the directory of segments that no client can write to. */
static void open_room(struct server *s)
{
        struct segment_room *room = &s->store.room;

        segment_room_open(room);
        if (room->guard != SEGMENT_READ_ONLY_MOUNT)
                log_notice(
                        "no read-only mount for what clients share (%s): processes of uid %u "
                        "could write the index; run kvleased with CAP_SYS_ADMIN, or clients under other uids",
                        strerror(-room->why), (unsigned)geteuid());
}

/* Called before the process makes other resources of its own. Returns 0 or -errno, logged. */
static int prepare_process(void)
{
        int r = disk_start();

        descriptors_raise_limit(); /* as many descriptors may be stored */
        if (r < 0)
                log_error(
                        "kvleased can start no thread for its files (%s): raise TasksMax or LimitNPROC of kvleased.service, or ulimit -u",
                        strerror(-r));
        return r;
}

/* Takes the descriptors that the service manager passed. Returns 0, or -errno, logged. */
static int take_descriptors(struct server *s)
{
        int r = activation_init(&s->activation);

        if (r < 0)
                log_error("cannot take the descriptors passed to kvleased: %s", strerror(-r));
        return r < 0 ? r : keeping_open(s);
}

static int start_discards(struct server *s)
{
        int r = discards_start(&s->store.memory.discards);

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

/* Pauses after repeated deaths: stored memory is safe meanwhile, and clients wait. */
static void pause_after_deaths(const struct lives *l)
{
        const uint64_t sec = l->pause_nsec / NSEC_PER_SEC;

        if (sec == 0)
                return;
        log_warning(
                "kvleased serves in %" PRIu64 " s, as it was killed for want of memory again", sec);
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_sec = (time_t)sec}, NULL);
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
        s->sockets.old_sockets = getenv(INBOUND_TEST_VARIABLE) != NULL;
        if (s->sockets.old_sockets)
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
        if (code == EXIT_OK)
                pause_after_deaths(&s->rundir.lives);
        s->life.keeps_state = code == EXIT_OK;
        if (code == EXIT_OK)
                remotes_start(s);
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
        int r = listener_open(s, LISTEN_ADMIN, NULL, &s->sockets.admin_listener, d);

        if (r == 0)
                r = listener_open(s, LISTEN_MONITOR, NULL, &s->sockets.monitor_listener, d);
        if (r == 0 && s->config.daemon.default_socket)
                r = listener_open(s, LISTEN_DEFAULT, NULL, &s->sockets.default_listener, d);
        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                if (r == 0)
                        r = tenancy_listen(t, d);
        return r;
}

static void on_stop_signal(uv_signal_t *signal, int number)
{
        struct server *s =
                container_of(signal, struct server, life.signals[number == SIGTERM ? 0 : 1]);

        if (s->life.stopping) /* second signal: waits for no client any more */
                uv_stop(&s->loop.uv);
        else
                server_stop(s);
}

static void on_reload_signal(uv_signal_t *signal, int number)
{
        struct server *s = container_of(signal, struct server, life.signals[2]);

        (void)reload_config(s, NULL, NULL);
        idle_sets_drain(&s->store);
}

static void on_watchdog(uv_timer_t *timer)
{
        notify_now("WATCHDOG=1");
}

static void start_handles(struct server *s)
{
        uint64_t watchdog_usec = 0;

        uv_signal_start(&s->life.signals[0], on_stop_signal, SIGTERM);
        uv_signal_start(&s->life.signals[1], on_stop_signal, SIGINT);
        uv_signal_start(&s->life.signals[2], on_reload_signal, SIGHUP);
        if (sd_watchdog_enabled(0, &watchdog_usec) > 0) {
                uint64_t half_msec = MAX(watchdog_usec / 2000, UINT64_C(1));

                uv_timer_start(&s->life.watchdog, on_watchdog, half_msec, half_msec);
        }
}

/* Notes the recovered state in the event log. */
static void note_start(struct server *s)
{
        const struct recovery *r = &s->life.recovery;
        char detail[EVENT_LOG_DETAIL_MAX + 1] = "the cache starts empty";

        if (s->life.took_over)
                snprintf(detail, sizeof(detail),
                        "taken over: %" PRIu64
                        " pages in %u namespaces, %u clients; lost: %u namespaces, %u clients over which kvleased died",
                        r->n_pages, r->n_namespaces, r->n_clients, r->n_lost, r->n_suspects);
        server_note(s, &(struct event_note){.kind = EVENT_DAEMON,
                               .reason = "started",
                               .pages = s->life.took_over ? r->n_pages : 0,
                               .detail = detail});
}

static void say_ready(struct server *s)
{
        char budget[FORMAT_BYTES_MAX], status[STATUS_BYTES];

        if (list_is_empty(&s->tenancies.list))
                log_notice(
                        "there is no tenant yet: add one with 'kvleasectl tenants add NAME limit=4GiB' or a [tenant NAME] section in %s",
                        s->source.file ? s->source.file : CONFIG_DEFAULT_FILE);
        log_message(LOG_READY, LOG_FIELDS({"RUNTIME_DIR", s->rundir.path}),
                "ready in %s, %s to lease", s->rundir.path, format_bytes(s->budget_bytes, budget));
        note_start(s);
        /* These may block; no client is served yet that would wait. */
        sd_notify(0, status_format(s, status));
        s->life.ready_nsec = clock_now_nsec();
        sd_notify(0, "READY=1");
}

enum exit_code server_start(struct server *s)
{
        struct detail d = {""};
        int r = kept_sockets_load(s);

        s->sockets.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        descriptors_attach(s);
        s->life.serving = true;
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
        keeping_wait(s); /* after READY the daemon may be killed; no client waits yet */
        start_handles(s);
        if (s->life.took_over)
                periodic_timer_expect(s); /* for recovered objects that no client resumes */
        say_ready(s);
        idle_sets_drain(&s->store);
        return EXIT_OK;
}

enum exit_code server_run(struct server *s)
{
        turn_watch_start(&s->turn_watch);
        uv_run(&s->loop.uv, UV_RUN_DEFAULT);
        return s->life.restarting ? EXIT_RESTART : EXIT_OK;
}

static size_t count_mapping(const struct server *s)
{
        size_t n = 0;

        list_for_each (p, &s->peers.list, struct peer, links.all)
                n += p->member && p->member->n_mapped_sets > 0;
        return n;
}

/*
 * Blocks signals that stop or reload from here to the end of the process. libuv restores each
 * signal's default, death, when its handle closes, and a second SIGTERM would end an orderly exit.
 * The mask holds them back, as no thread of the daemon's own takes signals.
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
                uv_signal_stop(&s->life.signals[i]);
                signal(numbers[i], SIG_IGN);
        }
}

static void close_loop(struct server *s)
{
        uv_handle_t *handles[] = {
                (uv_handle_t *)&s->loop.work,
                (uv_handle_t *)&s->services.queue_prepare,
                (uv_handle_t *)&s->turns.check,
                (uv_handle_t *)&s->turns.prepare,
                (uv_handle_t *)&s->turn_watch.prepare,
                (uv_handle_t *)&s->turn_watch.check,
                (uv_handle_t *)&s->life.signals[0],
                (uv_handle_t *)&s->life.signals[1],
                (uv_handle_t *)&s->life.signals[2],
        };
        uv_timer_t *timers[N_TIMERS];
        int r;

        list_timers(s, timers);
        queues_stop(s);
        movement_stop(s);
        remotes_stop(s);
        reaping_leave_loop(s);
        turn_watch_stop(&s->turn_watch);
        leave_signals(s);
        for (size_t i = 0; i < ARRAY_SIZE(handles); i++)
                uv_close(handles[i], NULL);
        for (size_t i = 0; i < N_TIMERS; i++)
                uv_close((uv_handle_t *)timers[i], NULL);
        /* The last peer's end may have stopped the loop: uv_run() returns once for that. */
        while (uv_run(&s->loop.uv, UV_RUN_DEFAULT) != 0)
                ;
        r = uv_loop_close(&s->loop.uv);
        assert(r == 0);
        (void)r;
}

/* Ends indexes: clients may read on for a while, but not memory that ends with this process. */
static void end_indexes(struct server *s)
{
        list_for_each (t, &s->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (ns->device.pool->props->transport == TRANSPORT_CUDAIPC)
                                shared_end(&ns->shared);
}

/* Leaves state and devices as they are, with the devices' threads. */
static void leave_store(struct server *s)
{
        end_indexes(s);
        discards_stop(&s->store.memory.discards);
        s->life.left_behind |= !store_close_disks(&s->store);
        transfer_deinit(&s->store); /* its threads; pages are as they are */
        list_for_each (pool, &s->store.pools, struct pool, link)
                s->life.left_behind |= pool->queue != NULL;
}

static void free_store(struct server *s)
{
        if (!store_deinit(&s->store))
                s->life.left_behind = true;
        if (s->life.left_behind)
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
        s->life.leaving = true;
        stop_close_listeners(s);
        keeping_stop(s);
        list_for_each_safe (p, &s->peers.list, struct peer, links.all) {
                /*
                 * Freeing mapped memory would show zeros to a process that may be reading. So the
                 * state stays until the end of this process, and the memory is the kernel's and its
                 * users', or the next process's.
                 */
                if (leaves)
                        p->member = NULL;
                peer_end(p);
        }
        recorder_stop(s);
        learnt_save_all(s);
        s->store.owner.on_ns = NULL; /* ending namespaces keep their files from here on */
        tenants_free(s);
        close_loop(s);
        map_deinit(&s->recorder.requests);
        key_waits_deinit(s);
        if (leaves)
                leave_store(s);
        else
                free_store(s);
        if (!s->life.left_behind)
                keeping_free(s);
        kept_sockets_deinit(s);
        activation_deinit(&s->activation);
        tenantdb_close(&s->db);
        arena_deinit(&s->scratch.arena);
        config_deinit(&s->config);
        s->sockets.spare_fd = fd_close(s->sockets.spare_fd);
        admin_fds_open(s);
        if (goes_on)
                rundir_leave(&s->rundir);
        else
                rundir_close(&s->rundir);
        test_clock_close(&s->clock);
}
