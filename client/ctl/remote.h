/*
 * kvleasectl --host: the same command line on another host, through ssh.
 *
 * ssh starts the kvleasectl that is there, rather than that its admin socket would be forwarded
 * here: so the one that talks to kvleased is of its version and sees its host, as doctor, restart
 * and traces have to, and kvleased sees who logged in. A remote shell gets the command line, as ssh
 * has it; every word is quoted so that the shell gives it on as it is.
 */
#ifndef KVL_CTL_REMOTE_H
#define KVL_CTL_REMOTE_H

#include <stdio.h>

#include "client/ctl/ctl.h"

#define REMOTE_NAME_MAX 255 /* of a user and of a host */

struct remote {
        char user[REMOTE_NAME_MAX + 1]; /* "": as ssh has it */
        char host[REMOTE_NAME_MAX + 1]; /* an address of IPv6 without its brackets */
        char port[6];                   /* "": as ssh has it */
};

/* Reads ssh://[USER@]HOST[:PORT]. CTL_OK or CTL_USAGE, printed. */
int remote_parse(const char *url, struct remote *ret);

/* Writes a word so that sh, csh and fish take it as one, and change nothing of it. */
void remote_quote(const char *word, FILE *to);

/*
 * Runs what `ctl` says on the host that its --host names. Returns the exit code of the kvleasectl
 * there; CTL_UNREACHABLE with a sentence printed where ssh failed, or there is no kvleasectl.
 */
int remote_run(const struct ctl *ctl);

#endif
