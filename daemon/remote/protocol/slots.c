#include "daemon/remote/protocol/slots.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"

/* ---- keys ------------------------------------------------------------------------------------ */

/* CRC-16/XMODEM (polynomial 0x1021) of each byte: a probe has thousands of keys. */
static const uint16_t crc16_of[256] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6,
        0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef, 0x1231, 0x0210,
        0x3273, 0x2252, 0x52b5, 0x4294, 0x72f7, 0x62d6, 0x9339, 0x8318, 0xb37b, 0xa35a, 0xd3bd,
        0xc39c, 0xf3ff, 0xe3de, 0x2462, 0x3443, 0x0420, 0x1401, 0x64e6, 0x74c7, 0x44a4, 0x5485,
        0xa56a, 0xb54b, 0x8528, 0x9509, 0xe5ee, 0xf5cf, 0xc5ac, 0xd58d, 0x3653, 0x2672, 0x1611,
        0x0630, 0x76d7, 0x66f6, 0x5695, 0x46b4, 0xb75b, 0xa77a, 0x9719, 0x8738, 0xf7df, 0xe7fe,
        0xd79d, 0xc7bc, 0x48c4, 0x58e5, 0x6886, 0x78a7, 0x0840, 0x1861, 0x2802, 0x3823, 0xc9cc,
        0xd9ed, 0xe98e, 0xf9af, 0x8948, 0x9969, 0xa90a, 0xb92b, 0x5af5, 0x4ad4, 0x7ab7, 0x6a96,
        0x1a71, 0x0a50, 0x3a33, 0x2a12, 0xdbfd, 0xcbdc, 0xfbbf, 0xeb9e, 0x9b79, 0x8b58, 0xbb3b,
        0xab1a, 0x6ca6, 0x7c87, 0x4ce4, 0x5cc5, 0x2c22, 0x3c03, 0x0c60, 0x1c41, 0xedae, 0xfd8f,
        0xcdec, 0xddcd, 0xad2a, 0xbd0b, 0x8d68, 0x9d49, 0x7e97, 0x6eb6, 0x5ed5, 0x4ef4, 0x3e13,
        0x2e32, 0x1e51, 0x0e70, 0xff9f, 0xefbe, 0xdfdd, 0xcffc, 0xbf1b, 0xaf3a, 0x9f59, 0x8f78,
        0x9188, 0x81a9, 0xb1ca, 0xa1eb, 0xd10c, 0xc12d, 0xf14e, 0xe16f, 0x1080, 0x00a1, 0x30c2,
        0x20e3, 0x5004, 0x4025, 0x7046, 0x6067, 0x83b9, 0x9398, 0xa3fb, 0xb3da, 0xc33d, 0xd31c,
        0xe37f, 0xf35e, 0x02b1, 0x1290, 0x22f3, 0x32d2, 0x4235, 0x5214, 0x6277, 0x7256, 0xb5ea,
        0xa5cb, 0x95a8, 0x8589, 0xf56e, 0xe54f, 0xd52c, 0xc50d, 0x34e2, 0x24c3, 0x14a0, 0x0481,
        0x7466, 0x6447, 0x5424, 0x4405, 0xa7db, 0xb7fa, 0x8799, 0x97b8, 0xe75f, 0xf77e, 0xc71d,
        0xd73c, 0x26d3, 0x36f2, 0x0691, 0x16b0, 0x6657, 0x7676, 0x4615, 0x5634, 0xd94c, 0xc96d,
        0xf90e, 0xe92f, 0x99c8, 0x89e9, 0xb98a, 0xa9ab, 0x5844, 0x4865, 0x7806, 0x6827, 0x18c0,
        0x08e1, 0x3882, 0x28a3, 0xcb7d, 0xdb5c, 0xeb3f, 0xfb1e, 0x8bf9, 0x9bd8, 0xabbb, 0xbb9a,
        0x4a75, 0x5a54, 0x6a37, 0x7a16, 0x0af1, 0x1ad0, 0x2ab3, 0x3a92, 0xfd2e, 0xed0f, 0xdd6c,
        0xcd4d, 0xbdaa, 0xad8b, 0x9de8, 0x8dc9, 0x7c26, 0x6c07, 0x5c64, 0x4c45, 0x3ca2, 0x2c83,
        0x1ce0, 0x0cc1, 0xef1f, 0xff3e, 0xcf5d, 0xdf7c, 0xaf9b, 0xbfba, 0x8fd9, 0x9ff8, 0x6e17,
        0x7e36, 0x4e55, 0x5e74, 0x2e93, 0x3eb2, 0x0ed1, 0x1ef0};

static uint16_t crc16_add(uint16_t crc, uint8_t byte)
{
        return (uint16_t)(crc << 8 ^ crc16_of[crc >> 8 ^ byte]);
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

/* ---- CLUSTER SLOTS --------------------------------------------------------------------------- */

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

static int owner_compare(const struct slot_owner *o, const char *host, uint16_t port)
{
        return o->port != port ? (o->port < port ? -1 : 1) : strcmp(o->host, host);
}

/* Its index; SLOT_OWNERS_MAX: there are too many. */
static unsigned owner_add(struct slot_table *t, const char *host, uint16_t port)
{
        unsigned first = 0, end = t->n_owners, i = t->n_owners;

        while (first < end) {
                unsigned middle = (first + end) / 2;
                int order = owner_compare(&t->owners[t->sorted[middle]], host, port);

                if (order == 0)
                        return t->sorted[middle];
                if (order < 0)
                        first = middle + 1;
                else
                        end = middle;
        }
        if (i == SLOT_OWNERS_MAX)
                return i;
        memmove(&t->sorted[first + 1], &t->sorted[first], (i - first) * sizeof(t->sorted[0]));
        t->sorted[first] = (uint16_t)i;
        snprintf(t->owners[i].host, sizeof(t->owners[i].host), "%s", host);
        t->owners[i].port = port;
        t->n_owners++;
        return i;
}

/* Ends a range. If its master has no valid address, its slots stay without an owner. */
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
                /* "?": the node doesn't know its own address; it is the asked one. */
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
                /* No host (cluster-preferred-endpoint-type unknown-endpoint): the asked node. */
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

/* ---- redirections ---------------------------------------------------------------------------- */

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
