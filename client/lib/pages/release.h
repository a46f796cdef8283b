/* Releasing pins by calls that a GPU stream begins: the part that pages/stream.c uses. */
#ifndef KVL_LIB_RELEASE_H
#define KVL_LIB_RELEASE_H

struct op_type;

extern const struct op_type op_type_release;

#endif
