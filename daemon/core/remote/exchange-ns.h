/*
 * Namespaces that take part in an exchange (exchange/exchange.h): what their pages are called where
 * other hosts find them. Loop thread only.
 */
#ifndef KVL_CORE_EXCHANGE_NS_H
#define KVL_CORE_EXCHANGE_NS_H

#include <stdint.h>

#include "daemon/core/ground/page.h"
#include "daemon/core/objects/exchange.h"
#include "daemon/exchange/envelope.h"

/* NULL: the namespace takes no part. */
struct exchange_ns *exchange_find_ns(const struct ns *ns);

const struct seal_key *exchange_ns_key(const struct exchange_ns *e);

/* exchange_work() is to be called soon. */
void exchange_wake(struct exchange *x);

/* What a page with this key has as its name. 0 or -ENOMEM. */
int exchange_name_page(
        const struct exchange_ns *e, const uint8_t key[KEY_BYTES], char name[EXCHANGE_NAME_MAX]);

/* What a session's record is called. -EINVAL: the id is empty or too long; -ENOMEM. */
struct session_name {
        uint8_t place[EXCHANGE_PLACE_BYTES]; /* the key in its envelope */
        char name[EXCHANGE_NAME_MAX];
};

int exchange_name_session(
        const struct exchange_ns *e, const uint8_t *id, uint32_t id_len, struct session_name *ret);

/* What a record's envelope says, but for how long it is. */
struct envelope exchange_session_envelope(
        const struct exchange_ns *e, const struct session_name *name);

/* Such a name, of another namespace of its set, becomes the one that the key has in this one. Costs
 * no HMAC. */
void exchange_rename_page(const struct exchange_ns *e, char name[EXCHANGE_NAME_MAX]);

/* What a page's envelope says, but for its tokens and tag. parent_key NULL: it begins a text. */
struct envelope exchange_envelope(
        const struct exchange_ns *e, const uint8_t key[KEY_BYTES], const uint8_t *parent_key);

/* A value was refused: as exchange_news_refused(), which has the words; n_pages is 0 of an epoch.
 */
void exchange_note_refused(
        struct exchange *x, const char *reason, const char *what, uint32_t n_pages);

/* What the store has, of namespaces of this epoch (NULL: all), isn't known any more. */
void exchange_forget_exported(struct exchange *x, const struct exchange_epoch *p);

#endif
