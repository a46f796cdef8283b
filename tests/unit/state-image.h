/*
 * State of a daemon as text, to be written by one version of the source and read by another.
 *
 *   # a comment
 *   keep KIND NUMBER BYTES       a descriptor (daemon/core/state/keep.h) of so many bytes, zero but
 *                                for:
 *   OFFSET HEX                   a row of STATE_IMAGE_ROW bytes
 *
 * State of one run of a machine isn't in it. Processes become the caller's own. Rows of clients
 * name their files by inode (client-record.h), and get the inodes of the new files.
 */
#ifndef KVL_TESTS_STATE_IMAGE_H
#define KVL_TESTS_STATE_IMAGE_H

#include <stdio.h>

#include "tests/unit/fake-keep.h"

#define STATE_IMAGE_ROW 32

/* Sorted by name. The kept files of clients lose the numbers of files. */
void state_image_write(struct fake_keep *k, FILE *to);

/* Loads an image as the state of an earlier store. Fails the test if it can't be read. */
void state_image_load(struct fake_keep *k, FILE *from);

#endif
