/*
 * libkvlease-llama: llama.cpp's KV caches and recurrent states in pages of kvlease.
 *
 * A process computes a prompt and saves the sequence. Any process of the tenant that runs the same
 * model in the same way finds the longest saved beginning of its own prompt, and loads it.
 *
 *   new -> attach -> { load -> llama_decode() of the rest -> save }... -> free
 *
 * A sequence is saved in chunks of chunk_tokens tokens; a page has the rows of K and V of one
 * chunk, in all layers. The state of a recurrent or hybrid model is saved whole, at a multiple of
 * chunk_tokens. Pages hold rows alone: the headers that llama.cpp reads are made by this library,
 * in the process that loads. So what other processes write to pages can change numbers, and nothing
 * else.
 *
 * The library needs no llama.cpp to be built. It finds the functions of the libllama that the
 * process has loaded (kvl_llama_options.library). It prints nothing, starts no threads and never
 * ends the process. It calls nothing of llama.cpp that would end the process: see kvl_llama_new().
 *
 * Returns as in kvlease.h: 0; a KVL_* condition; or a negative errno. kvl_llama_last_error() has a
 * sentence for each failure. After -ENOTCONN, -ESTALE, -ECONNRESET, -EPROTO or KVL_STALE detach the
 * handle, disconnect, and attach it to a new connection.
 *
 * Threads. A handle is used by the thread that uses the context, one call at a time.
 *
 * All functions: since 0.2.
 */
#ifndef KVLEASE_LLAMA_H
#define KVLEASE_LLAMA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct kvl_conn;      /* kvlease.h */
struct llama_context; /* llama.h */
struct kvl_llama;     /* a context of llama.cpp whose sequences are saved and loaded */

#define KVL_LLAMA_HASH_CHARS 65 /* 64 hexadecimal digits and NUL */

/* Returns why the calling thread's last call of this library failed. Never NULL, valid until its
 * next call. */
const char *kvl_llama_last_error(void);

/*
 * Names weights by their bytes: the SHA-256 of n_files (>= 1) GGUF files, in order, for
 * kvl_llama_options.weights. Reads all of each file. Returns 0; -errno of opening or reading a
 * file; -EINVAL; -EIO: libcrypto failed.
 */
int kvl_llama_hash_files(
        const char *const *files, uint32_t n_files, char ret_hash[KVL_LLAMA_HASH_CHARS]);

struct kvl_llama_options {
        size_t size; /* sizeof(struct kvl_llama_options) */
        /* The libllama that made the context, as a path that the process has loaded. NULL: its
         * functions are visible to the whole process (linked to the program, or RTLD_GLOBAL). */
        const char *library;
        /* Names the weights: 1..256 bytes, as from kvl_llama_hash_files(). Processes with the same
         * name must have the same weights. */
        const char *weights;
        /* Shown by kvleasectl, and a part of keys, as in kvl_layout: 1..64 bytes; NULL: llama.cpp's
         * description of the model. */
        const char *model;
        const void *salt; /* keeps equal prompts apart, as in kvl_layout: 0..64 bytes */
        size_t salt_bytes;
        const char *device;    /* as in kvl_ns_open(), but NULL is "host": states are host memory */
        uint32_t chunk_tokens; /* 16..1024; 0: 256 */
        /* A sequence of the context that nothing else uses: it is empty between calls. 0 <=
         * scratch_seq < n_seq_max of the context. */
        int32_t scratch_seq;
        int swa_full; /* not 0: the context was made with swa_full */
};

/*
 * Makes a handle for a context, without a daemon. Borrows the arguments during the call; the
 * context must outlive the handle. Decodes 8 tokens in the scratch sequence, with llama_decode(),
 * and removes them: call it before the first prompt.
 *
 * Their rows of K and V are a part of the identity, which keeps pages of different engines apart.
 * So the identity has what changes the numbers: adapters set by then, rope and YaRN parameters, and
 * the kernels of the device. It also has the build of libllama, the name of the weights, the
 * model's metadata, and the layout of the state: types of K and V, and flash attention (V is
 * transposed without it). After llama_set_adapters_lora() or llama_set_adapter_cvec() make a new
 * handle.
 *
 * Returns 0: *ret_llama is owned (kvl_llama_free()). -EOPNOTSUPP: this library can't save such a
 * context, and the sentence says why:
 *
 * - It has several streams (kv_unified = false with several sequences): copies of parts of a
 *   sequence to the scratch sequence would end the process.
 *
 * - It has one sequence only.
 *
 * - The model has a sliding window, and swa_full is 0: rows outside the window are gone.
 *
 * - The window is smaller than a chunk.
 *
 * - The model has positions of several dimensions (M-RoPE), an encoder, or a state that this
 * library can't read.
 *
 * -EBUSY: the scratch sequence isn't empty. -ENOENT: no such library, or it lacks a function that
 * the sentence names. -EIO: decoding or libcrypto failed. -EINVAL; -ENOMEM.
 */
int kvl_llama_new(struct llama_context *ctx, const struct kvl_llama_options *options,
        struct kvl_llama **ret_llama);

/* Detaches and frees the handle. NULL is ignored. */
void kvl_llama_free(struct kvl_llama *llama);

/* Opens the handle's namespaces on a connection, which must outlive them. Returns 0; -EALREADY: the
 * handle is attached; else as kvl_ns_open(). */
int kvl_llama_attach(struct kvl_llama *llama, struct kvl_conn *conn);

/* Closes the namespaces, before the connection is closed. Pages stay cached. Does nothing if the
 * handle isn't attached. */
void kvl_llama_detach(struct kvl_llama *llama);

struct kvl_llama_info {
        size_t size; /* set by the caller: sizeof(struct kvl_llama_info) */
        uint32_t chunk_tokens;
        int has_rows;         /* the model has K and V: chunks are saved */
        int has_state;        /* recurrent or hybrid: states are saved where a chunk ends */
        uint64_t chunk_bytes; /* of the rows of a chunk; 0 without */
        uint64_t state_bytes; /* of a state; 0 without */
        uint8_t identity[32];
};

/* Fills `info` as far as info->size goes. */
void kvl_llama_info(const struct kvl_llama *llama, struct kvl_llama_info *info);

/*
 * Finds how many of the n_tokens tokens kvl_llama_load() would load: a multiple of chunk_tokens.
 * Pins and moves nothing; the result may be outdated at once. Returns 0: *ret_n_tokens > 0;
 * KVL_MISS. Else as kvl_probe().
 */
int kvl_llama_find(
        struct kvl_llama *llama, const int32_t *tokens, uint32_t n_tokens, uint32_t *ret_n_tokens);

/*
 * Loads the longest saved beginning of n_tokens tokens into sequence `seq`, whose first n_have
 * tokens are the same and stay there. The sequence of a model with states is emptied.
 *
 * To have logits, decode at least one token afterwards: pass n_tokens - 1 of a prompt.
 *
 * Returns 0: the sequence has *ret_n_tokens tokens. KVL_MISS: no more than n_have are saved, and
 * nothing changed. Other failures: the sequence has *ret_n_tokens tokens, which may be fewer than
 * n_have, and 0 for a model with states; compute the rest. -ENOBUFS: the context has no free cells.
 * Else as kvl_lookup().
 */
int kvl_llama_load(struct kvl_llama *llama, int32_t seq, const int32_t *tokens, uint32_t n_tokens,
        uint32_t n_have, uint32_t *ret_n_tokens);

/*
 * Saves what isn't saved yet of sequence `seq`, whose first n_tokens tokens are `tokens`: all full
 * chunks. The state of a recurrent or hybrid model only if n_tokens is a multiple of chunk_tokens,
 * and the sequence ends there. Never waits for room. *ret_n_tokens (may be NULL): how many of the
 * tokens are saved, set in any case but -EINVAL.
 *
 * Returns 0: all that can be. KVL_QUOTA, KVL_FULL, KVL_RESERVATION, KVL_DRAINING, KVL_NO_PARENT: it
 * stopped there. -EBADMSG: llama.cpp's state isn't as it was at kvl_llama_new(), and nothing is
 * saved of it. -EINVAL: the sequence doesn't begin at position 0, or is shorter. Else as
 * kvl_lease_with() and kvl_publish().
 */
int kvl_llama_save(struct kvl_llama *llama, int32_t seq, const int32_t *tokens, uint32_t n_tokens,
        uint32_t *ret_n_tokens);

/*
 * Compares the chunks of sequence `seq`, which were computed in this process, with those that are
 * saved. *ret_n_compared (may be NULL): tokens compared. If numbers differ more than roundings
 * explain, it drops all pages of the identity (kvl_invalidate_mismatch()). Only rows of types F32,
 * F16, BF16 and Q8_0 are compared; others must be the same bits.
 *
 * Returns 0: they agree, or nothing is saved; -EBADMSG: they differ. Else as kvl_llama_save() and
 * kvl_lookup().
 */
int kvl_llama_verify(struct kvl_llama *llama, int32_t seq, const int32_t *tokens, uint32_t n_tokens,
        uint32_t *ret_n_compared);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
