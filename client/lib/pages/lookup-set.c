/* One lookup in all namespaces of a set. */
#include <errno.h>

#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"
#include "client/lib/pages/lookup.h"

#define SET_MAX_NAMESPACES 64 /* protocol */

/* Looks up each namespace only as far as the shortest run so far. Returns 0 even if that is
 * nothing; KVL_STALE, -errno. */
static int look_up(struct lookup *lookups, uint32_t n_ns, uint32_t *ret_n_pages)
{
        uint32_t shortest = lookups[0].n_keys;

        for (uint32_t i = 0; i < n_ns && shortest > 0; i++) {
                int r = lookup_extend(&lookups[i], shortest);

                if (r != 0 && r != KVL_MISS)
                        return r;
                shortest = lookups[i].n_pages;
        }
        *ret_n_pages = shortest;
        return 0;
}

/* A key names the same tokens in all namespaces: the count of the shortest run is exact. */
static uint64_t n_tokens_of(const struct lookup *lookups, uint32_t n_ns)
{
        uint64_t n_tokens = UINT64_MAX;

        for (uint32_t i = 0; i < n_ns; i++)
                n_tokens = lookups[i].n_tokens < n_tokens ? lookups[i].n_tokens : n_tokens;
        return n_tokens;
}

static void cut_all(struct lookup *lookups, uint32_t n_ns, uint32_t n_pages)
{
        for (uint32_t i = 0; i < n_ns; i++)
                lookup_cut(&lookups[i], n_pages);
}

/* Ends all lookups with the same run. Pages that one namespace can't bring to the device are cut
 * from all, and aren't brought up by later ones. Returns as kvl_lookup(). */
static int end_all(
        struct lookup *lookups, uint32_t n_ns, uint32_t *ret_n_pages, uint64_t *ret_n_tokens)
{
        uint32_t n_pages = *ret_n_pages;
        uint64_t n_tokens = *ret_n_tokens;

        for (uint32_t i = 0; i < n_ns; i++) {
                int r;

                lookup_cut(&lookups[i], n_pages);
                r = lookup_end(&lookups[i]);
                if (r < 0)
                        return r;
                if (lookups[i].n_pages >= n_pages)
                        continue;
                n_pages = lookups[i].n_pages;
                n_tokens = lookups[i].n_tokens;
        }
        cut_all(lookups, n_ns, n_pages);
        *ret_n_pages = n_pages;
        *ret_n_tokens = n_tokens;
        return n_pages > 0 ? 0 : KVL_MISS;
}

static int check_namespaces(
        struct kvl_ns *const *nss, uint32_t n_ns, const uint8_t *keys, uint32_t n_keys)
{
        int r = args_check_count("namespaces", n_ns, SET_MAX_NAMESPACES);

        if (r == 0 && !nss)
                r = error_set(-EINVAL, "no namespaces were given");
        for (uint32_t i = 0; r == 0 && i < n_ns; i++)
                r = args_check_keys(nss[i], keys, n_keys, UINT32_MAX);
        return r;
}

int kvl_lookup_set(struct kvl_ns *const *nss, uint32_t n_ns, uint64_t request, const uint8_t *keys,
        uint32_t n_keys, uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens)
{
        struct lookup lookups[SET_MAX_NAMESPACES];
        uint32_t n_pages;
        uint64_t n_tokens;
        int r = check_namespaces(nss, n_ns, keys, n_keys);

        if (r < 0)
                return r;
        if (!ret_pages || !ret_n_pages || !ret_n_tokens)
                return error_set(-EINVAL, "there is no room for what is found");
        for (uint32_t i = 0; i < n_ns; i++)
                lookups[i] = (struct lookup){
                        .ns = nss[i],
                        .request = request,
                        .keys = keys,
                        .n_keys = n_keys,
                        .pages = ret_pages + (size_t)i * n_keys,
                };
        r = look_up(lookups, n_ns, &n_pages);
        if (r != 0) {
                cut_all(lookups, n_ns, 0);
                return r;
        }
        n_tokens = n_tokens_of(lookups, n_ns);
        cut_all(lookups, n_ns, n_pages);
        r = end_all(lookups, n_ns, &n_pages, &n_tokens);
        if (r < 0) {
                cut_all(lookups, n_ns, 0);
                return r;
        }
        if (r == 0) {
                *ret_n_pages = n_pages;
                *ret_n_tokens = n_tokens;
        }
        return error_note(r, "");
}
