/*
 * Functions of libllama that this library calls, found in the library that the process has loaded.
 *
 * The prototypes are our own, for functions whose arguments are numbers and pointers. llama.h isn't
 * needed: Debian has none, its structures change each month, and one build serves every libllama.
 * tests/engines/llama/prototypes.c compares them with a llama.h.
 */
#ifndef KVL_LLAMA_SYMBOLS_H
#define KVL_LLAMA_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef LLAMA_API /* prototypes.c has them of llama.h */
struct llama_context;
struct llama_model;
struct llama_vocab;
struct llama_memory_i;

struct llama_batch {
        int32_t n_tokens;
        int32_t *token;
        float *embd;
        int32_t *pos;
        int32_t *n_seq_id;
        int32_t **seq_id;
        int8_t *logits;
};
#endif

/* X(type of the result, name without llama_, arguments) */
#define LLAMA_FUNCTIONS(X)                                                                         \
        X(const struct llama_model *, get_model, (const struct llama_context *))                   \
        X(struct llama_memory_i *, get_memory, (const struct llama_context *))                     \
        X(uint32_t, n_ctx_seq, (const struct llama_context *))                                     \
        X(uint32_t, n_seq_max, (const struct llama_context *))                                     \
        X(const struct llama_vocab *, model_get_vocab, (const struct llama_model *))               \
        X(int32_t, vocab_n_tokens, (const struct llama_vocab *))                                   \
        X(int32_t, model_n_ctx_train, (const struct llama_model *))                                \
        X(int32_t, model_n_swa, (const struct llama_model *))                                      \
        X(int, model_rope_type, (const struct llama_model *))                                      \
        X(bool, model_is_recurrent, (const struct llama_model *))                                  \
        X(bool, model_is_hybrid, (const struct llama_model *))                                     \
        X(bool, model_has_encoder, (const struct llama_model *))                                   \
        X(int32_t, model_desc, (const struct llama_model *, char *, size_t))                       \
        X(uint64_t, model_size, (const struct llama_model *))                                      \
        X(uint64_t, model_n_params, (const struct llama_model *))                                  \
        X(int32_t, model_meta_count, (const struct llama_model *))                                 \
        X(int32_t, model_meta_key_by_index, (const struct llama_model *, int32_t, char *, size_t)) \
        X(int32_t, model_meta_val_str_by_index,                                                    \
                (const struct llama_model *, int32_t, char *, size_t))                             \
        X(const char *, print_system_info, (void))                                                 \
        X(int32_t, decode, (struct llama_context *, struct llama_batch))                           \
        X(bool, memory_seq_rm, (struct llama_memory_i *, int32_t, int32_t, int32_t))               \
        X(void, memory_seq_cp, (struct llama_memory_i *, int32_t, int32_t, int32_t, int32_t))      \
        X(int32_t, memory_seq_pos_min, (struct llama_memory_i *, int32_t))                         \
        X(int32_t, memory_seq_pos_max, (struct llama_memory_i *, int32_t))                         \
        X(size_t, state_seq_get_size_ext, (struct llama_context *, int32_t, uint32_t))             \
        X(size_t, state_seq_get_data_ext,                                                          \
                (struct llama_context *, uint8_t *, size_t, int32_t, uint32_t))                    \
        X(size_t, state_seq_set_data_ext,                                                          \
                (struct llama_context *, const uint8_t *, size_t, int32_t, uint32_t))

struct llama_functions {
#define X(type, name, arguments) type(*name) arguments;
        LLAMA_FUNCTIONS(X)
#undef X
        const char *(*version)(void); /* NULL: an older libllama has none */
};

/* library: as in kvl_llama_options. *ret_handle: to be closed with dlclose(); NULL if library is.
 * Returns 0; -ENOENT, with a sentence. */
int llama_functions_find(const char *library, struct llama_functions *ret, void **ret_handle);

#endif
