/*
 * Namespaces that take part in an exchange (exchange.h): the names of their pages in the store.
 * Loop thread only.
 */
#ifndef KVL_EXCHANGE_EXCHANGE_NS_H
#define KVL_EXCHANGE_EXCHANGE_NS_H

#include <stdint.h>

#include "daemon/core/state/page.h"
#include "daemon/exchange/exchange.h"
#include "daemon/exchange/format/envelope.h"

/* Returns NULL if the namespace takes no part. */
struct exchange_ns *exchange_find_ns(const struct ns *ns);

const struct seal_key *exchange_ns_key(const struct exchange_ns *e);

/* Requests a call of exchange_work(). */
void exchange_wake(struct exchange *x);

/* Returns the name of the page with this key. 0 or -ENOMEM. */
int exchange_name_page(
        const struct exchange_ns *e, const uint8_t key[KEY_BYTES], char name[EXCHANGE_NAME_MAX]);

/* Returns the name of a session's record. 0; -EINVAL: the id is empty or too long; -ENOMEM. */
struct session_name {
        uint8_t place[EXCHANGE_PLACE_BYTES]; /* the key in its envelope */
        char name[EXCHANGE_NAME_MAX];
};

int exchange_name_session(
        const struct exchange_ns *e, const uint8_t *id, uint32_t id_len, struct session_name *ret);

/* Returns the envelope of a session's record, without its length. */
struct envelope exchange_session_envelope(
        const struct exchange_ns *e, const struct session_name *name);

/* Changes the name of a key's page in another namespace of the set into the name in this one. Costs
 * no HMAC. */
void exchange_rename_page(const struct exchange_ns *e, char name[EXCHANGE_NAME_MAX]);

/* Returns a page's envelope, without tokens and tag. parent_key NULL: it begins a text. */
struct envelope exchange_envelope(
        const struct exchange_ns *e, const uint8_t key[KEY_BYTES], const uint8_t *parent_key);

/* Counts a refused value, as exchange_news_refused(), which explains the words; n_pages is 0 for an
 * epoch. */
void exchange_note_refused(
        struct exchange *x, const char *reason, const char *what, uint32_t n_pages);

/* Forgets which pages the store has, for namespaces of this epoch (NULL: all). */
void exchange_forget_exported(struct exchange *x, const struct exchange_epoch *p);

#endif
