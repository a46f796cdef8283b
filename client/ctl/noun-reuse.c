/* Sessions, namespace sets, and why keys hit or miss. */
#include "client/ctl/columns.h"

#include <inttypes.h>
#include <string.h>

#include "base/parse.h"
#include "client/ctl/ctl.h"
#include "client/lib/kvlease.h"

/* ---- sessions -------------------------------------------------------------------------------- */

#define SESSION_ID_MAX 64 /* KVL_SESSION_ID_MAX; more isn't shown */

/* Makes the id as text in *ret if it can be typed. One that looks like hexadecimal digits could be
 * mistaken for these. */
static void put_text(const session_row *s, struct value *ret)
{
        size_t len = strlen(s->id) / 2;

        if (len > SESSION_ID_MAX || parse_hex(s->id, ret->buf, len) < 0)
                return;
        for (size_t i = 0; i < len; i++)
                if (ret->buf[i] <= ' ' || ret->buf[i] > '~')
                        return;
        ret->present = len > 0 && (len < 2 || memcmp(ret->buf, "0x", 2) != 0);
        ret->text = ret->present ? ret->buf : NULL;
}

static void put_hex(const session_row *s, const char *prefix, struct value *ret)
{
        derive_text(ret, "%s%.*s", prefix, 2 * SESSION_ID_MAX, s->id);
}

void session_shown(const session_row *r, const struct show_format *f, struct value *ret)
{
        put_text(r, ret);
        if (!ret->present)
                put_hex(r, "0x", ret);
}

void session_text(const session_row *r, const struct show_format *f, struct value *ret)
{
        put_text(r, ret);
}

void session_hex(const session_row *r, const struct show_format *f, struct value *ret)
{
        put_hex(r, "", ret);
}

/* ---- codecs ---------------------------------------------------------------------------------- */

/* "8-23" */
void codec_layers(const codec_row *c, const struct show_format *f, struct value *ret)
{
        if (c->first_layer == c->last_layer)
                derive_text(ret, "%" PRIu64, c->first_layer);
        else
                derive_text(ret, "%" PRIu64 "-%" PRIu64, c->first_layer, c->last_layer);
}

/* "0.41 %"; empty without samples. */
void codec_error(const codec_row *c, const struct show_format *f, struct value *ret)
{
        if (c->pages_sampled > 0)
                derive_text(ret, "%.2f %%", (double)c->error_ppm / 1e4);
}

/* ---- exchanges ------------------------------------------------------------------------------- */

/* "late 3, damaged 20": pages that weren't imported, or exported. */
void exchange_dropped(const exchange_row *x, const struct show_format *f, struct value *ret)
{
        char text[256] = "";
        size_t len = 0;

        for (size_t i = 0; i < x->n_drops && len < sizeof(text); i++) {
                uint64_t n = x->drops[i].not_imported + x->drops[i].not_exported;

                if (n > 0)
                        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s %" PRIu64,
                                len > 0 ? ", " : "", x->drops[i].reason, n);
        }
        if (len > 0)
                derive_text(ret, "%s", text);
}

/* {"late": 3, "damaged": 20}. Reasons are from the daemon, which isn't trusted. */
static json_t *drops_json(const struct figures_exchange *x, size_t count_offset)
{
        json_t *object = need(json_object());

        for (size_t i = 0; i < x->n_drops; i++) {
                const char *at = (const char *)&x->drops[i] + count_offset;
                uint64_t count = MIN(*(const uint64_t *)at, (uint64_t)INT64_MAX);
                _cleanup_free_ char *reason = text_printable(x->drops[i].reason);

                if (json_object_set_new(object, reason, need(json_integer((json_int_t)count))) < 0)
                        need(NULL);
        }
        return object;
}

json_t *exchange_not_imported(const exchange_row *r)
{
        return drops_json(r, offsetof(struct figures_drop, not_imported));
}

json_t *exchange_not_exported(const exchange_row *r)
{
        return drops_json(r, offsetof(struct figures_drop, not_exported));
}

/* ---- nodes of remotes ------------------------------------------------------------------------ */

/* "open for 12 s", then a trial is let through. */
void node_breaker(const node_row *n, const struct show_format *f, struct value *ret)
{
        char left[32];

        if (n->open_left_msec > 0)
                derive_text(ret, "%.32s for %s", n->breaker,
                        show_seconds(f, (n->open_left_msec + 999) / 1000, left));
        else if (n->breaker[0])
                derive_text(ret, "%.32s", n->breaker);
}

/* Absent for a remote without nodes. */
void node_slots(const node_row *r, const struct show_format *f, struct value *ret)
{
        ret->present = r->address[0];
        ret->number = r->slots;
}

/* Absent if not measured. */
void node_round_trip(const node_row *n, const struct show_format *f, struct value *ret)
{
        if (n->rtt_usec > 0)
                derive_text(ret, "%" PRIu64 ".%02" PRIu64 "ms", n->rtt_usec / 1000,
                        n->rtt_usec / 10 % 100);
}

/* A node's error, or why no node is known. */
void node_why(const node_row *n, const struct show_format *f, struct value *ret)
{
        const char *why = n->address[0] ? n->last_error : n->slots_error;

        if (why[0])
                derive_text(ret, "%s", why);
}
