/* An event loop: `loop [REQUESTS]`. Each tick of a timer brings requests; each finds its page, or
 * leases, writes and publishes it. Callbacks start the next step, many requests are under way at
 * the same time, and only epoll_wait() blocks. */
#include <errno.h>
#include <kvlease.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct request {
        struct request *next; /* in `waiting` */
        enum { LOOK_UP, LEASE, PUBLISH, FREE, RELEASE } step;
        uint32_t page, text; /* one token, its own K and V */
        uint8_t key[KVL_KEY_BYTES];
};

static struct request *waiting; /* waits while KVL_MAX_STARTED calls are under way */
static unsigned long n_begun, n_ended, n_found, n_computed;

static void begin(struct kvl_ns *ns, struct request *rq);

static void check(int code)
{
        if (code == 0)
                return;
        fprintf(stderr, "loop: %s\n", kvl_last_error());
        exit(1);
}

/* A step is done. Each callback can start one call, as its own has ended. */
static void proceed(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct request *rq = data;
        struct kvl_publish p = {sizeof(p), &rq->page, rq->key, .n_pages = 1, .last_tokens = 1};

        (void)n_pages, (void)n_tokens;
        if (rq->step == LOOK_UP && code == KVL_MISS) {
                rq->step = LEASE;
                check(kvl_lease_start(ns, 0, 1, proceed, rq));
        } else if (rq->step == PUBLISH && code == KVL_DUPLICATE) {
                rq->step =
                        FREE; /* another client was first: its page is pinned, ours still leased */
                check(kvl_free_start(ns, &rq->page, 1, proceed, rq));
                rq->page = pages[0];
        } else if (check(code), rq->step == LEASE) {
                rq->step = PUBLISH;
                rq->page = pages[0];
                check(kvl_page_write(ns, rq->page, 0, 0, &rq->text, sizeof(rq->text)));
                check(kvl_publish_start(ns, &p, proceed, rq));
        } else if (rq->step == RELEASE) {
                free(rq);
                n_ended++;
                rq = waiting; /* which uses the room of the ended call */
                if (rq) {
                        waiting = rq->next;
                        begin(ns, rq);
                }
        } else { /* LOOK_UP, PUBLISH, FREE: a page is pinned, to be read by attention */
                *(rq->step == LOOK_UP ? &n_found : &n_computed) += 1;
                rq->page = rq->step == LOOK_UP ? pages[0] : rq->page;
                rq->step = RELEASE;
                check(kvl_release_start(ns, &rq->page, 1, proceed, rq));
        }
}

static void begin(struct kvl_ns *ns, struct request *rq)
{
        int r = kvl_lookup_start(ns, 0, rq->key, 1, proceed, rq);

        if (r == -EAGAIN) {
                rq->next = waiting;
                waiting = rq;
                return;
        }
        check(r);
}

int main(int argc, char **argv)
{
        struct kvl_layout layout = {sizeof(layout), "loop", "1", KVL_DTYPE_OTHER, .n_layers = 1,
                .n_kv_heads = 1, .head_size = 64, .page_tokens = 1, .n_planes = 1,
                .plane_page_bytes = 4096, .tp_size = 1};
        unsigned long n_requests = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
        int loop = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
        struct epoll_event tick = {EPOLLIN, {.fd = timer}}, work = {EPOLLIN, {.fd = -1}}, event;
        uint8_t root[KVL_KEY_BYTES];
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint64_t n_ticks;

        check(kvl_connect(NULL, &conn) || kvl_ns_open(conn, "loop", &layout, NULL, 0, &ns));
        check(kvl_key_root(&layout, root));
        work.data.fd = kvl_fd(conn); /* the same one as long as the connection lasts */
        if (timerfd_settime(timer, 0, &(struct itimerspec){{0, 1000000}, {0, 1000000}}, NULL) ||
                epoll_ctl(loop, EPOLL_CTL_ADD, timer, &tick) ||
                epoll_ctl(loop, EPOLL_CTL_ADD, work.data.fd, &work))
                return perror("loop"), 1;
        while (n_ended < n_requests && epoll_wait(loop, &event, 1, -1) == 1) {
                if (event.data.fd == work.data.fd)
                        check(kvl_dispatch(conn) < 0);
                else if (read(timer, &n_ticks, sizeof(n_ticks)) == sizeof(n_ticks))
                        for (int i = 0; i < 1000 && n_begun < n_requests; i++, n_begun++) {
                                struct request *rq = calloc(1, sizeof(*rq));

                                rq->text = n_begun % 100;
                                check(kvl_key_chain(root, &rq->text, 1, rq->key));
                                begin(ns, rq);
                        }
        }
        printf("%lu requests: %lu found, %lu computed\n", n_ended, n_found, n_computed);
        kvl_disconnect(conn);
        return n_ended < n_requests;
}
