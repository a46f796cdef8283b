#include "client/ctl/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "gpu/cuda_load.h"

/* ---- CUDA ------------------------------------------------------------------------------------ */

static void name_gpu(const cu_uuid *uuid, char name[DRIVER_TEXT])
{
        char *at = name + sprintf(name, "GPU-");

        for (unsigned i = 0; i < sizeof(uuid->bytes); i++)
                at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        (uint8_t)uuid->bytes[i]);
}

static int attribute(
        const struct cuda *cuda, cu_device device, cu_device_attribute which, int otherwise)
{
        int value;

        return cuda->DeviceGetAttribute(&value, which, device) == CU_OK ? value : otherwise;
}

static bool ask_gpu(const struct cuda *cuda, int ordinal, struct driver_gpu *ret)
{
        size_t total_bytes;
        cu_device device;
        cu_uuid uuid;

        if (cuda->DeviceGet(&device, ordinal) != CU_OK ||
                cuda->DeviceGetUuid(&uuid, device) != CU_OK ||
                cuda->DeviceTotalMem(&total_bytes, device) != CU_OK)
                return false;
        name_gpu(&uuid, ret->name);
        ret->total_bytes = total_bytes;
        ret->numa_node = attribute(cuda, device, CU_ATTR_HOST_NUMA_ID, -1);
        ret->has_vmm = (cuda->capabilities & CUDA_HAS_VMM) &&
                       attribute(cuda, device, CU_ATTR_VMM, 0) &&
                       attribute(cuda, device, CU_ATTR_VMM_POSIX_FD, 0);
        return true;
}

static void ask_cuda(struct doctor_driver *ret)
{
        const struct cuda *cuda;
        int n = 0;

        static_assert(DRIVER_WHY >= CUDA_WHY_BYTES, "its sentence fits");
        ret->result = cuda_get(&cuda, ret->why);
        if (ret->result < 0)
                return;
        ret->cuda_version = cuda->version;
        if (cuda->DeviceGetCount(&n) != CU_OK)
                n = 0;
        for (int i = 0; i < n && ret->n_gpus < DRIVER_GPUS_MAX; i++)
                ret->n_gpus += ask_gpu(cuda, i, &ret->gpus[ret->n_gpus]);
}

/* ---- management library (NVML) --------------------------------------------------------------- */

/* Declarations of nvml.h (12.0) that are used here. Results: 0 is success. */
typedef void *nvml_device;

struct nvml_memory {
        unsigned long long total, free, used;
};

struct nvml_process {
        unsigned pid;
        unsigned long long used;
        unsigned gpu_instance, compute_instance;
};

struct nvml {
        int (*init)(void);
        int (*driver_version)(char *version, unsigned length);
        int (*by_uuid)(const char *uuid, nvml_device *device);
        int (*persistence)(nvml_device device, int *mode);
        int (*memory)(nvml_device device, struct nvml_memory *memory);
        int (*processes)(nvml_device device, unsigned *n, struct nvml_process *processes);
};

#define NVML_LIBRARY "libnvidia-ml.so.1"

/* Loads NVML for the process' life: never closed. */
static bool load_nvml(struct nvml *ret, char why[DRIVER_WHY])
{
        void *library = dlopen(NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        const struct {
                const char *name;
                void *at;
        } calls[] = {
                {"nvmlInit_v2", &ret->init},
                {"nvmlSystemGetDriverVersion", &ret->driver_version},
                {"nvmlDeviceGetHandleByUUID", &ret->by_uuid},
                {"nvmlDeviceGetPersistenceMode", &ret->persistence},
                {"nvmlDeviceGetMemoryInfo", &ret->memory},
                {"nvmlDeviceGetComputeRunningProcesses_v3", &ret->processes},
        };

        if (!library) {
                snprintf(why, DRIVER_WHY, "there is no %s", NVML_LIBRARY);
                return false;
        }
        for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
                void *call = dlsym(library, calls[i].name);

                if (!call) {
                        snprintf(why, DRIVER_WHY, "%s has no %s", NVML_LIBRARY, calls[i].name);
                        return false;
                }
                memcpy(calls[i].at, &call, sizeof(call));
        }
        return true;
}

static void ask_users(const struct nvml *nvml, nvml_device device, struct driver_gpu *g)
{
        struct nvml_process processes[DRIVER_USERS_MAX] = {0};
        unsigned n = DRIVER_USERS_MAX;

        if (nvml->processes(device, &n, processes) != 0)
                return;
        for (unsigned i = 0; i < MIN(n, (unsigned)DRIVER_USERS_MAX); i++)
                g->users[g->n_users++] = (struct driver_user){processes[i].pid, processes[i].used};
}

static void ask_management(struct doctor_driver *ret)
{
        struct nvml nvml;

        if (!load_nvml(&nvml, ret->management_why))
                return;
        if (nvml.init() != 0) {
                snprintf(ret->management_why, DRIVER_WHY, "%s can't be used", NVML_LIBRARY);
                return;
        }
        (void)nvml.driver_version(ret->version, sizeof(ret->version));
        for (uint32_t i = 0; i < ret->n_gpus; i++) {
                struct driver_gpu *g = &ret->gpus[i];
                struct nvml_memory memory;
                nvml_device device;
                int mode;

                if (nvml.by_uuid(g->name, &device) != 0 || nvml.memory(device, &memory) != 0)
                        continue;
                g->has_management = true;
                g->used_bytes = memory.used;
                if (nvml.persistence(device, &mode) == 0)
                        g->persistence = mode ? PERSISTENCE_ON : PERSISTENCE_OFF;
                ask_users(&nvml, device, g);
        }
}

/* ---- a process of its own -------------------------------------------------------------------- */

static void give_up(struct doctor_driver *ret, const char *why)
{
        *ret = (struct doctor_driver){.asked = false};
        snprintf(ret->why, sizeof(ret->why), "%s", why);
}

/* Never returns. The parent's buffered output must not be printed again. */
static void answer_and_exit(int fd)
{
        static struct doctor_driver d;
        const char *at = (const char *)&d;
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        d.asked = true;
        ask_cuda(&d);
        if (d.result == 0)
                ask_management(&d);
        for (size_t left = sizeof(d); left > 0;) {
                ssize_t n = write(fd, at, left);

                if (n <= 0)
                        _exit(1);
                at += n;
                left -= (size_t)n;
        }
        _exit(0);
}

/* Returns the bytes read until the other end closes (*ret_is_over), or the time-out. */
static size_t read_answer(int fd, unsigned msec, struct doctor_driver *ret, bool *ret_is_over)
{
        uint64_t until = clock_now_nsec() + msec * NSEC_PER_MSEC, now;
        char *at = (char *)ret;
        size_t len = 0;
        ssize_t n = 1;

        while (n > 0 && len < sizeof(*ret) && (now = clock_now_nsec()) < until) {
                struct pollfd p = {fd, POLLIN, 0};

                if (poll(&p, 1, (int)((until - now) / NSEC_PER_MSEC) + 1) <= 0)
                        break;
                n = read(fd, at + len, sizeof(*ret) - len);
                len += n > 0 ? (size_t)n : 0;
        }
        *ret_is_over = n == 0 || len == sizeof(*ret);
        return len;
}

/* A process inside a broken driver may not even die when killed: isn't waited for then. */
static void end_process(pid_t pid, bool is_over)
{
        int status;

        if (!is_over)
                kill(pid, SIGKILL);
        while (waitpid(pid, &status, is_over ? 0 : WNOHANG) < 0 && errno == EINTR)
                ;
}

void driver_ask(struct doctor_driver *ret, unsigned timeout_msec)
{
        bool is_over = true;
        size_t len;
        int fds[2];
        pid_t pid;

        if (pipe2(fds, O_CLOEXEC) < 0) {
                give_up(ret, strerror(errno));
                return;
        }
        pid = fork();
        if (pid == 0)
                answer_and_exit(fds[1]);
        close(fds[1]);
        len = pid < 0 ? 0 : read_answer(fds[0], timeout_msec, ret, &is_over);
        close(fds[0]);
        if (pid > 0)
                end_process(pid, is_over);
        if (len < sizeof(*ret))
                give_up(ret, pid < 0   ? "no process can be made to ask the driver"
                             : is_over ? "the driver ends the process that asks it"
                                       : "the driver doesn't answer");
}
