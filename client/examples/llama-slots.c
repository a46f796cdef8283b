/*
 * Slots of llama-server in pages of kvlease: a library for LD_PRELOAD.
 *
 *   cc -shared -fPIC -o llama-slots.so llama-slots.c -I LLAMA.CPP/include -I LLAMA.CPP/ggml/include
 * \
 *       $(pkg-config --cflags --libs kvlease kvlease-llama)
 *   LD_PRELOAD=$PWD/llama-slots.so llama-server --model MODEL --slot-save-path FOLDER/
 *
 * POST /slots/0?action=save writes the slot's tokens to a file in FOLDER, and the KV cache of all
 * full chunks of 256 tokens to pages. action=restore reads the tokens, and loads the chunks that
 * any server of the tenant has saved. If pages can't be used, the file has the KV cache, too, as
 * without this library: no kvleased, a model in several files, LoRA, pictures, sliding windows
 * without --swa-full, recurrent states, several slots without --kv-unified.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <kvlease-llama.h>
#include <kvlease.h>
#include <llama.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The function of libllama that this library stands before. */
#define NEXT(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

/* ---- the model and its context --------------------------------------------------------------- */

static char *models[4]; /* files that the process has loaded: a model and its draft model */
static uint32_t n_models;
static bool is_plain = true; /* one file each, and no LoRA: their hash names what computes */
static bool has_swa_full = true;

struct llama_model *llama_model_load_from_file(const char *path, struct llama_model_params params)
{
        bool is_new = n_models == 0 || strcmp(models[n_models - 1], path) != 0;

        if (is_new && n_models < 4)
                models[n_models++] = strdup(path);
        else if (is_new)
                is_plain = false;
        is_plain &= strstr(path, "-00001-of-") == NULL;
        return NEXT(llama_model_load_from_file)(path, params);
}

struct llama_adapter_lora *llama_adapter_lora_init(struct llama_model *model, const char *path)
{
        is_plain = false;
        return NEXT(llama_adapter_lora_init)(model, path);
}

/* The context gets a sequence behind those of the slots, in the same cells. */
struct llama_context *llama_init_from_model(
        struct llama_model *model, struct llama_context_params params)
{
        if (params.n_seq_max == 1)
                params.kv_unified = true;
        if (params.kv_unified) {
                ++params.n_seq_max;
                /* At least one for each sequence; 0: the default, which is larger. */
                params.n_outputs_max += params.n_outputs_max != 0;
        }
        has_swa_full &= params.swa_full;
        return NEXT(llama_init_from_model)(model, params);
}

/* ---- pages ----------------------------------------------------------------------------------- */

struct pages {
        struct kvl_conn *conn;
        struct kvl_llama *llama;
};

static void end(struct pages *p)
{
        kvl_llama_free(p->llama);
        kvl_disconnect(p->conn);
}

static bool tell(const char *why)
{
        fprintf(stderr, "llama-slots: the slot is in its file: %s\n", why);
        return false;
}

/* false: pages can't be used, and stderr says why. Call end() in any case. */
static bool begin(struct llama_context *ctx, struct pages *p)
{
        static char weights[KVL_LLAMA_HASH_CHARS];
        struct kvl_llama_options options = {.size = sizeof(options),
                .weights = weights,
                .scratch_seq = (int32_t)llama_n_seq_max(ctx) - 1,
                .swa_full = has_swa_full};
        struct kvl_connect_options to = {
                .size = sizeof(to), .client_name = "llama-server", .timeout_msec = 2000};
        struct kvl_llama_info info = {.size = sizeof(info)};
        int e;

        *p = (struct pages){0};
        if (!is_plain)
                return tell("the model has a LoRA adapter or several files");
        e = *weights ? 0 : kvl_llama_hash_files((const char *const *)models, n_models, weights);
        if (!e && kvl_connect(&to, &p->conn))
                return tell(kvl_last_error());
        e = e ? e : kvl_llama_new(ctx, &options, &p->llama);
        e = e ? e : kvl_llama_attach(p->llama, p->conn);
        if (e)
                return tell(kvl_llama_last_error());
        kvl_llama_info(p->llama, &info);
        return !info.has_state || tell("a recurrent state");
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* A file of llama.cpp: three numbers, and n tokens. llama.cpp's own goes on with the KV cache. */
struct head {
        uint32_t magic, version, n;
};

/*
 * The text of a slot, as llama-server saves it: -1, a version, the number of tokens, the tokens,
 * the number of pictures. NULL: it isn't such a text, or it has pictures.
 */
static const llama_token *text_of(const llama_token *packed, size_t n_packed, uint32_t *ret_n)
{
        if (n_packed < 4 || packed[0] != LLAMA_TOKEN_NULL || packed[1] != 1 || packed[2] <= 0 ||
                (size_t)packed[2] != n_packed - 4 || packed[n_packed - 1] != 0)
                return NULL;
        *ret_n = (uint32_t)packed[2];
        return packed + 3;
}

static size_t write_tokens(const char *path, const llama_token *tokens, uint32_t n)
{
        struct head head = {LLAMA_STATE_SEQ_MAGIC, LLAMA_STATE_SEQ_VERSION, n};
        FILE *file = fopen(path, "wb");
        bool ok = file && fwrite(&head, sizeof(head), 1, file) == 1 &&
                  fwrite(tokens, sizeof(*tokens), n, file) == n;

        if (file)
                ok = fclose(file) == 0 && ok;
        return ok ? sizeof(head) + n * sizeof(*tokens) : 0;
}

/* Returns the tokens, to be freed. NULL: the file has more than tokens, or it isn't such a file. */
static llama_token *read_tokens(const char *path, uint32_t *ret_n)
{
        FILE *file = fopen(path, "rb");
        llama_token *tokens = NULL;
        struct head head;
        bool ok;

        if (!file)
                return NULL;
        ok = fread(&head, sizeof(head), 1, file) == 1 && head.magic == LLAMA_STATE_SEQ_MAGIC &&
             head.version == LLAMA_STATE_SEQ_VERSION && head.n < INT32_MAX / 4;
        tokens = ok ? malloc((head.n + 1) * sizeof(*tokens)) : NULL;
        if (tokens && fread(tokens, sizeof(*tokens), head.n + 1, file) != head.n) {
                free(tokens);
                tokens = NULL;
        }
        *ret_n = head.n;
        fclose(file);
        return tokens;
}

size_t llama_state_seq_save_file(struct llama_context *ctx, const char *path, llama_seq_id seq,
        const llama_token *packed, size_t n_packed)
{
        uint32_t n = 0, n_saved = 0;
        const llama_token *tokens = text_of(packed, n_packed, &n);
        struct pages p = {0};

        if (!tokens)
                tell("it has pictures, or llama-server is another release");
        if (tokens && begin(ctx, &p) && kvl_llama_save(p.llama, seq, tokens, n, &n_saved))
                fprintf(stderr, "llama-slots: %s\n", kvl_llama_last_error());
        end(&p);
        if (n_saved == 0)
                return NEXT(llama_state_seq_save_file)(ctx, path, seq, packed, n_packed);
        return write_tokens(path, tokens, n);
}

/* tokens NULL: llama-server asks for their number. */
size_t llama_state_seq_load_file(struct llama_context *ctx, const char *path, llama_seq_id seq,
        llama_token *tokens, size_t capacity, size_t *ret_n)
{
        uint32_t n = 0, n_loaded = 0;
        llama_token *read = tokens ? read_tokens(path, &n) : NULL;
        struct pages p = {0};

        if (!read)
                return NEXT(llama_state_seq_load_file)(ctx, path, seq, tokens, capacity, ret_n);
        llama_memory_seq_rm(llama_get_memory(ctx), seq, -1, -1);
        if (n <= capacity && begin(ctx, &p) &&
                kvl_llama_load(p.llama, seq, read, n, 0, &n_loaded) < 0)
                fprintf(stderr, "llama-slots: %s\n", kvl_llama_last_error());
        end(&p);
        /* llama-server takes a plain list of tokens, too. */
        memcpy(tokens, read, n_loaded * sizeof(*tokens));
        *ret_n = n_loaded;
        free(read);
        return n_loaded * sizeof(*tokens);
}
