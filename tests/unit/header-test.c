/* <kvlease.h> and <kvlease-llama.h> by themselves, as strict C99: compiled with -std=c99 -pedantic
 * -Werror. */
#include <kvlease-llama.h>
#include <kvlease.h>

int main(void)
{
        struct kvl_lease_options options = {sizeof(options), 1, -1};
        struct kvl_lease_result result = {sizeof(result), 0, KVL_REASON_NONE, 0};
        struct kvl_ns_options ns_options = {sizeof(ns_options), 0, 0, "tp", 2, 60};
        struct kvl_session_options session_options = {sizeof(session_options), 1, 60};
        struct kvl_session_info info = {sizeof(info)};
        struct kvl_llama_options llama_options = {sizeof(llama_options), 0, "w"};
        struct kvl_page_table *table;
        struct kvl_llama *llama;
        struct kvl_explanation why;

        if (kvl_ns_open_with(0, "x", 0, &ns_options, 0) == 0 ||
                kvl_session_open(0, "x", 1, &session_options, &info, 0) == 0 ||
                kvl_page_table_new(1, 0, &table) == 0 || kvl_explain(0, 0, 1, &why) == 0 ||
                kvl_llama_new(0, &llama_options, &llama) == 0)
                return 1;
        if (kvl_lease_with(0, 0, 1, &options, 0, &result) == 0 ||
                kvl_lease_with_start(0, 0, 1, &options, 0, 0) == 0)
                return 1;
        return kvl_version()[0] == '0' && KVL_KEY_BYTES == 32 ? 0 : 1;
}
