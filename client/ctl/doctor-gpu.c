/* Checks of GPUs and their driver. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "client/ctl/ctl.h"
#include "client/ctl/doctor.h"
#include "gpu/cuda_load.h"

#define MODULE_VERSION "/proc/driver/nvidia/version"

/* Returns "550.54.14" of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  ..."; owned,
 * NULL. */
static char *module_version(const struct doctor *d)
{
        _cleanup_free_ char *text = doctor_read(d, MODULE_VERSION);
        char *at = text ? strstr(text, "Kernel Module") : NULL;

        if (!at)
                return NULL;
        at += strcspn(at, "0123456789\n");
        return need(strndup(at, strspn(at, "0123456789.")));
}

/* Finds no device, or no driver, which may be intended. */
static void find_no_gpu(struct doctor *d, const char *module)
{
        if (module) {
                doctor_find(d, DOCTOR_WARNING,
                        "the kernel has NVIDIA's driver %s, and %s: kvleased uses the host's memory",
                        module, d->driver.why);
                doctor_advise(d,
                        "install the driver's user library of the same version: apt install libcuda1");
        } else if (doctor_names_gpu(d)) {
                doctor_find(d, DOCTOR_ERROR, "%s, and 'devices' in [daemon] names a GPU",
                        d->driver.why);
                doctor_advise(d,
                        "install NVIDIA's driver (apt install nvidia-driver), or set devices = auto");
        } else {
                doctor_find(d, DOCTOR_OK,
                        "no GPU here, kvleased uses the host's memory (device host): %s",
                        d->driver.why);
        }
}

void doctor_check_driver(struct doctor *d)
{
        _cleanup_free_ char *module = module_version(d);
        const struct doctor_driver *v = &d->driver;

        if (!v->asked) {
                doctor_find(d, *d->root ? DOCTOR_UNCHECKED : DOCTOR_ERROR, "%s%s%s", v->why,
                        module ? "; the kernel has NVIDIA's driver " : "", module ? module : "");
                if (!*d->root)
                        doctor_advise(d,
                                "see dmesg for the driver's own messages (NVRM, Xid), and nvidia-smi; a reboot starts it anew");
        } else if (v->result == -ENODEV) {
                find_no_gpu(d, module);
        } else if (v->result < 0) {
                doctor_find(d, DOCTOR_ERROR, "%s", v->why);
                doctor_advise(d,
                        v->result == -EAGAIN
                                ? "systemctl enable --now nvidia-fabricmanager"
                                : "install a driver of CUDA %d.%d or later, library and kernel module of one version, and reboot",
                        CUDA_MIN_VERSION / 1000, CUDA_MIN_VERSION % 1000 / 10);
        } else {
                doctor_find(d, DOCTOR_OK, "driver %s (CUDA %d.%d), GPUs: %u",
                        v->version[0] ? v->version
                        : module      ? module
                                      : "of unknown version",
                        v->cuda_version / 1000, v->cuda_version % 1000 / 10, v->n_gpus);
        }
}

/* ---- device nodes ---------------------------------------------------------------------------- */

/* Adds what is wrong with a device node. */
static void find_node(struct doctor *d, const char *name, const char *remedy)
{
        _cleanup_free_ char *path = doctor_path(d, "/dev/%s", name);

        if (access(path, R_OK | W_OK) == 0)
                return;
        if (errno == ENOENT) {
                /* The node may be hidden from this container, if the driver works without it. */
                doctor_find(d, doctor_has_gpu(d) ? DOCTOR_WARNING : DOCTOR_ERROR,
                        "/dev/%s is missing", name);
                doctor_advise(d, "%s", remedy);
        } else if (geteuid() != 0 && errno == EACCES) {
                doctor_find(d, DOCTOR_UNCHECKED,
                        "/dev/%s can't be opened by this user: run kvleasectl doctor as root",
                        name);
        } else {
                doctor_find(d, DOCTOR_ERROR, "/dev/%s can't be opened: %s", name, strerror(errno));
                doctor_advise(d,
                        "allow it (chmod a+rw /dev/%s); in a container add the device to it", name);
        }
}

static int is_entry(const struct dirent *e)
{
        return e->d_name[0] != '.';
}

/* Checks the nodes of the GPUs that the kernel module found and numbered. Returns how many. */
static int check_gpu_nodes(struct doctor *d)
{
        _cleanup_free_ char *path = doctor_path(d, "/proc/driver/nvidia/gpus");
        struct dirent **entries = NULL;
        int n = scandir(path, &entries, is_entry, alphasort), n_nodes = 0;

        for (int i = 0; i < n; i++) {
                _cleanup_free_ char *text = doctor_read(
                        d, "/proc/driver/nvidia/gpus/%s/information", entries[i]->d_name);
                char name[32], remedy[64];
                uint64_t minor;

                free(entries[i]);
                if (!text || !doctor_number(text, "Device Minor:", &minor))
                        continue;
                snprintf(name, sizeof(name), "nvidia%" PRIu64, minor);
                snprintf(remedy, sizeof(remedy), "nvidia-modprobe -c %" PRIu64, minor);
                find_node(d, name, remedy);
                n_nodes++;
        }
        free(entries);
        return n_nodes;
}

void doctor_check_device_nodes(struct doctor *d)
{
        _cleanup_free_ char *module = module_version(d);
        int n;

        if (!module) {
                doctor_find(d, DOCTOR_OK, "NVIDIA's driver isn't loaded: none are needed");
                return;
        }
        find_node(d, "nvidiactl", "nvidia-modprobe");
        find_node(d, "nvidia-uvm", "nvidia-modprobe -u -c 0");
        n = check_gpu_nodes(d);
        doctor_find_well(d, "/dev/nvidiactl, nvidia-uvm, and of GPUs: %d", n);
}

/* ---- what a GPU can -------------------------------------------------------------------------- */

bool doctor_found_gpus(struct doctor *d)
{
        bool has_gpu = doctor_has_gpu(d);

        if (!has_gpu && d->driver.asked)
                doctor_find(d, DOCTOR_OK, "no GPU here");
        else if (!has_gpu)
                doctor_find(d, DOCTOR_UNCHECKED, "%s", d->driver.why);
        return has_gpu;
}

void doctor_check_gpu_transport(struct doctor *d)
{
        for (uint32_t i = 0; i < d->driver.n_gpus; i++) {
                const struct driver_gpu *g = &d->driver.gpus[i];
                const char *transport = doctor_setting(d, "device", g->name, "transport");

                if (transport && strcmp(transport, "cudaipc") == 0) {
                        doctor_find(d, DOCTOR_WARNING,
                                "%s is configured with transport = cudaipc: a restart of kvleased loses its cached pages",
                                g->name);
                        doctor_advise(d, "set transport = auto in [device %s]%s", g->name,
                                g->has_vmm ? "" : " once driver and GPU have vmm");
                } else if (!g->has_vmm) {
                        doctor_find(d, DOCTOR_WARNING,
                                "%s has no virtual memory management with file descriptors: its memory is handed over by cudaipc",
                                g->name);
                        doctor_advise(d,
                                "run kvleased on the host, or in a virtual machine whose "
                                "GPU is passed through as a whole: vGPUs and old GPUs lack it");
                }
        }
        doctor_find_well(
                d, "GPUs that hand memory over as descriptors (vmm): %u", d->driver.n_gpus);
}

void doctor_check_persistence(struct doctor *d)
{
        _cleanup_free_ char *socket = doctor_path(d, "/run/nvidia-persistenced/socket");
        bool has_daemon = access(socket, F_OK) == 0, is_known = true;

        for (uint32_t i = 0; i < d->driver.n_gpus; i++) {
                const struct driver_gpu *g = &d->driver.gpus[i];

                is_known &= g->persistence != PERSISTENCE_UNKNOWN;
                if (g->persistence != PERSISTENCE_OFF)
                        continue;
                doctor_find(d, DOCTOR_WARNING, "%s isn't in persistence mode", g->name);
                if (has_daemon)
                        doctor_advise(d,
                                "systemctl restart nvidia-persistenced, or nvidia-smi -i %s -pm 1",
                                g->name);
                else
                        doctor_advise(d,
                                "systemctl enable --now nvidia-persistenced (or, until the next boot, nvidia-smi -i %s -pm 1)",
                                g->name);
        }
        if (is_known || has_daemon)
                doctor_find_well(
                        d, is_known ? "persistence mode is on" : "nvidia-persistenced is running");
        else if (!doctor_has_found(d))
                doctor_find(d, DOCTOR_UNCHECKED, "persistence mode isn't known: %s",
                        d->driver.management_why[0] ? d->driver.management_why
                                                    : "the management library doesn't tell");
}

/* ---- memory ---------------------------------------------------------------------------------- */

static const struct figures_device *find_device(const struct doctor *d, const char *name)
{
        for (size_t i = 0; i < d->daemon.n_devices; i++)
                if (strcmp(d->daemon.devices[i].name, name) == 0)
                        return &d->daemon.devices[i];
        return NULL;
}

/* Returns the GPU's budget: as the daemon runs, or by the configuration ('auto': nine tenths). */
static uint64_t budget_of(const struct doctor *d, const struct driver_gpu *g)
{
        const struct figures_device *row = find_device(d, g->name);
        const char *ratio = doctor_setting(d, "device", g->name, "memory_ratio");
        uint64_t percent = 90;

        if (row)
                return row->budget_bytes;
        if (ratio && parse_u64(ratio, &percent) < 0)
                percent = 90;
        return doctor_setting_bytes(
                d, "device", g->name, "memory", g->total_bytes * MIN(percent, UINT64_C(100)) / 100);
}

/* Returns the bytes used by other processes; `who` names them. */
static uint64_t others_bytes(
        const struct doctor *d, const struct driver_gpu *g, char *who, size_t size)
{
        const struct figures_device *row = find_device(d, g->name);
        uint64_t own = row ? row->charged_bytes : 0;
        size_t len = 0;

        who[0] = '\0';
        for (uint32_t i = 0; i < g->n_users; i++) {
                const struct driver_user *u = &g->users[i];
                char bytes[FORMAT_BYTES_MAX];

                if (doctor_has_process(d) && u->pid == d->daemon.pid) {
                        own = u->bytes == UINT64_MAX ? own : MAX(own, u->bytes);
                        continue;
                }
                if (len < size)
                        len += (size_t)snprintf(who + len, size - len, "%spid %u (%s)",
                                len > 0 ? ", " : "", u->pid,
                                u->bytes == UINT64_MAX ? "?" : format_bytes(u->bytes, bytes));
        }
        return g->used_bytes - MIN(own, g->used_bytes);
}

static void find_held(struct doctor *d, const struct driver_gpu *g)
{
        uint64_t budget = budget_of(d, g);
        char who[512], others_text[FORMAT_BYTES_MAX], budget_text[FORMAT_BYTES_MAX],
                total_text[FORMAT_BYTES_MAX];
        uint64_t others = others_bytes(d, g, who, sizeof(who));

        if (budget + others <= g->total_bytes)
                return;
        doctor_find(d, DOCTOR_WARNING,
                "%s: kvleased may lease %s of %s, of which others hold %s%s%s", g->name,
                format_bytes(budget, budget_text), format_bytes(g->total_bytes, total_text),
                format_bytes(others, others_text), who[0] ? ": " : "", who);
        doctor_advise(d,
                "set memory in [device %s] to the memory that is left for kvleased, or end those processes",
                g->name);
}

void doctor_check_gpu_memory(struct doctor *d)
{
        uint32_t n_known = 0;

        for (uint32_t i = 0; i < d->driver.n_gpus; i++) {
                if (!d->driver.gpus[i].has_management)
                        continue;
                n_known++;
                find_held(d, &d->driver.gpus[i]);
        }
        if (n_known < d->driver.n_gpus)
                doctor_find(d, DOCTOR_UNCHECKED, "who else has memory of %u GPUs isn't known: %s",
                        d->driver.n_gpus - n_known,
                        d->driver.management_why[0] ? d->driver.management_why
                                                    : "the management library doesn't tell");
        else
                doctor_find_well(d, "the configured memory is free, or leased already");
}

/* ---- NUMA ------------------------------------------------------------------------------------ */

/* Whether the number is in a list such as "0-1,4". */
static bool in_list(const char *list, int number)
{
        for (const char *at = list; at && *at;) {
                int first, last, n = sscanf(at, "%d-%d", &first, &last);

                if (n > 0 && number >= first && number <= (n == 2 ? last : first))
                        return true;
                at = strchr(at, ',');
                at += at != NULL;
        }
        return false;
}

/* Returns the nodes that the daemon may take memory from; owned, NULL: unknown. */
static char *allowed_nodes(const struct doctor *d)
{
        static const char name[] = "Mems_allowed_list:";
        _cleanup_free_ char *text =
                doctor_has_process(d) ? doctor_read(d, "/proc/%" PRIu64 "/status", d->daemon.pid)
                                      : NULL;
        char *at = text ? strstr(text, name) : NULL;

        if (!at)
                return NULL;
        at += sizeof(name) - 1;
        at += strspn(at, " \t");
        return need(strndup(at, strcspn(at, "\n")));
}

/* Reads a node's free and file memory, as files can be evicted. Returns false if unknown. */
static bool node_bytes(const struct doctor *d, int node, uint64_t *ret_bytes)
{
        _cleanup_free_ char *text = doctor_read(d, "/sys/devices/system/node/node%d/meminfo", node);
        char name[64];
        uint64_t kib = 0, files = 0;

        snprintf(name, sizeof(name), "Node %d MemFree:", node);
        if (!text || !doctor_number(text, name, &kib))
                return false;
        snprintf(name, sizeof(name), "Node %d FilePages:", node);
        (void)doctor_number(text, name, &files);
        *ret_bytes = (kib + files) * 1024;
        return true;
}

static void find_node_of(struct doctor *d, const struct driver_gpu *g, const char *allowed)
{
        uint64_t wanted = doctor_setting_bytes(d, "device", g->name, "host_memory", 0), has;
        char wanted_text[FORMAT_BYTES_MAX], has_text[FORMAT_BYTES_MAX];

        if (wanted == 0)
                return;
        if (g->numa_node < 0) {
                doctor_find(d, DOCTOR_WARNING,
                        "the driver doesn't say which node %s is at: its host_memory comes from any",
                        g->name);
                doctor_advise(d, "install a driver of CUDA 12.2 or later");
                return;
        }
        if (allowed && !in_list(allowed, g->numa_node)) {
                doctor_find(d, DOCTOR_WARNING,
                        "%s is at node %d, and kvleased may take memory from node %s alone",
                        g->name, g->numa_node, allowed);
                doctor_advise(d, "systemctl edit %s: [Service] AllowedMemoryNodes= with node %d",
                        d->unit_name, g->numa_node);
                return;
        }
        if (d->daemon.state == DAEMON_UP || !node_bytes(d, g->numa_node, &has) || has >= wanted)
                return;
        doctor_find(d, DOCTOR_WARNING, "%s wants %s of host_memory from node %d, which has %s",
                g->name, format_bytes(wanted, wanted_text), g->numa_node,
                format_bytes(has, has_text));
        doctor_advise(d, "set host_memory in [device %s] to less", g->name);
}

void doctor_check_numa(struct doctor *d)
{
        _cleanup_free_ char *nodes = doctor_read(d, "/sys/devices/system/node/online");
        _cleanup_free_ char *allowed = allowed_nodes(d);

        if (!nodes || !strpbrk(nodes, "-,")) {
                doctor_find(d, DOCTOR_OK, "the host's memory is of one node");
                return;
        }
        if (!doctor_found_gpus(d))
                return;
        for (uint32_t i = 0; i < d->driver.n_gpus; i++)
                find_node_of(d, &d->driver.gpus[i], allowed);
        doctor_find_well(d, "nodes %s: GPUs get host memory from their own", nodes);
}
