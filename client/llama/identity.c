/* The identity, which keeps pages of different engines apart. */
#include "client/llama/llama.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Positions where rotations by slightly different frequencies show. */
#define PROBE_POSITION 1000
#define PROBE_TOKENS   8
#define READ_BYTES     (1 << 20)

static _Thread_local char sentence[512];

int fail(int code, const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(sentence, sizeof(sentence), format, arguments);
        va_end(arguments);
        return code;
}

int fail_as(int code)
{
        return code == 0 || code == KVL_MISS ? code : fail(code, "%s", kvl_last_error());
}

const char *kvl_llama_last_error(void)
{
        return sentence;
}

/* ---- weights --------------------------------------------------------------------------------- */

static int hash_file(EVP_MD_CTX *hash, const char *path, uint8_t *buffer)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC), e = 0;
        uint64_t bytes = 0;
        ssize_t n;

        if (fd < 0)
                return fail(-errno, "can't open %s: %s", path, strerror(errno));
        while ((n = read(fd, buffer, READ_BYTES)) > 0) {
                bytes += (uint64_t)n;
                if (EVP_DigestUpdate(hash, buffer, (size_t)n) != 1)
                        e = fail(-EIO, "libcrypto failed");
        }
        if (n < 0)
                e = fail(-errno, "can't read %s: %s", path, strerror(errno));
        close(fd);
        /* Two files aren't the same as one with the bytes of both. */
        if (!e && EVP_DigestUpdate(hash, &bytes, sizeof(bytes)) != 1)
                e = fail(-EIO, "libcrypto failed");
        return e;
}

int kvl_llama_hash_files(const char *const *files, uint32_t n_files, char ret[KVL_LLAMA_HASH_CHARS])
{
        EVP_MD_CTX *hash = EVP_MD_CTX_new();
        uint8_t *buffer = malloc(READ_BYTES), digest[EVP_MAX_MD_SIZE];
        int e = 0;

        if (!files || n_files == 0 || !ret)
                e = fail(-EINVAL, "a file is needed");
        else if (!hash || !buffer)
                e = fail(-ENOMEM, "out of memory");
        else if (EVP_DigestInit_ex(hash, EVP_sha256(), NULL) != 1)
                e = fail(-EIO, "libcrypto failed");
        for (uint32_t i = 0; !e && i < n_files; ++i)
                e = files[i] ? hash_file(hash, files[i], buffer) : fail(-EINVAL, "a file is NULL");
        if (!e && EVP_DigestFinal_ex(hash, digest, NULL) != 1)
                e = fail(-EIO, "libcrypto failed");
        for (int i = 0; !e && i < 32; ++i)
                snprintf(ret + 2 * i, 3, "%02x", digest[i]);
        EVP_MD_CTX_free(hash);
        free(buffer);
        return e;
}

/* ---- identity -------------------------------------------------------------------------------- */

/* Each part of the identity with its length: no two lists of parts have the same bytes. */
static bool add(EVP_MD_CTX *hash, const void *bytes, uint64_t n)
{
        return EVP_DigestUpdate(hash, &n, sizeof(n)) == 1 && EVP_DigestUpdate(hash, bytes, n) == 1;
}

static bool add_text(EVP_MD_CTX *hash, const char *text)
{
        return add(hash, text ? text : "", text ? strlen(text) : 0);
}

/* Values may be longer than the buffer: then its beginning and the length count. The weights' name
 * tells such models apart. */
static bool add_metadata(struct kvl_llama *l, EVP_MD_CTX *hash)
{
        int32_t n = l->f.model_meta_count(l->model), bytes;
        char text[4096];
        bool ok = true;

        for (int32_t i = 0; ok && i < n; ++i) {
                l->f.model_meta_key_by_index(l->model, i, text, sizeof(text));
                ok = add_text(hash, text);
                bytes = l->f.model_meta_val_str_by_index(l->model, i, text, sizeof(text));
                ok = ok && add_text(hash, text) && add(hash, &bytes, sizeof(bytes));
        }
        return ok;
}

static int make_identity(
        struct kvl_llama *l, const char *weights, const uint8_t *blob, size_t bytes)
{
        uint64_t numbers[] = {l->chunk, l->f.model_size(l->model), l->f.model_n_params(l->model)};
        EVP_MD_CTX *hash = EVP_MD_CTX_new();
        bool ok = hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1;

        ok = ok && add_text(hash, "kvlease-llama 1") &&
             add_text(hash, l->f.version ? l->f.version() : NULL) &&
             add_text(hash, l->f.print_system_info()) && add_text(hash, weights) &&
             add(hash, numbers, sizeof(numbers)) && add_metadata(l, hash) &&
             add(hash, blob, bytes) && EVP_DigestFinal_ex(hash, l->identity, NULL) == 1;
        EVP_MD_CTX_free(hash);
        return ok ? 0 : fail(-EIO, "libcrypto failed");
}

/* ---- the probe ------------------------------------------------------------------------------- */

static int decode_probe(struct kvl_llama *l, uint32_t first)
{
        int32_t n_tokens = l->f.vocab_n_tokens(l->f.model_get_vocab(l->model));
        int32_t tokens[PROBE_TOKENS], positions[PROBE_TOKENS], n_seqs[PROBE_TOKENS];
        int32_t *seqs[PROBE_TOKENS];
        int8_t logits[PROBE_TOKENS] = {0};
        struct llama_batch batch = {PROBE_TOKENS, tokens, NULL, positions, n_seqs, seqs, logits};
        int r;

        if (n_tokens <= 0)
                return fail(-EOPNOTSUPP, "the model has no vocabulary");
        for (int i = 0; i < PROBE_TOKENS; ++i) {
                tokens[i] = (7919 * i + 1) % n_tokens;
                positions[i] = (int32_t)first + i;
                n_seqs[i] = 1;
                seqs[i] = &l->scratch;
        }
        logits[PROBE_TOKENS - 1] = 1;
        r = l->f.decode(l->ctx, batch);
        return r ? fail(-EIO,
                           "llama_decode() of %d tokens returned %d: has the context free cells?",
                           PROBE_TOKENS, r)
                 : 0;
}

int llama_probe(struct kvl_llama *l, const struct kvl_llama_options *options)
{
        bool is_recurrent = l->f.model_is_recurrent(l->model);
        bool is_hybrid = l->f.model_is_hybrid(l->model);
        int32_t trained = l->f.model_n_ctx_train(l->model);
        uint32_t room = l->f.n_ctx_seq(l->ctx), first = PROBE_POSITION;
        uint8_t *blob = NULL;
        size_t bytes;
        int e;

        room = trained > 0 && (uint32_t)trained < room ? (uint32_t)trained : room;
        if (is_recurrent || room < PROBE_POSITION + PROBE_TOKENS)
                first = 0;
        e = decode_probe(l, first);
        if (e)
                goto out;
        bytes = l->f.state_seq_get_size_ext(l->ctx, l->scratch, 0);
        blob = bytes ? calloc(1, bytes) : NULL;
        if (!blob)
                e = fail(-ENOMEM, "no memory for a state of %zu bytes", bytes);
        else if (l->f.state_seq_get_data_ext(l->ctx, blob, bytes, l->scratch, 0) != bytes)
                e = fail(-EIO, "llama_state_seq_get_data_ext() failed");
        e = e ? e
              : blob_learn(&l->shape, blob, bytes, first, PROBE_TOKENS, !is_recurrent,
                        is_recurrent || is_hybrid);
        if (!e) {
                /* The number of the scratch sequence, before the sections, is no part of it. */
                memset(blob + sizeof(uint32_t), 0, sizeof(int32_t));
                e = make_identity(l, options->weights, blob, bytes);
        }
out:
        free(blob);
        l->f.memory_seq_rm(l->memory, l->scratch, -1, -1);
        return e;
}
