#include "daemon/core/state/chore.h"

void chore_init(struct chore *c)
{
        *c = (struct chore){0};
        list_init(&c->link);
}
