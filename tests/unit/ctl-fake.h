/*
 * A scripted kvleased: runs kvleasectl against an admin socket that answers fixed things, well or
 * badly, and tells what kvleasectl printed, asked for, and returned. Test code: failures assert.
 */
#ifndef KVL_TESTS_CTL_FAKE_H
#define KVL_TESTS_CTL_FAKE_H

#include <stdbool.h>
#include <stddef.h>

enum fake_mode {
        FAKE_NORMAL,
        FAKE_EMPTY,       /* lists without rows, all counters 0 */
        FAKE_LEAVING,     /* two clients in the first status, none after */
        FAKE_LINGERING,   /* no client, one that hung up and lives on; mounts segments read-only */
        FAKE_WELL,        /* one device, and nothing that isn't well */
        FAKE_REFUSING,    /* everything but hello, with a sentence */
        FAKE_SILENT,      /* as FAKE_REFUSING, without a sentence */
        FAKE_CORRUPT,     /* check finds a violation */
        FAKE_VERSION,     /* refuses hello: no common version */
        FAKE_TENANT,      /* is a tenant's socket */
        FAKE_GARBAGE,     /* answers hello with bytes that are no frame */
        FAKE_BAD_MESSAGE, /* a frame whose payload is no message */
        FAKE_WRONG_SEQ,   /* answers another request */
        FAKE_HANGUP,      /* ends the connection after hello */
        FAKE_RESTARTED,   /* once, and then answers */
        FAKE_SLOW,        /* answers once kvleasectl says that no answer comes */
        FAKE_CIRCLE,      /* the cursor of its lists never gets further */
        FAKE_ABSENT,      /* no socket */
        FAKE_DEAF,        /* a socket without a listener */
        FAKE_FORBIDDEN,   /* a socket this user may not use */
};

struct fake_run {
        enum fake_mode mode;
        const char *const *args; /* after the program's name, NULL at the end */
        const char *env;         /* "NAME=VALUE" besides LC_ALL=C and TZ=UTC, or NULL */
        const char *out_path;    /* stdout goes there: NULL: to ret out */
        bool no_socket_option;   /* else --socket admin.sock comes first */
};

struct fake_result {
        int exit_code;
        char *out, *err; /* owned */
        char *requests;  /* owned: a line each, repeated ones once */
};

/* Runs `binary` in a fresh directory with the socket admin.sock in it. */
void fake_run(const char *binary, const struct fake_run *run, struct fake_result *ret);
void fake_result_deinit(struct fake_result *r);

#endif
