/* kvleasectl warm. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "client/ctl/admin.h"
#include "client/ctl/verb.h"
#include "client/lib/kvlease.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"

#define DEFAULT_TIMEOUT "30s"                 /* not tuned */
#define POLL_NSEC       (100 * NSEC_PER_MSEC) /* not tuned: a person's patience */

static bool names_something(const struct ctl *ctl)
{
        return ctl->n_args > 2 || ctl->options[CTL_OPTION_SESSION] ||
               ctl->options[CTL_OPTION_TAG] || ctl->options[CTL_OPTION_ALL];
}

static int check_what(const struct ctl *ctl)
{
        const char *tag = ctl->options[CTL_OPTION_TAG];
        uint64_t number;

        if (check_keys(ctl) != CTL_OK || check_session(ctl) != CTL_OK)
                return CTL_USAGE;
        if (tag && (parse_u64(tag, &number) < 0 || number == 0))
                return fail_value(ctl, CTL_OPTION_TAG, "a number from 1 on");
        return CTL_OK;
}

int check_warm(const struct ctl *ctl)
{
        const char *timeout = ctl->options[CTL_OPTION_TIMEOUT];
        bool off = ctl->options[CTL_OPTION_OFF];
        unsigned n = (ctl->n_args > 2) + (ctl->options[CTL_OPTION_SESSION] != NULL) +
                     (ctl->options[CTL_OPTION_TAG] != NULL) +
                     (ctl->options[CTL_OPTION_ALL] != NULL);
        uint64_t nsec;

        if (check_ns_name(ctl->args[1]) != CTL_OK)
                return CTL_USAGE;
        if (n > 1)
                return fail(
                        CTL_USAGE, "keys, --session, --tag and --all exclude each other: give one");
        if (off && (n > 0 || timeout))
                return fail(CTL_USAGE,
                        "--off takes no pages and no --timeout: it stops the work that runs");
        if (timeout && parse_duration(timeout, &nsec) < 0)
                return fail_value(ctl, CTL_OPTION_TIMEOUT, "a time, such as 90s, 5min or 2h");
        if (check_what(ctl) != CTL_OK)
                return CTL_USAGE;
        return check_tenant(ctl);
}

/* Fills the request that begins a warm-up. keys: from the arguments. */
static void name_what(const struct ctl *ctl, Kvlease__V1__AdminWarmRequest *m, uint8_t *keys,
        uint8_t id[KVL_SESSION_ID_MAX], uint64_t *tag)
{
        const char *session = ctl->options[CTL_OPTION_SESSION];
        int r = 0;

        for (unsigned i = 2; i < ctl->n_args && r == 0; i++)
                r = parse_hex(ctl->args[i], keys + (i - 2) * KVL_KEY_BYTES, KVL_KEY_BYTES);
        if (ctl->options[CTL_OPTION_TAG])
                r = parse_u64(ctl->options[CTL_OPTION_TAG], tag);
        assert(r == 0); /* check_warm() */
        m->keys = (ProtobufCBinaryData){(ctl->n_args - 2) * KVL_KEY_BYTES, keys};
        if (session && parse_session(session, id, &m->session.len))
                m->session.data = id;
        m->tags = tag;
        m->n_tags = ctl->options[CTL_OPTION_TAG] != NULL;
        m->all = ctl->options[CTL_OPTION_ALL] != NULL;
}

static int ask_warm(
        const struct ctl *ctl, Kvlease__V1__AdminWarmRequest *m, Kvlease__V1__AdminWarmReply *ret)
{
        const ProtobufCMessage *reply;
        int r;

        m->tenant = ctl->args[0];
        m->ns = ctl->args[1];
        r = admin_call(ctl->admin, MSG_ADMIN_WARM, &m->base, &reply);
        if (r == CTL_OK)
                *ret = *(const Kvlease__V1__AdminWarmReply *)reply;
        return r;
}

static int begin_warm(const struct ctl *ctl, Kvlease__V1__AdminWarmReply *ret)
{
        Kvlease__V1__AdminWarmRequest m = KVLEASE__V1__ADMIN_WARM_REQUEST__INIT;
        uint8_t keys[WARM_MAX_KEYS * KVL_KEY_BYTES], id[KVL_SESSION_ID_MAX];
        uint64_t tag = 0;

        if (ctl->options[CTL_OPTION_OFF])
                m.action = KVLEASE__V1__ADMIN_WARM_REQUEST__ACTION__STOP;
        else if (!names_something(ctl))
                m.action = KVLEASE__V1__ADMIN_WARM_REQUEST__ACTION__STATUS;
        else
                name_what(ctl, &m, keys, id, &tag);
        return ask_warm(ctl, &m, ret);
}

/* Waits until it has ended, or the time is up. */
static int wait_for_warm(
        const struct ctl *ctl, uint64_t timeout_nsec, Kvlease__V1__AdminWarmReply *ret)
{
        uint64_t end_nsec = clock_now_nsec() + timeout_nsec;
        bool shows = isatty(STDERR_FILENO);
        int r = CTL_OK;

        while (r == CTL_OK && ret->running && clock_now_nsec() < end_nsec) {
                Kvlease__V1__AdminWarmRequest m = KVLEASE__V1__ADMIN_WARM_REQUEST__INIT;

                if (shows)
                        fprintf(stderr, "\rpages left: %llu, came: %llu \033[K",
                                (unsigned long long)ret->left, (unsigned long long)ret->came);
                clock_nanosleep(
                        CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = (long)POLL_NSEC}, NULL);
                m.action = KVLEASE__V1__ADMIN_WARM_REQUEST__ACTION__STATUS;
                r = ask_warm(ctl, &m, ret);
        }
        if (shows)
                fputs("\r\033[K", stderr);
        return r;
}

static void report_warm(const struct ctl *ctl, const Kvlease__V1__AdminWarmReply *m)
{
        if (ctl->format.json) {
                show_json(json_pack("{s:s, s:s, s:b, s:b, s:I, s:I, s:I, s:I}", "tenant",
                        ctl->args[0], "namespace", ctl->args[1], "running", m->running, "full",
                        m->full, "pages_there", (json_int_t)m->there, "pages_came",
                        (json_int_t)m->came, "pages_left", (json_int_t)m->left, "keys_missing",
                        (json_int_t)m->missing));
                return;
        }
        printf("pages moved: %llu, there before: %llu, left in lower tiers: %llu%s\n",
                (unsigned long long)m->came, (unsigned long long)m->there,
                (unsigned long long)m->left,
                m->full ? " (the device is full of pages that are as useful)" : "");
        if (m->missing > 0)
                printf("keys that aren't cached: %llu\n", (unsigned long long)m->missing);
}

int verb_warm(const struct ctl *ctl)
{
        const char *timeout = ctl->options[CTL_OPTION_TIMEOUT];
        Kvlease__V1__AdminWarmReply m;
        uint64_t timeout_nsec = 0;
        int r = begin_warm(ctl, &m);

        if (r != CTL_OK)
                return r;
        if (!timeout)
                timeout = DEFAULT_TIMEOUT;
        if (names_something(ctl) && parse_duration(timeout, &timeout_nsec) == 0)
                r = wait_for_warm(ctl, timeout_nsec, &m);
        if (r != CTL_OK)
                return r;
        report_warm(ctl, &m);
        if (!m.running || !names_something(ctl))
                return CTL_OK;
        fflush(stdout);
        return fail(CTL_TIMEOUT,
                "pages left after %s: %llu; kvleased continues: kvleasectl warm %s %s shows it, kvleasectl warm %s %s --off stops it",
                timeout, (unsigned long long)m.left, ctl->args[0], ctl->args[1], ctl->args[0],
                ctl->args[1]);
}
