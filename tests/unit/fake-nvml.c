/*
 * The part of NVIDIA's management library that kvleasectl doctor asks: a libnvidia-ml.so.1 for
 * machines without one, beside the driver double. One GPU, by the double's name.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct memory {
        unsigned long long total, free, used;
};

struct process {
        unsigned pid;
        unsigned long long used;
        unsigned gpu_instance, compute_instance;
};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
EXPORT int nvmlDeviceGetPersistenceMode(void *device, int *mode);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(
        void *device, unsigned *n, struct process *processes);

int nvmlInit_v2(void)
{
        return getenv("FAKENVML_FAIL") ? 9 /* NVML_ERROR_DRIVER_NOT_LOADED */ : 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
        snprintf(version, length, "550.54.14");
        return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
        *device = (void *)"gpu";
        return strncmp(uuid, "GPU-fa4ecada-", 13) == 0 ? 0 : 6 /* NVML_ERROR_NOT_FOUND */;
}

int nvmlDeviceGetPersistenceMode(void *device, int *mode)
{
        *mode = 0;
        return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
        *memory = (struct memory){UINT64_C(8) << 30, UINT64_C(7) << 30, UINT64_C(1) << 30};
        return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process *processes)
{
        if (*n < 1)
                return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
        *n = 1;
        processes[0] = (struct process){.pid = 4711, .used = UINT64_C(1) << 30};
        return 0;
}
