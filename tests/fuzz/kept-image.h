/* Image of a daemon's stored descriptors at one moment. A fuzzer can then kill the daemon and free
 * its rest cleanly, in one process. The files stay the same ones, by inode. */
#ifndef KVL_FUZZ_KEPT_IMAGE_H
#define KVL_FUZZ_KEPT_IMAGE_H

#include "tests/unit/keep-parent.h"

/* One at a time, until kept_image_restore(). Holes aren't copied. Aborts on a failure. */
void kept_image_take(const struct keep_parent *keep);
void kept_image_restore(const struct keep_parent *keep);

/* Used by the daemon meanwhile: adds and drops nothing. */
extern const struct keep_ops kept_image_ops;

#endif
