/*
 * Functions of the driver that we call: one row each, included several times (no include guard).
 *
 *   CUDA_CALL(group, field, name, version, exported, parameters)
 *
 * group: BASE functions are required; of each other group all or none (capability bits of
 * cuda_load.h). field: member of struct cuda. name, version: arguments of cuGetProcAddress(). The
 * version is the prototype's, not the driver's (an unknown one is an error). exported: the
 * resulting symbol, compared with cuda.h. Every function returns CUresult.
 */
CUDA_CALL(BASE, Init, "cuInit", 2000, cuInit, (unsigned flags))
CUDA_CALL(BASE, DriverGetVersion, "cuDriverGetVersion", 2020, cuDriverGetVersion, (int *version))
CUDA_CALL(BASE, GetErrorName, "cuGetErrorName", 6000, cuGetErrorName,
        (cu_result error, const char **name))
CUDA_CALL(BASE, DeviceGetCount, "cuDeviceGetCount", 2000, cuDeviceGetCount, (int *count))
CUDA_CALL(BASE, DeviceGet, "cuDeviceGet", 2000, cuDeviceGet, (cu_device * device, int ordinal))
CUDA_CALL(BASE, DeviceGetName, "cuDeviceGetName", 2000, cuDeviceGetName,
        (char *name, int size, cu_device device))
CUDA_CALL(BASE, DeviceGetUuid, "cuDeviceGetUuid", 9020, cuDeviceGetUuid,
        (cu_uuid * uuid, cu_device device))
CUDA_CALL(BASE, DeviceTotalMem, "cuDeviceTotalMem", 3020, cuDeviceTotalMem_v2,
        (size_t * bytes, cu_device device))
CUDA_CALL(BASE, DeviceGetAttribute, "cuDeviceGetAttribute", 2000, cuDeviceGetAttribute,
        (int *value, cu_device_attribute attribute, cu_device device))
CUDA_CALL(BASE, DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, cuDevicePrimaryCtxRetain,
        (cu_context * context, cu_device device))
CUDA_CALL(BASE, DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 11000,
        cuDevicePrimaryCtxRelease_v2, (cu_device device))
CUDA_CALL(BASE, CtxPushCurrent, "cuCtxPushCurrent", 4000, cuCtxPushCurrent_v2, (cu_context context))
CUDA_CALL(BASE, CtxPopCurrent, "cuCtxPopCurrent", 4000, cuCtxPopCurrent_v2, (cu_context * context))
CUDA_CALL(BASE, CtxGetCurrent, "cuCtxGetCurrent", 4000, cuCtxGetCurrent, (cu_context * context))
CUDA_CALL(BASE, CtxGetDevice, "cuCtxGetDevice", 2000, cuCtxGetDevice, (cu_device * device))
CUDA_CALL(BASE, CtxSynchronize, "cuCtxSynchronize", 2000, cuCtxSynchronize, (void))
CUDA_CALL(BASE, MemGetInfo, "cuMemGetInfo", 3020, cuMemGetInfo_v2, (size_t * free, size_t *total))
CUDA_CALL(BASE, StreamCreate, "cuStreamCreate", 2000, cuStreamCreate,
        (cu_stream * stream, unsigned flags))
CUDA_CALL(BASE, StreamDestroy, "cuStreamDestroy", 4000, cuStreamDestroy_v2, (cu_stream stream))
CUDA_CALL(BASE, StreamGetCtx, "cuStreamGetCtx", 9020, cuStreamGetCtx,
        (cu_stream stream, cu_context *context))
CUDA_CALL(BASE, StreamSynchronize, "cuStreamSynchronize", 2000, cuStreamSynchronize,
        (cu_stream stream))
CUDA_CALL(BASE, StreamQuery, "cuStreamQuery", 2000, cuStreamQuery, (cu_stream stream))
CUDA_CALL(BASE, StreamIsCapturing, "cuStreamIsCapturing", 10000, cuStreamIsCapturing,
        (cu_stream stream, cu_capture_status *status))
CUDA_CALL(BASE, LaunchHostFunc, "cuLaunchHostFunc", 10000, cuLaunchHostFunc,
        (cu_stream stream, cu_host_fn fn, void *data))
CUDA_CALL(
        BASE, EventCreate, "cuEventCreate", 2000, cuEventCreate, (cu_event * event, unsigned flags))
CUDA_CALL(BASE, EventDestroy, "cuEventDestroy", 4000, cuEventDestroy_v2, (cu_event event))
CUDA_CALL(
        BASE, EventRecord, "cuEventRecord", 2000, cuEventRecord, (cu_event event, cu_stream stream))
CUDA_CALL(BASE, EventQuery, "cuEventQuery", 2000, cuEventQuery, (cu_event event))
CUDA_CALL(BASE, EventSynchronize, "cuEventSynchronize", 2000, cuEventSynchronize, (cu_event event))
CUDA_CALL(BASE, MemsetD8Async, "cuMemsetD8Async", 3020, cuMemsetD8Async,
        (cu_deviceptr at, unsigned char value, size_t n, cu_stream stream))
CUDA_CALL(BASE, MemcpyHtoDAsync, "cuMemcpyHtoDAsync", 3020, cuMemcpyHtoDAsync_v2,
        (cu_deviceptr dst, const void *src, size_t bytes, cu_stream stream))
CUDA_CALL(BASE, MemcpyDtoHAsync, "cuMemcpyDtoHAsync", 3020, cuMemcpyDtoHAsync_v2,
        (void *dst, cu_deviceptr src, size_t bytes, cu_stream stream))
CUDA_CALL(BASE, MemcpyDtoDAsync, "cuMemcpyDtoDAsync", 3020, cuMemcpyDtoDAsync_v2,
        (cu_deviceptr dst, cu_deviceptr src, size_t bytes, cu_stream stream))
CUDA_CALL(BASE, MemHostRegister, "cuMemHostRegister", 6050, cuMemHostRegister_v2,
        (void *at, size_t bytes, unsigned flags))
CUDA_CALL(BASE, MemHostUnregister, "cuMemHostUnregister", 4000, cuMemHostUnregister, (void *at))

CUDA_CALL(VMM, MemGetAllocationGranularity, "cuMemGetAllocationGranularity", 10020,
        cuMemGetAllocationGranularity,
        (size_t * bytes, const cu_mem_allocation_prop *prop, cu_granularity option))
CUDA_CALL(VMM, MemCreate, "cuMemCreate", 10020, cuMemCreate,
        (cu_mem_handle * handle, size_t bytes, const cu_mem_allocation_prop *prop,
                unsigned long long flags))
CUDA_CALL(VMM, MemRelease, "cuMemRelease", 10020, cuMemRelease, (cu_mem_handle handle))
CUDA_CALL(VMM, MemExport, "cuMemExportToShareableHandle", 10020, cuMemExportToShareableHandle,
        (void *fd, cu_mem_handle handle, cu_handle_type type, unsigned long long flags))
CUDA_CALL(VMM, MemImport, "cuMemImportFromShareableHandle", 10020, cuMemImportFromShareableHandle,
        (cu_mem_handle * handle, void *fd, cu_handle_type type))
CUDA_CALL(VMM, MemAddressReserve, "cuMemAddressReserve", 10020, cuMemAddressReserve,
        (cu_deviceptr * at, size_t bytes, size_t alignment, cu_deviceptr wanted,
                unsigned long long flags))
CUDA_CALL(VMM, MemAddressFree, "cuMemAddressFree", 10020, cuMemAddressFree,
        (cu_deviceptr at, size_t bytes))
CUDA_CALL(VMM, MemMap, "cuMemMap", 10020, cuMemMap,
        (cu_deviceptr at, size_t bytes, size_t offset, cu_mem_handle handle,
                unsigned long long flags))
CUDA_CALL(VMM, MemUnmap, "cuMemUnmap", 10020, cuMemUnmap, (cu_deviceptr at, size_t bytes))
CUDA_CALL(VMM, MemSetAccess, "cuMemSetAccess", 10020, cuMemSetAccess,
        (cu_deviceptr at, size_t bytes, const cu_mem_access_desc *descs, size_t n))

CUDA_CALL(IPC, MemAlloc, "cuMemAlloc", 3020, cuMemAlloc_v2, (cu_deviceptr * at, size_t bytes))
CUDA_CALL(IPC, MemFree, "cuMemFree", 3020, cuMemFree_v2, (cu_deviceptr at))
CUDA_CALL(IPC, IpcGetMemHandle, "cuIpcGetMemHandle", 4010, cuIpcGetMemHandle,
        (cu_ipc_mem_handle * handle, cu_deviceptr at))
CUDA_CALL(IPC, IpcOpenMemHandle, "cuIpcOpenMemHandle", 11000, cuIpcOpenMemHandle_v2,
        (cu_deviceptr * at, cu_ipc_mem_handle handle, unsigned flags))
CUDA_CALL(
        IPC, IpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, cuIpcCloseMemHandle, (cu_deviceptr at))

/* Two ABIs: 12.8 counted the failed copy, 13.0 doesn't. */
CUDA_CALL(BATCH, MemcpyBatchAsync, "cuMemcpyBatchAsync", 12080, cuMemcpyBatchAsync,
        (cu_deviceptr * dsts, cu_deviceptr *srcs, size_t *bytes, size_t n,
                cu_memcpy_attributes *attributes, size_t *attribute_indices, size_t n_attributes,
                size_t *failed, cu_stream stream))
CUDA_CALL(BATCH2, MemcpyBatchAsync2, "cuMemcpyBatchAsync", 13000, cuMemcpyBatchAsync_v2,
        (cu_deviceptr * dsts, cu_deviceptr *srcs, size_t *bytes, size_t n,
                cu_memcpy_attributes *attributes, size_t *attribute_indices, size_t n_attributes,
                cu_stream stream))

/* MIG instances have UUIDs of their own since 11.4. */
CUDA_CALL(UUID2, DeviceGetUuid2, "cuDeviceGetUuid", 11040, cuDeviceGetUuid_v2,
        (cu_uuid * uuid, cu_device device))

/* Kernels: the decoder's and the tests'. The daemon and the library run none. */
CUDA_CALL(KERNEL, ModuleLoadData, "cuModuleLoadData", 2010, cuModuleLoadData,
        (cu_module * module, const void *image))
CUDA_CALL(KERNEL, ModuleUnload, "cuModuleUnload", 2000, cuModuleUnload, (cu_module module))
CUDA_CALL(KERNEL, ModuleGetFunction, "cuModuleGetFunction", 2000, cuModuleGetFunction,
        (cu_function * function, cu_module module, const char *name))
CUDA_CALL(KERNEL, LaunchKernel, "cuLaunchKernel", 4000, cuLaunchKernel,
        (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, cu_stream stream,
                void **parameters, void **extra))
