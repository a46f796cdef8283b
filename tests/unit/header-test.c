/* <kvlease.h> by itself, as strict C99: compiled with -std=c99 -pedantic -Werror. */
#include <kvlease.h>

int main(void)
{
        return kvl_version()[0] == '0' && KVL_KEY_BYTES == 32 ? 0 : 1;
}
