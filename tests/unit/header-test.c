/* <kvlease.h> by itself, as strict C99: compiled with -std=c99 -pedantic -Werror. */
#include <kvlease.h>

int main(void)
{
        struct kvl_lease_options options = {sizeof(options), 1, -1};
        struct kvl_lease_result result = {sizeof(result), 0, KVL_REASON_NONE, 0};

        if (kvl_lease_with(0, 0, 1, &options, 0, &result) == 0 ||
                kvl_lease_with_start(0, 0, 1, &options, 0, 0) == 0)
                return 1;
        return kvl_version()[0] == '0' && KVL_KEY_BYTES == 32 ? 0 : 1;
}
