/* Pages that one host invalidates are removed from others. Stores of daemon/core, each with its own
 * client of one real redis-server. test_exchange_cluster.c does this with processes. */
/* Before cmocka, whose fail() is a macro. */
#include "tests/integration/exchange-host.h"

#include <signal.h>
#include <stdio.h>

#include "daemon/exchange/exchange-impl.h"
#include "daemon/core/life/idle.h"
#include "daemon/core/life/namespace.h"
#include "daemon/exchange/format/change.h"

#define OTHER   100 /* keys of another text begin there */
#define N_OTHER 3
#define TAG     7

/* ---- hosts that invalidate ------------------------------------------------------------------- */

/* Hosts' clocks are ahead by this much, as they run five times as fast. */
static uint64_t ahead_nsec;

/* One iteration, and pending drops. */
static void turn(struct host *h)
{
        ahead_nsec += 4 * NSEC_PER_MSEC;
        host_turn_later(h, ahead_nsec);
        (void)tasks_work(&h->w.store);
}

/* Runs iterations for so long by its clock. */
static void turn_for(struct host *h, unsigned msec)
{
        for (unsigned i = 0; i < msec; i += 5) {
                turn(h);
                poll(NULL, 0, 1);
        }
}

static void await_counter(struct host *h, const uint64_t *counter, uint64_t least)
{
        const uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (*counter < least) {
                assert_true(clock_now_nsec() < until);
                turn(h);
                poll(NULL, 0, 1);
        }
}

static void await_told(struct host *h, uint64_t n_epochs)
{
        await_counter(h, &exchange_of(h->w.a)->counters.epochs, n_epochs);
}

static void await_followed(struct host *h, uint64_t n)
{
        await_counter(h, &exchange_of(h->w.a)->counters.followed, n);
}

static unsigned count_text(struct host *h, unsigned first, unsigned n)
{
        return count_hits(h->w.attach, first, n);
}

/* Waits until n pages of the text are cached. */
static void await_text(struct host *h, unsigned first, unsigned n, unsigned n_left)
{
        const uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (count_text(h, first, n) != n_left) {
                assert_true(clock_now_nsec() < until);
                turn(h);
                poll(NULL, 0, 1);
        }
        tiers_check(&h->w);
}

/* Computes two texts and exports neither: they stay on this host. */
static void compute_two(struct host *h)
{
        host_compute(h, N_PAGES);
        host_compute_behind(h, NULL, OTHER, N_OTHER);
}

/* Invalidates this page of a text with its continuations, cached here or not. */
static void host_invalidate(struct host *h, unsigned i)
{
        uint8_t key[KEY_BYTES];
        uint64_t n;

        make_keys(key, i, 1);
        assert_int_equal(invalidate_key(h->w.attach, key, &n, NULL), 0);
}

static void host_invalidate_tag(struct host *h, uint64_t tag)
{
        uint64_t n;

        assert_int_equal(invalidate_tag(h->w.attach, tag, &n, NULL), 0);
}

/* Both hosts know the epoch. */
static void start_two(struct host *a, struct host *b, const char *secret)
{
        server_start();
        host_start_with(a, true, secret);
        host_start_with(b, true, secret);
}

static void end_two(struct host *a, struct host *b)
{
        host_end(b);
        host_end(a);
        redis_cluster_deinit(&server);
}

/* ---- what goes ------------------------------------------------------------------------------- */

/*
 * The page and its continuations are removed, and nothing else. No host asks another for anything.
 */
TEST(test_key)
{
        struct host a, b;

        start_two(&a, &b, NULL);
        compute_two(&b);
        host_invalidate(&a, 5);
        await_told(&a, 1);
        await_text(&b, 0, N_PAGES, 5);
        assert_int_equal(count_text(&b, OTHER, N_OTHER), N_OTHER);
        assert_int_equal(counters_of(&b).followed, 1);
        assert_int_equal(counters_of(&b).probes, 0);
        /* A host that follows a change announces none: that would never end. */
        turn_for(&b, 1100);
        assert_int_equal(counters_of(&b).epochs, 0);
        assert_int_equal(count_text(&b, 0, N_PAGES), 5);
        end_two(&a, &b);
}

TEST(test_tag)
{
        uint8_t keys[N_OTHER * KEY_BYTES];
        uint32_t pages[N_OTHER], got[N_OTHER], n_got;
        const struct publish p = {
                .pages = pages, .keys = keys, .n = N_OTHER, .last_tokens = PAGE_TOKENS, .tag = TAG};
        struct host a, b;

        start_two(&a, &b, NULL);
        make_keys(keys, OTHER, N_OTHER);
        assert_int_equal(lease_pages(b.w.attach, N_OTHER, 1, pages, NULL), 0);
        assert_int_equal(publish_pages(b.w.attach, &p, 1, got, &n_got, NULL), 0);
        assert_int_equal(release_pages(b.w.attach, pages, N_OTHER, 1, NULL), 0);
        host_compute(&b, N_PAGES);
        host_invalidate_tag(&a, TAG + 1);
        await_told(&a, 1);
        await_followed(&b, 1);
        turn_for(&b, 20);
        assert_int_equal(count_text(&b, OTHER, N_OTHER), N_OTHER);
        host_invalidate_tag(&a, TAG);
        await_told(&a, 2);
        await_text(&b, OTHER, N_OTHER, 0);
        assert_int_equal(count_text(&b, 0, N_PAGES), N_PAGES);
        end_two(&a, &b);
}

TEST(test_all)
{
        struct host a, b;
        uint64_t n;

        start_two(&a, &b, NULL);
        compute_two(&b);
        assert_int_equal(ns_invalidate(a.w.ns, CAUSE_PURGE, &n), 0);
        await_told(&a, 1);
        await_followed(&b, 1);
        turn_for(&b, 20);
        assert_int_equal(count_text(&b, 0, N_PAGES), 0);
        assert_int_equal(count_text(&b, OTHER, N_OTHER), 0);
        turn_for(&b, 1200);
        assert_int_equal(counters_of(&b).epochs, 0);
        while (store_work(&b.w.store, 64))
                ;
        /* Pages computed from then on stay. */
        compute_two(&b);
        turn_for(&b, 1200);
        assert_int_equal(count_text(&b, 0, N_PAGES), N_PAGES);
        while (store_work(&a.w.store, 64))
                ;
        end_two(&a, &b);
}

/* More keys at once than a change has room for: all pages are dropped. */
TEST(test_very_many)
{
        struct host a, b;

        start_two(&a, &b, NULL);
        compute_two(&b);
        for (unsigned i = 0; i <= CHANGE_ITEMS_MAX; i++)
                host_invalidate(&a, 1000 + i);
        await_told(&a, 1);
        await_text(&b, 0, N_PAGES, 0);
        assert_int_equal(count_text(&b, OTHER, N_OTHER), 0);
        while (store_work(&b.w.store, 64))
                ;
        end_two(&a, &b);
}

/* ---- which hosts learn of a change, and when ------------------------------------------------- */

/* Waits until each host has so many pages of both texts. */
static void await_all(struct host *h, unsigned n_hosts, unsigned n_text, unsigned n_other)
{
        const uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        unsigned n_done = 0;

        while (n_done < n_hosts) {
                n_done = 0;
                assert_true(clock_now_nsec() < until);
                for (unsigned i = 0; i < n_hosts; i++) {
                        turn(&h[i]);
                        n_done += count_text(&h[i], 0, N_PAGES) == n_text &&
                                  count_text(&h[i], OTHER, N_OTHER) == n_other;
                }
                poll(NULL, 0, 1);
        }
}

/* Two hosts invalidate at the same moment, again and again. All hosts apply both changes, in any
 * order of arrival. */
SERVER_TEST(test_two_at_once)
{
        struct host h[3];

        for (unsigned i = 0; i < 3; i++)
                host_start(&h[i], true);
        for (unsigned round = 0; round < 5; round++) {
                for (unsigned i = 0; i < 3; i++)
                        compute_two(&h[i]);
                host_invalidate(&h[0], 7);
                host_invalidate(&h[1], OTHER + 1);
                await_all(h, 3, 7, 1);
                for (unsigned i = 0; i < 2; i++)
                        await_told(&h[i], 2 * round + 1);
                host_invalidate(&h[0], 0);
                host_invalidate(&h[1], OTHER);
                await_all(h, 3, 0, 0);
                for (unsigned i = 0; i < 2; i++)
                        await_told(&h[i], 2 * round + 2);
                /*
                 * Waits until no change is left to follow, as it would drop pages computed later.
                 */
                for (unsigned n = 0; n < 300; n++) {
                        for (unsigned i = 0; i < 3; i++)
                                turn(&h[i]);
                        poll(NULL, 0, 1);
                }
        }
        for (unsigned i = 0; i < 3; i++)
                host_end(&h[i]);
}

/* A host that was away follows all changes since. */
TEST(test_away_meanwhile)
{
        struct host a, b;

        start_two(&a, &b, NULL);
        compute_two(&b);
        for (unsigned i = 0; i < 5; i++) {
                host_invalidate(&a, 15 - i);
                await_told(&a, i + 1);
        }
        /* The host hasn't had a turn since. */
        assert_int_equal(count_text(&b, 0, N_PAGES), N_PAGES);
        await_text(&b, 0, N_PAGES, 11);
        await_followed(&b, 5);
        assert_int_equal(counters_of(&b).followed, 5);
        assert_int_equal(count_text(&b, OTHER, N_OTHER), N_OTHER);
        end_two(&a, &b);
}

/* The server has lost everything, which is no invalidation: hosts keep their pages. Later
 * invalidations reach all hosts. */
TEST(test_server_has_lost_all)
{
        struct host a, b;
        char *left;

        start_two(&a, &b, NULL);
        compute_two(&b);
        left = redis_cluster_call(&server, 0, "flushall");
        free(left);
        turn_for(&a, 1200);
        host_await_epoch(&a);
        turn_for(&b, 4500);
        assert_int_equal(count_text(&b, 0, N_PAGES), N_PAGES);
        assert_int_equal(counters_of(&b).followed, 0);
        turn_for(&a, 1200);
        host_invalidate(&a, 5);
        await_told(&a, 1);
        await_text(&b, 0, N_PAGES, 5);
        end_two(&a, &b);
}

/* The server stops answering. Invalidations meanwhile are announced when it is back, also by a host
 * whose namespace was removed. */
TEST(test_namespace_has_gone)
{
        struct host a, b;

        start_two(&a, &b, NULL);
        compute_two(&b);
        kill(server.servers[0].pid, SIGSTOP);
        host_invalidate(&a, 5);
        turn_for(&a, 50);
        attach_close(a.w.attach);
        assert_int_equal(idle_drop(a.w.a, 1), 1);
        a.w.attach = NULL;
        turn_for(&a, 1500);
        assert_int_equal(counters_of(&a).epochs, 0);
        kill(server.servers[0].pid, SIGCONT);
        await_told(&a, 1);
        await_text(&b, 0, N_PAGES, 5);
        turn_for(&a, 5);
        assert_true(list_is_empty(&exchange_of(a.w.a)->epochs));
        end_two(&a, &b);
}

/* An import read the epoch before an invalidation. Its answer is handled after the invalidation has
 * reached the server. It finds nothing. */
SERVER_TEST(test_epoch_that_was_read_before)
{
        struct import *i;
        struct host a;

        host_start(&a, true);
        host_share_text(&a);
        (void)tier_drop(&a.w, tier_find(&a.w, 0));
        assert_int_equal(import_ask(&a, a.w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        poll(NULL, 0, 50); /* it is answered, and not looked at yet */
        host_invalidate(&a, 0);
        for (unsigned n = 0; n < 100; n++) { /* only the epoch's own questions are looked at */
                (void)remote_reap(a.remote);
                list_for_each (p, &exchange_of(a.w.a)->epochs, struct exchange_epoch, link)
                        (void)epoch_work(p);
                poll(NULL, 0, 1);
        }
        assert_int_equal(counters_of(&a).epochs, 1);
        import_await(&a);
        assert_int_equal(a.n_imported, 0);
        assert_int_equal(count_text(&a, 0, N_PAGES), 0);
        assert_int_equal(import(&a, 0, N_PAGES, LONG_MSEC), 0);
        host_end(&a);
}

/* ---- forged values --------------------------------------------------------------------------- */

/* Puts a value into the place of a host's next change. */
static void forge_next(const struct host *h, const char *value)
{
        const struct exchange_epoch *p = exchange_find_ns(h->w.ns)->epoch;
        uint8_t place[EXCHANGE_PLACE_BYTES];
        char name[EXCHANGE_NAME_MAX];

        assert_int_equal(exchange_change_name(&p->x->whose, p->id, p->changes.at, place, name), 0);
        free(redis_cluster_call(&server, 0, "set %s %s", name, value));
}

/* Writes an epoch that none of the hosts has written. */
static void forge_epoch(void)
{
        char *name = redis_cluster_call(&server, 0, "--raw keys kvl:1:a:*:epoch");

        name[strcspn(name, "\r\n")] = '\0';
        free(redis_cluster_call(&server, 0, "set %s abcdefgh", name));
        free(name);
}

/* Rubbish is at the next change's place, and the epoch is forged. No page is removed, and later
 * invalidations are announced and followed. With a secret, only hosts that know it make changes. */
TEST(test_rubbish)
{
        static const char *const secrets[] = {NULL, "0123456789abcdef"};

        for (unsigned k = 0; k < ARRAY_SIZE(secrets); k++) {
                struct host a, b;

                start_two(&a, &b, secrets[k]);
                turn_for(&b, 1100);
                compute_two(&b);
                forge_next(&b, "rubbish");
                forge_epoch();
                turn_for(&b, 2500);
                assert_int_equal(count_text(&b, 0, N_PAGES), N_PAGES);
                assert_int_equal(count_text(&b, OTHER, N_OTHER), N_OTHER);
                turn_for(&a, 2500);
                forge_next(&a, "rubbish"); /* which is in the way of its own */
                host_invalidate(&a, 5);
                await_told(&a, 1);
                await_text(&b, 0, N_PAGES, 5);
                end_two(&a, &b);
        }
}

/* Rubbish is at the place where a host has to write, and the host may remove nothing. The epoch is
 * changed all the same. */
TEST(test_rubbish_in_the_way)
{
        struct host a, b;

        server_start();
        host_start(&b, true);
        host_start(&a, false);
        turn_for(&a, 1100);
        forge_next(&a, "rubbish");
        host_invalidate(&a, 5);
        await_told(&a, 1);
        end_two(&a, &b);
}

/* A change sealed for one epoch is invalid in another. */
TEST(test_copied)
{
        struct host a, b;
        char *names, *copied, words[2 * EXCHANGE_NAME_MAX + 64];
        const struct exchange_epoch *p;
        uint8_t place[EXCHANGE_PLACE_BYTES];
        char name[EXCHANGE_NAME_MAX];

        start_two(&a, &b, "0123456789abcdef");
        host_invalidate(&a, 5);
        await_told(&a, 1);
        await_followed(&b, 1);
        turn_for(&b, 1100);
        compute_two(&b);
        names = redis_cluster_call(&server, 0, "--raw keys kvl:1:a:*:change");
        names[strcspn(names, "\r\n")] = '\0';
        p = exchange_find_ns(b.w.ns)->epoch;
        assert_int_equal(exchange_change_name(&p->x->whose, p->id, p->changes.at, place, name), 0);
        snprintf(words, sizeof(words), "copy %s %s", names, name);
        copied = redis_cluster_call(&server, 0, "%s", words);
        assert_non_null(copied);
        free(copied);
        free(names);
        forge_epoch();
        turn_for(&b, 2500);
        assert_int_equal(count_text(&b, 0, N_PAGES), N_PAGES);
        assert_int_equal(counters_of(&b).followed, 1);
        end_two(&a, &b);
}

/* An attacker knows everything but the secret. It writes a change to the right place, as hosts
 * without a secret write one. */
TEST(test_forged)
{
        struct change c = {.next = 12345};
        struct host a, b;
        struct exchange_epoch *p;
        struct envelope v = {
                .rank = EXCHANGE_RANK_CHANGE, .payload_bytes = change_bytes(1), .tokens = 1};
        uint8_t value[ENVELOPE_BYTES + CHANGE_BYTES_MAX];
        char name[EXCHANGE_NAME_MAX], hex[2 * sizeof(value) + 1], *names;
        struct iovec payload = {value + ENVELOPE_BYTES, change_bytes(1)};

        change_add(&c, &(struct change_item){.kind = CHANGE_ALL});
        change_write(&c, payload.iov_base);
        start_two(&a, &b, "0123456789abcdef");
        turn_for(&b, 1100);
        compute_two(&b);
        p = exchange_find_ns(b.w.ns)->epoch;
        v.epoch = p->changes.at;
        memcpy(v.id, p->id, sizeof(v.id));
        assert_int_equal(exchange_change_name(&p->x->whose, p->id, v.epoch, v.key, name), 0);
        assert_int_equal(envelope_seal(&v, NULL, &payload, 1, NULL, value, NULL), 0);
        (void)format_hex(value, ENVELOPE_BYTES + payload.iov_len, hex);
        free(redis_cluster_call(&server, 0,
                "eval redis.call('set',KEYS[1],(ARGV[1]:gsub('..',function(h)return(string.char(tonumber(h,16)))end))) 1 %s %s",
                name, hex));
        names = redis_cluster_call(&server, 0, "strlen %s", name);
        assert_int_equal(atoi(names), ENVELOPE_BYTES + payload.iov_len);
        free(names);
        forge_epoch();
        turn_for(&b, 2500);
        assert_int_equal(count_text(&b, 0, N_PAGES), N_PAGES);
        assert_int_equal(counters_of(&b).followed, 0);
        end_two(&a, &b);
}
