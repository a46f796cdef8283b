/*
 * Who may come in: the kernel's word about the process at the other end (creds.h), against the
 * rules of tenants and administration. In containers uids prove little (docs/THREATS.md): the
 * socket itself is the tenant, rules only narrow it.
 */
#ifndef KVL_SERVER_ACCESS_H
#define KVL_SERVER_ACCESS_H

#include <stdbool.h>

#include "daemon/core/ground/detail.h"
#include "daemon/server/settings/config.h"
#include "daemon/server/system/creds.h"

/* 0, or -EACCES with the sentence. */
int access_tenant(const struct tenant_config *t, const struct creds *c, struct detail *d);

/* Writes which users and groups may no longer connect, or publish, or that all may now; "" where
 * neither is so. */
void access_tell_change(const char *tenant, const struct access_config *before,
        const struct access_config *after, struct detail *d);

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
