/* Pins are released by calls that a stream of a GPU begins: what ahead/stream.c uses of release.c.
 */
#ifndef KVL_LIB_RELEASE_H
#define KVL_LIB_RELEASE_H

struct op_type;

extern const struct op_type op_type_release;

#endif
