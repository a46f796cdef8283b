#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

#include "daemon/core/moves/space-impl.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"

static int add_bytes(EVP_MD_CTX *md, const void *bytes, size_t n)
{
        uint64_t len = n;

        return EVP_DigestUpdate(md, &len, sizeof(len)) && EVP_DigestUpdate(md, bytes, n) ? 0 : -EIO;
}

static int add_text(EVP_MD_CTX *md, const char *text)
{
        return add_bytes(md, text, strlen(text));
}

/* Adds everything that defines the meaning of pages' bytes: each field with its length. */
static int add_identity(EVP_MD_CTX *md, const struct ns *ns)
{
        const struct ns_layout *l = &ns->layout;
        const uint64_t numbers[] = {l->dtype, l->n_layers, l->n_kv_heads, l->head_size,
                l->page_tokens, l->n_planes, l->plane_page_bytes, l->tp_rank, l->tp_size,
                l->layer_group, ns->geometry.tiers[TIER_DISK].codec,
                ns->geometry.tiers[TIER_DISK].stored_bytes};
        int r = add_text(md, ns->tenant->name);

        if (r == 0)
                r = add_text(md, ns->device.pool->props->name);
        if (r == 0)
                r = add_text(md, ns->name);
        if (r == 0)
                r = add_text(md, l->model);
        if (r == 0)
                r = add_text(md, l->version);
        if (r == 0)
                r = add_bytes(md, l->salt, l->salt_len);
        if (r == 0)
                r = add_bytes(md, numbers, sizeof(numbers));
        /* Layouts without a format keep the identity that they had before formats existed. */
        if (r == 0 && l->format_len > 0)
                r = add_bytes(md, l->format, l->format_len);
        /* One codec for all layers keeps the identity from before codecs by layer. */
        if (r == 0 && ns->geometry.tiers[TIER_DISK].codec == CODEC_BY_LAYER)
                r = add_bytes(
                        md, &ns->codecs.of_pages.tiers[TIER_DISK], sizeof(struct codec_layers));
        return r;
}

int space_identify(const struct tenant *t, const struct ns *ns, uint8_t ret_id[DISK_ID_BYTES])
{
        EVP_MD_CTX *md = EVP_MD_CTX_new();
        int r = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) ? 0 : -ENOMEM;

        static_assert(DISK_ID_BYTES == 32, "what SHA-256 makes");
        if (r == 0)
                r = ns ? add_identity(md, ns) : add_text(md, t->name);
        if (r == 0 && !EVP_DigestFinal_ex(md, ret_id, NULL))
                r = -EIO;
        EVP_MD_CTX_free(md);
        return r;
}
