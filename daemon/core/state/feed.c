#include "daemon/core/state/feed.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fault-point.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/keep.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"

/* Most bytes of a ring. With pages of 64 tokens it has room for 16,384 changes: 1.6 s of 10,000
 * publishes a second. Not tuned. */
#define RING_BYTES (UINT64_C(8) << 20)

/* ---- layout ---------------------------------------------------------------------------------- */

static uint32_t line_bytes(const struct ns *ns)
{
        uint32_t bytes = (uint32_t)sizeof(struct shm_feed_line) +
                         ns->layout.page_tokens * (uint32_t)sizeof(uint32_t);

        return (bytes + 63) / 64 * 64;
}

static uint32_t n_slots(const struct ns *ns)
{
        uint32_t n = 1;

        while (n * 2 * shm_feed_slot_bytes(line_bytes(ns)) <= RING_BYTES)
                n *= 2;
        return n;
}

static uint64_t lines_bytes(const struct ns *ns)
{
        return (uint64_t)ns->geometry.capacity_pages * line_bytes(ns);
}

static uint64_t feed_bytes(const struct ns *ns)
{
        return SHM_HEADER_BYTES + lines_bytes(ns) +
               n_slots(ns) * shm_feed_slot_bytes(line_bytes(ns));
}

static void fill_header(const struct ns *ns)
{
        struct shm_feed *h = ns->feed.header;

        h->header = (struct shm_header){
                .magic = SHM_MAGIC,
                .version = SHM_LAYOUT_VERSION,
                .kind = SHM_FEED,
                .bytes = ns->feed.segment.bytes,
                .boot_epoch = ns->store->boot_epoch,
                .owner = ns->id,
        };
        h->capacity_pages = ns->geometry.capacity_pages;
        h->page_tokens = ns->layout.page_tokens;
        h->n_slots = n_slots(ns);
        h->line_bytes = line_bytes(ns);
        h->lines_offset = SHM_HEADER_BYTES;
        h->slots_offset = SHM_HEADER_BYTES + lines_bytes(ns);
        atomic_store_explicit(&h->epoch, ns->epoch, memory_order_release);
}

/* The segment is made by this daemon's rules: fields of the header are ours, and right. */
static struct shm_feed_line *line_at(const struct ns *ns, uint32_t page)
{
        uint8_t *base = ns->feed.segment.base;

        return (struct shm_feed_line *)(void *)(base + SHM_HEADER_BYTES +
                                                (uint64_t)page * line_bytes(ns));
}

static struct shm_feed_slot *slot_at(const struct ns *ns, uint64_t n)
{
        uint8_t *base = ns->feed.segment.base;

        return (struct shm_feed_slot *)(void *)(base + SHM_HEADER_BYTES + lines_bytes(ns) +
                                                n % n_slots(ns) *
                                                        shm_feed_slot_bytes(line_bytes(ns)));
}

static uint64_t word_of(const struct shm_feed_line *line)
{
        return atomic_load_explicit(&line->word, memory_order_relaxed);
}

/* ---- changes --------------------------------------------------------------------------------- */

static void show_tail(struct ns *ns)
{
        FAULT_POINT("feed-before-tail");
        atomic_store_explicit(&ns->feed.header->tail, ns->feed.tail, memory_order_release);
        FAULT_POINT("feed-after-tail");
}

/* Adds a change, with the line of the page, whose word will be `word`. The change comes before
 * the lines themselves show it: a reader that copies a changed line finds the change behind. */
static void add_change(
        struct ns *ns, enum shm_feed_kind kind, uint32_t page, uint32_t from, uint64_t word)
{
        struct shm_feed_slot *slot = slot_at(ns, ns->feed.tail);
        size_t bytes = sizeof(slot->line);

        atomic_thread_fence(memory_order_release);
        slot->kind = kind;
        slot->page = page;
        slot->from = from;
        slot->from_tier = kind == SHM_FEED_MOVED ? (uint8_t)tier_of_page(&ns->geometry, from) : 0;
        if (page != PAGE_NONE) {
                const struct shm_feed_line *line = line_at(ns, page);

                if ((word & 0xff) == SHM_FEED_IDS)
                        bytes += ns_page(ns, page)->tokens * sizeof(uint32_t);
                memcpy(&slot->line, line, bytes);
                atomic_store_explicit(&slot->line.word, word, memory_order_relaxed);
        }
        ns->feed.tail++;
        show_tail(ns);
}

/* Hides the line from readers that copy lines, before it is changed. */
static void hide_line(struct shm_feed_line *line)
{
        atomic_store_explicit(&line->word, 0, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
}

/* Were all ids of the page given since it was granted? They stay when its line is hidden: after a
 * kill the page may turn out to be findable still. */
static bool has_noted_ids(const struct ns *ns, uint32_t page, uint32_t tokens)
{
        const struct shm_feed_line *line = line_at(ns, page);

        return tokens > 0 && line->n_ids == tokens &&
               line->ids_generation == ns_page(ns, page)->generation;
}

/* Writes the line of a findable page, whose record is complete, and leaves it hidden. Returns the
 * word that shows it. */
static uint64_t write_line(struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);
        uint32_t parent = tree_parent(&ns->tree, page);
        struct shm_feed_line *line = line_at(ns, page);
        bool has_ids = has_noted_ids(ns, page, p->tokens);

        hide_line(line);
        memcpy(line->key, p->key, KEY_BYTES);
        if (parent != NODE_NONE)
                memcpy(line->parent, ns_page(ns, parent)->key, KEY_BYTES);
        line->epoch = ns->epoch;
        line->tag = ns_extra(ns, page)->tag;
        line->depth = ns_note(ns, page)->depth;
        line->tokens = p->tokens;
        line->tier = (uint8_t)tier_of_page(&ns->geometry, page);
        return p->generation << 8 | (has_ids ? SHM_FEED_IDS : SHM_FEED_KEY);
}

static void show_line(const struct ns *ns, uint32_t page, uint64_t word)
{
        FAULT_POINT("feed-before-word");
        atomic_store_explicit(&line_at(ns, page)->word, word, memory_order_release);
        FAULT_POINT("feed-after-word");
}

static void note_names(struct shm_feed_line *line, uint64_t first, const void *words, uint32_t n)
{
        if ((first + n) * sizeof(uint32_t) <= sizeof(line->names))
                memcpy(line->names + first * sizeof(uint32_t), words, n * sizeof(uint32_t));
}

void feed_note_ids(struct ns *ns, uint32_t page, uint32_t first, const void *ids, uint32_t n)
{
        uint32_t page_tokens = ns->layout.page_tokens;
        struct shm_feed_line *line;

        if (!feed_is_on(&ns->feed))
                return;
        line = line_at(ns, page);
        if (first == 0) {
                hide_line(line); /* it may be an older page's that recovery hasn't looked at */
                line->n_ids = 0;
                line->ids_generation = ns_page(ns, page)->generation;
                memset(line->names, 0, sizeof(line->names));
        }
        if (line->ids_generation != ns_page(ns, page)->generation)
                return;
        if (first >= page_tokens)
                note_names(line, first - page_tokens, ids, n);
        if (first >= page_tokens || first != line->n_ids || n > page_tokens - first)
                return;
        memcpy(shm_feed_ids(line) + first, ids, n * sizeof(uint32_t));
        line->n_ids += n;
}

void feed_stored(struct ns *ns, uint32_t page)
{
        uint64_t word;

        if (!feed_is_on(&ns->feed))
                return;
        word = write_line(ns, page);
        add_change(ns, SHM_FEED_STORED, page, PAGE_NONE, word);
        show_line(ns, page, word);
}

/* Copies the ids noted for a page to those noted for another. */
static void copy_ids(struct ns *ns, uint32_t from, uint32_t to)
{
        const struct shm_feed_line *line = line_at(ns, from);

        feed_note_ids(ns, to, 0, shm_feed_ids(line_at(ns, from)), line->n_ids);
        memcpy(line_at(ns, to)->names, line->names, sizeof(line->names));
}

void feed_add_ids(struct ns *ns, uint32_t page, uint32_t from)
{
        const struct page *p = ns_page(ns, page);

        if (!feed_is_on(&ns->feed) || has_noted_ids(ns, page, p->tokens) ||
                !has_noted_ids(ns, from, p->tokens))
                return;
        copy_ids(ns, from, page);
        feed_stored(ns, page);
}

void feed_removed(struct ns *ns, uint32_t page)
{
        if (!feed_is_on(&ns->feed))
                return;
        add_change(ns, SHM_FEED_REMOVED, page, PAGE_NONE, 0);
        hide_line(line_at(ns, page));
}

void feed_moves(struct ns *ns, uint32_t from, uint32_t to)
{
        uint32_t tokens = ns_page(ns, from)->tokens;

        if (feed_is_on(&ns->feed) && !has_noted_ids(ns, to, tokens) &&
                has_noted_ids(ns, from, tokens))
                copy_ids(ns, from, to);
}

void feed_moved(struct ns *ns, uint32_t from, uint32_t to)
{
        uint64_t word;

        if (!feed_is_on(&ns->feed))
                return;
        word = write_line(ns, to);
        add_change(ns, SHM_FEED_MOVED, to, from, word);
        show_line(ns, to, word);
        hide_line(line_at(ns, from));
}

void feed_cleared(struct ns *ns)
{
        if (!feed_is_on(&ns->feed))
                return;
        atomic_store_explicit(&ns->feed.header->epoch, ns->epoch, memory_order_release);
        add_change(ns, SHM_FEED_CLEARED, PAGE_NONE, PAGE_NONE, 0);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The segment is in place: it is used from now on. */
static void begin_feed(struct ns *ns)
{
        struct feed *f = &ns->feed;

        f->header = f->segment.base;
        f->charged_bytes = f->segment.bytes;
        ns->tenant->feeds_bytes += f->charged_bytes;
        ns->tenant->n_feeds++;
        fill_header(ns);
        f->tail = atomic_load_explicit(&f->header->tail, memory_order_relaxed);
}

static bool fits(const struct ns *ns)
{
        const struct tenant *t = ns->tenant;
        uint64_t limit = t->attrs.events_bytes;

        return t->feeds_bytes <= limit && feed_bytes(ns) <= limit - t->feeds_bytes;
}

bool feed_is_missing(const struct ns *ns, struct detail *d)
{
        const struct tenant *t = ns->tenant;
        char needs[FORMAT_BYTES_MAX], has[FORMAT_BYTES_MAX], uses[FORMAT_BYTES_MAX];

        if (feed_is_on(&ns->feed) || t->attrs.events_bytes == 0)
                return false;
        if (fits(ns))
                (void)detail_set(d, 0, "namespace %s of tenant %s has no events until a restart",
                        ns->name, t->name);
        else
                (void)detail_set(d, 0,
                        "namespace %s of tenant %s has no events: they reserve %s, and 'events' of the tenant is %s, of which others use %s",
                        ns->name, t->name, format_bytes(feed_bytes(ns), needs),
                        format_bytes(t->attrs.events_bytes, has),
                        format_bytes(t->feeds_bytes, uses));
        return true;
}

static void drop_kept(const struct keep *k, uint32_t number)
{
        keep_drop(k, KEEP_FEED, number);
        keep_drop(k, KEEP_FEED_READER, number);
}

/* Without room in the descriptor store, token ids don't survive a restart. */
static void keep_segment(const struct ns *ns)
{
        const struct keep *k = &ns->store->keep;
        const struct segment *s = &ns->feed.segment;
        uint32_t number = ns->records.number;

        if (ns->records.fd < 0)
                return;
        if (keep_add(k, KEEP_FEED, number, s->fd, NULL) < 0 ||
                keep_add(k, KEEP_FEED_READER, number, s->reader_fd, NULL) < 0)
                drop_kept(k, number);
}

void feed_open(struct ns *ns)
{
        const struct store_owner *owner = &ns->store->owner;

        if (ns->tenant->attrs.events_bytes == 0)
                return;
        if (!fits(ns) || segment_new(&ns->store->room, "kvlease-feed", feed_bytes(ns),
                                 &ns->feed.segment) < 0) {
                if (owner->on_no_events)
                        owner->on_no_events(ns, owner->data);
                return;
        }
        keep_segment(ns);
        begin_feed(ns);
}

void feed_close(struct ns *ns)
{
        struct feed *f = &ns->feed;

        if (!feed_is_on(f))
                return;
        atomic_store_explicit(&f->header->ended, 1, memory_order_release);
        if (ns->records.fd >= 0)
                drop_kept(&ns->store->keep, ns->records.number);
        ns->tenant->feeds_bytes -= f->charged_bytes;
        ns->tenant->n_feeds--;
        segment_free(&f->segment);
        *f = (struct feed){.segment = f->segment};
}

/* ---- recovery -------------------------------------------------------------------------------- */

static int take_segment(const struct keep *k, enum keep_kind kind, uint32_t number)
{
        return k->ops ? k->ops->take(k->data, kind, number) : -1;
}

/* Maps the header of a kept feed; NULL: it is no such file. */
static struct shm_feed *map_header(int fd)
{
        struct stat st;

        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)SHM_HEADER_BYTES)
                return NULL;
        return memory_map(fd, SHM_HEADER_BYTES);
}

void feed_end_kept(const struct keep *k, uint32_t number)
{
        _cleanup_fd_ int fd = take_segment(k, KEEP_FEED, number);
        struct shm_feed *h = fd >= 0 ? map_header(fd) : NULL;

        if (h) {
                atomic_store_explicit(&h->ended, 1, memory_order_release);
                munmap(h, SHM_HEADER_BYTES);
        }
        fd_close(take_segment(k, KEEP_FEED_READER, number));
        drop_kept(k, number);
}

/* Has the segment this namespace's layout? */
static bool is_ours(const struct ns *ns, const struct segment *s)
{
        const struct shm_feed *h = s->base;

        return h->header.magic == SHM_MAGIC && h->header.version == SHM_LAYOUT_VERSION &&
               h->header.kind == SHM_FEED && h->header.owner == ns->id &&
               h->line_bytes == line_bytes(ns) && h->n_slots == n_slots(ns) &&
               h->capacity_pages == ns->geometry.capacity_pages &&
               atomic_load_explicit(&h->ended, memory_order_relaxed) == 0;
}

static bool adopt(struct ns *ns)
{
        const struct keep *k = &ns->store->keep;
        struct segment *s = &ns->feed.segment;
        int fd = take_segment(k, KEEP_FEED, ns->records.number);
        int reader_fd = take_segment(k, KEEP_FEED_READER, ns->records.number);

        if (fd < 0 || reader_fd < 0 || segment_adopt(fd, reader_fd, feed_bytes(ns), s) < 0) {
                fd_close(fd);
                fd_close(reader_fd);
                return false;
        }
        if (is_ours(ns, s)) {
                begin_feed(ns);
                return true;
        }
        segment_free(s);
        return false;
}

static bool is_findable(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        return p && p->state == PAGE_SEALED && !ns_page_is_stale(ns, p);
}

/* Is the line that of the page's contents now? Then only the parent and the ids are taken on
 * trust. */
static bool is_line_of(const struct ns *ns, const struct shm_feed_line *line, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        return word_of(line) >> 8 == p->generation && memcmp(line->key, p->key, KEY_BYTES) == 0 &&
               line->epoch == ns->epoch && line->tokens == p->tokens;
}

/* Hides lines of pages that can't be found, in the touched parts of the segment. */
static void correct_lines(struct ns *ns)
{
        uint64_t bytes = line_bytes(ns), last = SHM_HEADER_BYTES + lines_bytes(ns);
        uint64_t at = SHM_HEADER_BYTES, end;

        for (;;) {
                at = segment_next_part(&ns->feed.segment, at, &end);
                if (at >= last)
                        return;
                for (uint64_t i = (at - SHM_HEADER_BYTES) / bytes;
                        i * bytes + SHM_HEADER_BYTES < MIN(end, last); i++) {
                        struct shm_feed_line *line = line_at(ns, (uint32_t)i);

                        if (word_of(line) != 0 && (!is_findable(ns, (uint32_t)i) ||
                                                          !is_line_of(ns, line, (uint32_t)i)))
                                hide_line(line);
                }
                at = end;
        }
}

/* Writes the lines that findable pages lack. */
static void add_lines(struct ns *ns)
{
        uint32_t n = ns->geometry.set_pages;

        ns_for_each_set (set, ns)
                for (uint32_t page = set->index * n; page < (set->index + 1) * n; page++)
                        if (is_findable(ns, page) && word_of(line_at(ns, page)) == 0)
                                show_line(ns, page, write_line(ns, page));
}

void feed_recover(struct ns *ns)
{
        if (!fits(ns) || !adopt(ns)) {
                feed_end_kept(&ns->store->keep, ns->records.number);
                feed_open(ns);
        }
        if (!feed_is_on(&ns->feed))
                return;
        correct_lines(ns);
        FAULT_POINT("recover-half-fed");
        add_lines(ns);
        /* All readers begin anew, behind a change of nothing. */
        ns->feed.tail += ns->feed.header->n_slots;
        add_change(ns, SHM_FEED_NOTHING, PAGE_NONE, PAGE_NONE, 0);
}

/* ---- the checker ----------------------------------------------------------------------------- */

const char *feed_check_page(const struct ns *ns, uint32_t page)
{
        const struct shm_feed_line *line;
        uint32_t parent;

        if (!feed_is_on(&ns->feed))
                return NULL;
        line = line_at(ns, page);
        if (!is_findable(ns, page))
                return word_of(line) != 0 && line->epoch == ns->epoch
                               ? "can't be found, but the feed has it"
                               : NULL;
        if (word_of(line) == 0)
                return "can be found, but the feed lacks it";
        parent = tree_parent(&ns->tree, page);
        if (!is_line_of(ns, line, page) ||
                line->tier != (uint8_t)tier_of_page(&ns->geometry, page) ||
                line->depth != ns_note(ns, page)->depth ||
                (parent != NODE_NONE &&
                        memcmp(line->parent, ns_page(ns, parent)->key, KEY_BYTES) != 0))
                return "differs from its line in the feed";
        return NULL;
}
