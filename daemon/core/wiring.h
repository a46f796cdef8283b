/*
 * Who hears of what in the core: the table that store_init() puts into every store.
 */
#ifndef KVL_CORE_WIRING_H
#define KVL_CORE_WIRING_H

#include "daemon/core/objects/listeners.h"

extern const struct core_listeners core_listeners;

#endif
