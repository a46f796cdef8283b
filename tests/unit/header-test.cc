/* <kvlease.h> and <kvlease-llama.h> by themselves, as C++: names must not be mangled. */
#include <kvlease-llama.h>
#include <kvlease.h>

int main()
{
        struct kvl_connect_options options = {};
        struct kvl_session_page page = {};

        options.size = sizeof(options);
        if (kvl_lease_with(nullptr, 0, 1, nullptr, nullptr, nullptr) == 0 ||
                kvl_llama_attach(nullptr, nullptr) == 0 ||
                kvl_session_pages(nullptr, 0, 1, &page, nullptr) == 0)
                return 1;
        return kvl_version()[0] == '0' && options.size > 0 ? 0 : 1;
}
