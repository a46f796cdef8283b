/* For tests that need a Redis server. Failures assert. Include it after cmocka and its headers. */
#ifndef KVL_TESTS_REDIS_NEEDED_H
#define KVL_TESTS_REDIS_NEEDED_H

#include <errno.h>

#include "tests/integration/redis-cluster.h"

/* redis_cluster_init(); skips the test if no server is installed. */
static inline void redis_needed(struct redis_cluster *c)
{
        int r = redis_cluster_init(c);

        if (r == -ENOENT) {
                redis_cluster_deinit(c);
                print_message("skipped: there is no redis-server here (Debian: redis-tools)\n");
                skip();
        }
        assert_int_equal(r, 0);
}

#endif
