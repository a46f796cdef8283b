/*
 * Who may come in: the kernel's word about the process at the other end, against the rules of
 * tenants and administration. In containers uids prove little (docs/THREATS.md): the socket itself
 * is the tenant, rules only narrow it.
 */
#ifndef KVL_SERVER_ACCESS_H
#define KVL_SERVER_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "daemon/core/ground/detail.h"
#include "daemon/server/settings/config.h"

/* What the kernel shows where it has no number for a user: many different users. */
#define UID_NOBODY 65534

struct creds {
        pid_t pid;
        uid_t uid;
        gid_t gid;
        gid_t *groups; /* owned; supplementary groups */
        size_t n_groups;
};

/* Finds the credentials of the process that connected `fd`. 0 or -errno. */
int creds_get(int fd, struct creds *ret_creds);
void creds_deinit(struct creds *c);

/*
 * A descriptor of that process, taken by the kernel at connect() (Linux 6.5), which can't be
 * another process' that got the number later. Owned; -ENOPROTOOPT where the kernel is older.
 */
int creds_peer_pidfd(int fd);

/* A descriptor of whatever process has the number now. Owned, or -errno. */
int creds_open_pidfd(pid_t pid);

/* True where the process has exited. */
bool creds_pidfd_exited(int pidfd);

/*
 * Number of a group by its name, or by that number itself, which containers may have no name for.
 * 0; -ENOENT: this machine has none of that name.
 */
int group_number(const char *name, gid_t *ret_gid);

/* 0, or -EACCES with the sentence. */
int access_tenant(const struct tenant_config *t, const struct creds *c, struct detail *d);

/* Does the tenant tell publishers from readers? */
bool access_has_publishers(const struct tenant_config *t);

/* True also where it doesn't. */
bool access_may_publish(const struct tenant_config *t, const struct creds *c);

/* 0, or -EACCES with the sentence. */
int access_admin(const char *admin_group, const struct creds *c, struct detail *d);

/* May this process connect to the socket of those who only read? Who administers may, too. 0, or
 * -EACCES with the sentence. */
int access_monitor(const struct daemon_config *config, const struct creds *c, struct detail *d);

#endif
