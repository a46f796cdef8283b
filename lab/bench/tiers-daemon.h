/* Texts in a private daemon whose device holds a third of them. They are found one after the other.
 * Each lookup moves a text up, and as many cold pages are demoted. */
#ifndef KVL_BENCH_TIERS_DAEMON_H
#define KVL_BENCH_TIERS_DAEMON_H

#include <stdint.h>

#include "tests/bench/fixture.h"

#define COLD_TEXT_BYTES ((uint64_t)8 << 20) /* size of one text */

struct cold {
        struct fixture_client client;
        uint32_t text_pages, n_texts, next;
        uint64_t page_bytes;
        uint32_t *pages; /* owned: pages of a text, then as many to publish */
        uint8_t *keys;   /* owned: of all texts */
};

/* Starts a daemon with a device of device_bytes, and four times as much host memory. Returns 0, or
 * -errno with a line. */
int cold_open_daemon(struct fixture *f, uint64_t page_bytes, uint64_t device_bytes);

/*
 * Publishes texts of three times device_bytes, each byte written. Returns 0, or -errno with a line.
 */
int cold_fill(struct cold *c, const struct fixture *f, uint64_t device_bytes);

/*
 * Finds the next text. *ret_n: pages found, which are held now. Returns 0, or -errno with a line.
 */
int cold_find(struct cold *c, uint32_t *ret_n);

/* Publishes the pages of the text that weren't found and releases all; the next text follows.
 * Returns 0, or -errno with a line. */
int cold_end(struct cold *c, uint32_t n_found);

void cold_close(struct cold *c);

#endif
