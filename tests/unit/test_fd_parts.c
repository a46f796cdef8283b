/* How a room of descriptors is divided among tenants (daemon/server/base/fd-parts.h). */
#include "daemon/server/base/fd-parts.h"

#include "base/macros.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define MAX_TENANTS 64

TEST_BARE(test_sure)
{
        /* 128 of 8,192 belong to no tenant. Half of the rest goes in equal parts, and the other
         * half by reservations. */
        assert_int_equal(fd_part_sure(8192, 1, 0, 1000), 4032);
        assert_int_equal(fd_part_sure(8192, 2, 0, 1000), 2016);
        assert_int_equal(fd_part_sure(8192, 2, 500, 1000), 2016 + 2016);
        assert_int_equal(fd_part_sure(8192, 2, 1000, 1000), 2016 + 4032);
        assert_int_equal(fd_part_sure(8192, 2, 2000, 1000), 2016 + 4032);
        assert_int_equal(fd_part_sure(8192, 2, 0, 0), 2016);
        assert_int_equal(fd_part_sure(80, 1, 0, 1000), 64); /* an eighth of a small room */
}

/* With many tenants each still has enough for a client; with too many, an equal part of all. */
TEST_BARE(test_sure_of_many)
{
        assert_int_equal(fd_part_sure(8192, 50, 0, 1000), 80);
        assert_int_equal(fd_part_sure(8192, 100, 0, 1000), 64);
        assert_int_equal(fd_part_sure(8192, 126, 0, 1000), 64);
        assert_int_equal(fd_part_sure(8192, 8064, 0, 1000), 1);
        assert_int_equal(fd_part_sure(8192, 10000, 0, 1000), 0);
        assert_int_equal(fd_part_sure(0, 3, 0, 1000), 0);
        /* Bytes times descriptors don't fit 64 bits. */
        assert_int_equal(fd_part_sure(UINT32_MAX, 1, UINT64_C(1) << 62, UINT64_C(1) << 62),
                UINT32_MAX - FD_NOBODYS_MAX);
}

static struct fd_room room_with(uint64_t max, const struct fd_part *parts, unsigned n)
{
        struct fd_room room = {.max = max};

        for (unsigned i = 0; i < n; i++)
                fd_room_add(&room, &parts[i]);
        return room;
}

TEST_BARE(test_limit)
{
        struct fd_part parts[] = {{0, 300}, {0, 300}};
        struct fd_room room = room_with(1000, parts, 2); /* 125 belong to no tenant */

        /* All that the other isn't sure of, and no more. */
        assert_int_equal(fd_part_limit(&room, &parts[0]), 575);
        parts[0].used = 575;
        room = room_with(1000, parts, 2);
        assert_int_equal(fd_part_limit(&room, &parts[0]), 575);
        assert_int_equal(fd_part_limit(&room, &parts[1]), 300);
        /* The other tenant's use beyond that counts, too. */
        parts[0].used = 525;
        parts[1].used = 320;
        room = room_with(1000, parts, 2);
        assert_int_equal(fd_part_limit(&room, &parts[0]), 555);
        assert_int_equal(fd_part_limit(&room, &parts[1]), 350);
        /* Connections without a tenant have their own room; beyond it tenants lose theirs. */
        room.nobodys = 125;
        assert_int_equal(fd_part_limit(&room, &parts[0]), 555);
        room.nobodys = 145;
        assert_int_equal(fd_part_limit(&room, &parts[0]), 535);
        assert_int_equal(fd_part_limit(&room, &parts[1]), 330);
}

/* A tenant was added. One with more than its part keeps it and gets no more; one below its part
 * gets what is free. */
TEST_BARE(test_added)
{
        const struct fd_part parts[] = {{700, 200}, {100, 200}, {0, 200}};
        struct fd_room room = room_with(1100, parts, 3);

        assert_int_equal(fd_part_limit(&room, &parts[0]), 572);
        assert_int_equal(fd_part_limit(&room, &parts[1]), 200);
        assert_int_equal(fd_part_limit(&room, &parts[2]), 200);
        /* Only while any are free. */
        room = room_with(850, parts, 3);
        assert_int_equal(fd_part_limit(&room, &parts[1]), 150);
        assert_int_equal(fd_part_limit(&room, &parts[2]), 50);
        room = room_with(750, parts, 3);
        assert_int_equal(fd_part_limit(&room, &parts[2]), 0);
}

/* Tenants take at random, all they get: each gets what it is sure of, always, and the room is never
 * exceeded. */
TEST_BARE(test_any_order)
{
        random_start("fd_parts");
        for (unsigned round = 0; round < 2000; round++) {
                struct fd_part parts[MAX_TENANTS] = {{0}};
                unsigned n = 1 + (unsigned)(random_u64() % MAX_TENANTS);
                uint64_t max = random_u64() % 20000, memory = 1 + random_u64() % 1000,
                         left = memory, used = 0;
                struct fd_room room;

                for (unsigned i = 0; i < n; i++) {
                        uint64_t reserved = random_u64() % (left + 1);

                        left -= reserved;
                        parts[i].sure = fd_part_sure(max, n, reserved, memory);
                }
                for (unsigned step = 0; step < 4 * n; step++) {
                        struct fd_part *p = &parts[random_u64() % n];
                        uint64_t limit, wanted = random_u64() % (max + 1);

                        room = room_with(max, parts, n);
                        room.nobodys = random_u64() % (fd_nobodys(max) + 1);
                        limit = fd_part_limit(&room, p);
                        if (limit < p->sure)
                                fail_msg("a limit of %llu, sure of %llu", (unsigned long long)limit,
                                        (unsigned long long)p->sure);
                        if (limit > p->used)
                                p->used = MIN(limit, p->used + wanted);
                        else if (random_u64() % 2)
                                p->used -= random_u64() % (p->used + 1);
                }
                for (unsigned i = 0; i < n; i++)
                        used += parts[i].used;
                assert_true(used <= max);
        }
}
