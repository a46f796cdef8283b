"""Finds pages of KV cache, or makes them: the second run finds what the first one wrote."""
import kvlease

layout = kvlease.Layout(model="hello-python", dtype=kvlease.DType.F16, n_layers=1, n_kv_heads=1,
                        head_size=64, page_tokens=16, plane_page_bytes=4096)
keys = layout.keys(range(48))  # 48 tokens: 3 pages, each key names all before it, too
with kvlease.connect() as connection, connection.namespace("hello-python", layout) as namespace:
    with namespace.lookup(keys) as found:
        for i in range(len(found)):  # the very memory: numpy and torch.from_dlpack() take views
            with found.page(i) as view, memoryview(view) as bytes_of_page:
                print("found page", found[i], bytes(bytes_of_page[:4]))
        parent = keys[32 * len(found) - 32 : 32 * len(found)] or None
        if missing := keys[32 * len(found) :]:
            with namespace.lease(len(missing) // 32) as pages:
                for i in range(len(pages)):
                    pages.write(i, b"KV %d" % i)  # kernels write where pages.view() is
                namespace.publish(pages, missing, parent=parent).close()
