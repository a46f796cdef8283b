#include "daemon/server/config/remote-config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

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
                bool is_file;
        } rows[] = {
                {"tls_ca", c->tls_ca, true},
                {"tls_host", c->tls_host, false},
                {"tls_cert", c->tls_cert, true},
                {"tls_key", c->tls_key, true},
        };

        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
                *ret_key = rows[i].key;
                if (*rows[i].value && !c->tls)
                        return detail_set(d, -EINVAL,
                                "%s is given, and tls is off: set tls = on, or leave %s out",
                                rows[i].key, rows[i].key);
                if (*rows[i].value && rows[i].is_file && access(rows[i].value, R_OK) < 0)
                        return detail_set(d, -errno, "%s = %s can't be read: %s", rows[i].key,
                                rows[i].value, strerror(errno));
        }
        *ret_key = c->tls_cert[0] ? "tls_cert" : "tls_key";
        if (!c->tls_cert[0] != !c->tls_key[0])
                return detail_set(
                        d, -EINVAL, "tls_cert and tls_key belong together: give both, or neither");
        *ret_key = NULL;
        return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Reads a password, a word of RESP, and terminates it. */
static int read_password(const struct remote_config *c, struct remote_settings *s, struct detail *d)
{
        int r = secret_read("secret_file", c->secret_file, 1, SECRET_BYTES_MAX, &s->secret, d);

        if (r == 0 && memchr(s->secret.bytes, '\0', s->secret.len))
                r = detail_set(d, -EINVAL, "secret_file = %s has a NUL byte: a password has none",
                        c->secret_file);
        return r;
}

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
        s->options = (struct remote_options){
                .addresses = s->addresses,
                .n_addresses = n,
                .user = text_or_null(c->user),
                .secret = s->secret.len > 0 ? s->secret.bytes : NULL,
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
        if (r == 0 && c->secret_file[0]) {
                *ret_key = "secret_file";
                r = read_password(c, ret, d);
        }
        if (r < 0)
                return r;
        fill_options(c, ret, n);
        r = remote_options_check(&ret->options, why);
        *ret_key = "addresses";
        return r < 0 ? detail_set(d, r, "addresses: %s", why) : 0;
}

void remote_settings_wipe(struct remote_settings *s)
{
        explicit_bzero(s, sizeof(*s));
}

/* ---- tenants --------------------------------------------------------------------------------- */

int tenant_secret_read(const struct tenant_config *c, struct exchange_tenant *ret, struct detail *d)
{
        struct secret secret = {0};
        int r = 0;

        memset(ret, 0, sizeof(*ret));
        strcpy(ret->name, c->name);
        if (c->remote.secret_file[0])
                r = secret_read("remote_secret", c->remote.secret_file, EXCHANGE_SECRET_MIN,
                        EXCHANGE_SECRET_MAX, &secret, d);
        memcpy(ret->secret, secret.bytes, secret.len);
        ret->secret_len = secret.len;
        secret_wipe(&secret);
        return r;
}

void tenant_secret_wipe(struct exchange_tenant *t)
{
        explicit_bzero(t, sizeof(*t));
}
