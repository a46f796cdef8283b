/*
 * Pages below the device, as the library sees them: found and brought up, or read where they lie;
 * through the rings and over the socket.
 */
#include "tests/unit/client-tiers.h"

/* ---- what there is -------------------------------------------------------------------------- */

/* Each way to describe tiers wrongly ends the connection. */
static unsigned how;

static void spoil(Kvlease__V1__NsOpenReply *m)
{
        switch (how) {
        case 0:
                m->tiers[1]->first_page++;
                break;
        case 1:
                m->tiers[1]->n_pages--;
                break;
        case 2:
                m->tiers[1]->n_pages -= SET_PAGES;
                break;
        case 3:
                m->tiers[1]->n_pages += SET_PAGES;
                break;
        case 4:
                m->tiers[1]->kind = 0;
                break;
        case 5:
                m->tiers[0]->kind = 1;
                break;
        case 6:
                m->tiers[1]->page_bytes /= 2;
                break;
        case 7:
                m->tiers[1]->extent_bytes /= 2;
                break;
        case 8:
                m->tiers[1]->extent_bytes = UINT64_MAX;
                break;
        case 9:
                m->tiers[0]->n_pages = 0;
                m->tiers[1]->first_page = 0;
                m->tiers[1]->n_pages = m->capacity_pages;
                break;
        default:
                m->n_tiers = 1;
        }
}

#define N_SPOILED 11

static void script_spoiled(struct fake_peer *p)
{
        for (how = 0; how < N_SPOILED; how++) {
                if (how > 0)
                        fake_accept(p);
                p->n_device_sets = 2;
                p->spoil = spoil;
                fake_welcome_ns(p);
                fake_expect_end(p);
        }
}

TEST(test_spoiled)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct client c;

        fake_start(&c.f, script_spoiled);
        for (unsigned i = 0; i < N_SPOILED; i++) {
                assert_int_equal(test_connect(&c.f, LONG_MSEC, &c.conn), 0);
                assert_int_equal(kvl_ns_open(c.conn, "chat", &layout, NULL, 0, &c.ns), -EPROTO);
                kvl_disconnect(c.conn);
        }
        fake_stop(&c.f);
}

/* ---- where they lie ------------------------------------------------------------------------- */

static void script_find(struct fake_peer *p)
{
        script_text(p);
        FAKE_CHECK(p->n_fetches == 0);
}

static void assert_read_only(void *at)
{
        struct test_range {
                unsigned long begin, end;
        } r;
        char line[512], mode[8];
        bool found = false;
        FILE *maps = fopen("/proc/self/maps", "re");

        assert_non_null(maps);
        while (!found && fgets(line, sizeof(line), maps))
                found = sscanf(line, "%lx-%lx %7s", &r.begin, &r.end, mode) == 3 &&
                        (unsigned long)at >= r.begin && (unsigned long)at < r.end;
        fclose(maps);
        assert_true(found);
        assert_string_equal(mode, "r--s");
}

static void assert_finds(unsigned flags)
{
        struct client c;
        uint32_t number;

        open_client(&c, script_find, LONG_MSEC, flags);
        assert_int_equal(find(&c, N_KEYS), 0);
        assert_int_equal(c.n_pages, 9);
        assert_int_equal(c.n_tokens, 45);
        for (uint32_t i = 0; i < c.n_pages; i++) {
                bool is_up = i < 2 || i == 4;
                const uint32_t *at = kvl_page_ptr(c.ns, c.pages[i], 0);

                assert_int_equal(c.pages[i], (is_up ? 10 : N_DEVICE + 20) + i);
                assert_non_null(at);
                if (is_up)
                        continue;
                assert_int_equal(*at, c.pages[i]);
                assert_read_only((void *)at);
                assert_int_equal(kvl_page_read(c.ns, c.pages[i], 0, 0, &number, 4), 0);
                assert_int_equal(number, c.pages[i]);
                assert_int_equal(kvl_page_write(c.ns, c.pages[i], 0, 0, &number, 4), -EINVAL);
                assert_int_equal(kvl_page_copy(c.ns, c.pages[0], c.pages[i]), -EINVAL);
        }
        /* One beside it, that isn't published. */
        assert_int_equal(kvl_page_copy(c.ns, c.pages[2], c.pages[0] + 2), 0);
        assert_int_equal(*(uint32_t *)kvl_page_ptr(c.ns, c.pages[0] + 2, 0), c.pages[2]);
        assert_null(kvl_page_ptr(c.ns, 2 * N_DEVICE, 0));
        assert_null(kvl_page_ptr(c.ns, c.pages[2], 1));
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        close_client(&c);
}

TEST_BOTH_WAYS(test_find, assert_finds)

/* ---- kvl_fetch() ---------------------------------------------------------------------------- */

static void assert_fetches(unsigned flags)
{
        uint32_t up[N_KEYS];
        struct client c;

        open_client(&c, script_full, LONG_MSEC, flags);
        assert_int_equal(find(&c, N_KEYS), 0);
        /* Room for 2, 3 and 5. */
        assert_int_equal(kvl_fetch(c.ns, c.pages, c.n_pages, up), KVL_FULL);
        for (uint32_t i = 0; i < c.n_pages; i++) {
                bool is_up = i < 6;

                assert_int_equal(
                        kvl_page_tier(c.ns, up[i]), is_up ? KVL_TIER_DEVICE : KVL_TIER_HOST);
                if (!is_up || i < 2 || i == 4)
                        assert_int_equal(up[i], c.pages[i]);
        }
        assert_int_equal(kvl_fetch(c.ns, up, 6, up), 0);
        assert_int_equal(kvl_release(c.ns, up, c.n_pages), 0);
        /* Nothing of it is pinned any more. */
        if (!(flags & KVL_CONNECT_NO_SHM))
                assert_int_equal(kvl_fetch(c.ns, &up[6], 1, up), -EINVAL);
        assert_int_equal(kvl_release(c.ns, c.pages, 1), -EINVAL);
        close_client(&c);
}

TEST_BOTH_WAYS(test_fetch, assert_fetches)
