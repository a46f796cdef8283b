#include "daemon/remote/protocol/slots.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"

/* ---- keys -------------------------------------------------------------------------------------
 */

static uint16_t crc16_add(uint16_t crc, uint8_t byte)
{
        crc ^= (uint16_t)(byte << 8);
        for (unsigned bit = 0; bit < 8; bit++)
                crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
        return crc;
}

unsigned slot_of_key(const void *key, size_t len)
{
        const uint8_t *bytes = key, *open, *shut;
        uint16_t crc = 0;

        open = len > 0 ? memchr(bytes, '{', len) : NULL;
        shut = open ? memchr(open + 1, '}', (size_t)(bytes + len - open - 1)) : NULL;
        if (shut && shut > open + 1) {
                len = (size_t)(shut - open - 1);
                bytes = open + 1;
        }
        for (size_t i = 0; i < len; i++)
                crc = crc16_add(crc, bytes[i]);
        return crc % N_SLOTS;
}

/* ---- CLUSTER SLOTS ----------------------------------------------------------------------------
 */

void slot_reader_init(struct slot_reader *r, struct slot_table *table)
{
        *r = (struct slot_reader){.table = table};
        table->n_owners = table->n_served = 0;
        for (unsigned i = 0; i < N_SLOTS; i++)
                table->owner_of[i] = SLOT_NOBODY;
}

static bool host_is_address(const char *host)
{
        struct in6_addr address;

        return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

/* Its index; SLOT_OWNERS_MAX: there are too many. */
static unsigned owner_add(struct slot_table *t, const char *host, uint16_t port)
{
        unsigned i;

        for (i = 0; i < t->n_owners; i++)
                if (t->owners[i].port == port && strcmp(t->owners[i].host, host) == 0)
                        return i;
        if (i == SLOT_OWNERS_MAX)
                return i;
        snprintf(t->owners[i].host, sizeof(t->owners[i].host), "%s", host);
        t->owners[i].port = port;
        t->n_owners++;
        return i;
}

/* A range has been read. One whose master has no address that we understand is left to nobody. */
static int range_end(struct slot_reader *r)
{
        struct slot_table *t = r->table;
        const char *host = r->host;
        unsigned owner;

        if (!r->is_range)
                return 0;
        r->is_range = false;
        if (r->first < 0 || r->last < r->first || r->last >= N_SLOTS || !r->has_host ||
                r->port <= 0 || r->port > UINT16_MAX)
                return -EPROTO;
        if (host[0] && !host_is_address(host))
                host = r->ip;
        if (host == r->ip && !host_is_address(host))
                return 0;
        owner = owner_add(t, host, (uint16_t)r->port);
        if (owner == SLOT_OWNERS_MAX)
                return -EPROTO;
        for (int64_t s = r->first; s <= r->last; s++) {
                if (t->owner_of[s] != SLOT_NOBODY)
                        return -EPROTO;
                t->owner_of[s] = (uint16_t)owner;
                t->n_served++;
        }
        return 0;
}

static int range_begin(struct slot_reader *r, const struct resp_token *t)
{
        int e = range_end(r);

        if (e < 0)
                return e;
        if (t->kind != RESP_ARRAY)
                return -EPROTO;
        r->is_range = true;
        r->is_master = r->has_host = false;
        r->first = r->last = -1;
        r->port = 0;
        r->host[0] = r->ip[0] = '\0';
        return 0;
}

static int range_element(struct slot_reader *r, const struct resp_token *t)
{
        if (t->index >= 2) {
                r->is_master = t->index == 2;
                return t->kind == RESP_ARRAY ? 0 : -EPROTO;
        }
        if (t->kind != RESP_INTEGER)
                return -EPROTO;
        *(t->index == 0 ? &r->first : &r->last) = t->number;
        return 0;
}

/* A bulk string of a kind that we want begins. */
static void text_begin(struct slot_reader *r, int text_is)
{
        r->text_is = text_is;
}

static void text_end(struct slot_reader *r)
{
        bool fits = r->text_len < sizeof(r->text);

        r->text[fits ? r->text_len : 0] = '\0';
        if (r->text_is == SLOT_TEXT_HOST) {
                r->has_host = fits;
                /* "?": the node doesn't know its own address, and means the one we have asked. */
                snprintf(r->host, sizeof(r->host), "%s", strcmp(r->text, "?") == 0 ? "" : r->text);
        } else if (r->text_is == SLOT_TEXT_NAME) {
                r->next_is_ip = strcmp(r->text, "ip") == 0;
        } else if (r->text_is == SLOT_TEXT_IP) {
                snprintf(r->ip, sizeof(r->ip), "%s", r->text);
        }
        r->text_is = SLOT_TEXT_OTHER;
}

static int node_element(struct slot_reader *r, const struct resp_token *t)
{
        if (t->index == 0) {
                /* No host at all (cluster-preferred-endpoint-type unknown-endpoint): the one that
                 * was asked. */
                r->has_host = t->kind == RESP_NULL;
                text_begin(r, SLOT_TEXT_HOST);
                return t->kind == RESP_BULK || t->kind == RESP_NULL ? 0 : -EPROTO;
        }
        if (t->index > 1)
                return 0;
        if (t->kind != RESP_INTEGER)
                return -EPROTO;
        r->port = t->number;
        return 0;
}

static void metadata_element(struct slot_reader *r, const struct resp_token *t)
{
        if (t->index % 2 == 0) {
                r->next_is_ip = false;
                text_begin(r, SLOT_TEXT_NAME);
        } else if (r->next_is_ip) {
                text_begin(r, SLOT_TEXT_IP);
        }
}

int slot_reader_token(struct slot_reader *r, const struct resp_token *t)
{
        int e = 0;

        if (t->kind == RESP_END)
                return range_end(r);
        r->text_is = SLOT_TEXT_OTHER;
        if (t->depth == 0)
                e = t->kind == RESP_ARRAY ? 0 : -EPROTO;
        else if (t->depth == 1)
                e = range_begin(r, t);
        else if (t->depth == 2)
                e = range_element(r, t);
        else if (t->depth == 3 && r->is_master)
                e = node_element(r, t);
        else if (t->depth == 4 && r->is_master)
                metadata_element(r, t);
        r->text_len = 0;
        r->text_left = t->kind == RESP_BULK ? (uint64_t)t->number : 0;
        if (e == 0 && t->kind == RESP_BULK && r->text_left == 0)
                text_end(r);
        return e;
}

int slot_reader_text(struct slot_reader *r, const char *text, size_t n)
{
        if (n > r->text_left)
                return -EPROTO;
        if (r->text_len < sizeof(r->text))
                memcpy(r->text + r->text_len, text, MIN(n, sizeof(r->text) - r->text_len));
        r->text_len += n;
        r->text_left -= n;
        if (r->text_left == 0 && n > 0)
                text_end(r);
        return 0;
}

/* ---- redirections -----------------------------------------------------------------------------
 */

/* "3999 127.0.0.1:6381", "3999 ::1:6381", "3999 :6381" (the host that was asked). */
bool slot_redirect_parse(const char *text, size_t len, struct slot_redirect *ret)
{
        static const char moved[] = "MOVED ", ask[] = "ASK ";
        char copy[SLOT_HOST_BYTES + 32], *slot, *host, *port;
        struct slot_redirect found = {0};
        uint64_t number;

        if (len >= sizeof(copy) || memchr(text, '\0', len))
                return false;
        memcpy(copy, text, len);
        copy[len] = '\0';
        found.is_ask = strncmp(copy, ask, strlen(ask)) == 0;
        if (!found.is_ask && strncmp(copy, moved, strlen(moved)) != 0)
                return false;
        slot = copy + strlen(found.is_ask ? ask : moved);
        host = strchr(slot, ' ');
        port = host ? strrchr(host, ':') : NULL;
        if (!port)
                return false;
        *host++ = *port++ = '\0';
        if (parse_u64(slot, &number) < 0 || number >= N_SLOTS)
                return false;
        found.slot = (unsigned)number;
        if (parse_u64(port, &number) < 0 || number == 0 || number > UINT16_MAX ||
                strlen(host) >= sizeof(found.to.host))
                return false;
        found.to.port = (uint16_t)number;
        strcpy(found.to.host, host);
        *ret = found;
        return true;
}
