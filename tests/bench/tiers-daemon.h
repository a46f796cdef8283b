/*
 * Texts in a private daemon whose device holds a third of them: found one after the other, each
 * lookup brings a text up, and as many pages that are cold by then go down.
 */
#ifndef KVL_BENCH_TIERS_DAEMON_H
#define KVL_BENCH_TIERS_DAEMON_H

#include <stdint.h>

#include "tests/bench/fixture.h"

#define COLD_TEXT_BYTES ((uint64_t)8 << 20) /* one of them */

struct cold {
        struct fixture_client client;
        uint32_t text_pages, n_texts, next;
        uint64_t page_bytes;
        uint32_t *pages; /* owned: of a text, and as many that are to be published */
        uint8_t *keys;   /* owned: of all texts */
};

/* A device of device_bytes, and host memory of four times as much. 0, or -errno with a line. */
int cold_open_daemon(struct fixture *f, uint64_t page_bytes, uint64_t device_bytes);

/* Publishes texts of three times device_bytes, each byte written. 0, or -errno with a line. */
int cold_fill(struct cold *c, const struct fixture *f, uint64_t device_bytes);

/* Finds the next text. *ret_n: pages that were found and are held now. 0, or -errno with a line. */
int cold_find(struct cold *c, uint32_t *ret_n);

/* Publishes what of it wasn't found, and lets go of it: the next one's turn. 0, or -errno with a
 * line. */
int cold_end(struct cold *c, uint32_t n_found);

void cold_close(struct cold *c);

#endif
