#include "daemon/core/reclaim/transfer-work.h"

#include "daemon/core/moves/copy-batch.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/store.h"
#include "daemon/core/reclaim/fetch.h"

/* Entries of a disk that become pages in one iteration of the event loop: less than a millisecond.
 * Not tuned. */
#define SPACE_STEP 256

bool transfer_work(struct store *s)
{
        bool more;

        transfers_end(s);
        more = space_work(s, SPACE_STEP);
        more |= fetch_work(s);
        more |= batch_start(s);
        return more || !list_is_empty(&s->moving.transfers);
}
