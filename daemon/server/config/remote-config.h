/*
 * Converts the options of [remote NAME], and of a tenant that exchanges pages, to arguments of
 * daemon/relay and daemon/exchange. Checks that span several options, and reads tenants' secrets
 * from their files, but nothing else of the machine. Any thread.
 */
#ifndef KVL_SERVER_REMOTE_CONFIG_H
#define KVL_SERVER_REMOTE_CONFIG_H

#include "daemon/core/state/detail.h"
#include "daemon/exchange/format/keys.h"
#include "daemon/relay/relay.h"
#include "daemon/server/config/config.h"
#include "base/secret-file.h"

/* Arguments of relay_open(). They hold pointers into themselves: don't copy. */
struct remote_settings {
        struct relay_options options;
        const char *addresses[REMOTE_ADDRESSES_MAX + 1];
        char text[CONFIG_ADDRESSES_TEXT + 1]; /* of addresses, a NUL behind each */
};

/* Fills *ret, without the socket; *c is borrowed while that is used. kvlease-exchange reads the
 * files, so they aren't looked at. Returns 0; -EINVAL with the sentence, and with the option in
 * *ret_key (static; NULL: the whole section). */
int remote_settings_read(const struct remote_config *c, struct remote_settings *ret,
        const char **ret_key, struct detail *d);

/* Reads the tenant's identity for the exchange, with its secret if it names one. Returns 0, or
 * -errno of secret_read() with the sentence. The caller wipes *ret in any case. */
int tenant_secret_read(
        const struct tenant_config *c, struct exchange_tenant *ret, struct detail *d);
void tenant_secret_wipe(struct exchange_tenant *t);

#endif
