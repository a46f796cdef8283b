/*
 * Converts the options of [remote NAME], and of a tenant that exchanges pages, to arguments of
 * daemon/remote and daemon/exchange. Checks that span several options, and reads secrets from their
 * files, but nothing else of the machine. Any thread.
 */
#ifndef KVL_SERVER_REMOTE_CONFIG_H
#define KVL_SERVER_REMOTE_CONFIG_H

#include "daemon/core/state/detail.h"
#include "daemon/exchange/format/keys.h"
#include "daemon/remote/endpoint/remote-options.h"
#include "daemon/server/config/config.h"
#include "daemon/server/base/secret-file.h"

/* Arguments of remote_open(). They hold a password, and pointers into themselves: don't copy, and
 * wipe after remote_open(). */
struct remote_settings {
        struct remote_options options;
        const char *addresses[REMOTE_ADDRESSES_MAX + 1];
        char text[CONFIG_ADDRESSES_TEXT + 1]; /* of addresses, a NUL behind each */
        struct secret secret;
};

/*
 * Fills *ret; *c is borrowed while that is used. Returns 0; -EINVAL, or -errno if the secret can't
 * be read (secret-file.h). Errors come with the sentence, and with the option in *ret_key (static;
 * NULL: the whole section). The caller wipes *ret in any case.
 */
int remote_settings_read(const struct remote_config *c, struct remote_settings *ret,
        const char **ret_key, struct detail *d);
void remote_settings_wipe(struct remote_settings *s);

/* Reads the tenant's identity for the exchange, with its secret if it names one. Returns 0, or
 * -errno of secret_read() with the sentence. The caller wipes *ret in any case. */
int tenant_secret_read(
        const struct tenant_config *c, struct exchange_tenant *ret, struct detail *d);
void tenant_secret_wipe(struct exchange_tenant *t);

#endif
