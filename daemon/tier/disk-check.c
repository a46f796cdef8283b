#include <string.h>

#include "base/parse.h"
#include "daemon/tier/disk-impl.h"

static unsigned length_of(const struct list_link *head)
{
        unsigned n = 0;

        for (const struct list_link *l = head->next; l != head; l = l->next)
                n++;
        return n;
}

/* A slot against its entry. */
static bool slot_is_right(const struct disk_chunk *c, uint32_t slot)
{
        const struct disk_entry *e = &c->entries[slot];
        const struct disk_slot *s = &c->slots[slot];

        if (s->state == SLOT_PAGE)
                return DISK_IS_WHOLE(e, c->nonce + slot) && e->page.length > 0 &&
                       e->page.length <= c->space->slot_bytes &&
                       e->generation == c->space->generation;
        if (!disk_is_zero(e, sizeof(*e)))
                return false;
        return s->state == SLOT_GONE ? s->n_reads > 0 : s->n_reads == 0;
}

struct sums {
        uint64_t n_slots, n_used, n_pages, used_bytes;
};

static bool count_slots(const struct disk_chunk *c, struct sums *ret_sums, char why[DISK_WHY_BYTES])
{
        struct sums s = {.n_slots = c->n_slots};

        for (uint32_t i = 0; c->slots && i < c->n_slots; i++) {
                bool is_page = c->slots[i].state == SLOT_PAGE;

                if (!slot_is_right(c, i))
                        return say_why(
                                why, DISK_WHY_BYTES, false, "slot %u of chunk %u", i, c->number);
                if (c->slots[i].state == SLOT_FREE && i < c->hint)
                        return say_why(why, DISK_WHY_BYTES, false,
                                "chunk %u has a free slot before its hint", c->number);
                s.n_used += c->slots[i].state != SLOT_FREE;
                s.n_pages += is_page;
                s.used_bytes += is_page ? round_up_u64(c->entries[i].page.length, DISK_ALIGN) : 0;
        }
        *ret_sums = s;
        return true;
}

static bool record_is_right(const struct disk_file *d, const struct disk_chunk *c)
{
        const struct disk_chunk_record *r = &d->chunk_records[c->number];

        if (c->state != CHUNK_USED)
                return disk_is_zero(r, sizeof(*r));
        return DISK_IS_WHOLE(r, d->super.nonce + c->number) && r->nonce == c->nonce &&
               r->instance == c->space->instance;
}

static bool used_is_right(const struct disk_chunk *c, struct sums *all, char why[DISK_WHY_BYTES])
{
        bool is_loaded = c->space->is_loaded; /* else chunks are being loaded, one by one */
        bool has_room = c->n_used < c->n_slots;
        struct sums s = {c->n_slots, c->n_used, c->n_pages, c->used_bytes};

        if (is_loaded && !count_slots(c, &s, why))
                return false;
        if (s.n_used != c->n_used || s.n_pages != c->n_pages || s.used_bytes != c->used_bytes)
                return say_why(why, DISK_WHY_BYTES, false, "counts of chunk %u", c->number);
        if (is_loaded && list_is_empty(&c->room) == has_room)
                return say_why(why, DISK_WHY_BYTES, false,
                        "chunk %u and the list of those with room", c->number);
        if (is_loaded && c->n_used == 0 && !c->is_zeroing)
                return say_why(
                        why, DISK_WHY_BYTES, false, "chunk %u is kept for nothing", c->number);
        all->n_slots += s.n_slots;
        all->n_used += s.n_used;
        all->n_pages += s.n_pages;
        all->used_bytes += s.used_bytes;
        return true;
}

static bool space_is_right(
        const struct disk_file *d, const struct disk_space *s, char why[DISK_WHY_BYTES])
{
        const struct disk_space_record *r = &d->space_records[s->row];
        struct sums all = {0};
        uint32_t n_freeing = 0;

        list_for_each (c, &s->chunks, struct disk_chunk, link)
                if (c->space != s || c->state != CHUNK_USED || !used_is_right(c, &all, why))
                        return why[0] ? false
                                      : say_why(why, DISK_WHY_BYTES, false, "chunk %u of a space",
                                                c->number);
        list_for_each (c, &d->freeing, struct disk_chunk, link)
                n_freeing += c->space == s;
        if (all.n_slots != s->n_slots || all.n_used != s->n_used || all.n_pages != s->n_pages ||
                all.used_bytes != s->used_bytes || n_freeing != s->n_freeing ||
                length_of(&s->chunks) != s->n_chunks)
                return say_why(why, DISK_WHY_BYTES, false, "counts of the space in row %u", s->row);
        if (!DISK_IS_WHOLE(r, d->super.nonce + s->row) || r->instance != s->instance ||
                r->generation != s->generation || r->slot_bytes != s->slot_bytes ||
                memcmp(r->id, s->id, sizeof(s->id)) != 0 || d->rows[s->row] != s)
                return say_why(why, DISK_WHY_BYTES, false, "record of the space in row %u", s->row);
        return true;
}

static bool chunk_is_right(
        const struct disk_file *d, const struct disk_chunk *c, char why[DISK_WHY_BYTES])
{
        if (!record_is_right(d, c))
                return say_why(why, DISK_WHY_BYTES, false, "record of chunk %u", c->number);
        if (c->state == CHUNK_FREE && (c->entries || c->n_busy > 0 || c->space))
                return say_why(
                        why, DISK_WHY_BYTES, false, "chunk %u is free, but not quite", c->number);
        if (c->state == CHUNK_FREEING && c->is_durable && c->n_busy == 0)
                return say_why(why, DISK_WHY_BYTES, false, "chunk %u should be free", c->number);
        return true;
}

static bool operations_are_right(const struct disk_file *d, char why[DISK_WHY_BYTES])
{
        unsigned n_idle = length_of(&d->idle_blocks);

        if (length_of(&d->flight) != d->n_flight || d->n_flight > MAX(d->n_given_max, 1u))
                return say_why(why, DISK_WHY_BYTES, false, "%u operations are under way, or %u",
                        d->n_flight, length_of(&d->flight));
        if (n_idle + d->n_writing != DISK_BLOCK_OPS)
                return say_why(why, DISK_WHY_BYTES, false, "%u blocks are written, %u aren't",
                        d->n_writing, n_idle);
        return true;
}

static bool chunks_are_right(const struct disk_file *d, char why[DISK_WHY_BYTES])
{
        uint64_t index_bytes = 0, n_used = 0;

        for (uint32_t i = 0; i < d->layout.n_chunks; i++) {
                const struct disk_chunk *c = &d->chunks[i];

                if (!chunk_is_right(d, c, why))
                        return false;
                index_bytes += c->memory_bytes;
                n_used += c->state == CHUNK_USED;
        }
        if (index_bytes != d->index_bytes)
                return say_why(why, DISK_WHY_BYTES, false, "bytes of indexes");
        if (n_used + d->n_free + d->n_freeing != d->layout.n_chunks ||
                length_of(&d->free) != d->n_free || length_of(&d->freeing) != d->n_freeing)
                return say_why(why, DISK_WHY_BYTES, false, "numbers of chunks");
        return true;
}

bool disk_check(const struct disk_file *d, char why[DISK_WHY_BYTES])
{
        uint32_t n_chunks = 0;

        why[0] = '\0';
        list_for_each (s, &d->spaces, struct disk_space, link) {
                if (!space_is_right(d, s, why))
                        return false;
                n_chunks += s->n_chunks;
        }
        if (length_of(&d->spaces) != d->n_spaces ||
                n_chunks + d->n_free + d->n_freeing != d->layout.n_chunks)
                return say_why(why, DISK_WHY_BYTES, false, "numbers of spaces or chunks");
        return chunks_are_right(d, why) && operations_are_right(d, why);
}
