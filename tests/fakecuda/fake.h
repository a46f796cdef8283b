/*
 * A simulated driver: libcuda.so.1 for machines without a GPU, stricter than a driver. It returns
 * the result codes that a driver returns. Errors that a driver forbids without checking abort the
 * process: a mapping with an offset, memory used after unmap, leaks at exit. They print one line on
 * stderr: "fakecuda: CALL: the rule".
 *
 * Environment:
 *   FAKECUDA_DIR=path       state between processes; must be a directory, else cuInit() finds no
 *                           device. Files of unused memory are removed at the next look.
 *   FAKECUDA_DEVICES=n      default 1; device i is GPU-fa4ecada-0000-0000-0000-00000000000i
 *   CUDA_VISIBLE_DEVICES    as with the driver: indices or UUIDs, which give the ordinals
 *   FAKECUDA_MEMORY=bytes   of each device, default 8 GiB; only touched memory is used
 *   FAKECUDA_VERSION=13000  the driver's version: which symbols and ABIs there are. Below 12000
 *                           cuGetProcAddress_v2() is there, but returns NOT_SUPPORTED
 *   FAKECUDA_NO=list        lacks: vmm, ipc, batch, uuid2, kernel (no symbols);
 *                           fd, rdma, read-only-host, vmm-attribute (symbols, but attributes of 0
 *                           and NOT_SUPPORTED); ipc-calls (symbols, but NOT_SUPPORTED)
 *   FAKECUDA_FAIL=rules     "CALL:RESULT[:NTH[:TIMES]]", several by ';': from the NTH call on (1),
 *                           TIMES times (1; 0: for ever). CALL "*": any; "stream": a piece of a
 *                           stream's work, when its turn comes. A fatal result breaks the current
 *                           context for good, or all if none is current. No host function is
 *                           called from then on
 *   FAKECUDA_DELAY=rules    "CALL:MILLISECONDS[:NTH[:TIMES]]" before the call acts
 *   FAKECUDA_CONTROL=path   a file of lines "fail=RULES", "delay=RULES", "bad=LIST", "#...", read
 *                           in every call. Writing it restarts its counts and ends delays under
 *                           way. Write it at once (rename), or half of it may be read
 *   FAKECUDA_MIG=1          devices are MIG instances: the newer call gives them their own names
 *   FAKECUDA_BAD=list       memset: does nothing; capturing: streams report that they are captured,
 *                           and work for the graph aborts; cleared: imported memory reads as zeros
 *                           from then on, as after a reset of the device
 *   FAKECUDA_LENIENT=exit   no abort for leaks at exit. With a broken context, or a releasing call
 *                           that was made to fail, there is none either
 *
 * Memory is a file in $FAKECUDA_DIR (store.c). A device address range is PROT_NONE for the CPU;
 * copies and kernels use an alias of the same size next to it.
 *
 * Threads: any. One lock (fake.lock) guards everything. It isn't held while a stream's work runs,
 * nor during a delay. "locked" below: the caller holds it.
 */
#ifndef KVL_TESTS_FAKECUDA_FAKE_H
#define KVL_TESTS_FAKECUDA_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "gpu/cuda_decl.h"

#define FAKE_DEVICES_MAX 16
#define FAKE_STACK_MAX   32
#define FAKE_NAME_BYTES  128
/* Granularity of every GPU that we know of. */
#define FAKE_GRANULARITY ((size_t)2 << 20)

/* The API, with the exported names. */
#define CUDA_CALL(group, field, name, version, exported, parameters) \
        __attribute__((visibility("default"))) cu_result exported parameters;
#include "gpu/cuda_calls.h"
#undef CUDA_CALL
#define FAKE_API __attribute__((visibility("default")))
FAKE_API cu_result cuGetProcAddress(
        const char *name, void **pfn, int version, unsigned long long flags);
FAKE_API cu_result cuGetProcAddress_v2(
        const char *name, void **pfn, int version, unsigned long long flags, int *status);

/* A device's primary context: the only kind there is. */
struct CUctx_st {
        int device; /* index, not ordinal */
        unsigned retained, pushed;
        cu_result broken; /* sticky; CU_OK: sound */
        cu_stream legacy; /* the NULL stream; made at first use */
        unsigned streams, events, allocations, registrations, modules;
};

struct fake {
        pthread_mutex_t lock;
        pthread_cond_t changed; /* CLOCK_MONOTONIC; any progress of any stream */
        pid_t pid;              /* that called cuInit(); 0: none yet */
        uint64_t start;         /* its start time */
        char dir[4000];         /* $FAKECUDA_DIR */
        unsigned devices;       /* that exist */
        unsigned visible;       /* of them */
        int by_ordinal[FAKE_DEVICES_MAX];
        size_t memory; /* bytes of each device */
        struct CUctx_st contexts[FAKE_DEVICES_MAX];
        unsigned waiting;    /* threads that wait for streams: these don't dawdle */
        bool gave_up_a_free; /* a release failed on demand: leaks are no fault of the program */
};

extern struct fake fake;

static inline void fake_lock(void)
{
        pthread_mutex_lock(&fake.lock);
}

static inline void fake_unlock(void)
{
        pthread_mutex_unlock(&fake.lock);
}

/* driver.c */

/* One line on stderr, with the name of the call that this thread is in, and abort(). */
_Noreturn void fake_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

enum fake_enter {
        ENTER_INIT = 1 << 0,    /* cuInit() must have been called */
        ENTER_CONTEXT = 1 << 1, /* a context must be current */
        ENTER_STICKY = 1 << 2,  /* fails in a broken current context */
        ENTER_FREES = 1 << 3,   /* gives something back */
};
#define ENTER_PLAIN ENTER_INIT
#define ENTER_VMM   (ENTER_INIT | ENTER_STICKY)
#define ENTER_BOUND (ENTER_INIT | ENTER_CONTEXT | ENTER_STICKY)

/* Starts every call, unlocked: checks the rules for all calls, then applies the injected delay and
 * fault. CU_OK: continue; else the call's result. */
cu_result fake_enter(const char *call, unsigned flags);

/* fake_enter() for something that isn't a call ("stream"): only delay and fault. */
cu_result fake_enter_work(const char *name);

/* While a host function runs in this thread, every call aborts. */
void fake_host_function(bool runs);

int fake_version(void);

/* Is the capability in FAKECUDA_NO? */
bool fake_lacks(const char *capability);

/* fault.c */

/* Sleeps as the rules demand; removing a rule from the control file ends the sleep. */
void fake_delay(const char *call);

/* Returns CU_OK, or the fault that is due. */
cu_result fake_fault(const char *call);

/* FAKECUDA_BAD, "bad=" in the control file. */
enum fake_bad { BAD_MEMSET = 1 << 0, BAD_CAPTURING = 1 << 1, BAD_CLEARED = 1 << 2 };
bool fake_is_bad(enum fake_bad what);

bool fake_is_fatal(cu_result result);

/* device.c */

/* The thread's current context, or NULL. */
cu_context fake_current(void);

/* Depth of the calling thread's context stack, for the end of the thread or the process. */
unsigned fake_stack_depth(void);

/* Locked. Makes a context broken; NULL: all. */
void fake_break(cu_context context, cu_result result);

/* Index of an ordinal, or -1. */
int fake_index(int ordinal);

/* store.c: memory that several processes share, and its accounting. A file is in use as long as any
 * process has it open or mapped, as each open file holds a lock on it. */
enum store_kind { STORE_VMM, STORE_IPC };

struct store_name {
        enum store_kind kind;
        int device;
        size_t bytes;
        pid_t pid;      /* of the maker */
        uint64_t start; /* its start time */
        unsigned serial;
};

/* Returns 0 and an fd filled with residue; -ENOMEM: more than the device has; -errno. */
int store_create(enum store_kind kind, int device, size_t bytes, int *ret_fd,
        char ret_name[FAKE_NAME_BYTES]);

/* Opens the memory of a name. Returns 0 and an fd; -ESTALE: its maker has exited; -errno. */
int store_open(const char *name, int *ret_fd);

/* Zeroes all of an fd's memory. Returns 0 or -errno. */
int store_clear(int fd, size_t bytes);

/* Parses the name of an fd of STORE_VMM. False: it is something else. */
bool store_identify(int fd, char ret_name[FAKE_NAME_BYTES], struct store_name *ret);
bool store_parse(const char *name, struct store_name *ret);

/* After the last use here: removes the file if no other process uses it. */
void store_forget(const char *name);

/* Frees memory of STORE_IPC that this process made. -EBUSY: another process has it open. */
int store_free(const char *name, int fd);

/* Bytes of a device in use by all processes; -errno. */
int store_used(int device, size_t *ret_bytes);

/* Start time of a process; 0: there is none. */
uint64_t store_start_time(pid_t pid);

/* memory.c: address ranges and their mappings. */
struct phys {
        char name[FAKE_NAME_BYTES];
        int fd; /* -1 once only mappings are left */
        int device;
        size_t bytes;
        unsigned handles, mappings;
        bool can_export;
};

struct mapping {
        struct range *range;
        struct phys *phys;
        uint64_t at;
        size_t bytes;
        uint8_t access[FAKE_DEVICES_MAX]; /* CU_ACCESS_* */
        unsigned pins;                    /* work under way that uses it */
};

enum range_kind { RANGE_RESERVED, RANGE_ALLOCATED, RANGE_OPENED };

struct range {
        struct list_link link;
        enum range_kind kind;
        uint64_t at; /* PROT_NONE */
        char *alias;
        size_t bytes;
        struct mapping **slots; /* the mapping of each granule */
        cu_context context;     /* of RANGE_ALLOCATED and _OPENED */
        unsigned opens;         /* of RANGE_OPENED */
};

/* Mappings in use by a piece of work. */
struct pins {
        struct mapping **mappings;
        size_t n;
};

/* Locked. Makes a range of addresses; `wanted` 0: anywhere. NULL: no room. */
struct range *range_new(enum range_kind kind, size_t bytes, size_t alignment, uint64_t wanted);
void range_free(struct range *r);
struct range *range_find(uint64_t at);
/* The range after r (NULL: the first); NULL at the end. */
struct range *range_next(const struct range *r);

/* Locked. Puts memory at an address of the range; takes a reference of phys. */
struct mapping *mapping_new(struct range *r, uint64_t at, size_t bytes, struct phys *p);
/* Aborts if work under way uses it. */
void mapping_free(struct mapping *m);

/* Locked. Takes the fd. */
struct phys *phys_new(int fd, const char *name, const struct store_name *parsed);
void phys_unref(struct phys *p, unsigned *count);

/* Locked. Returns the CPU's view of a device range, added to `pins` until pins_drop(). Aborts
 * unless all of it is mapped and `device` has access. `what` names the use ("destination"). */
char *fake_pin(
        struct pins *pins, uint64_t at, size_t bytes, int device, bool writes, const char *what);
void pins_drop(struct pins *pins);

/* Locked. Is it an address in a range of the simulated driver? */
bool fake_is_device(uint64_t at);

/* host.c */
struct host_reg {
        struct list_link link;
        uintptr_t at;
        size_t bytes;
        unsigned flags, pins;
        cu_context context;
};

/*
 * Locked. Returns the registration of a host range, or NULL. Aborts if only a part is registered.
 */
struct host_reg *host_find(const void *at, size_t bytes);
unsigned host_count(void);

/* stream.c */
enum work_kind { WORK_MEMSET, WORK_COPY, WORK_CALL, WORK_EVENT, WORK_KERNEL };

struct launch; /* module.c */

/* A piece of a stream's work; owned by the stream once added. */
struct work {
        struct work *next;
        uint64_t number; /* order among all streams */
        enum work_kind kind;
        struct pins pins;
        struct host_reg *regs[2];
        char *dst;
        const char *src;
        size_t bytes;
        unsigned char value;
        void *staging; /* freed with it */
        cu_host_fn fn;
        void *data;
        cu_event event;
        uint64_t record;
        struct launch *launch;
};

/* Locked. The stream of this handle, in the current context; aborts for anything else. */
cu_stream stream_find(cu_stream handle);
/* Locked. */
void stream_add(cu_stream s, struct work *w);
/* Locked; unlocks while it waits. CU_OK, or the context's sticky result. */
cu_result stream_drain(cu_stream s);
/* Locked. Waits for all streams of a context. */
cu_result stream_drain_all(cu_context context);
/* Locked. Ends the NULL stream of a context. */
void stream_end_legacy(cu_context context);
/* The work that the calling thread runs for a stream; else NULL. */
struct work *stream_running(cu_context *ret_context);
unsigned stream_count(void);

/* module.c */
void launch_run(struct launch *l);
/* Locked. */
void launch_free(struct launch *l);
unsigned module_count(void);

/* vmm.c: handles that are not released. */
unsigned vmm_handles(void);

/* Adds the leaks at exit to the text: ", N things", or nothing. */
void memory_leaks(char *text, size_t size);
void leak_add(char *text, size_t size, unsigned n, const char *what);

#endif
