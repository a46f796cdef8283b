#include "daemon/server/config/remote-config.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"

#define SEPARATORS ", \t"

/* ---- addresses ------------------------------------------------------------------------------- */

/* Splits one address more than allowed, so that too many are noticed. */
static unsigned split_addresses(struct remote_settings *s)
{
        unsigned n = 0;
        char *save = NULL;

        for (char *at = strtok_r(s->text, SEPARATORS, &save); at && n < ARRAY_SIZE(s->addresses);
                at = strtok_r(NULL, SEPARATORS, &save))
                s->addresses[n++] = at;
        return n;
}

/* ---- TLS ------------------------------------------------------------------------------------- */

static const char *text_or_null(const char *text)
{
        return *text ? text : NULL;
}

static int check_tls(const struct remote_config *c, const char **ret_key, struct detail *d)
{
        const struct {
                const char *key, *value;
        } rows[] = {{"tls_ca", c->tls_ca}, {"tls_host", c->tls_host}, {"tls_cert", c->tls_cert},
                {"tls_key", c->tls_key}};

        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
                *ret_key = rows[i].key;
                if (*rows[i].value && !c->tls)
                        return detail_set(d, -EINVAL,
                                "%s is given, and tls is off: set tls = on, or leave %s out",
                                rows[i].key, rows[i].key);
        }
        *ret_key = c->tls_cert[0] ? "tls_cert" : "tls_key";
        if (!c->tls_cert[0] != !c->tls_key[0])
                return detail_set(
                        d, -EINVAL, "tls_cert and tls_key belong together: give both, or neither");
        *ret_key = NULL;
        return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int check_user(const struct remote_config *c, const char **ret_key, struct detail *d)
{
        if (!c->user[0] || c->secret_file[0])
                return 0;
        *ret_key = "user";
        return detail_set(
                d, -EINVAL, "user = %s has no password: name its file by secret_file", c->user);
}

static void fill_options(const struct remote_config *c, struct remote_settings *s, unsigned n)
{
        s->options.secret_file = text_or_null(c->secret_file);
        s->options.remote = (struct remote_options){
                .addresses = s->addresses,
                .n_addresses = n,
                .user = text_or_null(c->user),
                .large_threads = c->connections,
                .connect_msec = (unsigned)(c->connect_timeout_nsec / NSEC_PER_MSEC),
                .silence_msec = (unsigned)(c->silence_timeout_nsec / NSEC_PER_MSEC),
                .is_tls = c->tls,
                .tls_ca = text_or_null(c->tls_ca),
                .tls_host = text_or_null(c->tls_host),
                .tls_cert = text_or_null(c->tls_cert),
                .tls_key = text_or_null(c->tls_key),
        };
}

int remote_settings_read(const struct remote_config *c, struct remote_settings *ret,
        const char **ret_key, struct detail *d)
{
        char why[REMOTE_WHY_BYTES] = "";
        struct remote_options checked;
        unsigned n;
        int r;

        memset(ret, 0, sizeof(*ret));
        strcpy(ret->text, c->addresses);
        n = split_addresses(ret);
        *ret_key = NULL;
        if (n == 0)
                return detail_set(d, -EINVAL,
                        "there are no addresses: say where a server is, as addresses = host:port");
        r = check_user(c, ret_key, d);
        if (r == 0)
                r = check_tls(c, ret_key, d);
        if (r < 0)
                return r;
        fill_options(c, ret, n);
        checked = ret->options.remote;
        checked.secret = c->secret_file[0] ? "read later" : NULL;
        r = remote_options_check(&checked, why);
        *ret_key = "addresses";
        return r < 0 ? detail_set(d, r, "addresses: %s", why) : 0;
}

/* ---- tenants --------------------------------------------------------------------------------- */

int tenant_secret_read(const struct tenant_config *c, struct exchange_tenant *ret, struct detail *d)
{
        const char *path = c->remote.secret_file;
        char why[SECRET_WHY_BYTES];
        struct secret secret = {0};
        int r = 0;

        memset(ret, 0, sizeof(*ret));
        strcpy(ret->name, c->name);
        if (path[0])
                r = secret_read(path, EXCHANGE_SECRET_MIN, EXCHANGE_SECRET_MAX, &secret, why);
        memcpy(ret->secret, secret.bytes, secret.len);
        ret->secret_len = secret.len;
        secret_wipe(&secret);
        return r < 0 ? detail_set(d, r, "remote_secret = %s %s", path, why) : 0;
}

void tenant_secret_wipe(struct exchange_tenant *t)
{
        explicit_bzero(t, sizeof(*t));
}
