/*
 * The option table: one row per option of the configuration file. Parsing, error messages,
 * defaults, `kvleased --help-config` and conf(5) follow from it. The structs that hold the values
 * are plain memory (config.h): a row names a member by its offset.
 */
#ifndef KVL_SERVER_OPTIONS_H
#define KVL_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_section { SECTION_DAEMON, SECTION_DEVICE, SECTION_REMOTE, SECTION_TENANT, N_SECTIONS };

enum option_type {
        OPTION_BYTES,    /* uint64_t */
        OPTION_DURATION, /* uint64_t, nanoseconds */
        OPTION_UINT,     /* uint32_t */
        OPTION_BOOL,     /* bool */
        OPTION_ENUM,     /* unsigned: index into choices */
        OPTION_TEXT,     /* char[max + 1]: printable ASCII; OPTION_PATH: UTF-8 */
        OPTION_PATH,     /* char[max + 1]: absolute */
        OPTION_UIDS,     /* struct id_list */
        OPTION_GIDS,     /* struct id_list */
};

#define ID_LIST_MAX      64  /* not tuned */
#define ID_LIST_TEXT_MAX 511 /* not tuned */

struct id_list {
        uint32_t n;
        uint32_t ids[ID_LIST_MAX];
        char text[ID_LIST_TEXT_MAX + 1]; /* as given: names aren't replaced by ids */
};

bool id_list_has(const struct id_list *l, uint32_t id);

struct option {
        enum option_section section;
        const char *key;
        enum option_type type;
        size_t offset;     /* of the value in the section's struct */
        uint64_t min, max; /* of the value; TEXT and PATH: of its length in bytes */
        const char *word;  /* stands for word_value, which may be outside min..max; or NULL */
        uint64_t word_value;
        const char *const *choices; /* ENUM: NULL-terminated */
        const char *default_text;
        bool reloadable; /* SIGHUP applies it */
        const char *help;
};

/* All rows in the order of documentation. */
extern const struct option options[];
extern const size_t n_options;

const char *option_section_name(enum option_section s);

/* Finds a row; NULL: there is none. */
const struct option *option_find(enum option_section s, const char *key);

/* The key of that section that looks most like `key`, NULL where none is near. */
const char *option_nearest(enum option_section s, const char *key);

/* The row's number among those of its section, which stand together in the table and are
 * SECTION_OPTIONS_MAX at most (tests/unit/test_options.c). */
#define SECTION_OPTIONS_MAX 64
unsigned option_index(const struct option *o);

/* The row's bit in the `set` mask of config.h, by its number. */
uint64_t option_bit(const struct option *o);

/*
 * Parses `value` into the member of `base`. Returns 0, or -EINVAL (nothing changed) with `err`
 * (size err_len): "KEY: 'value' is ..., allowed are ...".
 */
int option_set(const struct option *o, void *base, const char *value, char *err, size_t err_len);

/*
 * Formats a list (OPTION_UIDS, OPTION_GIDS) of `base` with these users or groups added ('+'), or
 * removed ('-'). Returns 0, or -EINVAL as above.
 */
int option_amend(const struct option *o, const void *base, char sign, const char *value,
        char ret_text[ID_LIST_TEXT_MAX + 1], char *err, size_t err_len);

/* Appends `word` to a list. Returns false if it has no room. */
bool id_list_append(char text[ID_LIST_TEXT_MAX + 1], const char *word);

/* Writes the words of `l` whose ids `other` lacks. Returns ret_text. */
char *id_list_beyond(
        const struct id_list *l, const struct id_list *other, char ret_text[ID_LIST_TEXT_MAX + 1]);

/* Writes the value as in a configuration file, sizes and times in the largest exact unit. Returns
 * buf. */
#define OPTION_VALUE_MAX 704
char *option_format(const struct option *o, const void *base, char buf[OPTION_VALUE_MAX]);

/* Writes "1 to 65535", "yes or no", ... Returns buf. */
char *option_allowed(const struct option *o, char buf[OPTION_VALUE_MAX]);

/* Sets every option of the section to its default. */
void options_set_defaults(enum option_section s, void *base);

/* Copies the options in `mask` from one struct of the section to another. */
void options_copy(enum option_section s, uint64_t mask, void *dst, const void *src);

/* Calls fn with each option of the section whose value differs, and with both values for people:
 * bytes in their largest unit, cut to hundredths; times in the largest exact unit. */
typedef void (*option_diff_fn)(
        void *data, const struct option *o, const char *before, const char *after);
void options_diff(enum option_section s, const void *before, const void *after, option_diff_fn fn,
        void *data);

/* `kvleased --help-config[=json]`. */
void options_print(FILE *f);
void options_print_json(FILE *f);

#endif
