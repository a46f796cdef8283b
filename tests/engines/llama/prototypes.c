/*
 * Prototypes of client/llama/symbols.h against a llama.h: compiled, never run. -DBATCH: the layout
 * of struct llama_batch, instead.
 */
#ifdef BATCH
#define llama_batch kvl_batch
#include "client/llama/symbols.h"
#undef llama_batch
#include "llama.h"

#define SAME(field)                                                                                \
        _Static_assert(offsetof(struct kvl_batch, field) == offsetof(struct llama_batch, field) && \
                               sizeof(((struct kvl_batch *)0)->field) ==                           \
                                       sizeof(((struct llama_batch *)0)->field),                   \
                #field)
SAME(n_tokens);
SAME(token);
SAME(embd);
SAME(pos);
SAME(n_seq_id);
SAME(seq_id);
SAME(logits);
_Static_assert(sizeof(struct kvl_batch) == sizeof(struct llama_batch), "llama_batch");
#else
#include "llama.h"

#include "client/llama/symbols.h"

#define X(type, name, arguments)                                                              \
        _Static_assert(                                                                       \
                __builtin_types_compatible_p(__typeof__(((struct llama_functions *)0)->name), \
                        __typeof__(&llama_##name)),                                           \
                #name);
LLAMA_FUNCTIONS(X)
_Static_assert(__builtin_types_compatible_p(__typeof__(((struct llama_functions *)0)->version),
                       __typeof__(&llama_version)),
        "version");
#endif
