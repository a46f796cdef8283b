/* The function table of a file of kernels, by their names there. */
#ifndef KVL_BASE_CODEC_TABLE_H
#define KVL_BASE_CODEC_TABLE_H

#define CODEC_ROW(function)                                                   \
        {                                                                     \
                [CODEC_F16] = function##_f16, [CODEC_BF16] = function##_bf16, \
                [CODEC_F32] = function##_f32                                  \
        }

#define CODEC_TABLE(which)                                                                         \
        {                                                                                          \
                .name = which, .magnitude = CODEC_ROW(magnitude), .greatest = CODEC_ROW(greatest), \
                .encode = {CODEC_ROW(encode_int8), CODEC_ROW(encode_e4m3)},                        \
                .decode = {CODEC_ROW(decode_int8), CODEC_ROW(decode_e4m3)},                        \
        }

#endif
