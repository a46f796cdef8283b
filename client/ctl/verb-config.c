/* kvleasectl config show: options in force, their origins, and pending changes. kvleasectl reload:
 * puts the files in force, and shows the result of each change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/admin.h"
#include "client/ctl/columns.h"
#include "client/ctl/verb.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"
#include "proto/status.h"

void option_section_text(const option_row *o, const struct show_format *f, struct value *ret)
{
        derive_text(ret, o->name[0] ? "[%s %s]" : "[%s]", o->section, o->name);
}

void option_waiting(const option_row *o, const struct show_format *f, struct value *ret)
{
        if (o->waits)
                derive_text(ret, "%s (%s)",
                        o->configured && o->configured[0] ? o->configured : "nothing",
                        o->reloadable ? "reload" : "restart");
}

struct taker {
        struct show_list *list;
        bool everything;
};

static void take(const void *row, void *data)
{
        const struct taker *t = data;
        const option_row *o = row;

        if (t->everything || o->waits || strcmp(o->origin, "default") != 0)
                show_list_add(t->list, row);
}

int verb_config_show(const struct ctl *ctl)
{
        struct taker t = {show_list_new(&noun_options.table, &ctl->format),
                ctl->format.json || ctl->options[CTL_OPTION_ALL]};
        int r = admin_each(ctl->admin, &noun_options, ctl->options[CTL_OPTION_TENANT], take, &t);

        if (r == CTL_OK)
                show_list_print(t.list);
        else
                show_list_free(t.list);
        return r;
}

/* ---- reload ---------------------------------------------------------------------------------- */

static void print_texts(FILE *f, const char *what, size_t n, char **texts)
{
        for (size_t i = 0; i < n; i++) {
                char *text = text_printable(texts[i]);

                fprintf(f, "%s: %s\n", what, text);
                free(text);
        }
}

static void print_reply(const struct ctl *ctl, const Kvlease__V1__AdminReloadReply *m, bool is_done)
{
        if (ctl->format.json) {
                show_json(json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:i}", "reloaded", is_done,
                        "changes", show_texts(m->n_changes, m->changes), "pending",
                        show_texts(m->n_pending, m->pending), "refused",
                        show_texts(m->n_refused, m->refused), "warnings",
                        show_texts(m->n_warnings, m->warnings), "errors",
                        show_texts(m->n_errors, m->errors), "more", (int)m->more));
                return;
        }
        print_texts(stdout, "changed", m->n_changes, m->changes);
        print_texts(stdout, "pending", m->n_pending, m->pending);
        print_texts(stdout, "refused", m->n_refused, m->refused);
        print_texts(stdout, "warning", m->n_warnings, m->warnings);
        print_texts(stderr, "error", m->n_errors, m->errors);
        if (m->more > 0)
                printf("%u other things: the log has all\n", m->more);
        if (is_done && m->n_changes + m->n_pending + m->n_refused == 0)
                puts("nothing had changed");
}

int verb_reload(const struct ctl *ctl)
{
        Kvlease__V1__AdminReloadRequest request = KVLEASE__V1__ADMIN_RELOAD_REQUEST__INIT;
        const Kvlease__V1__AdminReloadReply *m;
        const ProtobufCMessage *reply;
        uint32_t status;
        int r = admin_ask(ctl->admin, MSG_ADMIN_RELOAD, &request.base, &status, &reply);

        if (r != CTL_OK)
                return r;
        m = (const Kvlease__V1__AdminReloadReply *)reply;
        print_reply(ctl, m, status == WIRE_OK);
        if (status == WIRE_OK)
                return m->n_refused > 0 ? CTL_REFUSED : CTL_OK;
        fflush(stdout);
        return fail(CTL_REFUSED, "%s", m->detail);
}
