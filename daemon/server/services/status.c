#include "daemon/server/services/status.h"

#include <stdio.h>

#include "daemon/server/peers/server.h"
#include "daemon/server/peers/tenancy.h"
#include "daemon/server/base/notify.h"

const char *status_format(const struct server *s, char line[STATUS_BYTES])
{
        unsigned n = 0;

        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                n++;
        snprintf(line, STATUS_BYTES, "STATUS=%u tenant%s%s", n, n == 1 ? "" : "s",
                s->store.draining ? ", draining" : "");
        return line;
}

void status_notify(struct server *s)
{
        char line[STATUS_BYTES];

        notify_now(status_format(s, line));
}
