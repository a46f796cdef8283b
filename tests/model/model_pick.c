/* Draws what to try: mostly what a worker would do, now and then what it never should. */
#include "tests/model/model.h"

struct model_member *any_member(void)
{
        struct model_member *m = &members[rnd(N_MEMBERS)];

        return m->real ? m : NULL;
}

struct model_attach *any_attach(struct model_member **ret_member, struct model_ns **ret_ns)
{
        struct model_member *m = any_member();
        uint32_t slot = rnd(N_NS);

        if (!m || !m->attach[slot].real)
                return NULL;
        *ret_member = m;
        *ret_ns = &spaces[m->tenant][slot];
        return &m->attach[slot];
}

bool is_old(const struct model_attach *a, const struct model_ns *ns)
{
        return a->version_epoch != ns->version_epoch;
}

/* Parents in the forest that honest clients publish. */
static int usual_parent(int key)
{
        return key < 3 ? NONE : (key - 3) / 2;
}

/* A page of this state of the group, sometimes any page at all. */
static uint32_t pick_granted(const struct model_ns *ns, int group)
{
        uint32_t start = rnd(ns->n_pages);

        if (rnd(40) == 0)
                return rnd(ns->n_pages + 2);
        for (uint32_t i = 0; i < ns->n_pages; i++) {
                uint32_t page = (start + i) % ns->n_pages;

                if (ns->pages[page].state == M_GRANTED && ns->pages[page].group == group)
                        return page;
        }
        return start;
}

void pick_some_granted(const struct model_ns *ns, int group, uint32_t n, uint32_t *ret_pages)
{
        for (uint32_t i = 0; i < n; i++) {
                bool twice = true;

                for (int tries = 0; twice && tries < 16; tries++) {
                        ret_pages[i] = pick_granted(ns, group);
                        twice = false;
                        for (uint32_t k = 0; k < i; k++)
                                twice |= ret_pages[k] == ret_pages[i];
                }
        }
}

uint32_t path_to(int key, int *path)
{
        uint32_t n = 0;

        for (; key != NONE; key = usual_parent(key))
                path[n++] = key;
        for (uint32_t i = 0; i < n / 2; i++) {
                int swap = path[i];

                path[i] = path[n - 1 - i];
                path[n - 1 - i] = swap;
        }
        return n;
}

struct publish_case make_publish(const struct model_member *m, const struct model_ns *ns)
{
        struct publish_case c = {.parent = NONE, .last_tokens = 1 + rnd(16)};
        int path[N_KEYS];
        uint32_t len = path_to((int)rnd(N_KEYS), path), skip = 0;

        /* Mostly like a worker: after a lookup, the first uncached page. */
        while (skip + 1 < len && ns->where[path[skip]] != NONE)
                skip++;
        if (rnd(6) == 0)
                skip = rnd(len);
        if (skip > 0)
                c.parent = path[skip - 1];
        if (rnd(20) == 0)
                c.parent = (int)rnd(N_KEYS); /* a client that lies, or whose parent was dropped */
        c.n = len - skip;
        for (uint32_t i = 0; i < c.n; i++)
                c.keys[i] = path[skip + i];
        pick_some_granted(ns, m->group, c.n, c.pages);
        return c;
}
