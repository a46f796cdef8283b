/* The rows of the fake daemon: "figure=value|figure=value". A text that isn't named is empty or
 * absent, a number is 0. A part (host_, prefetch_turn_ ...) of which no figure is named is absent.
 */
#ifndef KVL_TESTS_CTL_FAKE_ROWS_H
#define KVL_TESTS_CTL_FAKE_ROWS_H

static const char *const devices[] = {
        "name=host|tier=device|backend=host|transport=memfd|state=ok|total_bytes=64GiB|"
        "budget_bytes=8GiB|charged_bytes=1536MiB|reserved_bytes=2GiB|missing_bytes=512MiB|memory_ratio=13|extent_bytes=64MiB|n_sets=24",
        "name=GPU-6a3d1f52-8c1e-4b7a-9d0e-2f4b6c8d0e1f|tier=device|backend=cuda|transport=vmm|"
        "state=stuck|total_bytes=80GiB|budget_bytes=72GiB|charged_bytes=3GiB|memory_ratio=90|"
        "exclusive=search|extent_bytes=64MiB|n_sets=46|n_preparing=2|prefetch_stream_begun=1200|"
        "prefetch_stream_useful=1000|prefetch_stream_wasted=100|prefetch_stream_given_up=60|"
        "prefetch_stream_at_stake=40|prefetch_turn_begun=32|prefetch_turn_wasted=32|"
        "prefetch_warm_begun=500|prefetch_warm_useful=100|prefetch_warm_at_stake=400|why=the driver hasn't answered extent_create for 10 s",
        "name=host of GPU-6a3d1f52-8c1e-4b7a-9d0e-2f4b6c8d0e1f|tier=host|backend=host|"
        "transport=memfd|state=ok|total_bytes=64GiB|budget_bytes=16GiB|charged_bytes=3GiB|"
        "memory_ratio=25|extent_bytes=64MiB|n_sets=48|registered_bytes=3GiB",
};

static const char *const options[] = {
        "section=daemon|key=max_clients|value=1024|origin=default",
        "section=device|name=host|key=memory|value=2GiB\033[2J|waits=1|configured=128MiB|origin=/etc/kvlease/host.conf.d/50-m.conf:12",
};

static const char *const tenants[] = {
        "name=search|class=pinned|reserve_bytes=2GiB|reserve_configured_bytes=2560MiB|"
        "limit_bytes=4GiB|charged_bytes=1GiB|host_limit_bytes=16GiB|host_charged_bytes=3GiB|"
        "host_pages_sealed=1500|host_arrived=9000|host_damaged=1|pages_promoted=8000|"
        "excess_bytes=128MiB|fair_bytes=256MiB|weight=200|priority=50|reserve_min_bytes=1GiB|"
        "reserve_max_bytes=3GiB|sizer=dry-run|schedule=08:00-20:00 2GiB-3GiB|burst=none|"
        "lend_idle_reserve=1|when_full=queue|max_wait_msec=1500|"
        "placement=device=GPU-6a3d1f52-8c1e-4b7a-9d0e-2f4b6c8d0e1f|exclusive=1|n_clients=2|"
        "max_clients=64|max_pins=4194304|max_connects=1000|max_requests=50000|verify_failures=2|"
        "connects_refused=6|requests=777777|paused=1|pauses=12|pauses_msec=3400|"
        "pending_bytes=300KiB|open_files=40|open_files_sure=2000|open_files_limit=7000|"
        "kept_fds=30|kept_fds_sure=1750|kept_fds_limit=6250|n_namespaces=1|pages_sealed=1200|"
        "pages_granted=4|pages_detached=1|evict=pgi|miss_cost=compute|attention_crossover=30632|"
        "expire_sec=86400|session_expire_sec=3600|evictions=17|refusals=2|refused_quota=1|"
        "refused_reservation_full=2|refused_pool_full=3|refused_deadline=4|refused_draining=5|"
        "refused_device=6|refused_no_run=7|refused_other=8|degraded=5|waiting=3|waits=40|"
        "waited_msec=61000|max_waited_msec=900|source=config|uids=1000 1001|share_group=1|"
        "publish_uids=1000|publish_gids=2000|group=search|socket_path=/run/kvlease/t/search/sock|host_pages_detached=2",
        "name=chat|class=dynamic|limit_bytes=none|charged_bytes=512MiB|host_limit_bytes=none|"
        "weight=100|priority=50|max_clients=1024|max_pins=1000|source=admin|no_room=tenant chat "
        "can lease no page: its limit of 1 MiB is less than an extent set of device host (64 MiB); raise its limit",
};

static const char *const namespaces[] = {
        "tenant=search|name=llama|model=llama-3-8b|version=v1|format=vllm 0.33 flash NHD|"
        "n_layers=32|n_kv_heads=8|head_size=128|page_tokens=16|n_planes=1|plane_page_bytes=2MiB|"
        "stride_bytes=2MiB|tp_size=1|device=host|epoch=3|charged_bytes=1GiB|n_sets=16|"
        "pages_sealed=1200|pages_pinned=9|pages_granted=4|pages_ready=6|pages_detached=1|"
        "pages_free=20|host_charged_bytes=3GiB|host_n_sets=48|host_pages_sealed=1500|"
        "host_pages_detached=2|host_pages_free=34|host_arrived=9000|host_damaged=1|"
        "pages_promoted=8000|prefetch_stream_begun=1200|prefetch_stream_useful=1000|"
        "prefetch_stream_wasted=100|prefetch_stream_given_up=60|prefetch_stream_at_stake=40|"
        "prefetch_stream_window=256|prefetch_turn_begun=32|prefetch_turn_wasted=32|"
        "prefetch_warm_begun=500|prefetch_warm_useful=100|prefetch_warm_at_stake=400|"
        "capacity_pages=2048|set_pages=32|n_clients=2|keys=1000|hits=750|dtype=3",
        "tenant=chat|name=bare|n_layers=none|n_kv_heads=none|head_size=none|page_tokens=none|"
        "n_planes=none|plane_page_bytes=none|tp_rank=none|tp_size=none|layer_group=none|device=host|dtype=none",
};

/* Names are the clients' own: control sequences, quotes, bytes that aren't UTF-8. */
static const char *const clients[] = {
        "client_id=7|tenant=search|name=decoder|pid=4711|uid=1000|state=not reading|"
        "state_sec=93784|heard_sec=4|safepoints=1|group=0a1b2c3d|pages_granted=4|pins=9|"
        "namespaces=2|mapped_sets=16|recalled_sets=3|quarantined_sets=2|late=1|killed=1|waiting=5|"
        "pending_bytes=300KiB|requests=12345|connected_sec=93784",
        "client_id=8|tenant=search|name=\033[31m\"evil\"\\\377\012|pid=4712|uid=1000|"
        "state=waiting for exit|state_sec=7|heard_sec=59|metadata_only=1|group=0a1b2c3d|late=1|violations=1|connected_sec=59",
        "client_id=9007199254740992|tenant=chat|name=d\303\251mo|pid=1|state=muted|connected_sec=3599",
};

static const char *const regions[] = {
        "device=GPU-6a3d1f52-8c1e-4b7a-9d0e-2f4b6c8d0e1f|tenant=search|size_bytes=2GiB|"
        "used_bytes=1536MiB|fair_bytes=1GiB|min_bytes=1GiB|max_bytes=3GiB|demand_bytes=2560MiB|"
        "p99_bytes=2560MiB|target_bytes=3GiB|sizer=dry-run|decision=grow|why=p99 is 125 % of it|changes=7|decided_sec_ago=4",
        "device=host|tenant=search|size_bytes=1GiB|min_bytes=1GiB|max_bytes=1GiB|"
        "target_bytes=1GiB|sizer=off|lent_bytes=512MiB|missing_bytes=256MiB|taken_back_msec=1200",
        "device=host|tenant=chat|excess_bytes=512MiB|fair_bytes=256MiB|demand_bytes=1GiB|sizer=on|decision=none",
        "device=host|size_bytes=7GiB|used_bytes=512MiB|fair_bytes=none|demand_bytes=none|p99_bytes=none",
};

static const char *const evictions[] = {
        "victim=chat|by=search|pages=12|sets=1",
        "victim=chat|pages=3",
};

/* "chat-17", and bytes. */
static const char *const sessions[] = {
        "tenant=search|namespace=llama|n_pages=12|n_tokens=800|lost_tokens=64|bytes=12MiB|"
        "hint=continues|n_open=1|idle_sec=75|expires_in_sec=86325|id=636861742d3137",
        "tenant=chat|namespace=llama|truncated=1|hint=unknown|id=010220ff",
};

static const char *const codecs[] = {
        "tenant=search|ns=llama|tier=host|last_layer=7|codec=none|page_bytes=512KiB|stored_bytes=512KiB|pages_encoded=9000|pages_sampled=141",
        "tenant=search|ns=llama|tier=host|first_layer=8|last_layer=31|codec=int4|"
        "page_bytes=1536KiB|stored_bytes=432KiB|pages_encoded=9000|pages_sampled=141|error_ppm=81234",
        "tenant=chat|ns=bare|tier=disk|codec=int8|page_bytes=2MiB|stored_bytes=1040KiB",
};

/* Another daemon's reasons may be any bytes. */
static const char *const drops[] = {
        "reason=busy",
        "reason=late|not_imported=12|not_exported=1",
        "reason=damaged|not_imported=3",
        "reason=\033[2J\377|not_exported=2",
};

static const char *const exchanges[] = {
        "tenant=search|remote=rack|may_write=1|is_sealed=1|is_known=1|n_nodes=3|n_nodes_open=1|"
        "rtt_usec=310|n_namespaces=2|n_namespaces_ready=2|probes=500|probed_pages=32000|"
        "found_pages=9000|imported_pages=8985|imported_bytes=17970MiB|loads=450|loads_lost=9|"
        "load_error_ppm=62500|import_bytes_per_sec=1536MiB|prefill_tokens_per_sec=12500|"
        "exported_pages=1200|exported_bytes=2400MiB|there_pages=40|epochs=1|followed=2|"
        "session_records=25|sessions=7|n_imports=2|n_texts=1|bytes_under_way=16MiB",
        "tenant=chat|remote=rack",
};

/* The last one: a remote of which nothing is known, and texts of a peer that may be anybody. */
static const char *const nodes[] = {
        "remote=rack|state=reached|is_cluster=1|slots_served=16384|reads=9000|reads_failed=15|"
        "writes=1200|writes_refused=3|address=10.0.0.1:6379|connections=3|breaker=closed|"
        "rtt_usec=310|bytes_read=17970MiB|bytes_written=2400MiB|answers=11234|errors=3|timeouts=4|"
        "losses=1|last_error=Connection reset by peer|slots=8192",
        "remote=rack|state=reached|is_cluster=1|slots_served=16384|reads=9000|reads_failed=15|"
        "writes=1200|writes_refused=3|address=[fd00::2]:6379|breaker=open|open_left_msec=7100|"
        "losses=12|trips=4|last_error=Connection refused|slots=8192",
        "remote=spare|state=unknown|address=10.9.0.1:6379|breaker=half-open|rtt_usec=12345|trips=1",
        "remote=gone|state=unreached|slots_error=no \033[2Jnode\377",
};

static const char *const remotes[] = {
        "name=rack|state=reached|n_nodes=3|n_nodes_open=1|node=[fd00::2]:6379|error=Connection refused",
        "name=well|state=reached|n_nodes=3",
        "name=spare|state=unknown|n_nodes=1",
        "name=gone|state=unreached",
        "name=stopped|state=unreached|n_nodes=2|n_nodes_open=2|node=10.9.0.1:6379|error=no \033[2Jnode\377",
        "name=new|state=not-open",
};

static const char *const sets[] = {
        "tenant=search|name=llama-tp4|size=4|n_namespaces=3|keys_incomplete=40|dropped=2|charged_bytes=1GiB",
        "tenant=chat|name=hybrid|size=2|n_namespaces=2|keys_complete=9",
};

static const char *const turns[] = {
        "time_msec=1767225600123|nsec=3140000|what=LEASE|what_nsec=3100000|tenant=prod",
        "time_msec=1767225660000|nsec=1500000",
};

static const char *const status[] = {
        "daemon_version=0.1.0|pid=4242|uptime_sec=3723|longest_turn_nsec=3140000|recording=1|"
        "config_file=/etc/kvlease/kvleased.conf|runtime_dir=/run/kvlease|"
        "state_dir=/var/lib/kvlease|budget_bytes=8GiB|charged_bytes=1536MiB|pages_free=20|"
        "pages_granted=4|pages_ready=6|pages_sealed=1200|pages_pinned=9|pages_detached=1|"
        "pages_ahead=64|compacted_pages=120|compacted_sets=4|host_limit_bytes=16GiB|"
        "host_charged_bytes=3GiB|host_pages_sealed=1500|host_pages_detached=2|host_pages_free=34|"
        "host_arrived=9000|host_damaged=1|pages_promoted=8000|lookups=250|lookup_keys=1000|"
        "lookup_hits=750|publishes=1300|unindexed=3|duplicates=40|evictions=17|pages_expired=30|"
        "sessions_expired=1|n_sessions=2|policy_page_bytes=96MiB|policy_ghost_bytes=3MiB|"
        "policy_table_bytes=900KiB|policy_ghosts=150000|policy_ghost_limit_bytes=48MiB|"
        "announced=500|announces_pending=60|n_ns_sets=2|set_keys_complete=9|"
        "set_keys_incomplete=40|leases_refused=2|n_waiting=3|leases_waited=40|leases_degraded=5|"
        "n_tenants=2|n_namespaces=2|n_clients=2|n_sharing=1|members_waiting_exit=1|peers_new=3|"
        "pending_bytes=300KiB|max_pending_bytes=64MiB|peers_held=1|pending_overflows=8|"
        "tenants_paused=1|connects_refused=6|violations=1|"
        "segments=memfd (Operation not permitted)|touches_dropped=12|kept_fds=120|kept_max=4096|"
        "kept_needed=3900|open_files_needed=4500|open_files_max=524288|kept_released=3|"
        "took_over=1|recovered_pages=1190|recovered_namespaces=2|recovered_sessions=2|"
        "namespaces_lost=1|pages_lost_checksum=4|pages_lost_parent=5|pages_lost_duplicate=6|"
        "pages_lost_index=7|clients_recovered=6|clients_resumed=1|clients_waiting=2|"
        "clients_expired=3|clients_lost=2|tenants_without_room=1|no_room=tenant chat can lease no "
        "page: its limit of 1 MiB is less than an extent set of device host (64 MiB); raise its "
        "limit|tenants_refused=1|deaths=4|deaths_for_memory=3|memory_excess=memory and "
        "host_memory are 8 GiB of the host together, and the control group /sys/fs/cgroup/kvlease "
        "may have 4 GiB|ready_msec=35|boot_epoch=18364758544493064720|fragmentation=125",
};

#endif
