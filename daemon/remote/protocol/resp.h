/*
 * RESP2, the protocol of Redis and Valkey: a parser of replies and a writer of requests.
 * Specification: https://redis.io/docs/reference/protocol-spec, RESP version 2.
 *
 * With slots.h this is the lowest layer of daemon/remote. It has no I/O and no clock, and is called
 * only by the layers above, which have.
 *
 * The parser splits a reply into tokens, as far as it has arrived. It allocates and copies nothing,
 * and reads bytes again only of an incomplete line. It doesn't see the bytes of a bulk string: it
 * tells their number, and the caller takes them, so that they can be received straight into their
 * place.
 *
 *   line -> (bulk string: payload -> its CR LF) -> line ... -> end of the reply -> line ...
 *
 * Replies are bounded: the length of a line, a bulk string and an array, the nesting of arrays, and
 * the number of tokens. Everything else is refused; the connection must then be closed.
 *
 * Threads: any, each with objects of its own.
 */
#ifndef KVL_REMOTE_RESP_H
#define KVL_REMOTE_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a line, without its CR LF. Redis 7.0 cuts the errors it writes itself well below it. */
#define RESP_LINE_MAX 1024

/* Nesting of arrays. CLUSTER SLOTS has four levels, of which we don't use one. */
#define RESP_DEPTH_MAX 8

/* Bounds of the elements of an array, and of the tokens of a reply. CLUSTER SLOTS has at most
 * 16,384 ranges of slots, each with a master and replicas of up to ten tokens each. In the worst
 * case 65,536 and 2^20 leave room for five replicas. Not tuned. */
#define RESP_ARRAY_MAX  65536
#define RESP_TOKENS_MAX (1u << 20)

/* The protocol's own limit of a bulk string, and the servers' (proto-max-bulk-len). */
#define RESP_BULK_MAX (512u << 20)

enum resp_kind {
        RESP_MORE,    /* the next token is incomplete */
        RESP_END,     /* the reply is over */
        RESP_STATUS,  /* text */
        RESP_ERROR,   /* text */
        RESP_INTEGER, /* number */
        RESP_BULK,    /* number: bytes that follow, for the caller to take */
        RESP_NULL,    /* nil, as a bulk string or an array */
        RESP_ARRAY,   /* number: elements that follow */
};

struct resp_token {
        enum resp_kind kind;
        unsigned depth; /* arrays it lies in */
        uint32_t index; /* its place in the innermost array; 0: in none */
        int64_t number; /* see above */
        const char
                *text; /* borrowed from the input; not terminated; may hold any byte but CR, LF */
        size_t text_len;
};

struct resp_level {
        uint32_t n, at; /* elements of the array, and the next one */
};

/* Internal, except payload_left, which may be read. */
struct resp_parser {
        uint64_t bulk_max;     /* bytes of the longest accepted bulk string */
        uint64_t payload_left; /* bytes of a bulk string not taken yet */
        struct resp_level levels[RESP_DEPTH_MAX];
        unsigned depth;
        uint32_t n_tokens;
        bool wants_crlf; /* behind a bulk string */
        bool is_over;    /* RESP_END is next */
};

/* Initialises the parser. bulk_max: up to RESP_BULK_MAX. */
void resp_init(struct resp_parser *p, uint64_t bulk_max);

/*
 * Parses the next token of `len` bytes at `data`. *ret_used: bytes that are used up; the caller
 * mustn't pass them again. Not to be called while payload_left isn't 0.
 *
 *   0          *ret is set. RESP_MORE: call again with the rest and more behind it;
 *   -EPROTO    this isn't RESP2, or a line, an array or a reply exceeds its bound;
 *   -EMSGSIZE  a bulk string is longer than bulk_max.
 *
 * After an error the parser can't continue.
 */
int resp_next(struct resp_parser *p, const char *data, size_t len, size_t *ret_used,
        struct resp_token *ret);

/* The caller has taken n bytes (<= payload_left) of a bulk string. */
void resp_took(struct resp_parser *p, uint64_t n);

/* ---- requests -------------------------------------------------------------------------------- */

/*
 * Writes requests to the caller's memory. Bytes beyond it are only counted, so that a first pass
 * without memory (data NULL, size 0) tells the size.
 */
struct resp_writer {
        char *data; /* borrowed; NULL: only counts */
        size_t size, len;
};

/* A request is an array of n bulk strings: its name and its arguments. */
void resp_put_array(struct resp_writer *w, size_t n);

void resp_put_bulk(struct resp_writer *w, const void *data, size_t len);
void resp_put_word(struct resp_writer *w, const char *word);  /* a bulk string, of a C string */
void resp_put_number(struct resp_writer *w, uint64_t number); /* likewise, in decimal digits */

/* The beginning and the end of a bulk string whose bytes lie elsewhere. */
void resp_put_bulk_begin(struct resp_writer *w, uint64_t len);
void resp_put_bulk_end(struct resp_writer *w);

/* Makes a request of words, which end with NULL: *ret_len bytes, owned. NULL: no memory. */
char *resp_command_new(const char *const *words, uint32_t *ret_len);

#endif
