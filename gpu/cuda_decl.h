/*
 * The parts of the CUDA driver API that we use, declared here: types and constants, from NVIDIA's
 * public API documentation. The functions are in cuda_calls.h. A test compares both with the
 * toolkit's cuda.h if it is installed (tests/tools/check-cuda.sh).
 *
 * Names are ours (cu_*, CU_* without a twin in cuda.h), so that the test can include both in one
 * file.
 */
#ifndef KVL_GPU_CUDA_DECL_H
#define KVL_GPU_CUDA_DECL_H

#include <stddef.h>
#include <stdint.h>

typedef int cu_result; /* CUresult: the values below */
typedef int cu_device; /* CUdevice: an ordinal; means nothing in another process */
typedef unsigned long long cu_deviceptr;  /* CUdeviceptr, 64 bit */
typedef unsigned long long cu_mem_handle; /* CUmemGenericAllocationHandle */
typedef struct CUctx_st *cu_context;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;

typedef void (*cu_host_fn)(void *data); /* CUhostFn */

typedef struct {
        char bytes[16];
} cu_uuid; /* CUuuid */

typedef struct {
        char reserved[64];
} cu_ipc_mem_handle; /* CUipcMemHandle */

/* CUresult */
enum {
        CU_OK = 0, /* CUDA_SUCCESS */
        CU_INVALID_VALUE = 1,
        CU_OUT_OF_MEMORY = 2,
        CU_NOT_INITIALIZED = 3,
        CU_DEINITIALIZED = 4,
        CU_STUB_LIBRARY = 34,
        CU_DEVICE_UNAVAILABLE = 46,
        CU_NO_DEVICE = 100,
        CU_INVALID_DEVICE = 101,
        CU_INVALID_IMAGE = 200,
        CU_INVALID_CONTEXT = 201,
        CU_ECC_UNCORRECTABLE = 214,
        CU_NO_BINARY_FOR_GPU = 209,
        CU_INVALID_PTX = 218,
        CU_UNSUPPORTED_PTX_VERSION = 222,
        CU_OPERATING_SYSTEM = 304,
        CU_INVALID_HANDLE = 400,
        CU_ILLEGAL_STATE = 401,
        CU_NOT_FOUND = 500,
        CU_NOT_READY = 600,
        CU_ILLEGAL_ADDRESS = 700,
        CU_LAUNCH_TIMEOUT = 702,
        CU_CONTEXT_IS_DESTROYED = 709,
        CU_HOST_MEMORY_ALREADY_REGISTERED = 712,
        CU_HOST_MEMORY_NOT_REGISTERED = 713,
        CU_HARDWARE_STACK_ERROR = 714,
        CU_LAUNCH_FAILED = 719,
        CU_NOT_PERMITTED = 800,
        CU_NOT_SUPPORTED = 801,
        CU_SYSTEM_NOT_READY = 802,
        CU_SYSTEM_DRIVER_MISMATCH = 803,
        CU_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
        CU_UNKNOWN = 999,
};

/* CUdevice_attribute */
typedef int cu_device_attribute;
enum {
        CU_ATTR_COMPUTE_MAJOR = 75,
        CU_ATTR_COMPUTE_MINOR = 76,
        CU_ATTR_VMM = 102,            /* cuMemCreate and its kind */
        CU_ATTR_VMM_POSIX_FD = 103,   /* handles as file descriptors */
        CU_ATTR_RDMA_WITH_VMM = 110,  /* cuMemCreate memory for GPUDirect RDMA */
        CU_ATTR_READ_ONLY_HOST = 113, /* read-only host registration */
        CU_ATTR_MEMOPS_64 = 122,      /* 64-bit stream memory operations */
        CU_ATTR_HOST_NUMA_ID = 134,
};

/* CUmemAllocationType, CUmemAllocationHandleType, CUmemLocationType */
enum { CU_ALLOC_PINNED = 1 };
enum { CU_HANDLE_NONE = 0, CU_HANDLE_POSIX_FD = 1 };
enum { CU_LOCATION_DEVICE = 1 };

typedef struct {
        int type; /* CU_LOCATION_DEVICE */
        int id;   /* ordinal */
} cu_mem_location;

typedef struct {
        int type;                  /* CU_ALLOC_PINNED */
        int requested_handle_type; /* CU_HANDLE_POSIX_FD */
        cu_mem_location location;
        void *win32_handle_meta_data;
        struct {
                unsigned char compression_type;
                unsigned char gpu_direct_rdma_capable;
                unsigned short usage;
                unsigned char reserved[4];
        } flags;
} cu_mem_allocation_prop;

typedef struct {
        cu_mem_location location;
        int flags; /* CU_ACCESS_* */
} cu_mem_access_desc;

/* CUmemAccess_flags, CUmemAllocationGranularity_flags */
enum { CU_ACCESS_NONE = 0, CU_ACCESS_READ = 1, CU_ACCESS_READ_WRITE = 3 };
typedef int cu_granularity;
enum { CU_GRANULARITY_MINIMUM = 0, CU_GRANULARITY_RECOMMENDED = 1 };
typedef int cu_handle_type;

enum { CU_IPC_LAZY_ENABLE_PEER_ACCESS = 1 };
enum { CU_STREAM_NON_BLOCKING = 1 };
typedef int cu_capture_status; /* CUstreamCaptureStatus */
enum { CU_CAPTURE_NONE = 0, CU_CAPTURE_ACTIVE = 1 };
enum { CU_EVENT_DEFAULT = 0, CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2 };
enum {
        CU_HOST_REGISTER_PORTABLE = 1,
        CU_HOST_REGISTER_DEVICEMAP = 2,
        CU_HOST_REGISTER_READ_ONLY = 8,
};

/* CUmemcpyAttributes of cuMemcpyBatchAsync, 12.8. */
enum { CU_ACCESS_ORDER_STREAM = 1 };
typedef struct {
        int src_access_order; /* STREAM: sources may be written by earlier work of the stream */
        cu_mem_location src_hint, dst_hint;
        unsigned flags;
} cu_memcpy_attributes;

#endif
