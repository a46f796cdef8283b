/* Shared by the scripted daemon's files only: fake-daemon.c and fake-serve.c. */
#ifndef KVL_TESTS_FAKE_DAEMON_IMPL_H
#define KVL_TESTS_FAKE_DAEMON_IMPL_H

#include "tests/unit/fake-daemon.h"

/* HELLO, RESUME_NS and RESUMED. */
void fake_serve_hello(struct fake_peer *p, const Kvlease__V1__HelloRequest *request);
void fake_serve_resume_ns(struct fake_peer *p, const Kvlease__V1__ResumeNsRequest *request);
void fake_serve_resumed(struct fake_peer *p);

#endif
