/* kvleasectl doctor: checks of the kernel, of memory and of GPUs, each with and without a finding.
 */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/doctor-fixture.h"

#define GIB (UINT64_C(1) << 30)
#define GPU "GPU-6a3d1f52-8c1e-4b7a-9d0e-2f4b6c8d0e1f"

HOST_TEST(test_kernel)
{
        struct host *h = *state;

        host_expect(h, "kernel", DOCTOR_UNCHECKED, "can't be read", NULL);
        host_write(h, "/proc/sys/kernel/osrelease", "6.5.0\n");
        host_expect(h, "kernel", DOCTOR_OK, "6.5.0", NULL);
        host_write(h, "/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
        host_expect(h, "kernel", DOCTOR_OK, "challenge", NULL);
        host_write(h, "/proc/sys/kernel/osrelease", "5.10.0-8\n");
        host_expect(h, "kernel", DOCTOR_WARNING, "read-only", "5.12");
        host_write(h, "/proc/sys/kernel/osrelease", "4.19.0\n");
        host_expect(h, "kernel", DOCTOR_ERROR, "pidfd_open", "5.12");
}

HOST_TEST(test_clock)
{
        static const char file[] =
                "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        struct host *h = *state;

        host_expect(h, "clock", DOCTOR_UNCHECKED, "can't be read", NULL);
        host_write(h, file, "kvm-clock\n");
        host_expect(h, "clock", DOCTOR_OK, "kvm-clock", NULL);
        host_write(h, file, "hpet\n");
        host_expect(h, "clock", DOCTOR_WARNING, "hpet", "echo tsc");
}

/* ---- memory ---------------------------------------------------------------------------------- */

HOST_TEST(test_memory)
{
        struct host *h = *state;

        host_expect(h, "memory", DOCTOR_UNCHECKED, "can't be read", NULL);
        host_write(h, "/proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n");
        /* auto: a quarter of 32 GiB. */
        host_expect(h, "memory", DOCTOR_OK, "8 GiB of the host's", NULL);
        host_configure(h, "[daemon]\ndevices = host\n[device host]\nmemory = 12GiB\n"
                          "host_memory = 8GiB\n");
        host_expect(h, "memory", DOCTOR_WARNING,
                "20 GiB of the host's memory may be leased, and the host has 16 GiB",
                "host_memory");
        host_configure(h, "[daemon]\ndevices = host,host-1\n[device host]\nmemory = 20GiB\n"
                          "[device host-1]\nmemory = 12.5GiB\n");
        host_expect(h, "memory", DOCTOR_ERROR, "the host has 32 GiB", "host_memory");
}

/* Memory that the daemon already has isn't required again. */
HOST_TEST(test_memory_of_daemon)
{
        struct host *h = *state;

        host_write(h, "/proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 8388608 kB\n");
        host_start_daemon(h);
        host_add_device(h, "host", "device", "host", 16 * GIB)->charged_bytes = 8 * GIB;
        host_add_device(h, "disk of host", "disk", "disk", 100 * GIB);
        host_expect(h, "memory", DOCTOR_OK, "16 GiB", NULL);
        host_add_device(h, "host of " GPU, "host", "host", GIB);
        host_expect(h, "memory", DOCTOR_WARNING, "17 GiB", "less than that");
}

HOST_TEST(test_cgroup)
{
        struct host *h = *state;

        host_expect(h, "cgroup-memory", DOCTOR_UNCHECKED, "isn't running here", NULL);
        host_start_daemon(h);
        host_add_device(h, "host", "device", "host", 4 * GIB);
        host_expect(h, "cgroup-memory", DOCTOR_UNCHECKED, "No such file", NULL);
        host_write(h, "/proc/42/cgroup", "0::/..\n");
        host_expect(h, "cgroup-memory", DOCTOR_UNCHECKED, "outside of this cgroup", NULL);
        host_write(h, "/proc/42/cgroup", "0::/system.slice/kvleased.service\n");
        host_expect(h, "cgroup-memory", DOCTOR_OK, "no limit", NULL);
        host_write(h, "/sys/fs/cgroup/system.slice/kvleased.service/memory.max", "max\n");
        host_write(h, "/sys/fs/cgroup/system.slice/memory.max", "8589934592\n");
        host_expect(h, "cgroup-memory", DOCTOR_OK, "/system.slice may have 8 GiB", NULL);
        host_write(h, "/sys/fs/cgroup/system.slice/kvleased.service/memory.max", "1073741824\n");
        host_expect(h, "cgroup-memory", DOCTOR_WARNING, "kvleased.service may have 1 GiB",
                "MemoryMax=infinity");
}

static void add_client(struct host *h, const char *tenant, uint32_t pid)
{
        struct doctor_daemon *p = &h->d.daemon;

        p->clients = realloc(p->clients, (p->n_clients + 1) * sizeof(*p->clients));
        p->clients[p->n_clients++] = (struct figures_client){
                .tenant = strdup(tenant), .name = strdup("engine"), .pid = pid};
}

/* A page's first writer is charged for it: the client's own group must have room for all pages. */
HOST_TEST(test_client_cgroups)
{
        struct host *h = *state;
        struct figures_tenant *t = malloc(sizeof(*t));
        size_t n_findings;

        host_expect(h, "client-cgroups", DOCTOR_UNCHECKED, "isn't running here", NULL);
        host_start_daemon(h);
        host_add_device(h, "host", "device", "host", 4 * GIB);
        *t = (struct figures_tenant){.name = strdup("a"), .limit_bytes = 2 * GIB};
        h->d.daemon.tenants = t;
        h->d.daemon.n_tenants = 1;
        add_client(h, "a", 50);
        add_client(h, "a", 51);
        host_write(h, "/proc/50/cgroup", "0::/pod/x\n");
        host_write(h, "/proc/51/cgroup", "0::/pod/x\n");
        host_expect(h, "client-cgroups", DOCTOR_OK, "have room: 2", NULL);
        host_write(h, "/sys/fs/cgroup/pod/x/memory.max", "2147483648\n");
        host_expect(h, "client-cgroups", DOCTOR_OK, "have room: 2", NULL);
        host_write(h, "/sys/fs/cgroup/pod/x/memory.max", "1073741824\n");
        n_findings = h->d.n_findings;
        host_expect(h, "client-cgroups", DOCTOR_WARNING,
                "tenant a may hold 2 GiB, which is charged to whoever writes it first, and the "
                "control group /sys/fs/cgroup/pod/x of its client engine (pid 50) may have 1 GiB",
                "populate = on");
        assert_int_equal(h->d.n_findings, n_findings + 1); /* one for both */
        /* Without a limit the device's memory counts. */
        t->limit_bytes = UINT64_MAX;
        host_expect(h, "client-cgroups", DOCTOR_WARNING, "may hold 4 GiB", "limit=");
        /* Groups that can't be read: their processes are away, or in another namespace. The limit
         * where the controller is mounted isn't that of a group outside. */
        host_write(h, "/sys/fs/cgroup/memory.max", "1073741824\n");
        host_write(h, "/proc/self/cgroup", "0::/\n");
        host_write(h, "/proc/50/cgroup", "0::/../../pod/x\n");
        n_findings = h->d.n_findings;
        h->d.daemon.clients[1].pid = 0;
        host_expect(h, "client-cgroups", DOCTOR_UNCHECKED,
                "2 of 2, the first: engine of tenant a (pid 50): it is outside of this cgroup namespace",
                "in the host's pid namespace");
        assert_int_equal(h->d.n_findings, n_findings + 1);
        h->d.daemon.clients[0].pid = 52;
        host_expect(h, "client-cgroups", DOCTOR_UNCHECKED, "(pid 52): No such file", "as root");
        h->d.daemon.clients[0].pid = 0;
        host_expect(h, "client-cgroups", DOCTOR_UNCHECKED, "(pid 0): its process", "as root");
        host_configure(h, "[device host]\npopulate = on\n");
        host_expect(h, "client-cgroups", DOCTOR_OK, "have room: 2", NULL);
}

HOST_TEST(test_cgroup_of_unit)
{
        struct host *h = *state;

        host_write(h, "/proc/meminfo", "MemTotal: 16777216 kB\n");
        host_write_unit(h, "[Service]\nType=notify\n");
        host_expect(h, "cgroup-memory", DOCTOR_OK, "no MemoryMax", NULL);
        host_write_unit(h, "[Service]\nMemoryMax=2G\n");
        host_expect(h, "cgroup-memory", DOCTOR_WARNING, "may have 2 GiB", "systemctl edit");
}

HOST_TEST(test_overcommit)
{
        struct host *h = *state;

        host_expect(h, "overcommit", DOCTOR_UNCHECKED, "can't be read", NULL);
        host_write(h, "/proc/sys/vm/overcommit_memory", "0\n");
        host_expect(h, "overcommit", DOCTOR_OK, "is 0", NULL);
        host_write(h, "/proc/sys/vm/overcommit_memory", "2\n");
        host_configure(h, "[daemon]\ndevices = host\n[device host]\nmemory = 4GiB\n");
        host_write(h, "/proc/meminfo", "CommitLimit: 8388608 kB\nCommitted_AS: 2097152 kB\n");
        host_expect(h, "overcommit", DOCTOR_OK, "room for 4 GiB", NULL);
        host_write(h, "/proc/meminfo", "CommitLimit: 8388608 kB\nCommitted_AS: 6291456 kB\n");
        host_expect(h, "overcommit", DOCTOR_WARNING, "leaves 2 GiB", "vm.overcommit_memory=0");
}

HOST_TEST(test_huge_pages)
{
        static const char file[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
        struct host *h = *state;

        host_write(h, file, "always within_size advise [never] deny force\n");
        host_expect(h, "huge-pages", DOCTOR_OK, "asks the kernel for none", NULL);
        host_configure(h, "[device host]\nhuge_pages = on\npopulate = on\n");
        host_expect(h, "huge-pages", DOCTOR_OK, "asks the kernel for none", NULL);
        host_configure(h, "[device host]\nhost_memory = 1GiB\nhost_huge_pages = on\n");
        host_expect(h, "huge-pages", DOCTOR_WARNING, "[never]", "echo advise > /sys");
        host_write(h, file, "always within_size [advise] never deny force\n");
        host_expect(h, "huge-pages", DOCTOR_OK, "[advise]", NULL);
        host_configure(h, "[device host]\nhuge_pages = on\n");
        host_expect(h, "huge-pages", DOCTOR_OK, "[advise]", NULL);
        assert_int_equal(unlink(host_path(h, file)), 0);
        host_expect(h, "huge-pages", DOCTOR_WARNING, "the kernel has no", "CONFIG_TRANSPARENT");
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static void write_module(struct host *h)
{
        host_write(h, "/proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22\n");
}

HOST_TEST(test_driver_none)
{
        struct host *h = *state;

        host_expect(h, "driver", DOCTOR_OK, "device host", NULL);
        host_configure(h, "[daemon]\ndevices = " GPU "\n");
        host_expect(h, "driver", DOCTOR_ERROR, "names a GPU", "apt install nvidia-driver");
        host_configure(h, "[daemon]\ndevices = tp2\n[device tp2]\nmembers = all\n");
        host_expect(h, "driver", DOCTOR_ERROR, "names a GPU", "apt install nvidia-driver");
        host_configure(h, "[daemon]\ndevices = cpu2\n[device cpu2]\nmembers = host-1,host-2\n");
        host_expect(h, "driver", DOCTOR_OK, "uses the host's memory", NULL);
        host_configure(h, "[daemon]\ndevices = " GPU "\n");
        write_module(h);
        host_expect(h, "driver", DOCTOR_WARNING, "driver 550.54.14", "libcuda1");
}

HOST_TEST(test_driver)
{
        struct host *h = *state;

        h->d.driver.result = -ELIBBAD;
        host_expect(h, "driver", DOCTOR_ERROR, "no driver", "CUDA 11.3");
        h->d.driver.result = -EAGAIN;
        host_expect(h, "driver", DOCTOR_ERROR, "no driver", "nvidia-fabricmanager");
        host_add_gpu(h, GPU, 80 * GIB);
        host_expect(h, "driver", DOCTOR_OK, "CUDA 12.4), GPUs: 1", NULL);
        h->d.driver.asked = false;
        host_expect(h, "driver", DOCTOR_UNCHECKED, "no driver", NULL);
        host_expect(h, "gpu-transport", DOCTOR_UNCHECKED, "no driver", NULL);
        h->d.root = "";
        host_expect(h, "driver", DOCTOR_ERROR, "no driver", "dmesg");
}

HOST_TEST(test_device_nodes)
{
        struct host *h = *state;

        host_expect(h, "device-nodes", DOCTOR_OK, "isn't loaded", NULL);
        write_module(h);
        host_write(h, "/proc/driver/nvidia/gpus/0000:01:00.0/information",
                "Model: H\nDevice Minor: \t 3\n");
        host_write(h, "/dev/nvidiactl", "%s", "");
        host_write(h, "/dev/nvidia-uvm", "%s", "");
        host_expect(
                h, "device-nodes", DOCTOR_ERROR, "/dev/nvidia3 is missing", "nvidia-modprobe -c 3");
        host_write(h, "/dev/nvidia3", "%s", "");
        host_expect(h, "device-nodes", DOCTOR_OK, "of GPUs: 1", NULL);
        assert_int_equal(unlink(host_path(h, "/dev/nvidia-uvm")), 0);
        host_expect(h, "device-nodes", DOCTOR_ERROR, "/dev/nvidia-uvm is missing",
                "nvidia-modprobe -u");
        /* A container with another GPU works without the node. */
        host_add_gpu(h, GPU, GIB);
        host_expect(h, "device-nodes", DOCTOR_WARNING, "/dev/nvidia-uvm is missing",
                "nvidia-modprobe -u");
}

HOST_TEST(test_transport)
{
        struct host *h = *state;
        struct driver_gpu *g;

        host_expect(h, "gpu-transport", DOCTOR_OK, "no GPU here", NULL);
        g = host_add_gpu(h, GPU, GIB);
        host_expect(h, "gpu-transport", DOCTOR_OK, "vmm", NULL);
        g->has_vmm = false;
        host_expect(h, "gpu-transport", DOCTOR_WARNING, "cudaipc", "passed through");
        g->has_vmm = true;
        host_configure(h, "[device " GPU "]\ntransport = cudaipc\n");
        host_expect(h, "gpu-transport", DOCTOR_WARNING, "loses", "transport = auto");
}

HOST_TEST(test_persistence)
{
        struct host *h = *state;
        struct driver_gpu *g = host_add_gpu(h, GPU, GIB);

        host_expect(h, "persistence", DOCTOR_OK, "is on", NULL);
        g->persistence = PERSISTENCE_OFF;
        host_expect(h, "persistence", DOCTOR_WARNING, "isn't in persistence mode",
                "systemctl enable --now nvidia-persistenced");
        g->persistence = PERSISTENCE_UNKNOWN;
        host_expect(h, "persistence", DOCTOR_UNCHECKED, "isn't known", NULL);
        host_write(h, "/run/nvidia-persistenced/socket", "%s", "");
        host_expect(h, "persistence", DOCTOR_OK, "nvidia-persistenced is running", NULL);
        g->persistence = PERSISTENCE_OFF;
        host_expect(h, "persistence", DOCTOR_WARNING, "isn't in persistence mode",
                "systemctl restart nvidia-persistenced");
}

HOST_TEST(test_gpu_memory)
{
        struct host *h = *state;
        struct driver_gpu *g = host_add_gpu(h, GPU, 80 * GIB);

        host_expect(h, "gpu-memory", DOCTOR_OK, "is free", NULL);
        g->used_bytes = 20 * GIB;
        g->users[g->n_users++] = (struct driver_user){4711, 20 * GIB};
        host_expect(h, "gpu-memory", DOCTOR_WARNING,
                "may lease 72 GiB of 80 GiB, of which others hold 20 GiB: pid 4711 (20 GiB)",
                "set memory in [device " GPU "]");
        host_configure(h, "[device " GPU "]\nmemory = 50GiB\n");
        host_expect(h, "gpu-memory", DOCTOR_OK, "is free", NULL);
        host_configure(h, "[device " GPU "]\nmemory_ratio = 80\n");
        host_expect(h, "gpu-memory", DOCTOR_WARNING, "may lease 64 GiB", "set memory");
        /* Its own is no other's. */
        host_start_daemon(h);
        host_add_device(h, GPU, "device", "cuda", 70 * GIB);
        g->users[0].pid = 42;
        host_expect(h, "gpu-memory", DOCTOR_OK, "is free", NULL);
        g->has_management = false;
        host_expect(h, "gpu-memory", DOCTOR_UNCHECKED, "isn't known", NULL);
}

HOST_TEST(test_numa)
{
        struct host *h = *state;
        struct driver_gpu *g = host_add_gpu(h, GPU, GIB);

        host_expect(h, "numa", DOCTOR_OK, "of one node", NULL);
        host_write(h, "/sys/devices/system/node/online", "0-1\n");
        host_expect(h, "numa", DOCTOR_OK, "nodes 0-1", NULL);
        host_configure(h, "[device " GPU "]\nhost_memory = 8GiB\n");
        host_expect(h, "numa", DOCTOR_WARNING, "doesn't say which node", "CUDA 12.2");
        g->numa_node = 1;
        host_write(h, "/sys/devices/system/node/node1/meminfo",
                "Node 1 MemFree: 4194304 kB\nNode 1 FilePages: 1048576 kB\n");
        host_expect(h, "numa", DOCTOR_WARNING, "which has 5 GiB", "host_memory");
        host_write(h, "/sys/devices/system/node/node1/meminfo", "Node 1 MemFree: 16777216 kB\n");
        host_expect(h, "numa", DOCTOR_OK, "nodes 0-1", NULL);
        host_start_daemon(h);
        host_write(h, "/proc/42/status", "Name:\tkvleased\nMems_allowed_list:\t0\n");
        host_expect(h, "numa", DOCTOR_WARNING, "from node 0 alone", "AllowedMemoryNodes");
        host_write(h, "/proc/42/status", "Name:\tkvleased\nMems_allowed_list:\t0-1\n");
        host_expect(h, "numa", DOCTOR_OK, "nodes 0-1", NULL);
}
