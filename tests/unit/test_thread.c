/* Threads that no signal reaches: base/thread.h. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/thread.h"
#include "tests/unit/test-support.h"

static void *get_mask(void *data)
{
        assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, data), 0);
        return data;
}

TEST_BARE(test_signals_are_blocked_in_it)
{
        static const int kept[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGPIPE};
        sigset_t before, after, inside;
        pthread_t thread;
        void *data;

        sigemptyset(&before);
        sigaddset(&before, SIGUSR2);
        assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
        assert_int_equal(thread_start(&thread, NULL, get_mask, &inside), 0);
        assert_int_equal(pthread_join(thread, &data), 0);
        assert_ptr_equal(data, &inside);
        assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
        assert_int_equal(sigismember(&after, SIGUSR2), 1);
        for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
                assert_int_equal(sigismember(&inside, kept[i]), 1);
                assert_int_equal(sigismember(&after, kept[i]), 0);
        }
}

TEST_BARE(test_failure_leaves_the_mask)
{
        sigset_t before, after;
        pthread_attr_t attr;
        pthread_t thread;

        assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
        assert_int_equal(pthread_attr_init(&attr), 0);
        assert_int_equal(pthread_attr_setstacksize(&attr, (size_t)1 << 62), 0);
        assert_int_equal(thread_start(&thread, &attr, get_mask, NULL), -EAGAIN);
        pthread_attr_destroy(&attr);
        assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
        assert_memory_equal(&before, &after, sizeof(before));
}
