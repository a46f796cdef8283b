/*
 * kvleased lists what lies below a device as rows of their own, called "host of DEVICE" and "disk
 * of DEVICE"; no device has such a name, as it is "host" or a UUID. Here are the two parts of it.
 */
#ifndef KVL_EXPORTER_TIER_NAME_H
#define KVL_EXPORTER_TIER_NAME_H

/* The device's name. Borrows from the row's. */
const char *tier_device(const char *row_name);

/* "device", "host" or "disk". Static. */
const char *tier_of_row(const char *row_name);

#endif
