/*
 * The table of the core's listeners: which module is notified of which event. store_init() puts it
 * into every store.
 */
#ifndef KVL_CORE_WIRING_H
#define KVL_CORE_WIRING_H

#include "daemon/core/state/listeners.h"

extern const struct core_listeners core_listeners;

#endif
