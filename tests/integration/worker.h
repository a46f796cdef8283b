/*
 * The worker program: a real client process that a test drives by lines on stdin. Every command
 * gets one line back: the library's return value, then results, or the library's sentence.
 *
 * Keys are written CHAIN:INDEX or CHAIN:FIRST-LAST (pattern.h).
 */
#ifndef KVL_TEST_WORKER_H
#define KVL_TEST_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/kvlease.h"

#define WORKER_MAX_WORDS 4200 /* of a command: a full lease's pages and some */

/*
 * Bytes of pages in any memory (worker-bytes.c). On the CPU's memory worker_page_matches() and the
 * worker's poke and peek use the page's address. The rest uses the library's copies, so that both
 * are tested.
 */

/* Fills a page, in one plane, with the pattern of `seed`. 0 or the library's code. */
int worker_page_fill(struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t seed);

/* Does it hold that pattern? Every byte is compared. */
bool worker_page_matches(struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t seed);

/* worker_page_matches() by the library's copies alone. */
bool worker_page_copy_matches(struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t seed);

/* True where every byte is 0. */
bool worker_page_is_zero(struct kvl_ns *ns, uint32_t page, unsigned plane);

/* Writes, or reads, one byte. Returns 0 or the library's code. */
int worker_page_poke(struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t offset, char byte);
int worker_page_peek(
        struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t offset, char *ret_byte);

struct worker_state {
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct kvl_ns_info info;
        unsigned first_plane, n_planes; /* that it maps */
        char tenant[64];
        char events[2048]; /* words of events since the last "events" */
};

/* Leases, fills and publishes page `index` of `chain`, for session `of` (NULL: for none). 0 or the
 * library's code; the page is held. */
int worker_publish_next(struct worker_state *w, unsigned chain, unsigned index,
        struct kvl_session *of, uint32_t *ret_page);

/* A command: arguments without its name. Prints its one line. */
typedef void (*worker_fn)(struct worker_state *w, char **args, unsigned n_args);

struct worker_command {
        const char *name;
        worker_fn fn;
};

/* worker-flight.c, worker-pages.c, worker-session.c, worker-set.c, worker-stream.c, worker-window.c
 */
extern const struct worker_command worker_flight_commands[], worker_page_commands[],
        worker_session_commands[], worker_set_commands[], worker_stream_commands[],
        worker_window_commands[];

/* The one that is open; NULL: none. */
struct kvl_session *worker_session(void);

/* publish-stream, of worker-stream.c. */
void worker_publish_on_stream(
        struct worker_state *w, char **args, unsigned n_args, kvl_stream stream);

/* "CODE rest\n" with the library's sentence where code isn't 0. */
void worker_answer(int code);

/* "CODE a b c\n". */
void worker_answer_pages(int code, const uint32_t *pages, uint32_t n_pages);

/* Numbers out of words; returns how many. */
uint32_t worker_parse_pages(char **args, unsigned n_args, uint32_t *ret_pages);

/* Keys out of words, at most `max`. Returns how many; 0: not understood. */
uint32_t worker_parse_keys(char **args, unsigned n_args, uint8_t *ret_keys, uint32_t max);

#define WORKER_LOAD_CHAINS                                                                     \
        40                   /* texts: few enough that workers meet, enough to be evicted; not \
                                tuned */
#define WORKER_TEXT_PAGES 12 /* the longest text; not tuned */

/* Job of a program that isn't driven by lines, on namespace "load". */
struct worker_job {
        const char *socket;
        uint64_t seed;
        uint64_t count;      /* operations, or pins; 0: for ever */
        unsigned n_planes;   /* of 4 KiB a page */
        unsigned n_chains;   /* texts */
        bool has_safepoints; /* frees recalled sets after every operation */
};

/* worker-load.c: random lease, fill, publish, lookup, verify, release and free until `count` are
 * done. Returns the exit status: 0, or 1 if a page held wrong bytes. */
int worker_load(const struct worker_job *job);

/* worker_load() on an open namespace; may run in many threads at once. Returns 0 or 1. */
int worker_load_on(struct kvl_conn *conn, struct kvl_ns *ns, const struct worker_job *job);

/* worker-read.c: looks up texts that others publish until it has pinned `count` pages. Compares
 * every byte after pinning a page and again before releasing it. Returns like worker_load(). */
int worker_read(const struct worker_job *job);

/* worker-flight.c: computes `count` texts, each once between all workers of this job. Returns like
 * worker_load(). */
int worker_flight(const struct worker_job *job);

/*
 * worker-witness.c: publishes texts of its own, keeps the last `count`, and looks them up all the
 * time. Ends when the file in $KVL_WITNESS (witness.h) says so. Returns 0, or 1 if a page was
 * missing or wrong.
 */
int worker_witness(const struct worker_job *job);

/* Connects and opens the namespace of a job. Returns 0, or the library's code after a message on
 * stderr. */
int worker_open_job(
        const struct worker_job *job, struct kvl_conn **ret_conn, struct kvl_ns **ret_ns);

/* The layout all tests use: pages of 4 KiB a plane, 16 tokens. */
struct kvl_layout worker_layout(unsigned n_planes);

#endif
