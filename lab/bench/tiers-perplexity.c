/* Cost of codecs in a model's predictions. The trained decoder reads an unseen text, with all of
 * its K and V through the codec, and without (perplexity.h). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "lab/bench/perplexity.h"
#include "lab/bench/tiers.h"

#define PAGE_TOKENS 64
#define TEXT_BYTES  4096 /* seconds; all of it: unit/decoder_trained with KVL_FULL=1 */
#define QUICK_BYTES 256
#define MAX_CHANGE  0.005 /* int8; specification */

static int read_text(unsigned char *text, uint32_t n, uint32_t *ret_n)
{
        FILE *file = fopen(HELD_OUT_TEXT, "re");

        if (!file)
                return bench_fail(HELD_OUT_TEXT, -errno);
        *ret_n = (uint32_t)fread(text, 1, n, file);
        fclose(file);
        return *ret_n > 0 ? 0 : bench_fail(HELD_OUT_TEXT, -ENODATA);
}

static int measure(const unsigned char *text, uint32_t n, enum codec codec, double *ret_perplexity)
{
        const struct perplexity_options options = {
                .text = text, .n_bytes = n, .page_tokens = PAGE_TOKENS, .codec = codec};
        double nats;
        int r = perplexity_measure(&options, &nats);

        if (r < 0)
                return bench_fail("reading a text through a codec", r);
        *ret_perplexity = exp(nats);
        return 0;
}

int tiers_perplexity(struct bench_run *run)
{
        static unsigned char text[TEXT_BYTES];
        uint32_t n = 0;
        double exact = 0;
        int r = read_text(text, run->quick ? QUICK_BYTES : TEXT_BYTES, &n);

        if (r == 0)
                r = measure(text, n, CODEC_NONE, &exact);
        for (unsigned codec = CODEC_INT8; r == 0 && codec < N_CODECS; codec++) {
                struct bench_result *result =
                        bench_add(run, "1", "perplexity-%s", codec_name(codec));

                r = measure(text, n, codec, &result->median);
                result->baseline = "exact";
                result->baseline_median = exact;
                result->max_ratio = codec == CODEC_INT8 ? 1 + MAX_CHANGE : NAN;
        }
        return r;
}
