/*
 * Signal handlers for crashes of the daemon: they record which client was being served
 * (daemon/core/records/culprit.h). Loop thread only.
 */
#ifndef KVL_SERVER_CRASH_H
#define KVL_SERVER_CRASH_H

struct store;

/*
 * From now on SIGABRT, SIGBUS, SIGFPE, SIGILL and SIGSEGV of the calling thread are noted in the
 * root of the store's state; then they do what they did before. On a stack of their own: also where
 * the thread's is used up. The store stays where it is until crash_unwatch().
 */
void crash_watch(struct store *s);
void crash_unwatch(void);

#endif
