/* kvlease-exporter beside a test's daemon, at a Unix socket in its directory, and its answers over
 * HTTP. Asserts by cmocka. */
#ifndef KVL_TEST_EXPORTER_H
#define KVL_TEST_EXPORTER_H

#include "tests/integration/harness.h"

struct exporter {
        pid_t pid; /* 0: not running */
        char socket[PRIVATE_PATH_MAX];
        char log[PRIVATE_PATH_MAX]; /* file with its output */
};

/* Starts it and waits until it listens. words: more of its command line, ends with NULL; may be
 * NULL. */
void exporter_start(struct exporter *e, const struct harness *h, const char *const *words);

/* Stops it by SIGTERM; its exit status must be 0. */
void exporter_stop(struct exporter *e);

/* A connection without a request; owned. */
int exporter_connect(const struct exporter *e);

struct http_answer {
        int status;
        char *head, *body; /* owned; NUL-terminated */
};

/* Sends a request line and headers, each ending in \r\n; adds the empty line. */
void http_ask(const struct exporter *e, const char *head, struct http_answer *ret);
void http_answer_free(struct http_answer *a);

/* GET /metrics; returns the body, owned. */
char *exporter_metrics(const struct exporter *e);

/* The value behind exactly this name and labels; fails unless there is exactly one such line. */
double metric_of(const char *metrics, const char *series);

/* Does a line begin like this? */
bool metric_exists(const char *metrics, const char *beginning);

#endif
