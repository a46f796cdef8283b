#include "daemon/server/services/learnt.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/hash.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/services/timers.h"
#include "daemon/server/base/disk.h"
#include "daemon/server/base/log.h"

/* Interval of saves: a crash may lose that much of learning over hours and days. Not tuned. */
#define SAVE_NSEC (600 * NSEC_PER_SEC)
/* Namespaces saved in one second: bounds the jobs for the disk. Not tuned. */
#define SAVES_PER_TICK 16

#define PATH_BYTES (CONFIG_PATH_MAX + TENANT_NAME_MAX + NS_NAME_MAX + 16)

#define POLICY_BYTES 16

struct head {
        char magic[8];
        char policy[POLICY_BYTES];  /* its name, and zeros */
        uint64_t n_bytes, checksum; /* little-endian */
};
static_assert(sizeof(struct head) == 40, "no padding");

/* A job on a tenant's directory. */
struct job {
        struct disk_job base;
        struct server *server; /* borrowed */
        char tenant[TENANT_NAME_MAX + 1], ns[NS_NAME_MAX + 1];
        char tenant_dir[PATH_BYTES], path[PATH_BYTES];
        int result;
        size_t n_bytes;
        uint8_t bytes[]; /* of the file */
};

static uint64_t checksum_of(const void *data, size_t n_bytes)
{
        return hash_bytes((struct hash_seed){0, 0}, data, n_bytes);
}

static void name_tenant_dir(const struct server *s, const char *tenant, char path[PATH_BYTES])
{
        snprintf(path, PATH_BYTES, "%s/policy/%s", s->config.daemon.state_dir, tenant);
}

static void name_policy(const struct ns *ns, char ret[POLICY_BYTES])
{
        memset(ret, 0, POLICY_BYTES);
        memcpy(ret, ns->evict->name, strnlen(ns->evict->name, POLICY_BYTES));
}

static void name_file(const struct server *s, const struct ns *ns, char path[PATH_BYTES])
{
        snprintf(path, PATH_BYTES, "%s/policy/%s/%s", s->config.daemon.state_dir, ns->tenant->name,
                ns->name);
}

/* ---- read ------------------------------------------------------------------------------------ */

/* Loads the file's state. Returns its fault, or NULL with the mark of an unchanged save. */
static const char *load_learnt(struct ns *ns, const char *text, size_t len, uint64_t *ret_mark)
{
        char policy[POLICY_BYTES];
        struct head head;

        if (len < sizeof(head))
                return "it is too short";
        memcpy(&head, text, sizeof(head));
        text += sizeof(head);
        len -= sizeof(head);
        if (memcmp(head.magic, LEARNT_MAGIC, sizeof(head.magic)) != 0)
                return "it isn't such a file";
        name_policy(ns, policy);
        if (memcmp(head.policy, policy, sizeof(policy)) != 0)
                return "it is of another policy";
        *ret_mark = le64toh(head.checksum);
        if (le64toh(head.n_bytes) != len || *ret_mark != checksum_of(text, len))
                return "it is damaged";
        switch (ns->evict->load(ns->policy, text, len)) {
        case 0:
                return NULL;
        case -ENOMEM:
                return "there is no memory for it";
        default:
                return "it is of another version";
        }
}

void learnt_load(struct server *s, struct ns *ns)
{
        _cleanup_free_ char *text = NULL;
        const char *what = NULL;
        char path[PATH_BYTES];
        uint64_t mark = 0;
        size_t len = 0;
        int r;

        ns->learnt.saved_nsec = server_now(s);
        if (!s->life.keeps_state || !ns->evict->load)
                return;
        name_file(s, ns, path);
        r = file_read_regular(path, LEARNT_MAX_BYTES, &text, &len);
        if (r == -ENOENT)
                return;
        what = r < 0 ? file_read_error(r) : load_learnt(ns, text, len, &mark);
        if (what)
                log_warning("what was learnt of namespace %s of tenant %s isn't used: %s: %s",
                        ns->name, ns->tenant->name, path, what);
        else
                ns->learnt.saved_mark = mark;
}

/* ---- written --------------------------------------------------------------------------------- */

static int make_dir(const char *path)
{
        char why[DIR_WHY_BYTES];
        int r = dir_make(path, DIR_NO_LINK, 0750, why);

        return r < 0 ? r : 0;
}

static void run_save(struct disk_job *base)
{
        struct job *job = container_of(base, struct job, base);
        char *slash = strrchr(job->tenant_dir, '/');

        *slash = '\0'; /* the directory of all tenants */
        job->result = make_dir(job->tenant_dir);
        *slash = '/';
        if (job->result == 0)
                job->result = make_dir(job->tenant_dir);
        if (job->result == 0)
                job->result = file_replace(job->path, job->bytes, job->n_bytes, 0640);
}

/* A write failed: marks the state as unsaved, to be written again. */
static void try_later(const struct job *job)
{
        struct tenant *t = tenant_find(&job->server->store, job->tenant);
        struct ns *ns = t ? ns_find(t, job->ns) : NULL;

        if (!ns)
                return;
        ns->learnt.saved_mark = 0;
        ns->learnt.unsaved = true;
        periodic_timer_expect(job->server);
}

static void end_save(struct disk_job *base)
{
        struct job *job = container_of(base, struct job, base);

        if (job->result < 0) {
                log_warning(
                        "cannot write %s: %s: what was learnt since the last time is lost with kvleased",
                        job->path, strerror(-job->result));
                try_later(job);
        }
        free(job);
}

/* Makes a job; NULL: nothing has to be written, or no memory. */
static struct job *make_job(struct server *s, const struct ns *ns)
{
        size_t len = ns->evict->save(ns->policy, NULL, 0);
        struct head head = {.magic = LEARNT_MAGIC};
        struct job *job;

        if (len == 0 || len > LEARNT_MAX_BYTES - sizeof(head))
                return NULL;
        job = calloc(1, sizeof(*job) + sizeof(head) + len);
        if (!job)
                return NULL;
        len = ns->evict->save(ns->policy, job->bytes + sizeof(head), len);
        head.n_bytes = htole64(len);
        head.checksum = htole64(checksum_of(job->bytes + sizeof(head), len));
        name_policy(ns, head.policy);
        memcpy(job->bytes, &head, sizeof(head));
        job->n_bytes = sizeof(head) + len;
        job->base.run = run_save;
        job->base.done = end_save;
        job->server = s;
        strcpy(job->tenant, ns->tenant->name);
        strcpy(job->ns, ns->name);
        name_tenant_dir(s, ns->tenant->name, job->tenant_dir);
        name_file(s, ns, job->path);
        return job;
}

static uint64_t mark_of(const struct job *job)
{
        struct head head;

        memcpy(&head, job->bytes, sizeof(head));
        return le64toh(head.checksum);
}

void learnt_save(struct server *s, struct ns *ns)
{
        struct job *job = NULL;

        ns->learnt.unsaved = false;
        ns->learnt.saved_nsec = server_now(s);
        if (s->life.keeps_state && ns->evict->save)
                job = make_job(s, ns);
        if (!job)
                return;
        if (mark_of(job) == ns->learnt.saved_mark) {
                free(job);
                return;
        }
        ns->learnt.saved_mark = mark_of(job);
        disk_do(&s->disk, &job->base);
}

void learnt_save_all(struct server *s)
{
        list_for_each (t, &s->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        learnt_save(s, ns);
}

uint64_t learnt_save_due(struct server *s, uint64_t now_nsec)
{
        uint64_t next_nsec = UINT64_MAX;
        unsigned n = 0;

        if (!s->life.keeps_state)
                return UINT64_MAX;
        list_for_each (t, &s->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        if (!ns->learnt.unsaved || !ns->evict->save)
                                continue;
                        if (now_nsec >= ns->learnt.saved_nsec + SAVE_NSEC && n++ < SAVES_PER_TICK)
                                learnt_save(s, ns);
                        if (ns->learnt.unsaved)
                                next_nsec = MIN(next_nsec, ns->learnt.saved_nsec + SAVE_NSEC);
                }
        return next_nsec;
}

/* ---- removed --------------------------------------------------------------------------------- */

static void run_forget_ns(struct disk_job *base)
{
        struct job *job = container_of(base, struct job, base);

        job->result = unlink(job->path) < 0 && errno != ENOENT ? -errno : 0;
}

static void end_forget_ns(struct disk_job *base)
{
        struct job *job = container_of(base, struct job, base);

        if (job->result < 0)
                log_warning("cannot remove %s: %s", job->path, strerror(-job->result));
        free(job);
}

void learnt_forget_ns(struct server *s, struct ns *ns)
{
        struct job *job =
                s->life.keeps_state && ns->learnt.saved_mark != 0 ? calloc(1, sizeof(*job)) : NULL;

        if (!job)
                return;
        job->base.run = run_forget_ns;
        job->base.done = end_forget_ns;
        name_file(s, ns, job->path);
        disk_do(&s->disk, &job->base);
}

static void run_forget(struct disk_job *base)
{
        struct job *job = container_of(base, struct job, base);
        int fd = open(job->tenant_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *entry;

        if (!dir) {
                job->result = errno == ENOENT ? 0 : -errno;
                fd_close(fd);
                return;
        }
        while ((entry = readdir(dir)))
                if (entry->d_name[0] != '.')
                        (void)unlinkat(dirfd(dir), entry->d_name, 0);
        closedir(dir);
        if (rmdir(job->tenant_dir) < 0)
                job->result = -errno;
}

static void end_forget(struct disk_job *base)
{
        struct job *job = container_of(base, struct job, base);

        if (job->result < 0)
                log_warning("cannot remove %s: %s", job->tenant_dir, strerror(-job->result));
        free(job);
}

void learnt_forget(struct server *s, const char *tenant)
{
        struct job *job = s->life.keeps_state ? calloc(1, sizeof(*job)) : NULL;

        if (!job)
                return;
        job->base.run = run_forget;
        job->base.done = end_forget;
        name_tenant_dir(s, tenant, job->tenant_dir);
        disk_do(&s->disk, &job->base);
}
