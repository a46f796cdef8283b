/*
 * Fault points (base/fault-point.h) that a daemon under load passes once in the life of its stored
 * state, or never. Listed by the unit test that kills at each of them, and that fails if it doesn't
 * pass one. tests/fault/test_daemon_kill.c kills at all the others.
 */
#ifndef KVL_TESTS_KILLED_ELSEWHERE_H
#define KVL_TESTS_KILLED_ELSEWHERE_H

/* test_recover.c */
#define KILLED_BY_RECOVER(X)          \
        X("state-before-magic")       \
        X("state-after-magic")        \
        X("state-before-keep")        \
        X("state-after-keep")         \
        X("move-before-key")          \
        X("move-after-note")          \
        X("move-two-pages")           \
        X("move-before-free")         \
        X("page-before-reparent")     \
        X("page-after-reparent")      \
        X("slot-before-replace")      \
        X("slot-after-replace")       \
        X("slot-before-move")         \
        X("slot-after-move")          \
        X("tag-before-store")         \
        X("tag-after-store")          \
        X("session-log-before-magic") \
        X("session-log-before-keep")  \
        X("session-log-after-keep")

/* test_recover_device.c */
#define KILLED_BY_CANARY(X)      \
        X("canary-before-value") \
        X("canary-after-value")

/* test_client_recover_kill.c */
#define KILLED_BY_CLIENT_RECOVER(X) \
        X("client-rows-before")     \
        X("client-rows-after")      \
        X("attach-rows-before")     \
        X("attach-rows-after")      \
        X("client-mute-before")     \
        X("client-mute-after")

/* test_mover_kill.c, which kills at all of the mover's: only what is damaged is wiped. */
#define KILLED_BY_MOVER(X)     \
        X("mover-before-wipe") \
        X("mover-after-wipe")

/* test_disk_kill.c, which kills at all of the disk's: a file that is made or given up, chunks that
 * go from one namespace to another. */
#define KILLED_BY_DISK(X)             \
        X("disk-before-superblock")   \
        X("disk-after-superblock")    \
        X("disk-after-rename")        \
        X("disk-before-space-record") \
        X("disk-before-removal")      \
        X("disk-before-zero")         \
        X("disk-after-zero")          \
        X("disk-before-discard")      \
        X("disk-after-discard")

#endif
