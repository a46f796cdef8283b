/*
 * A long text of a model with a plane for each layer, in a private daemon whose device holds a part
 * of it. The text is published page by page through a window, and read layer by layer. Every byte
 * is compared.
 */
#ifndef KVL_BENCH_LONG_TEXT_H
#define KVL_BENCH_LONG_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/kvlease.h"
#include "tests/integration/private-daemon.h"

/* Sizes of a 7B model: 32 heads (8 with grouped queries) of 128 numbers of 2 bytes, K and V. */
#define LONG_LAYERS      32u
#define LONG_HEAD_SIZE   128u
#define LONG_PAGE_TOKENS 64u

struct long_shape {
        uint32_t n_kv_heads;
        uint32_t first_layer, n_layers; /* a group of the model's layers, each a plane */
        const char *codecs;             /* codecs of the lower tiers, by layer; NULL: none */
};

uint64_t long_plane_bytes(const struct long_shape *shape);
uint64_t long_page_bytes(const struct long_shape *shape);

/* Numbers of a layer's K and V of a page: near a normal distribution, of another width in each
 * channel. Each page's plane has these numbers, begun at another token. */
struct long_numbers {
        uint16_t *plane; /* owned: [2][page_tokens][channels], halves */
        float *most;     /* owned: greatest magnitude in each channel of K, then of V */
        uint32_t n_channels;
};

int long_numbers_make(struct long_numbers *n, uint32_t n_kv_heads); /* 0; -ENOMEM */
void long_numbers_free(struct long_numbers *n);

struct long_text {
        struct long_shape shape;
        const struct long_numbers *numbers; /* borrowed */
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct kvl_session *session;
        struct kvl_window *window;
        uint32_t n_pages;  /* published */
        uint32_t *indexes; /* owned: page of the text for each page of the window */
        uint64_t room_pages;
};

/* Connects, and opens the namespace (of a set, if `set` names one), a session and a window. Returns
 * 0 or -errno, with a message. */
int long_open(struct long_text *t, const char *socket, const char *name, const char *set,
        const struct long_shape *shape, const struct long_numbers *numbers, uint32_t max_pages);
void long_close(struct long_text *t);

/* Publishes another page. Returns 0 or -errno, with a message. */
int long_append(struct long_text *t);

/* Keeps the beginning (first tokens) and the end (last tokens), and reopens the window. Returns 0
 * or -errno, with a message. */
int long_keep(struct long_text *t, uint64_t first_tokens, uint64_t last_tokens);

enum long_reading { LONG_WAITS, LONG_READS, LONG_COMPARES };

struct long_pass {
        double wait_sec; /* in kvl_window_take_planes() */
        double all_sec;
        uint64_t moved_bytes; /* of copies that were handed out */
        uint64_t read_bytes;  /* of all pages */
        double worst[3];  /* COMPARES: greatest error, relative to the channel's greatest number; of
                             layers without a codec, int8, int4 */
        uint64_t n_wrong; /* COMPARES: planes without a codec that have other bytes */
};

/* Reads all the window's pages for each layer; whole: only layer 0's, with all planes moved. Adds
 * to *pass. Returns 0 or -errno, with a message. */
int long_step(struct long_text *t, bool whole, enum long_reading reading, struct long_pass *pass);

#endif
