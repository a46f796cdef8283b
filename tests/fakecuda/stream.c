/* Streams and events. Each stream has a thread, which starts new work only after a moment (unless a
 * caller waits). So a missing synchronisation shows. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/fakecuda/fake.h"

/* Long enough for a thread to go on and make its mistake; not tuned. */
#define DAWDLE_NSEC 1000000L

struct CUstream_st {
        struct list_link link;
        cu_context context;
        bool is_legacy, is_blocking; /* blocking: ordered with the NULL stream */
        bool ends;                   /* destroyed; freed once its work is done */
        struct work *first, *last;   /* the first is under way */
};

struct CUevent_st {
        struct list_link link;
        cu_context context;
        uint64_t recorded, done; /* numbers of records */
        unsigned uses;           /* by work */
        bool ends;
};

static struct list_link streams = {&streams, &streams}, events = {&events, &events};
static uint64_t next_number;
static __thread struct work *running;
static __thread cu_context running_context;

struct work *stream_running(cu_context *ret_context)
{
        *ret_context = running_context;
        return running;
}

unsigned stream_count(void)
{
        unsigned n = 0;

        list_for_each (s, &streams, struct CUstream_st, link)
                n += !s->is_legacy && !s->ends;
        return n;
}

/* The stream's thread */

static void event_unuse(cu_event e)
{
        e->uses--;
        if (e->ends && !e->uses)
                free(e);
}

/* Locked. */
static void work_free(struct work *w)
{
        pins_drop(&w->pins);
        for (unsigned i = 0; i < ARRAY_SIZE(w->regs); i++) {
                if (w->regs[i])
                        w->regs[i]->pins--;
        }
        if (w->event)
                event_unuse(w->event);
        if (w->launch)
                launch_free(w->launch);
        free(w->staging);
        free(w);
}

/* Zeroing frees whole pages instead of filling them: 8 GiB of zeros would be slow. */
static void run_memset(const struct work *w)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        char *from = (char *)round_up_u64((uintptr_t)w->dst, page), *end = w->dst + w->bytes,
             *to = (char *)((uintptr_t)end & ~(page - 1));

        if (fake_is_bad(BAD_MEMSET))
                return;
        if (w->value == 0 && from < to && madvise(from, (size_t)(to - from), MADV_REMOVE) == 0) {
                memset(w->dst, 0, (size_t)(from - w->dst));
                memset(to, 0, (size_t)(end - to));
                return;
        }
        memset(w->dst, w->value, w->bytes);
}

/* Unlocked. */
static void run(struct CUstream_st *s, struct work *w)
{
        cu_result fault = fake_enter_work("stream");

        if (fault != CU_OK) {
                fake_lock();
                fake_break(s->context, fault);
                fake_unlock();
                return;
        }
        running = w;
        running_context = s->context;
        switch (w->kind) {
        case WORK_MEMSET:
                run_memset(w);
                break;
        case WORK_COPY:
                memmove(w->dst, w->src, w->bytes);
                break;
        case WORK_CALL:
                fake_host_function(true);
                w->fn(w->data);
                fake_host_function(false);
                break;
        case WORK_KERNEL:
                launch_run(w->launch);
                break;
        case WORK_EVENT:
                break;
        }
        running = NULL;
}

/* The NULL stream waits for all earlier work of blocking streams, and they for its. Locked. */
static bool must_wait(const struct CUstream_st *s)
{
        if (!s->is_blocking)
                return false;
        list_for_each (other, &streams, struct CUstream_st, link) {
                if (other != s && other->context == s->context && other->is_blocking &&
                        (other->is_legacy || s->is_legacy) && other->first &&
                        other->first->number < s->first->number)
                        return true;
        }
        return false;
}

static void dawdle(const struct CUstream_st *s)
{
        struct timespec end;

        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_nsec += DAWDLE_NSEC;
        if (end.tv_nsec >= 1000000000L) {
                end.tv_nsec -= 1000000000L;
                end.tv_sec++;
        }
        while (!fake.waiting && !s->context->broken) {
                if (pthread_cond_timedwait(&fake.changed, &fake.lock, &end) == ETIMEDOUT)
                        return;
        }
}

/* Locked; unlocks while the work runs. Work of a broken context is dropped. */
static void run_first(struct CUstream_st *s)
{
        struct work *w = s->first;

        while (!s->context->broken && must_wait(s))
                pthread_cond_wait(&fake.changed, &fake.lock);
        if (!s->context->broken) {
                fake_unlock();
                run(s, w);
                fake_lock();
                if (w->kind == WORK_EVENT && !s->context->broken)
                        w->event->done = MAX(w->event->done, w->record);
        }
        s->first = w->next;
        if (!s->first)
                s->last = NULL;
        work_free(w);
        pthread_cond_broadcast(&fake.changed);
}

static void *stream_thread(void *data)
{
        struct CUstream_st *s = data;

        fake_lock();
        for (;;) {
                while (!s->first && !s->ends)
                        pthread_cond_wait(&fake.changed, &fake.lock);
                if (!s->first)
                        break;
                dawdle(s);
                while (s->first)
                        run_first(s);
        }
        list_remove(&s->link);
        pthread_cond_broadcast(&fake.changed);
        fake_unlock();
        free(s);
        return NULL;
}

/* Streams */

/* Locked. NULL: no thread to be had. */
static cu_stream stream_new(cu_context context, bool is_legacy, bool is_blocking)
{
        struct CUstream_st *s = calloc(1, sizeof(*s));
        pthread_attr_t attr;
        pthread_t thread;
        int r;

        if (!s)
                return NULL;
        *s = (struct CUstream_st){
                .context = context, .is_legacy = is_legacy, .is_blocking = is_blocking};
        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        r = pthread_create(&thread, &attr, stream_thread, s);
        pthread_attr_destroy(&attr);
        if (r != 0) {
                free(s);
                return NULL;
        }
        list_append(&streams, &s->link);
        return s;
}

/* 1 and 2 are cuda.h's names for the NULL stream, and for a thread's own, which we haven't got. */
static bool is_default(cu_stream handle)
{
        return (uintptr_t)handle <= 2;
}

static cu_stream find_any(cu_stream handle)
{
        list_for_each (s, &streams, struct CUstream_st, link) {
                if (s == handle && !s->ends && !s->is_legacy)
                        return s;
        }
        fake_die("%p is no stream (destroyed already?)", (void *)handle);
}

cu_stream stream_find(cu_stream handle)
{
        cu_context context = fake_current();

        if (is_default(handle)) {
                if (!context->legacy)
                        context->legacy = stream_new(context, true, true);
                if (!context->legacy)
                        fake_die("no thread for the NULL stream");
                return context->legacy;
        }
        if (find_any(handle)->context != context)
                fake_die("the stream is of another context than the current one");
        return handle;
}

void stream_add(cu_stream s, struct work *w)
{
        w->number = ++next_number;
        if (s->last)
                s->last->next = w;
        else
                s->first = w;
        s->last = w;
        pthread_cond_broadcast(&fake.changed);
}

void stream_end_legacy(cu_context context)
{
        if (context->legacy)
                context->legacy->ends = true;
        context->legacy = NULL;
        pthread_cond_broadcast(&fake.changed);
}

static void wait_begin(void)
{
        fake.waiting++;
        pthread_cond_broadcast(&fake.changed);
}

static bool is_busy(const struct CUstream_st *s, uint64_t until)
{
        return s->first && s->first->number <= until;
}

cu_result stream_drain(cu_stream s)
{
        uint64_t until = next_number;
        cu_context context = s->context;

        wait_begin();
        while (!context->broken && is_busy(s, until))
                pthread_cond_wait(&fake.changed, &fake.lock);
        fake.waiting--;
        return context->broken;
}

cu_result stream_drain_all(cu_context context)
{
        uint64_t until = next_number;
        bool busy;

        wait_begin();
        do {
                busy = false;
                list_for_each (s, &streams, struct CUstream_st, link)
                        busy |= s->context == context && is_busy(s, until);
                if (busy && !context->broken)
                        pthread_cond_wait(&fake.changed, &fake.lock);
        } while (busy && !context->broken);
        fake.waiting--;
        return context->broken;
}

cu_result cuStreamCreate(cu_stream *stream, unsigned flags)
{
        cu_result r = fake_enter("cuStreamCreate", ENTER_BOUND);
        cu_stream s;

        if (r != CU_OK)
                return r;
        if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
                return CU_INVALID_VALUE;
        fake_lock();
        s = stream_new(fake_current(), false, !(flags & CU_STREAM_NON_BLOCKING));
        if (s)
                s->context->streams++;
        fake_unlock();
        if (!s)
                return CU_OUT_OF_MEMORY;
        *stream = s;
        return CU_OK;
}

/* Returns at once; the work that is left is still done. */
cu_result cuStreamDestroy_v2(cu_stream stream)
{
        cu_result r = fake_enter("cuStreamDestroy", ENTER_BOUND | ENTER_FREES);
        cu_stream s;

        if (r != CU_OK)
                return r;
        if (is_default(stream))
                fake_die("the NULL stream can't be destroyed");
        fake_lock();
        s = stream_find(stream);
        s->ends = true;
        s->context->streams--;
        pthread_cond_broadcast(&fake.changed);
        fake_unlock();
        return CU_OK;
}

cu_result cuStreamGetCtx(cu_stream stream, cu_context *context)
{
        unsigned needs = is_default(stream) ? ENTER_CONTEXT : 0;
        cu_result r = fake_enter("cuStreamGetCtx", ENTER_PLAIN | needs);

        if (r != CU_OK)
                return r;
        fake_lock();
        *context = is_default(stream) ? fake_current() : find_any(stream)->context;
        fake_unlock();
        return CU_OK;
}

cu_result cuStreamSynchronize(cu_stream stream)
{
        cu_result r = fake_enter("cuStreamSynchronize", ENTER_BOUND);

        if (r != CU_OK)
                return r;
        if (fake_is_bad(BAD_CAPTURING))
                fake_die("the stream is being captured: to wait for it invalidates the capture");
        fake_lock();
        r = stream_drain(stream_find(stream));
        fake_unlock();
        return r;
}

/* Captures nothing, but reports a capture with FAKECUDA_BAD=capturing. */
cu_result cuStreamIsCapturing(cu_stream stream, cu_capture_status *status)
{
        cu_result r = fake_enter("cuStreamIsCapturing", ENTER_BOUND);

        if (r != CU_OK)
                return r;
        fake_lock();
        (void)stream_find(stream);
        fake_unlock();
        *status = fake_is_bad(BAD_CAPTURING) ? CU_CAPTURE_ACTIVE : CU_CAPTURE_NONE;
        return CU_OK;
}

cu_result cuStreamQuery(cu_stream stream)
{
        cu_result r = fake_enter("cuStreamQuery", ENTER_BOUND);

        if (r != CU_OK)
                return r;
        if (fake_is_bad(BAD_CAPTURING))
                fake_die("the stream is being captured: to ask for it invalidates the capture");
        fake_lock();
        r = stream_find(stream)->first ? CU_NOT_READY : CU_OK;
        fake_unlock();
        return r;
}

static struct work *work_new(enum work_kind kind)
{
        struct work *w = calloc(1, sizeof(*w));

        if (!w)
                fake_die("out of the host's memory");
        w->kind = kind;
        return w;
}

cu_result cuLaunchHostFunc(cu_stream stream, cu_host_fn fn, void *data)
{
        cu_result r = fake_enter("cuLaunchHostFunc", ENTER_BOUND);
        struct work *w;

        if (r != CU_OK)
                return r;
        if (!fn)
                return CU_INVALID_VALUE;
        if (fake_is_bad(BAD_CAPTURING))
                fake_die("the stream is being captured: the function would run at each replay");
        w = work_new(WORK_CALL);
        w->fn = fn;
        w->data = data;
        fake_lock();
        stream_add(stream_find(stream), w);
        fake_unlock();
        return CU_OK;
}

/* Events */

/* Locked. */
static void check_event(cu_event event)
{
        list_for_each (e, &events, struct CUevent_st, link) {
                if (e == event && e->context != fake_current())
                        fake_die("the event is of another context than the current one");
                if (e == event)
                        return;
        }
        fake_die("%p is no event (destroyed already?)", (void *)event);
}

cu_result cuEventCreate(cu_event *event, unsigned flags)
{
        cu_result r = fake_enter("cuEventCreate", ENTER_BOUND);
        struct CUevent_st *e;

        if (r != CU_OK)
                return r;
        if (flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
                return CU_INVALID_VALUE;
        e = calloc(1, sizeof(*e));
        if (!e)
                return CU_OUT_OF_MEMORY;
        e->context = fake_current();
        fake_lock();
        e->context->events++;
        list_append(&events, &e->link);
        fake_unlock();
        *event = e;
        return CU_OK;
}

cu_result cuEventDestroy_v2(cu_event event)
{
        cu_result r = fake_enter("cuEventDestroy", ENTER_BOUND | ENTER_FREES);

        if (r != CU_OK)
                return r;
        fake_lock();
        check_event(event);
        event->context->events--;
        list_remove(&event->link);
        event->ends = true;
        if (!event->uses)
                free(event);
        fake_unlock();
        return CU_OK;
}

cu_result cuEventRecord(cu_event event, cu_stream stream)
{
        cu_result r = fake_enter("cuEventRecord", ENTER_BOUND);
        struct work *w;

        if (r != CU_OK)
                return r;
        w = work_new(WORK_EVENT);
        fake_lock();
        check_event(event);
        w->event = event;
        w->record = ++event->recorded;
        event->uses++;
        stream_add(stream_find(stream), w);
        fake_unlock();
        return CU_OK;
}

cu_result cuEventQuery(cu_event event)
{
        cu_result r = fake_enter("cuEventQuery", ENTER_BOUND);

        if (r != CU_OK)
                return r;
        fake_lock();
        check_event(event);
        r = event->done < event->recorded ? CU_NOT_READY : CU_OK;
        fake_unlock();
        return r;
}

cu_result cuEventSynchronize(cu_event event)
{
        cu_result r = fake_enter("cuEventSynchronize", ENTER_BOUND);
        uint64_t until;

        if (r != CU_OK)
                return r;
        fake_lock();
        check_event(event);
        until = event->recorded;
        wait_begin();
        while (event->done < until && !event->context->broken)
                pthread_cond_wait(&fake.changed, &fake.lock);
        fake.waiting--;
        r = event->context->broken;
        fake_unlock();
        return r;
}
