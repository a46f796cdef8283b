/* Weights of the decoder from a file. */
#pragma once

/* Uses the weights of this file, written by train.py, from now on in this process: trained_use().
 * Returns 0; -EINVAL: another file, or truncated; -errno. After a failure the weights are
 * unchanged. */
int weights_read(const char *path);
