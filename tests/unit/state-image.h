/*
 * What a daemon kept, as text: to be written by one version of the source and given to another.
 *
 *   # a comment
 *   keep KIND NUMBER BYTES       a descriptor (daemon/core/state/keep.h), of so many bytes, zero
 * but for: OFFSET HEX                   a row of STATE_IMAGE_ROW bytes
 *
 * Not in it is what belongs to one run of a machine: a process is made the caller's own, and the
 * numbers of files by which rows of clients name theirs (client-record.h) are those of the files
 * that are made.
 */
#ifndef KVL_TESTS_STATE_IMAGE_H
#define KVL_TESTS_STATE_IMAGE_H

#include <stdio.h>

#include "tests/unit/fake-keep.h"

#define STATE_IMAGE_ROW 32

/* Sorted by name. The kept files of clients lose the numbers of files. */
void state_image_write(struct fake_keep *k, FILE *to);

/* As what the store before left. Fails the test where it can't be read. */
void state_image_load(struct fake_keep *k, FILE *from);

#endif
