/*
 * Access control: the kernel's credentials of the process at the other end (creds.h) are checked
 * against the rules of tenants and administration. In containers uids prove little
 * (docs/security/THREATS.md): the socket determines the tenant, and rules only narrow access.
 */
#ifndef KVL_SERVER_ACCESS_H
#define KVL_SERVER_ACCESS_H

#include <stdbool.h>

#include "daemon/core/state/detail.h"
#include "daemon/server/config/config.h"
#include "daemon/server/base/creds.h"

/* 0, or -EACCES with the sentence. */
int access_tenant(const struct tenant_config *t, const struct creds *c, struct detail *d);

/* Writes the users and groups that lose the right to connect or to publish, or that all get it; ""
 * if neither is so. */
void access_tell_change(const char *tenant, const struct access_config *before,
        const struct access_config *after, struct detail *d);

/* True if the tenant has a rule for publishers. */
bool access_has_publishers(const struct tenant_config *t);

/* True if this process may publish; always without such a rule. */
bool access_may_publish(const struct tenant_config *t, const struct creds *c);

/* 0, or -EACCES with the sentence. */
int access_admin(const char *admin_group, const struct creds *c, struct detail *d);

/* May this process connect to the monitor socket? Administrators may, too. Returns 0, or -EACCES
 * with the sentence. */
int access_monitor(const struct daemon_config *config, const struct creds *c, struct detail *d);

#endif
