#include "daemon/core/clients/pin.h"

#include <errno.h>

#include "daemon/core/catalog/pages.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/ground/detail.h"
#include "daemon/core/objects/group.h"
#include "daemon/core/objects/ns.h"

/* Over the socket. */
static bool has_pinned(const struct attach *a, uint32_t page)
{
        return pin_counts_get(&a->pins, page) > 0;
}

int pin_again(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d)
{
        int r = 0;

        for (uint32_t i = 0; i < n && r == 0; i++) {
                if (!has_pinned(a, pages[i]))
                        return detail_set(
                                d, -EINVAL, "page %u isn't pinned by this client", pages[i]);
                r = attach_check_page_pins(a, pages[i], n, d); /* all may be of this one */
        }
        if (r == 0)
                r = attach_reserve_pins(a, n, d);
        if (r != 0)
                return r;
        for (uint32_t i = 0; i < n; i++) {
                ns_pin_page(a->ns, pages[i]);
                attach_note_pin(a, pages[i]);
        }
        return 0;
}

static bool is_held(const struct attach *a, uint32_t page)
{
        if (page >= a->ns->geometry.capacity_pages)
                return false;
        if (grants_check_page(a, page, NULL) == 0)
                return true;
        list_for_each (b, &a->ns->clients.attachments, struct attach, ns_link)
                if (b->grants == a->grants &&
                        (has_pinned(b, page) ||
                                (pins_is_open(&b->share) && pins_count(&b->share, page) > 0)))
                        return true;
        return false;
}

int pin_check_held(const struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d)
{
        for (uint32_t i = 0; i < n; i++)
                if (!is_held(a, pages[i]))
                        return detail_set(d, -ENOENT,
                                "page %u of namespace %s is neither leased nor pinned by this "
                                "client's group",
                                pages[i], a->ns->name);
        return 0;
}
