#include "daemon/network/greeting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/secret-file.h"
#include "daemon/remote/store/remote.h"

int greeting_read(const struct relay_message *m, struct greeting *ret, char why[RELAY_WHY_BYTES])
{
        const char *at = (const char *)m->bytes + sizeof(ret->open);
        const char *end = (const char *)m->bytes + m->head.bytes;

        snprintf(why, RELAY_WHY_BYTES, "it sent an invalid greeting");
        if (m->head.kind != RELAY_OPEN || m->head.bytes < sizeof(ret->open))
                return -EPROTO;
        memcpy(&ret->open, m->bytes, sizeof(ret->open));
        if (ret->open.version != RELAY_VERSION) {
                snprintf(why, RELAY_WHY_BYTES,
                        "kvleased speaks version %u, and kvlease-exchange version %d: install both of one release",
                        ret->open.version, RELAY_VERSION);
                return -EPROTO;
        }
        for (unsigned i = 0; i < N_RELAY_TEXTS; i++) {
                const char *behind = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;

                if (!behind)
                        return -EPROTO;
                ret->texts[i] = at;
                at = behind + 1;
        }
        return 0;
}

static const char *text_or_null(const struct greeting *g, enum relay_text text)
{
        return *g->texts[text] ? g->texts[text] : NULL;
}

/* Reads a password, a word of RESP. */
static int read_password(const char *path, struct secret *ret, char why[RELAY_WHY_BYTES])
{
        char fault[SECRET_WHY_BYTES];
        int r = secret_read(path, 1, SECRET_BYTES_MAX, ret, fault);

        if (r == 0 && memchr(ret->bytes, '\0', ret->len)) {
                strcpy(fault, "has a NUL byte: a password has none");
                r = -EINVAL;
        }
        if (r < 0)
                snprintf(why, RELAY_WHY_BYTES, "secret_file = %.300s %s", path, fault);
        return r;
}

/* Says which file can't be read: OpenSSL doesn't. */
static int check_files(const struct greeting *g, char why[RELAY_WHY_BYTES])
{
        static const struct {
                enum relay_text text;
                const char *key;
        } rows[] = {
                {RELAY_TLS_CA, "tls_ca"}, {RELAY_TLS_CERT, "tls_cert"}, {RELAY_TLS_KEY, "tls_key"}};

        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
                const char *path = g->texts[rows[i].text];

                if (!*path || access(path, R_OK) == 0)
                        continue;
                snprintf(why, RELAY_WHY_BYTES, "%s = %.300s can't be read: %s", rows[i].key, path,
                        strerror(errno));
                return -EACCES;
        }
        return 0;
}

int greeting_open_remote(
        const struct greeting *g, struct remote_store **ret, char why[RELAY_WHY_BYTES])
{
        _cleanup_free_ char *text = strdup(g->texts[RELAY_ADDRESSES]);
        const char *addresses[REMOTE_ADDRESSES_MAX + 1];
        struct remote_options o = {.addresses = addresses,
                .user = text_or_null(g, RELAY_USER),
                .large_threads = g->open.large_threads,
                .connect_msec = g->open.connect_msec,
                .silence_msec = g->open.silence_msec,
                .is_tls = g->open.is_tls,
                .tls_ca = text_or_null(g, RELAY_TLS_CA),
                .tls_host = text_or_null(g, RELAY_TLS_HOST),
                .tls_cert = text_or_null(g, RELAY_TLS_CERT),
                .tls_key = text_or_null(g, RELAY_TLS_KEY)};
        struct secret secret = {0};
        char *save = NULL;
        int r;

        if (!text) {
                snprintf(why, RELAY_WHY_BYTES, "no memory for a client");
                return -ENOMEM;
        }
        for (char *at = strtok_r(text, " ", &save); at && o.n_addresses < ARRAY_SIZE(addresses);
                at = strtok_r(NULL, " ", &save))
                addresses[o.n_addresses++] = at;
        r = check_files(g, why);
        if (r == 0 && *g->texts[RELAY_SECRET_FILE])
                r = read_password(g->texts[RELAY_SECRET_FILE], &secret, why);
        if (r == 0) {
                char sentence[REMOTE_WHY_BYTES];

                o.secret = secret.len > 0 ? secret.bytes : NULL;
                r = remote_open(&o, ret, sentence);
                if (r < 0)
                        snprintf(why, RELAY_WHY_BYTES, "%s", sentence);
        }
        secret_wipe(&secret);
        return r;
}
