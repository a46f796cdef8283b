/*
 * Keys of pages that were hashed before (kvl_key_memo_new()).
 *
 * Pages lie in a ring in the order in which they came, each with its parent's key, its tokens and
 * its key. New pages of one call are a run, which continues a text. A table finds the first page of
 * a run; before it is asked, a hint in the page before names the run that followed last. The oldest
 * pages are overwritten, and hashed again if they come again: no page needs the one before it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/hash.h"
#include "base/macros.h"
#include "client/lib/connection/error.h"
#include "client/lib/keys/layout.h"
#include "client/lib/objects/process.h"

#define MIN_BYTES (UINT64_C(1) << 20)
#define MAX_BYTES (UINT64_C(1) << 40)
#define NONE      UINT32_MAX
#define N_WAYS    8u /* slots in a bucket, which is a cache line */
#define SLOT_BYTES \
        (N_WAYS / 2 * sizeof(uint64_t)) /* for each page: two to four of eight are used */

struct entry {
        uint8_t parent[KVL_KEY_BYTES], key[KVL_KEY_BYTES];
        uint32_t slot; /* that was given to it; NONE: not the first of a run */
        uint32_t next; /* a hint: the run that followed last */
        uint32_t tokens[];
};

struct kvl_key_memo {
        pthread_mutex_t lock; /* guards all that isn't constant */
        unsigned n_forks;     /* process_n_forks of the process that made it */
        struct hash_seed seed;
        uint32_t page_tokens, n_entries, n_buckets; /* n_buckets: a power of two */
        uint64_t n_added; /* entries ever written; the next one is n_added % n_entries */
        uint64_t *slots;  /* 0: free; upper half: of the hash, lower half: the entry, from 1 on */
        uint8_t *entries; /* behind the slots */
        size_t entry_bytes, n_bytes;
};

static struct entry *entry_at(const struct kvl_key_memo *m, uint32_t i)
{
        return (struct entry *)(void *)(m->entries + i * m->entry_bytes);
}

/* ---- finding -----------------------------------------------------------------------------------
 */

/* An entry that was never written is no page after another one: a key isn't all zeros. */
static bool is_page(
        const struct kvl_key_memo *m, uint32_t i, const uint8_t *parent, const uint32_t *tokens)
{
        const struct entry *e = entry_at(m, i);

        return memcmp(e->tokens, tokens, m->page_tokens * sizeof(*tokens)) == 0 &&
               memcmp(e->parent, parent, sizeof(e->parent)) == 0;
}

static uint64_t hash_page(
        const struct kvl_key_memo *m, const uint8_t *parent, const uint32_t *tokens)
{
        struct sip s = sip_init(m->seed);
        uint32_t n = m->page_tokens;

        sip_word(&s, hash_digest(m->seed, parent));
        for (uint32_t i = 0; i + 1 < n; i += 2)
                sip_word(&s, tokens[i] | (uint64_t)tokens[i + 1] << 32);
        if (n % 2 != 0)
                sip_word(&s, tokens[n - 1]);
        return sip_end(&s);
}

static uint64_t *bucket_of(const struct kvl_key_memo *m, uint64_t hash)
{
        return m->slots + (size_t)N_WAYS * (hash & (m->n_buckets - 1));
}

static uint32_t find_run(
        const struct kvl_key_memo *m, const uint8_t *parent, const uint32_t *tokens)
{
        uint64_t hash = hash_page(m, parent, tokens), *bucket = bucket_of(m, hash);

        for (unsigned i = 0; i < N_WAYS; i++) {
                uint32_t entry = (uint32_t)bucket[i] - 1;

                if (bucket[i] != 0 && bucket[i] >> 32 == hash >> 32 &&
                        is_page(m, entry, parent, tokens))
                        return entry;
        }
        return NONE;
}

static uint32_t entry_after(const struct kvl_key_memo *m, uint32_t i)
{
        return i + 1 < m->n_entries ? i + 1 : 0;
}

/* Returns the entry of a page that follows the one of entry `last` (NONE: begins a text), or NONE.
 */
static uint32_t find_next(
        const struct kvl_key_memo *m, uint32_t last, const uint8_t *parent, const uint32_t *tokens)
{
        struct entry *e = last == NONE ? NULL : entry_at(m, last);
        uint32_t found;

        if (e && is_page(m, entry_after(m, last), parent, tokens))
                return entry_after(m, last);
        if (e && is_page(m, e->next, parent, tokens))
                return e->next;
        found = find_run(m, parent, tokens);
        if (e && found != NONE)
                e->next = found;
        return found;
}

/* Writes the keys of pages from the first one on, until one isn't known. Returns their number;
 * *ret_last: the entry of the last, or NONE. */
static uint32_t find_all(const struct kvl_key_memo *m, const uint8_t *parent,
        const uint32_t *tokens, uint32_t n_pages, uint8_t *ret_keys, uint32_t *ret_last)
{
        uint32_t n = 0, entry;

        for (*ret_last = NONE; n < n_pages; n++, tokens += m->page_tokens) {
                entry = find_next(m, *ret_last, parent, tokens);
                if (entry == NONE)
                        break;
                parent = entry_at(m, entry)->key;
                memcpy(ret_keys + (size_t)n * KVL_KEY_BYTES, parent, KVL_KEY_BYTES);
                *ret_last = entry;
        }
        return n;
}

/* ---- adding ------------------------------------------------------------------------------------
 */

/* Gives the entry a free slot of its bucket, or that of another entry, which is lost. */
static void add_slot(struct kvl_key_memo *m, uint32_t i)
{
        struct entry *e = entry_at(m, i);
        uint64_t hash = hash_page(m, e->parent, e->tokens), *slot = bucket_of(m, hash);

        for (unsigned k = 1; k < N_WAYS && *slot != 0; k++)
                slot++;
        *slot = (hash >> 32 << 32) | (i + 1);
        e->slot = (uint32_t)(slot - m->slots);
}

static void take_slot(struct kvl_key_memo *m, uint32_t i)
{
        uint32_t slot = entry_at(m, i)->slot;

        if (slot != NONE && (uint32_t)m->slots[slot] == i + 1)
                m->slots[slot] = 0;
}

static void add_run(struct kvl_key_memo *m, const uint8_t *parent, const uint32_t *tokens,
        uint32_t n_pages, const uint8_t *keys)
{
        for (uint32_t n = 0; n < MIN(n_pages, m->n_entries); n++, tokens += m->page_tokens) {
                uint32_t i = (uint32_t)(m->n_added % m->n_entries);
                struct entry *e = entry_at(m, i);

                take_slot(m, i);
                memcpy(e->parent, parent, sizeof(e->parent));
                memcpy(e->key, keys, sizeof(e->key));
                memcpy(e->tokens, tokens, m->page_tokens * sizeof(*tokens));
                e->slot = NONE;
                e->next = i; /* none yet: no page follows itself */
                if (n == 0)
                        add_slot(m, i);
                m->n_added++;
                parent = keys;
                keys += KVL_KEY_BYTES;
        }
}

/* ---- the calls of kvlease.h --------------------------------------------------------------------
 */

static int allocate_memo(struct kvl_key_memo *m, uint64_t max_bytes)
{
        void *memory;

        m->entry_bytes = round_up_u64(
                sizeof(struct entry) + m->page_tokens * sizeof(uint32_t), sizeof(uint64_t));
        m->n_entries = (uint32_t)MIN(
                max_bytes / (m->entry_bytes + SLOT_BYTES), (uint64_t)UINT32_MAX / N_WAYS);
        m->n_buckets = 1;
        while (m->n_buckets <= m->n_entries / 4)
                m->n_buckets *= 2;
        m->n_bytes = m->n_buckets * N_WAYS * sizeof(*m->slots) + m->n_entries * m->entry_bytes;
        memory = mmap(NULL, m->n_bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
                return error_set(-errno, "there is no memory for a memo of %zu bytes", m->n_bytes);
        m->slots = memory;
        m->entries = (uint8_t *)memory + m->n_buckets * N_WAYS * sizeof(*m->slots);
        return 0;
}

static int init(struct kvl_key_memo *m, uint64_t max_bytes)
{
        int r = process_watch_forks();

        if (r < 0)
                return error_set(r, "out of memory");
        m->n_forks = atomic_load_explicit(&process_n_forks, memory_order_relaxed);
        /* Up to 256 bytes come at once, without an interrupt. */
        if (getrandom(&m->seed, sizeof(m->seed), 0) != (ssize_t)sizeof(m->seed))
                return error_set(-EIO, "the kernel gives no random numbers");
        r = allocate_memo(m, max_bytes);
        if (r == 0)
                pthread_mutex_init(&m->lock, NULL);
        return r;
}

int kvl_key_memo_new(uint32_t page_tokens, uint64_t max_bytes, struct kvl_key_memo **ret_memo)
{
        struct kvl_key_memo *m;
        int r;

        if (!ret_memo)
                return error_set(-EINVAL, "there is no room for the memo");
        r = keys_check_page_tokens(page_tokens);
        if (r < 0)
                return r;
        if (max_bytes < MIN_BYTES || max_bytes > MAX_BYTES)
                return error_set(-EINVAL, "a memo takes 1 MiB to 1 TiB, not %llu bytes",
                        (unsigned long long)max_bytes);
        m = calloc(1, sizeof(*m));
        if (!m)
                return error_set(-ENOMEM, "out of memory");
        m->page_tokens = page_tokens;
        r = init(m, max_bytes);
        if (r < 0)
                free(m);
        else
                *ret_memo = m;
        return r;
}

void kvl_key_memo_free(struct kvl_key_memo *memo)
{
        if (!memo)
                return;
        munmap(memo->slots, memo->n_bytes);
        pthread_mutex_destroy(&memo->lock);
        free(memo);
}

int kvl_key_memo_keys(struct kvl_key_memo *memo, const uint8_t parent[KVL_KEY_BYTES],
        const uint32_t *tokens, uint32_t n_tokens, uint8_t *ret_keys, uint32_t *ret_n_hashed)
{
        bool is_ours = memo && memo->n_forks ==
                                       atomic_load_explicit(&process_n_forks, memory_order_relaxed);
        uint32_t n_full, n_known = 0, last = NONE;
        int r;

        if (!memo)
                return error_set(-EINVAL, "a memo is needed");
        r = keys_check(parent, tokens, n_tokens, ret_keys);
        if (r < 0)
                return r;
        n_full = n_tokens / memo->page_tokens;
        if (is_ours) {
                pthread_mutex_lock(&memo->lock);
                n_known = find_all(memo, parent, tokens, n_full, ret_keys, &last);
                pthread_mutex_unlock(&memo->lock);
        }
        if (n_known > 0)
                parent = ret_keys + (size_t)(n_known - 1) * KVL_KEY_BYTES;
        tokens += (size_t)n_known * memo->page_tokens;
        n_tokens -= n_known * memo->page_tokens;
        ret_keys += (size_t)n_known * KVL_KEY_BYTES;
        r = kvl_keys(parent, tokens, n_tokens, memo->page_tokens, ret_keys);
        if (r == 0 && is_ours && n_known < n_full) {
                pthread_mutex_lock(&memo->lock);
                if (last != NONE)
                        entry_at(memo, last)->next = (uint32_t)(memo->n_added % memo->n_entries);
                add_run(memo, parent, tokens, n_full - n_known, ret_keys);
                pthread_mutex_unlock(&memo->lock);
        }
        if (r == 0 && ret_n_hashed)
                *ret_n_hashed = n_tokens / memo->page_tokens + (n_tokens % memo->page_tokens > 0);
        return r;
}
