#include "client/http/headers.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

struct headers {
        const char *host; /* borrowed; NULL: none */
        unsigned n_hosts, n_lengths;
        bool has_spaces; /* in a name, which proxies may read without them */
};

static enum MHD_Result note_header(
        void *data, enum MHD_ValueKind kind, const char *name, const char *value)
{
        struct headers *h = data;

        if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
                h->host = value;
                h->n_hosts++;
        }
        h->has_spaces |= name[strcspn(name, " \t")] != '\0';
        h->n_lengths += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0 ||
                        strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
        return MHD_YES;
}

/* A body's end may be given once: a proxy before us might use the other one, and send another
 * client's request as a body. */
unsigned headers_check(struct MHD_Connection *c, const char **ret_host, const char **ret_why)
{
        struct headers h = {0};

        MHD_get_connection_values(c, MHD_HEADER_KIND, note_header, &h);
        *ret_host = h.host;
        if (h.n_lengths > 1)
                *ret_why = "more than one of Content-Length and Transfer-Encoding: give one\n";
        else if (h.has_spaces)
                *ret_why = "a header with a space in its name, or before the colon: leave it out\n";
        else if (h.n_hosts > 1)
                *ret_why = "more than one Host: give one\n";
        else
                return 0;
        return MHD_HTTP_BAD_REQUEST;
}
