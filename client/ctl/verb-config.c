/* kvleasectl config show: options in force, their origins, and pending changes. */
#include <string.h>

#include "client/ctl/admin.h"
#include "client/ctl/columns.h"
#include "client/ctl/verb.h"

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
