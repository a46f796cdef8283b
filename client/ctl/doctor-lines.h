/* Settings as files have them, in order: "[section name] key = value". Owned copies. */
#ifndef KVL_CTL_DOCTOR_LINES_H
#define KVL_CTL_DOCTOR_LINES_H

#include <stddef.h>

struct doctor_line {
        char *section, *name, *key, *value; /* name: "" where the section has none */
};

struct doctor_lines {
        struct doctor_line *lines;
        size_t n;
};

/* The last value of that key; NULL: none. Borrowed. */
const char *lines_find(
        const struct doctor_lines *l, const char *section, const char *name, const char *key);

/* What kvleased.conf says, as far as it can be read; errors are for kvleased itself to find. */
void lines_read_config(struct doctor_lines *l, const char *text, size_t len);

/* An argument of kvleased's --option: "daemon.KEY=VALUE", "device.NAME.KEY=VALUE". Others are
 * ignored. */
void lines_read_option(struct doctor_lines *l, const char *option);

/* What a unit file of systemd says; an empty value forgets those before it. */
void lines_read_unit(struct doctor_lines *l, const char *text);

void lines_free(struct doctor_lines *l);

#endif
