/* Which implementations of SHA-256 this processor can run, and which are fastest. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/clock.h"
#include "base/macros.h"
#include "client/lib/keys/page-keys.h"

#define MAX_WAYS 6u

static struct ways {
        struct page_keys_way at[MAX_WAYS];
        unsigned n;
} ways;

static void add_way(bool can_run, const char *name, const struct sha256_pair *pair,
        const struct sha256_wide *wide)
{
        if (can_run)
                ways.at[ways.n++] = (struct page_keys_way){name, pair, wide};
}

/* Asked once: in a virtual machine CPUID takes longer than the keys of many pages. */
static void find_ways(void)
{
#if defined(__x86_64__)
        bool has_512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
        bool has_2 = __builtin_cpu_supports("avx2");
        unsigned a, b = 0, c, d;
        bool has_ni = __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
                      (b & bit_SHA);

        add_way(has_ni && has_512, "sha-ni and avx512", &sha256_ni, &sha256_avx512);
        add_way(has_ni && has_2, "sha-ni and avx2", &sha256_ni, &sha256_avx2);
        add_way(has_ni, "sha-ni", &sha256_ni, NULL);
        add_way(has_512, "libcrypto and avx512", &sha256_plain, &sha256_avx512);
        add_way(has_2, "libcrypto and avx2", &sha256_plain, &sha256_avx2);
#elif defined(__aarch64__)
        add_way(getauxval(AT_HWCAP) & HWCAP_SHA2, "sha2", &sha256_arm, NULL);
#endif
        add_way(true, "libcrypto", &sha256_plain, NULL);
}

const struct page_keys_way *page_keys_way_at(unsigned i)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;

        pthread_once(&once, find_ways);
        return i < ways.n ? &ways.at[i] : NULL;
}

/* ---- measuring ---------------------------------------------------------------------------------
 */

/* Pages long enough that digests take most of the time. Six ways three times take 0.3 ms with SHA
 * instructions; three ways without them 0.5 ms (2,048 tokens at 7 ns a byte and less). */
#define TRIAL_PAGES       16u
#define TRIAL_PAGE_TOKENS 128u
#define TRIALS            3u
#define MAX_NSEC          1000000u

static uint64_t time_way(const struct page_keys_way *way)
{
        static const uint32_t tokens[TRIAL_PAGES * TRIAL_PAGE_TOKENS];
        static const uint8_t parent[SHA256_DIGEST_BYTES];
        uint8_t keys[TRIAL_PAGES * SHA256_DIGEST_BYTES];
        uint64_t start = clock_now_nsec();

        page_keys(way, parent, tokens, ARRAY_SIZE(tokens), TRIAL_PAGE_TOKENS, keys);
        return clock_now_nsec() - start;
}

static const struct page_keys_way *measure(void)
{
        uint64_t begin = clock_now_nsec(), least[MAX_WAYS];
        unsigned best = 0;

        for (unsigned trial = 0; trial < TRIALS; trial++)
                for (unsigned i = 0; i < ways.n; i++) {
                        uint64_t nsec = time_way(&ways.at[i]);

                        least[i] = trial == 0 ? nsec : MIN(nsec, least[i]);
                        if (least[i] < least[best])
                                best = i;
                        if (clock_now_nsec() - begin > MAX_NSEC)
                                return &ways.at[best];
                }
        return &ways.at[best];
}

const struct page_keys_way *page_keys_fastest(uint32_t n_tokens)
{
        static const struct page_keys_way *_Atomic fastest;
        static atomic_flag is_begun = ATOMIC_FLAG_INIT;
        const struct page_keys_way *way = atomic_load_explicit(&fastest, memory_order_acquire);

        if (way)
                return way;
        way = page_keys_way_at(0);
        if (n_tokens < PAGE_KEYS_LONG || atomic_flag_test_and_set(&is_begun))
                return way;
        way = measure();
        atomic_store_explicit(&fastest, way, memory_order_release);
        return way;
}
