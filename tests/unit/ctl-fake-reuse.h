/* Figures of reuse in the fake daemon: a part of ctl-fake-answers.c, after its M() and GIB. */
#ifndef KVL_TESTS_CTL_FAKE_REUSE_H
#define KVL_TESTS_CTL_FAKE_REUSE_H

static M(AdminEviction) evictions[] = {
        {.victim = "chat", .by = "search", .pages = 12, .sets = 1},
        {.victim = "chat", .by = "", .pages = 3},
};

static M(AdminSession) sessions[] = {
        {.tenant = "search",
                .ns = "llama",
                .id = {.len = 7, .data = (uint8_t *)"chat-17"},
                .n_pages = 12,
                .n_tokens = 800,
                .lost_tokens = 64,
                .bytes = 12 << 20,
                .n_open = 1,
                .idle_sec = 75,
                .expires_in_sec = 86325,
                .hint = "continues"},
        {.tenant = "chat",
                .ns = "llama",
                .id = {.len = 4, .data = (uint8_t *)"\x01\x02 \xff"},
                .hint = "unknown",
                .truncated = true},
};

static M(AdminCodec) codecs[] = {
        {.tenant = "search",
                .ns = "llama",
                .tier = "host",
                .last_layer = 7,
                .codec = "none",
                .page_bytes = 512 << 10,
                .stored_bytes = 512 << 10,
                .pages_encoded = 9000,
                .pages_sampled = 141},
        {.tenant = "search",
                .ns = "llama",
                .tier = "host",
                .first_layer = 8,
                .last_layer = 31,
                .codec = "int4",
                .page_bytes = 1536 << 10,
                .stored_bytes = 432 << 10,
                .pages_encoded = 9000,
                .pages_sampled = 141,
                .error_ppm = 81234},
        {.tenant = "chat",
                .ns = "bare",
                .tier = "disk",
                .codec = "int8",
                .page_bytes = 2 << 20,
                .stored_bytes = 1040 << 10},
};

static M(AdminExchangeDrop) drops[] = {
        {.reason = "busy"},
        {.reason = "late", .not_imported = 12, .not_exported = 1},
        {.reason = "damaged", .not_imported = 3},
        /* Another daemon's reasons may be any bytes. */
        {.reason = "\x1b[2J\xff", .not_exported = 2},
};

static M(AdminExchangeDrop) * drop_rows[] = {&drops[0], &drops[1], &drops[2], &drops[3]};

static M(AdminExchange) exchanges[] = {
        {.tenant = "search",
                .remote = "rack",
                .may_write = true,
                .is_sealed = true,
                .is_known = true,
                .n_nodes = 3,
                .n_nodes_open = 1,
                .rtt_usec = 310,
                .n_namespaces = 2,
                .n_namespaces_ready = 2,
                .probes = 500,
                .probed_pages = 32000,
                .found_pages = 9000,
                .imported_pages = 8985,
                .imported_bytes = UINT64_C(8985) << 21,
                .loads = 450,
                .loads_lost = 9,
                .load_error_ppm = 62500,
                .import_bytes_per_sec = UINT64_C(3) << 29,
                .prefill_tokens_per_sec = 12500,
                .exported_pages = 1200,
                .exported_bytes = UINT64_C(1200) << 21,
                .there_pages = 40,
                .epochs = 1,
                .followed = 2,
                .session_records = 25,
                .sessions = 7,
                .n_imports = 2,
                .n_texts = 1,
                .bytes_under_way = 16 << 20,
                .n_drops = ARRAY_SIZE(drop_rows),
                .drops = drop_rows},
        {.tenant = "chat", .remote = "rack"},
};

static M(AdminRemoteNode) nodes[] = {
        {.remote = "rack",
                .state = "reached",
                .is_cluster = true,
                .slots_served = 16384,
                .reads = 9000,
                .reads_failed = 15,
                .writes = 1200,
                .writes_refused = 3,
                .address = "10.0.0.1:6379",
                .slots = 8192,
                .connections = 3,
                .breaker = "closed",
                .rtt_usec = 310,
                .bytes_read = UINT64_C(8985) << 21,
                .bytes_written = UINT64_C(1200) << 21,
                .answers = 11234,
                .errors = 3,
                .timeouts = 4,
                .losses = 1,
                .last_error = "Connection reset by peer"},
        {.remote = "rack",
                .state = "reached",
                .is_cluster = true,
                .slots_served = 16384,
                .reads = 9000,
                .reads_failed = 15,
                .writes = 1200,
                .writes_refused = 3,
                .address = "[fd00::2]:6379",
                .slots = 8192,
                .breaker = "open",
                .open_left_msec = 7100,
                .losses = 12,
                .trips = 4,
                .last_error = "Connection refused"},
        {.remote = "spare",
                .state = "unknown",
                .address = "10.9.0.1:6379",
                .breaker = "half-open",
                .rtt_usec = 12345,
                .trips = 1},
        /* A remote of which nothing is known; and texts of a peer that may be anybody. */
        {.remote = "gone", .state = "unreached", .slots_error = "no \x1b[2Jnode\xff"},
};

static M(AdminRemote) remotes[] = {
        {.name = "rack",
                .state = "reached",
                .n_nodes = 3,
                .n_nodes_open = 1,
                .node = "[fd00::2]:6379",
                .error = "Connection refused"},
        {.name = "well", .state = "reached", .n_nodes = 3},
        {.name = "spare", .state = "unknown", .n_nodes = 1},
        {.name = "gone", .state = "unreached"},
        {.name = "stopped",
                .state = "unreached",
                .n_nodes = 2,
                .n_nodes_open = 2,
                .node = "10.9.0.1:6379",
                .error = "no \x1b[2Jnode\xff"},
        {.name = "new", .state = "not-open"},
};

static M(AdminRemote) * remote_rows[] = {
        &remotes[0], &remotes[1], &remotes[2], &remotes[3], &remotes[4], &remotes[5]};

static M(AdminSet) sets[] = {
        {.tenant = "search",
                .name = "llama-tp4",
                .size = 4,
                .n_namespaces = 3,
                .keys_incomplete = 40,
                .dropped = 2,
                .charged_bytes = GIB},
        {.tenant = "chat", .name = "hybrid", .size = 2, .n_namespaces = 2, .keys_complete = 9},
};

static M(Explanation) explanations[] = {
        {.state = 1, .page = 7, .age_sec = 90, .unused_sec = 5, .client_id = 3},
        {.state = 3, .age_sec = 3600, .by = "search", .outlook = "asks"},
        {.state = 0, .outlook = "asks"},
        {.state = 99},
};

#endif
