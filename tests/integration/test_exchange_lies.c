/*
 * Imports of values that aren't those asked for. A host asks for a page, and a real redis-server
 * has another value under its name, drawn anew for each import. None is served. Values that another
 * host really wrote are among them: each is served with its own bytes. One tenant has a secret, one
 * has none. Without a secret a value has only sums, which find accidents but no attacker
 * (docs/security/THREATS.md). An attacker with access to the servers writes envelopes that are
 * accepted. There, a drawn value with mended sums always has a header that differs from the one
 * asked for. KVL_FULL=1: a million lies.
 */
/* Before cmocka, whose fail() is a macro. */
#include "tests/integration/exchange-host.h"

#include <stdio.h>

#include "daemon/exchange/exchange-impl.h"
#include "tests/integration/private-daemon.h"
#include "tests/unit/exchange-fixture.h"
#include "tests/unit/test-random.h"

#define N_TEXTS     32 /* of a page each, which are asked for at the same time */
#define TEXT_TOKENS 256
#define PLANE_BYTES 4096
#define VALUE_BYTES (ENVELOPE_BYTES + 2 * PLANE_BYTES) /* two planes, as host_start() has them */
#define LONGER_MAX  512

#define SECRET       "0123456789abcdef"
#define OTHER_SECRET "fedcba9876543210"

/* The host that wrote a value, and its kind. */
enum origin {
        OF_HONEST,    /* another host of the tenant */
        OF_OLD_EPOCH, /* the same, before something was invalidated */
        OF_PARENT,    /* the page behind another one */
        OF_RANK,      /* another rank's part of it */
        OF_CODEC,     /* in another codec */
        OF_TOKENS,    /* with more tokens than a page has */
        OF_NAMESPACE,
        OF_VERSION,   /* of the model */
        OF_TENANT,    /* another one, with the same secret or none */
        OF_SECRET,    /* with another secret */
        OF_NO_SECRET, /* where there is one; with the one that isn't known where there is none */
        N_ORIGINS
};

/* Change made to a value. */
enum lie {
        LIE_WHOLE,   /* nothing: it is under another page's name, or isn't honest */
        LIE_BITS,    /* some are flipped */
        LIE_FIELD,   /* of the header, which says something else then; its sum is mended */
        LIE_SHORTER, /* it ends too early */
        LIE_LONGER,
        LIE_MIXED, /* the header of one and the bytes of another */
        LIE_NOISE,
        N_LIES
};

static const char *const lie_names[N_LIES] = {
        "whole", "bits", "fields", "shorter", "longer", "mixed", "noise"};

struct trial {
        bool is_honest, is_over;
        uint32_t n_imported;
        int code;
        size_t n_bytes;
        uint8_t value[VALUE_BYTES + LONGER_MAX];
};

static uint8_t values[N_ORIGINS][N_TEXTS][VALUE_BYTES];
static struct trial trials[N_TEXTS];

/* ---- values ---------------------------------------------------------------------------------- */

/* Reads or writes one value for each text. n_bytes: of each. */
static void move_values(struct host *h, enum remote_kind kind, uint8_t *const at[N_TEXTS],
        const size_t n_bytes[N_TEXTS])
{
        static char names[N_TEXTS][EXCHANGE_NAME_MAX];
        struct remote_io *io = remote_io_new(N_TEXTS);
        struct iovec keys[N_TEXTS], pieces[N_TEXTS];
        uint8_t key[KEY_BYTES];
        struct one o = {.is_done = false};

        assert_non_null(io);
        io->kind = kind;
        io->of_class = REMOTE_LARGE;
        io->deadline_nsec = in_msec(LONG_MSEC);
        io->done = one_done;
        io->data = &o;
        for (unsigned i = 0; i < N_TEXTS; i++) {
                make_keys(key, i, 1);
                assert_int_equal(exchange_name_page(exchange_find_ns(h->w.ns), key, names[i]), 0);
                keys[i] = (struct iovec){names[i], strlen(names[i])};
                pieces[i] = (struct iovec){at[i], n_bytes[i]};
                io->ops[i] = (struct remote_op){.keys = &keys[i],
                        .n_keys = 1,
                        .iov = &pieces[i],
                        .n_iov = 1,
                        .expiry_msec = kind == REMOTE_WRITE ? 600000 : 0};
        }
        assert_int_equal(remote_submit(h->remote, io), 0);
        one_await(h->remote, &o);
        assert_int_equal(o.result, 0);
}

/* Another host computes and writes all texts. The values are read; then, if asked for, a page is
 * invalidated there. */
static void export_honest(const char *secret, enum origin to, bool invalidates)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        size_t n_bytes[N_TEXTS];
        uint8_t *at[N_TEXTS];
        struct host a;

        host_start_with(&a, true, secret);
        host_use_pages(&a, TEXT_TOKENS, PLANE_BYTES);
        a.last_tokens = TEXT_TOKENS;
        while (exchange_find_ns(a.w.ns)->epoch->number == 0) {
                assert_true(clock_now_nsec() < until);
                host_turn(&a);
        }
        for (unsigned i = 0; i < N_TEXTS; i++) {
                host_compute_behind(&a, NULL, i, 1);
                assert_int_equal(count_hits(a.w.attach, i, 1), 1);
                at[i] = values[to][i];
                n_bytes[i] = VALUE_BYTES;
        }
        host_await_exported(&a, N_TEXTS);
        move_values(&a, REMOTE_READ, at, n_bytes);
        if (invalidates)
                host_invalidate_all(&a);
        while (invalidates && counters_of(&a).epochs == 0) {
                assert_true(clock_now_nsec() < until);
                host_turn(&a);
        }
        host_end(&a);
}

/* Makes the value that a host writes with this key, or with none (NULL). Its bytes are random. */
static void make_value(uint8_t value[VALUE_BYTES], struct envelope e, const struct seal_key *key)
{
        uint8_t *payload = value + ENVELOPE_BYTES;
        struct iovec iov = {payload, e.payload_bytes};

        for (unsigned i = 0; i < e.payload_bytes; i += 8) {
                const uint64_t word = random_u64();

                memcpy(payload + i, &word, sizeof(word));
        }
        assert_int_equal(envelope_seal(&e, key, &iov, 1, NULL, value, key ? payload : NULL), 0);
}

/* Another namespace on another host. */
static const struct exchange_ns *open_other(
        struct host *h, struct member *m, const char *name, const struct ns_layout *l)
{
        struct attach *a;

        if (attach_open(m, name, l, "", false, &a, &h->w.d) != 0)
                fail_msg("%s", h->w.d.text);
        return exchange_find_ns(a->ns);
}

/* A client of another tenant of the host. */
static struct member *join_other_tenant(struct host *h, const char *secret)
{
        struct host other = *h;

        assert_int_equal(tenant_new(&h->w.store, "b", &h->w.a->attrs, &other.w.a, &h->w.d), 0);
        host_open_exchange(&other, false, secret);
        return join(other.w.a);
}

/*
 * Makes the dishonest values. Each is written as by a host that differs from this one in one thing.
 */
static void make_others(
        const struct host *b, struct host *c, struct member *of_tenant, const char *secret)
{
        const struct exchange_ns *e = exchange_find_ns(b->w.ns), *of[N_ORIGINS];
        struct exchange_tenant with_other = {
                .name = "a", .secret_len = strlen(OTHER_SECRET), .secret = OTHER_SECRET};
        const uint64_t epoch = e->epoch->number;
        struct ns_layout l = b->w.ns->layout;
        uint8_t key[KEY_BYTES], parent[KEY_BYTES];

        for (enum origin o = 0; o < N_ORIGINS; o++)
                of[o] = e;
        of[OF_NAMESPACE] = open_other(c, c->w.m, "other", &l);
        of[OF_TENANT] = open_other(c, of_tenant, b->w.ns->name, &l);
        strcpy(l.version, "v2");
        of[OF_VERSION] = open_other(c, c->w.m, b->w.ns->name, &l);
        make_keys(parent, N_TEXTS, 1);
        for (enum origin o = OF_PARENT; o < N_ORIGINS; o++) {
                const struct exchange_tenant *whose =
                        o == OF_SECRET || !secret ? &with_other : &of[o]->x->whose;
                const bool is_sealed = o == OF_SECRET || !secret == (o == OF_NO_SECRET);
                struct seal_key seal;

                assert_int_equal(exchange_seal_key(whose, epoch, &seal), 0);
                for (unsigned i = 0; i < N_TEXTS; i++) {
                        struct envelope says;

                        make_keys(key, i, 1);
                        says = exchange_envelope(of[o], key, o == OF_PARENT ? parent : NULL);
                        says.epoch = epoch;
                        says.tokens = TEXT_TOKENS + (o == OF_TOKENS);
                        says.rank += o == OF_RANK;
                        says.codec += o == OF_CODEC;
                        make_value(values[o][i], says, is_sealed ? &seal : NULL);
                }
        }
}

/* ---- lies ------------------------------------------------------------------------------------ */

static const uint8_t *draw_value(void)
{
        return values[random_below(N_ORIGINS)][random_below(N_TEXTS)];
}

static void flip_bits(struct trial *t)
{
        /* Most of a value is the page's bytes: the header gets half of the flips. */
        const size_t n = random_below(2) ? t->n_bytes : ENVELOPE_BYTES;

        for (unsigned k = 1 + random_below(random_below(4) ? 4 : 400); k > 0; k--)
                t->value[random_below((uint32_t)n)] ^= (uint8_t)(1 << random_below(8));
}

/* Changes a field of the header and mends the sum, as an attacker can. Left out: the tag, the epoch
 * and the tokens, which a host doesn't know before. */
static void change_field(struct trial *t)
{
        static const struct {
                uint32_t from, to;
        } fields[] = {{0, 32}, {32, 64}, {64, 96}, {96, 128}, {128, 160}, {160, 168}, {184, 188},
                {192, 240}, {240, 248}};
        const unsigned f = random_below(ARRAY_SIZE(fields));

        t->value[fields[f].from + random_below(fields[f].to - fields[f].from)] ^=
                (uint8_t)(1 + random_below(255));
        fixture_mend_sum(t->value);
}

static void make_lie(struct trial *t, unsigned text, enum lie lie)
{
        t->n_bytes = VALUE_BYTES;
        memcpy(t->value,
                lie == LIE_WHOLE || lie == LIE_MIXED ? draw_value() : values[OF_HONEST][text],
                VALUE_BYTES);
        switch (lie) {
        case LIE_BITS:
                flip_bits(t);
                break;
        case LIE_FIELD:
                change_field(t);
                break;
        case LIE_SHORTER:
                t->n_bytes = 1 + random_below(VALUE_BYTES - 1);
                break;
        case LIE_LONGER:
                t->n_bytes += 1 + random_below(LONGER_MAX);
                break;
        case LIE_MIXED:
                memcpy(t->value + ENVELOPE_BYTES, draw_value() + ENVELOPE_BYTES,
                        VALUE_BYTES - ENVELOPE_BYTES);
                break;
        case LIE_NOISE:
                for (size_t i = random_below(2) ? 0 : sizeof(uint64_t); i < VALUE_BYTES; i++)
                        t->value[i] = (uint8_t)random_u64();
                break;
        default:
                break;
        }
}

/* Draws the next import's value, which may be the honest one after all. */
static void draw_trial(struct trial *t, unsigned text, unsigned n_by_lie[N_LIES])
{
        const enum lie lie = random_below(N_LIES);

        *t = (struct trial){.n_bytes = VALUE_BYTES};
        if (random_below(16) == 0)
                memcpy(t->value, values[OF_HONEST][text], VALUE_BYTES);
        else
                make_lie(t, text, lie);
        t->is_honest = t->n_bytes == VALUE_BYTES &&
                       memcmp(t->value, values[OF_HONEST][text], VALUE_BYTES) == 0;
        if (!t->is_honest)
                n_by_lie[lie]++;
}

/* ---- imports --------------------------------------------------------------------------------- */

static void on_trial_over(const struct import_outcome *outcome, void *data)
{
        struct trial *t = data;

        assert_false(t->is_over);
        t->is_over = true;
        t->n_imported = outcome->n_pages;
        t->code = outcome->code;
}

/* Imports all texts, with the trials' values under their names. */
static void import_trials(struct host *b)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        size_t n_bytes[N_TEXTS];
        uint8_t *at[N_TEXTS];
        unsigned n_over;

        for (unsigned i = 0; i < N_TEXTS; i++) {
                at[i] = trials[i].value;
                n_bytes[i] = trials[i].n_bytes;
        }
        move_values(b, REMOTE_WRITE, at, n_bytes);
        for (unsigned i = 0; i < N_TEXTS; i++) {
                uint8_t key[KEY_BYTES];
                struct import_request rq = {
                        .keys = key, .n_keys = 1, .deadline_nsec = in_msec(LONG_MSEC)};
                struct import *import;

                make_keys(key, i, 1);
                assert_int_equal(import_begin(b->w.attach, &rq, clock_now_nsec(), on_trial_over,
                                         &trials[i], &import, &b->w.d),
                        0);
        }
        do {
                struct pollfd p = {.fd = remote_fd(b->remote), .events = POLLIN};

                assert_true(clock_now_nsec() < until);
                (void)poll(&p, 1, 1);
                host_turn(b);
                n_over = 0;
                for (unsigned i = 0; i < N_TEXTS; i++)
                        n_over += trials[i].is_over;
        } while (n_over < N_TEXTS);
}

/* Honest values were served with their bytes, and are dropped; no other was served. Returns how
 * many were. */
static unsigned look_at_trials(struct host *b)
{
        unsigned n = 0;

        for (unsigned i = 0; i < N_TEXTS; i++) {
                const uint32_t page = tier_find(&b->w, i);

                assert_int_equal(trials[i].n_imported, trials[i].is_honest);
                assert_int_equal(trials[i].code, trials[i].is_honest ? 0 : KVL_STATUS_MISS);
                assert_int_equal(page != PAGE_NONE, trials[i].is_honest);
                n += trials[i].is_honest;
                if (!trials[i].is_honest)
                        continue;
                assert_true(tier_is_filled(&b->w, page, i));
                assert_int_equal(tier_drop(&b->w, page), 1);
        }
        return n;
}

/* The host learns the epoch, and gets all honest values. */
static void import_honest(struct host *b)
{
        for (unsigned i = 0; i < N_TEXTS; i++) {
                trials[i] = (struct trial){.is_honest = true, .n_bytes = VALUE_BYTES};
                memcpy(trials[i].value, values[OF_HONEST][i], VALUE_BYTES);
        }
        import_trials(b);
        assert_int_equal(look_at_trials(b), N_TEXTS);
}

static void import_lies(const char *secret)
{
        const unsigned n_least = private_full() ? 500000 : 10000;
        unsigned n_honest = N_TEXTS, n_lies = 0, n_by_lie[N_LIES] = {0};
        struct exchange_counters seen;
        struct member *of_tenant;
        struct host b, c;

        server_start();
        export_honest(secret, OF_OLD_EPOCH, true);
        export_honest(secret, OF_HONEST, false);
        host_start_with(&b, false, secret);
        host_use_pages(&b, TEXT_TOKENS, PLANE_BYTES);
        host_start_with(&c, false, secret);
        of_tenant = join_other_tenant(&c, secret);
        import_honest(&b);
        make_others(&b, &c, of_tenant, secret);
        while (n_lies < n_least) {
                unsigned n;

                for (unsigned i = 0; i < N_TEXTS; i++)
                        draw_trial(&trials[i], i, n_by_lie);
                import_trials(&b);
                n = look_at_trials(&b);
                n_honest += n;
                n_lies += N_TEXTS - n;
        }
        for (enum lie l = 0; l < N_LIES; l++) {
                print_message("%s%u %s", l > 0 ? ", " : "", n_by_lie[l], lie_names[l]);
                assert_true(n_by_lie[l] > 0);
        }
        print_message(": none served; %u honest: all served\n", n_honest);
        seen = counters_of(&b);
        assert_int_equal(seen.imported_pages, n_honest);
        /* Each was found, read and refused: none ended for another reason. */
        assert_int_equal(seen.not_imported[EXCHANGE_DAMAGED], n_lies);
        assert_int_equal(seen.found_pages, n_honest + n_lies);
        exchange_close(of_tenant->group->tenant);
        member_free(of_tenant);
        host_end(&c);
        host_end(&b);
        redis_cluster_deinit(&server);
}

TEST(test_summed)
{
        import_lies(NULL);
}

TEST(test_sealed)
{
        import_lies(SECRET);
}

int main(void)
{
        random_start("test_exchange_lies");
        return test_run_all(NULL, NULL);
}
