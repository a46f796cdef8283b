/*
 * Compiled, never run: our declarations of the CUDA driver (gpu/cuda_decl.h, cuda_calls.h) against
 * the toolkit's cuda.h. What differs doesn't compile. check-cuda.sh says where cuda.h is.
 */
#define __CUDA_API_VERSION_INTERNAL /* declares the old forms as well */
#include <cuda.h>

#include <stddef.h>

/* Names that both have. */
#define CU_EVENT_DEFAULT        OUR_EVENT_DEFAULT
#define CU_EVENT_BLOCKING_SYNC  OUR_EVENT_BLOCKING_SYNC
#define CU_EVENT_DISABLE_TIMING OUR_EVENT_DISABLE_TIMING
#define CU_STREAM_NON_BLOCKING  OUR_STREAM_NON_BLOCKING
#include "gpu/cuda_decl.h"
#undef CU_EVENT_DEFAULT
#undef CU_EVENT_BLOCKING_SYNC
#undef CU_EVENT_DISABLE_TIMING
#undef CU_STREAM_NON_BLOCKING

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(CU_OK, CUDA_SUCCESS);
SAME(CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(CU_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(CU_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(CU_INVALID_PTX, CUDA_ERROR_INVALID_PTX);
SAME(CU_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(CU_OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM);
SAME(CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(CU_ILLEGAL_STATE, CUDA_ERROR_ILLEGAL_STATE);
SAME(CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CU_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(CU_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(CU_HOST_MEMORY_NOT_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME(CU_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME(CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
SAME(CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(CU_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
SAME(CU_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(CU_COMPAT_NOT_SUPPORTED_ON_DEVICE, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
SAME(CU_UNKNOWN, CUDA_ERROR_UNKNOWN);
SAME(CU_ATTR_COMPUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_ATTR_COMPUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_ATTR_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(CU_ATTR_VMM_POSIX_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME(CU_ATTR_RDMA_WITH_VMM, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
SAME(CU_ATTR_READ_ONLY_HOST, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
SAME(CU_ATTR_MEMOPS_64, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
SAME(CU_ATTR_HOST_NUMA_ID, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
SAME(CU_ALLOC_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CU_HANDLE_NONE, CU_MEM_HANDLE_TYPE_NONE);
SAME(CU_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CU_ACCESS_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE);
SAME(CU_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME(CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(CU_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
SAME(CU_IPC_LAZY_ENABLE_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME(OUR_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(OUR_EVENT_DEFAULT, CU_EVENT_DEFAULT);
SAME(OUR_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC);
SAME(OUR_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(CU_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(CU_HOST_REGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(CU_HOST_REGISTER_READ_ONLY, CU_MEMHOSTREGISTER_READ_ONLY);
SAME(CU_ACCESS_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
#define SAME_PLACE(ours, a, theirs, b) \
        _Static_assert(offsetof(ours, a) == offsetof(theirs, b), #ours "." #a)
SAME_SIZE(cu_result, CUresult);
SAME_SIZE(cu_device, CUdevice);
SAME_SIZE(cu_deviceptr, CUdeviceptr);
SAME_SIZE(cu_mem_handle, CUmemGenericAllocationHandle);
SAME_SIZE(cu_uuid, CUuuid);
SAME_SIZE(cu_ipc_mem_handle, CUipcMemHandle);
SAME_SIZE(cu_mem_location, CUmemLocation);
SAME_PLACE(cu_mem_location, type, CUmemLocation, type);
SAME_PLACE(cu_mem_location, id, CUmemLocation, id);
SAME_SIZE(cu_mem_allocation_prop, CUmemAllocationProp);
SAME_PLACE(cu_mem_allocation_prop, type, CUmemAllocationProp, type);
SAME_PLACE(
        cu_mem_allocation_prop, requested_handle_type, CUmemAllocationProp, requestedHandleTypes);
SAME_PLACE(cu_mem_allocation_prop, location, CUmemAllocationProp, location);
SAME_PLACE(
        cu_mem_allocation_prop, win32_handle_meta_data, CUmemAllocationProp, win32HandleMetaData);
SAME_PLACE(cu_mem_allocation_prop, flags.gpu_direct_rdma_capable, CUmemAllocationProp,
        allocFlags.gpuDirectRDMACapable);
SAME_PLACE(cu_mem_allocation_prop, flags.usage, CUmemAllocationProp, allocFlags.usage);
SAME_SIZE(cu_mem_access_desc, CUmemAccessDesc);
SAME_PLACE(cu_mem_access_desc, location, CUmemAccessDesc, location);
SAME_PLACE(cu_mem_access_desc, flags, CUmemAccessDesc, flags);
SAME_SIZE(cu_memcpy_attributes, CUmemcpyAttributes);
SAME_PLACE(cu_memcpy_attributes, src_access_order, CUmemcpyAttributes, srcAccessOrder);
SAME_PLACE(cu_memcpy_attributes, src_hint, CUmemcpyAttributes, srcLocHint);
SAME_PLACE(cu_memcpy_attributes, dst_hint, CUmemcpyAttributes, dstLocHint);
SAME_PLACE(cu_memcpy_attributes, flags, CUmemcpyAttributes, flags);

/* The prototypes, in the toolkit's types. */
#define cu_result              CUresult
#define cu_device              CUdevice
#define cu_deviceptr           CUdeviceptr
#define cu_mem_handle          CUmemGenericAllocationHandle
#define cu_context             CUcontext
#define cu_stream              CUstream
#define cu_event               CUevent
#define cu_module              CUmodule
#define cu_function            CUfunction
#define cu_host_fn             CUhostFn
#define cu_uuid                CUuuid
#define cu_ipc_mem_handle      CUipcMemHandle
#define cu_device_attribute    CUdevice_attribute
#define cu_mem_allocation_prop CUmemAllocationProp
#define cu_mem_access_desc     CUmemAccessDesc
#define cu_granularity         CUmemAllocationGranularity_flags
#define cu_handle_type         CUmemAllocationHandleType
#define cu_capture_status      CUstreamCaptureStatus
#define cu_memcpy_attributes   CUmemcpyAttributes

#define CUDA_CALL(group, field, name, version, exported, parameters)                             \
        _Static_assert(                                                                          \
                __builtin_types_compatible_p(__typeof__(exported), CUresult CUDAAPI parameters), \
                #exported);
#include "gpu/cuda_calls.h"
