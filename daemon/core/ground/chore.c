#include "daemon/core/ground/chore.h"

void chore_init(struct chore *c)
{
        *c = (struct chore){0};
        list_init(&c->link);
}
