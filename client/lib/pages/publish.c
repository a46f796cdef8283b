/* Publishing pages and freeing unpublished ones: through the rings (flight.h), or the socket. */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "base/probe.h"
#include "client/lib/calls/give-back.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"
#include "client/lib/objects/session.h"
#include "client/lib/pages/stream.h"
#include "client/lib/calls/flight.h"

/* ---- publish -----------------------------------------------------------------------------------
 */

/* Whether n is right: all pages got their keys, or those before the refused one. */
static bool is_count_right(const struct op *op, int code, size_t n)
{
        return code == 0 || code == KVL_DUPLICATE ? n == op->n_asked : n < op->n_asked;
}

static void take_publish_reply(struct op *op, int code, const ProtobufCMessage *reply)
{
        const op_pages_reply *m = (const op_pages_reply *)reply;
        const char *wrong = m ? op_check_pages(op, m, is_count_right(op, code, m->n_pages)) : NULL;
        bool is_other = false;

        for (size_t i = 0; m && !wrong && i < m->n_pages; i++)
                is_other |= m->pages[i] != op->pages[i];
        if (m && !wrong && (code == 0 || code == KVL_DUPLICATE))
                op->code = is_other ? KVL_DUPLICATE : 0;
        if (m && !wrong)
                op_take_pages(op, m);
        op_end_reply(op, wrong);
}

/* Blocking calls probe in the public function. */
static void probe_published(const struct op *op, int code)
{
        PROBE(kvlease, published, op->ns, code, op->n_pages);
}

const struct op_type op_type_publish = {
        .msg = MSG_PUBLISH,
        .keeps_unmapped = true,
        .reply = take_publish_reply,
        .late = op_late_pins,
        .give_back = give_back_pins,
        .probe = probe_published,
};

int publish_copy(const struct kvl_ns *ns, const struct kvl_publish *publish, uint32_t max_pages,
        struct kvl_publish *ret)
{
        int r = args_check_ns(ns);

        if (r == 0 && !publish)
                r = error_set(-EINVAL, "nothing to publish was given");
        if (r == 0)
                r = abi_copy(ret, sizeof(*ret), publish);
        if (r == 0)
                r = args_check_pages(ns, ret->pages, ret->n_pages, max_pages);
        if (r == 0 && !ret->keys)
                r = error_set(-EINVAL, "no keys were given");
        if (r == 0 && (ret->last_tokens == 0 || ret->last_tokens > ns->info.page_tokens))
                r = error_set(-EINVAL, "last_tokens is %u, must be 1 to %u", ret->last_tokens,
                        ns->info.page_tokens);
        if (r == 0 && ret->session && ret->session->ns != ns)
                r = error_set(-EINVAL, "the session is of namespace %s, the pages are of %s",
                        ret->session->ns->name, ns->name);
        return r < 0 ? r : ns_check_device(ns);
}

/* The part of a publish with `n` pages from `first` on, and their keys. */
static struct kvl_publish publish_part(
        const struct kvl_ns *ns, const struct kvl_publish *p, uint32_t first, uint32_t n)
{
        const uint8_t *keys = p->keys + (size_t)first * KVL_KEY_BYTES;

        return (struct kvl_publish){
                .pages = p->pages + first,
                .keys = keys,
                .n_pages = n,
                .parent_key = first > 0 ? keys - KVL_KEY_BYTES : p->parent_key,
                .last_tokens = first + n == p->n_pages ? p->last_tokens : ns->info.page_tokens,
                .request = p->request,
                .session = p->session,
                .tag = p->tag,
                .window_passed = p->window_passed,
                .token_ids =
                        p->token_ids ? p->token_ids + (size_t)first * ns->info.page_tokens : NULL,
                .lora_name = p->lora_name,
                .cache_salt = p->cache_salt,
        };
}

/* Returns how many of n pages fit a request, over the socket with their token ids. */
static uint32_t batch_pages(const struct kvl_ns *ns, const struct kvl_publish *p, uint32_t n)
{
        size_t page_ids = ns->info.page_tokens * sizeof(uint32_t);

        n = MIN(n, (uint32_t)KVL_MAX_PUBLISH_PAGES);
        if (!p->token_ids || !ns->info.takes_token_ids || fast_is_open(&ns->fast))
                return n;
        while (n > 1 && n * page_ids > flight_max_ids_bytes(n))
                n--;
        return n;
}

static int publish_batch(
        struct op *op, const struct kvl_publish *p, uint32_t first, uint64_t deadline_nsec)
{
        const struct kvl_publish part = publish_part(op->ns, p, first, op->n_asked);
        Kvlease__V1__PublishRequest m;

        if (fast_is_open(&op->ns->fast))
                return flight_run(op, &part, deadline_nsec);
        m = flight_message(op->ns, &part);
        return op_run(op, &m.base, deadline_nsec);
}

int kvl_publish(struct kvl_ns *ns, const struct kvl_publish *publish, uint32_t *ret_pages,
        uint32_t *ret_n_pages)
{
        uint32_t own_pages[KVL_MAX_PUBLISH_PAGES];
        struct kvl_publish p;
        bool is_duplicate = false;
        uint64_t deadline;
        uint32_t done = 0;
        int r = publish_copy(ns, publish, UINT32_MAX, &p);

        if (r == -EIO && ret_n_pages)
                *ret_n_pages = 0;
        if (r < 0)
                return r;
        PROBE(kvlease, publish, ns, p.request, p.n_pages);
        deadline = client_deadline(ns->conn);
        while (done < p.n_pages && (r == 0 || r == KVL_DUPLICATE)) {
                uint32_t n = batch_pages(ns, &p, p.n_pages - done);
                uint32_t *pages = ret_pages ? ret_pages + done : own_pages;
                struct op op;

                memmove(pages, p.pages + done, n * sizeof(*pages));
                op_init(&op, ns, &op_type_publish, pages, n);
                r = publish_batch(&op, &p, done, deadline);
                is_duplicate |= r == KVL_DUPLICATE;
                done += op.n_pages;
        }
        if (ret_n_pages)
                *ret_n_pages = done;
        if (r == 0 && is_duplicate)
                r = KVL_DUPLICATE;
        PROBE(kvlease, published, ns, r, done);
        return r;
}

int kvl_publish_start(
        struct kvl_ns *ns, const struct kvl_publish *publish, kvl_done_fn done, void *data)
{
        Kvlease__V1__PublishRequest m;
        struct kvl_publish p;
        struct op *op;
        int r = publish_copy(ns, publish, KVL_MAX_PUBLISH_PAGES, &p);

        if (r == 0)
                r = op_new_with(ns, &op_type_publish, p.pages, p.n_pages, done, data, &op);
        if (r < 0)
                return r;
        if (fast_is_open(&ns->fast))
                return flight_start(op, &p);
        m = flight_message(ns, &p);
        return op_start(op, &m.base);
}

/* ---- free --------------------------------------------------------------------------------------
 */

static int send_op_free(struct op *op)
{
        return send_free(op->ns, &op->call, op->pages, op->n_asked);
}

const struct op_type op_type_free = {.msg = MSG_FREE, .send = send_op_free};

static int fly_free(struct op *op, uint64_t deadline_nsec)
{
        return flight_run(op, NULL, deadline_nsec);
}

int kvl_free(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        int r = args_check_pages(ns, pages, n_pages, UINT32_MAX);

        return r < 0 ? r
                     : op_run_parts(ns, &op_type_free, pages, n_pages, KVL_MAX_LEASE_PAGES,
                               fast_is_open(&ns->fast) ? fly_free : op_run_pages);
}

int kvl_free_start(
        struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_done_fn done, void *data)
{
        struct op *op;
        int r = args_check_pages(ns, pages, n_pages, KVL_MAX_LEASE_PAGES);

        if (r == 0)
                r = op_new_with(ns, &op_type_free, pages, n_pages, done, data, &op);
        if (r < 0)
                return r;
        return fast_is_open(&ns->fast) ? flight_start(op, NULL) : op_start(op, NULL);
}
