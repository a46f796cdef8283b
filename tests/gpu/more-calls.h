/*
 * Functions of the driver that only the GPU suite calls, beside those of gpu/cuda_calls.h. Each may
 * be missing (NULL): facts that need it are skipped then. Prototypes are from the public API
 * documentation.
 */
#ifndef KVL_TESTS_GPU_MORE_CALLS_H
#define KVL_TESTS_GPU_MORE_CALLS_H

#include <stdint.h>

#include "gpu/cuda_decl.h"

typedef struct CUgraph_st *cu_graph;
typedef struct CUgraphExec_st *cu_graph_exec;

enum { CU_CAPTURE_THREAD_LOCAL = 1 }; /* CUstreamCaptureMode */
enum { CU_WAIT_VALUE_GEQ = 0 };       /* CUstreamWaitValue_flags */
enum { CU_WRITE_VALUE_DEFAULT = 0 };  /* CUstreamWriteValue_flags */

/* field, name, version asked for, parameters */
#define MORE_CALLS(CALL)                                                                          \
        CALL(StreamBeginCapture, "cuStreamBeginCapture", 10010, (cu_stream stream, int mode))     \
        CALL(StreamEndCapture, "cuStreamEndCapture", 10000, (cu_stream stream, cu_graph * graph)) \
        CALL(GraphInstantiate, "cuGraphInstantiateWithFlags", 11040,                              \
                (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))                 \
        CALL(GraphLaunch, "cuGraphLaunch", 10000, (cu_graph_exec exec, cu_stream stream))         \
        CALL(GraphExecDestroy, "cuGraphExecDestroy", 10000, (cu_graph_exec exec))                 \
        CALL(GraphDestroy, "cuGraphDestroy", 10000, (cu_graph graph))                             \
        CALL(StreamWaitValue64, "cuStreamWaitValue64", 11070,                                     \
                (cu_stream stream, cu_deviceptr at, uint64_t value, unsigned flags))              \
        CALL(StreamWriteValue64, "cuStreamWriteValue64", 11070,                                   \
                (cu_stream stream, cu_deviceptr at, uint64_t value, unsigned flags))              \
        CALL(MemHostGetDevicePointer, "cuMemHostGetDevicePointer", 3020,                          \
                (cu_deviceptr * at, void *host, unsigned flags))

struct more_calls {
#define MORE_FIELD(field, name, version, parameters) cu_result(*field) parameters;
        MORE_CALLS(MORE_FIELD)
#undef MORE_FIELD
};

/* The driver must be loaded (cuda_get()). */
void more_calls_find(struct more_calls *ret_calls);

#endif
