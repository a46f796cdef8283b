/* Settings in the order of their files: "[section name] key = value". Owned copies. */
#ifndef KVL_CTL_DOCTOR_LINES_H
#define KVL_CTL_DOCTOR_LINES_H

#include <stddef.h>

struct doctor_line {
        char *section, *name, *key, *value; /* name: "" if the section has none */
};

struct doctor_lines {
        struct doctor_line *lines;
        size_t n;
};

/* Returns the last value of that key; NULL: none. Borrowed. */
const char *lines_find(
        const struct doctor_lines *l, const char *section, const char *name, const char *key);

/* Reads kvleased.conf as far as possible; kvleased itself finds errors. */
void lines_read_config(struct doctor_lines *l, const char *text, size_t len);

/* Reads an argument of kvleased's --option: "daemon.KEY=VALUE", "device.NAME.KEY=VALUE". Ignores
 * others. */
void lines_read_option(struct doctor_lines *l, const char *option);

/* Reads a unit file of systemd; an empty value drops the earlier ones. */
void lines_read_unit(struct doctor_lines *l, const char *text);

void lines_free(struct doctor_lines *l);

#endif
