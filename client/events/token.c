#include "client/events/token.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define BEARER "Bearer "

/* Whether a header can have all bytes of it. */
static bool is_graphic(const struct secret *s)
{
        for (size_t i = 0; i < s->len; i++)
                if (!isgraph((unsigned char)s->bytes[i]))
                        return false;
        return true;
}

int token_read(const char *path, struct secret *ret, char why[SECRET_WHY_BYTES])
{
        int r = secret_read(path, TOKEN_BYTES_MIN, SECRET_BYTES_MAX, ret, why);

        if (r < 0 || is_graphic(ret))
                return r;
        secret_wipe(ret);
        snprintf(why, SECRET_WHY_BYTES,
                "has a blank or a byte that isn't ASCII, which no header can: openssl rand -base64 32 makes a token");
        return -EINVAL;
}

bool token_allows(const char *token, const char *header)
{
        size_t len = strlen(token);
        unsigned char different = 0;

        if (!header || strncasecmp(header, BEARER, strlen(BEARER)) != 0)
                return false;
        header += strlen(BEARER);
        if (strlen(header) != len)
                return false;
        for (size_t i = 0; i < len; i++)
                different |= (unsigned char)(token[i] ^ header[i]);
        return different == 0;
}
