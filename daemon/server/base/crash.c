#include "daemon/server/base/crash.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "base/macros.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/suspect.h"
#include "daemon/server/base/crash.h"

static const int numbers[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};

static struct {
        struct store *store; /* NULL: nothing is watched */
        pthread_t loop;
        struct sigaction before[ARRAY_SIZE(numbers)];
        bool is_set[ARRAY_SIZE(numbers)];
        _Alignas(16) char stack[16384]; /* more than the handler needs with any signal frame */
} watch;

static void restore_handlers(void)
{
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
                if (watch.is_set[i])
                        sigaction(numbers[i], &watch.before[i], NULL);
}

/* A fault of the processor recurs on return; a sent signal has to be raised again. */
static void on_crash(int number, siginfo_t *info, void *context)
{
        if (watch.store && watch.store->state && pthread_equal(watch.loop, pthread_self()))
                suspect_note_crash(watch.store->state);
        restore_handlers();
        if (info->si_code <= 0)
                raise(number);
}

void crash_watch(struct store *s)
{
        const stack_t stack = {.ss_sp = watch.stack, .ss_size = sizeof(watch.stack)};
        struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        stack_t other;

        watch.loop = pthread_self();
        watch.store = s;
        /* A sanitizer may have one already. */
        if (sigaltstack(NULL, &other) == 0 && (other.ss_flags & SS_DISABLE))
                sigaltstack(&stack, NULL);
        sigfillset(&action.sa_mask);
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
                watch.is_set[i] = sigaction(numbers[i], &action, &watch.before[i]) == 0;
}

void crash_unwatch(void)
{
        if (!watch.store)
                return;
        restore_handlers();
        watch.store = NULL;
}
