/* Exit codes of kvleased. */
#ifndef KVL_SERVER_EXIT_CODE_H
#define KVL_SERVER_EXIT_CODE_H

/* Exit codes, documented in --help. */
enum exit_code {
        EXIT_OK = 0,
        EXIT_OTHER = 1,
        EXIT_CONFIG = 2,
        EXIT_SOCKET = 3,
        EXIT_DEVICE = 4,
        EXIT_STATE = 5,
        EXIT_RESTART = 75, /* the daemon asks to be started again; EX_TEMPFAIL of sysexits.h */
};

#endif
