/* kvleasectl config show: options in force, their origins, and pending changes. */
#include <string.h>

#include "client/ctl/admin.h"
#include "client/ctl/columns.h"
#include "client/ctl/verb.h"
#include "proto/msg.h"

typedef Kvlease__V1__AdminOption option_line;

static void option_section_text(const void *row, const struct show_format *f, struct value *ret)
{
        const option_line *o = row;

        derive_text(ret, o->name[0] ? "[%s %s]" : "[%s]", o->section, o->name);
}

static void option_waiting(const void *row, const struct show_format *f, struct value *ret)
{
        const option_line *o = row;

        if (o->waits)
                derive_text(ret, "%s (%s)", o->configured[0] ? o->configured : "nothing",
                        o->reloadable ? "reload" : "restart");
}

static void option_configured(const void *row, const struct show_format *f, struct value *ret)
{
        const option_line *o = row;

        ret->present = o->waits;
        ret->text = o->waits ? o->configured : NULL;
}

#define OPTION(field, title, what, ...)                             \
        {                                                           \
                FIELD(AdminOption, field, title, what), __VA_ARGS__ \
        }

static const struct column options_columns[] = {
        {.heading = "SECTION", .kind = COLUMN_TEXT, .derive = option_section_text, .shortest = 12},
        OPTION(section, NULL, TEXT, .what = "daemon, device, remote or tenant"),
        OPTION(name, NULL, TEXT, .what = "of the device or the tenant; empty: [daemon]"),
        OPTION(key, "OPTION", TEXT, .what = "its name"),
        OPTION(value, "VALUE", TEXT, .shortest = 12,
                .what = "in force, as the configuration would have it"),
        OPTION(default_value, NULL, TEXT, .what = "what it is where nothing is configured"),
        {.heading = "WAITING", .kind = COLUMN_TEXT, .derive = option_waiting, .shortest = 12},
        OPTION(waits, NULL, BOOL, .what = "whether something else is configured than is in force"),
        {.key = "configured",
                .kind = COLUMN_TEXT,
                .derive = option_configured,
                .what = "that, as the files were read last; null where nothing waits"},
        OPTION(reloadable, NULL, BOOL,
                .what = "whether a reload puts it in force; else a restart does"),
        OPTION(origin, "FROM", TEXT, .shortest = 16,
                .what = "where what is configured stands: FILE:LINE, \"command line\", "
                        "\"kvleasectl\" (tenants set) or \"default\""),
};
NOUN(options, AdminConfigReply, MSG_ADMIN_CONFIG);

struct taker {
        struct show_list *list;
        bool everything;
};

static void take(const void *row, void *data)
{
        const struct taker *t = data;
        const option_line *o = row;

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
