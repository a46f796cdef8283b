/* Copies of many pages in one call. */
#include "client/lib/calls/op.h"
#include "tests/unit/client-memory.h"

#define N_IO 5

static struct kvl_page_io io_of(const uint32_t *pages, void *memory, uint64_t memory_bytes)
{
        return (struct kvl_page_io){.size = sizeof(struct kvl_page_io),
                .pages = pages,
                .n_pages = N_IO,
                .memory = memory,
                .memory_bytes = memory_bytes};
}

/* Fills memory so that no 64 bytes are like any other, and reads it back as it lies in the pages.
 */
static void check_packed(struct world *w, const uint32_t *pages, uint8_t *memory, uint8_t *got)
{
        uint64_t bytes = (uint64_t)N_IO * N_PLANES * PAGE_BYTES;
        struct kvl_page_io io = io_of(pages, memory, bytes);

        for (uint64_t i = 0; i < bytes; i++)
                memory[i] = (uint8_t)(i / 64 % 251 + i / PAGE_BYTES * 7);
        assert_int_equal(kvl_pages_write(w->ns, &io), 0);
        for (uint32_t i = 0; i < N_IO; i++)
                for (uint32_t p = 0; p < N_PLANES; p++)
                        assert_memory_equal(kvl_page_ptr(w->ns, pages[i], p),
                                memory + (i * N_PLANES + p) * PAGE_BYTES, PAGE_BYTES);
        io.memory = got;
        assert_int_equal(kvl_pages_read(w->ns, &io), 0);
        assert_memory_equal(got, memory, bytes);
}

static void check_buffers(struct world *w, const uint32_t *pages, const uint8_t *memory)
{
        uint8_t parts[N_IO][2][100];
        void *buffers[N_IO];
        struct kvl_page_io io = io_of(pages, NULL, 200);

        for (uint32_t i = 0; i < N_IO; i++)
                buffers[i] = parts[N_IO - 1 - i];
        io.buffers = buffers;
        io.first_plane = 1;
        io.n_planes = 2;
        io.offset = PAGE_BYTES - 100;
        assert_int_equal(kvl_pages_read(w->ns, &io), 0); /* to the end */
        for (uint32_t i = 0; i < N_IO; i++)
                for (uint32_t p = 0; p < 2; p++)
                        assert_memory_equal(parts[N_IO - 1 - i][p],
                                memory + (i * N_PLANES + 1 + p + 1) * PAGE_BYTES - 100, 100);
        memset(parts, 9, sizeof(parts));
        io.bytes = 1;
        io.memory_bytes = 2;
        assert_int_equal(kvl_pages_write(w->ns, &io), 0);
        for (uint32_t i = 0; i < N_IO; i++)
                for (uint32_t p = 0; p < N_PLANES; p++) {
                        const uint8_t *end =
                                (uint8_t *)kvl_page_ptr(w->ns, pages[i], p) + PAGE_BYTES;
                        const uint8_t *was = memory + (i * N_PLANES + p + 1) * PAGE_BYTES;

                        assert_int_equal(end[-100], p > 0 ? 9 : was[-100]);
                        assert_int_equal(end[-99], was[-99]);
                }
}

TEST_BOTH(test_many_pages)
{
        static const fake_script scripts[] = {serve, serve_vmm, serve_ipc};
        static const enum device_transport transports[] = {
                TRANSPORT_VMM, TRANSPORT_VMM, TRANSPORT_CUDAIPC};
        static uint8_t memory[N_IO * N_PLANES * PAGE_BYTES], got[sizeof(memory)];
        uint32_t pages[SET_PAGES + 3];

        for (unsigned i = 0; i < 3; i++) {
                struct world w;
                uint32_t some[N_IO];

                fake_gpu_reset(transports[i]);
                open_world(state, &w, scripts[i], 0, 0);
                assert_int_equal(w.r, 0);
                assert_int_equal(kvl_lease(w.ns, 0, SET_PAGES + 3, pages), 0);
                /* Pages of two sets, in no order. */
                memcpy(some,
                        (uint32_t[]){pages[7], pages[SET_PAGES + 2], pages[3], pages[4],
                                pages[SET_PAGES]},
                        sizeof(some));
                check_packed(&w, some, memory, got);
                check_buffers(&w, some, memory);
                close_world(&w);
        }
}

static void refuse_io(struct world *w, struct kvl_page_io io, int error, bool also_reads)
{
        assert_int_equal(kvl_pages_write(w->ns, &io), error);
        if (also_reads)
                assert_int_equal(kvl_pages_read(w->ns, &io), error);
}

/* Nothing is copied where the last is refused. */
TEST_BOTH(test_many_refused)
{
        static uint8_t memory[N_IO * N_PLANES * PAGE_BYTES];
        uint8_t key[KVL_KEY_BYTES];
        void *buffers[N_IO] = {memory, memory, memory, memory, NULL};
        uint32_t pages[N_IO];
        struct kvl_publish publish = {.size = sizeof(publish),
                .pages = pages + 4,
                .keys = key,
                .n_pages = 1,
                .last_tokens = 16};
        struct kvl_page_io good = io_of(pages, memory, sizeof(memory)), io;
        struct world w;

        open_world(state, &w, serve, 0, 0);
        assert_int_equal(kvl_lease(w.ns, 0, N_IO, pages), 0);
        memset(memory, 1, sizeof(memory));
#define REFUSE(error, ...)                      \
        do {                                    \
                io = good;                      \
                __VA_ARGS__;                    \
                refuse_io(&w, io, error, true); \
        } while (0)
        REFUSE(-EINVAL, io.size = 0);
        REFUSE(-EINVAL, io.n_pages = 0);
        REFUSE(-EINVAL, io.pages = NULL);
        REFUSE(-EINVAL, io.memory = NULL);
        REFUSE(-EINVAL, io.buffers = buffers);
        REFUSE(-EINVAL,
                (io.memory = NULL, io.buffers = buffers, io.memory_bytes = N_PLANES * PAGE_BYTES));
        REFUSE(-EINVAL, io.memory_bytes--);
        REFUSE(-EINVAL, io.memory_bytes++);
        REFUSE(-EINVAL, io.first_plane = N_PLANES);
        REFUSE(-EINVAL, (io.first_plane = 1, io.n_planes = UINT32_MAX));
        REFUSE(-EINVAL, io.offset = PAGE_BYTES);
        REFUSE(-EINVAL, (io.offset = 1, io.bytes = UINT64_MAX));
        REFUSE(-EINVAL, io.bytes = PAGE_BYTES + 1);
        assert_int_equal(kvl_pages_write(w.ns, NULL), -EINVAL);
        assert_int_equal(kvl_pages_write(NULL, &good), -EINVAL);
        pages[4] = FAKE_N_SETS * SET_PAGES;
        refuse_io(&w, good, -EINVAL, true);
        pages[4]--; /* isn't mapped */
        refuse_io(&w, good, -ENOENT, true);
        pages[4] = pages[3] + 1;
        for (uint32_t i = 0; i < N_IO; i++)
                assert_true(is_zero(kvl_page_ptr(w.ns, pages[i], 0), PAGE_BYTES));
        test_key(key, 1);
        assert_int_equal(kvl_publish(w.ns, &publish, NULL, NULL), 0);
        assert_int_equal(kvl_pages_read(w.ns, &good), 0);
        if (*state) {
                memset(memory, 1, sizeof(memory));
                assert_int_equal(kvl_pages_write(w.ns, &good), -EINVAL);
                assert_non_null(strstr(kvl_last_error(), "is published"));
                assert_int_equal(kvl_page_write(w.ns, pages[4], 0, 0, memory, 1), -EINVAL);
                assert_int_equal(kvl_page_copy(w.ns, pages[0], pages[4]), -EINVAL);
                for (uint32_t i = 0; i < N_IO; i++)
                        assert_true(is_zero(kvl_page_ptr(w.ns, pages[i], 0), PAGE_BYTES));
        }
        close_world(&w);
}
