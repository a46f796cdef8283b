/* A daemon in a child that has one namespace "n" with many pages, in texts of TEXT_PAGES. */
#ifndef KVL_TESTS_RECOVER_MANY_H
#define KVL_TESTS_RECOVER_MANY_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/state.h"
#include "daemon/core/life/recover.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "tests/unit/at-once.h"
#include "tests/unit/keep-parent.h"
#include "tests/unit/test-support.h"
#include "tests/unit/toy-layout.h"

#define PAGE_BYTES 64 /* nothing is ever written to them */
#define EXTENT     (UINT64_C(2) << 20)
#define SET_PAGES  (EXTENT / PAGE_BYTES)
#define TEXT_PAGES 64

/* Nothing can be unwound to in a child. */
#define CHECK(cond)                                                                \
        do {                                                                       \
                if (!(cond)) {                                                     \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
                        _exit(99);                                                 \
                }                                                                  \
        } while (0)

/* Starts a daemon whose tenant "a" may have so many pages. */
static inline struct tenant *begin(
        struct store *s, struct keep_parent *k, uint32_t n_pages, const struct evict_ops *evict)
{
        const struct device_options options = {.side = DEVICE_OWNER};
        uint64_t bytes = (n_pages / SET_PAGES + 1) * EXTENT;
        struct tenant_attrs attrs = {
                .weight = 1, .priority = 50, .max_clients = 8, .limit_bytes = bytes};
        char why[DEVICE_WHY_BYTES] = "";
        struct device *device;
        struct tenant *t;
        bool is_lost;

        store_init(s, evict);
        s->keep = (struct keep){&keep_parent_ops, k};
        s->min_page_bytes = PAGE_BYTES;
        store_set_now(s, clock_now_nsec());
        CHECK(state_open(s, &is_lost, NULL) >= 0 && !is_lost);
        CHECK(device_open("host", &options, &device, why) == 0);
        CHECK(store_add_pool(s, device, bytes, EXTENT, NULL) == 0);
        CHECK(tenant_new(s, "a", &attrs, &t, NULL) == 0);
        return t;
}

/* Publishes a text whose keys begin with first + 1 .. first + TEXT_PAGES. */
static inline void publish_text(struct attach *a, uint32_t first)
{
        uint32_t pages[TEXT_PAGES], sealed[TEXT_PAGES], n;
        uint8_t keys[TEXT_PAGES * KEY_BYTES] = {0};
        struct publish p = {.pages = pages, .keys = keys, .n = TEXT_PAGES, .last_tokens = 16};

        for (uint32_t i = 0; i < TEXT_PAGES; i++) {
                uint32_t key = first + i + 1;

                memcpy(keys + (size_t)i * KEY_BYTES, &key, sizeof(key));
        }
        CHECK(lease_pages(a, TEXT_PAGES, clock_now_nsec(), pages, NULL) == 0);
        CHECK(publish_pages(a, &p, clock_now_nsec(), sealed, &n, NULL) == 0);
        CHECK(release_pages(a, sealed, n, clock_now_nsec(), NULL) == 0);
}

/* Opens the namespace for a new client and publishes n_pages / TEXT_PAGES texts. */
static inline struct attach *fill(struct tenant *t, uint32_t n_pages)
{
        struct ns_layout layout = toy_layout(PAGE_BYTES);
        struct member *m;
        struct attach *a;

        CHECK(member_new(t, NULL, true, &m, NULL) == 0);
        CHECK(attach_open(m, "n", &layout, "", false, &a, NULL) == 0);
        for (uint32_t i = 0; i < n_pages / TEXT_PAGES; i++)
                publish_text(a, i * TEXT_PAGES);
        return a;
}

#endif
