/* SIGHUP. */
#ifndef KVL_SERVER_RELOAD_H
#define KVL_SERVER_RELOAD_H

struct server;

/*
 * Reads the configuration again from where it came. What can change without a restart is put in
 * force, what can't is warned of and stays. A file with an error changes nothing.
 */
void reload_config(struct server *s);

#endif
