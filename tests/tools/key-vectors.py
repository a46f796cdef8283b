#!/usr/bin/env python3
"""Prints the vectors of tests/unit/test_keys.c, from the description in client/lib/keys/keys.c alone."""
import hashlib
import struct


def field(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + struct.pack("<I", len(data)) + data


def root(model, version, dtype, layers, heads, head_size, page_tokens, rank, size, group, salt, form=b""):
    numbers = (dtype, layers, heads, head_size, page_tokens, rank, size, group)
    text = field(0, b"kvlease root key 1") + field(1, model) + field(2, version)
    for tag, number in enumerate(numbers, 3):
        text += field(tag, struct.pack("<I", number))
    text += field(11, salt)
    return hashlib.sha256(text + (field(14, form) if form else b"")).digest()


def name(model, dtype, layers, heads, head_size, page_tokens, rank, size, group, salt, form, planes, plane_page_bytes):
    numbers = (dtype, layers, heads, head_size, page_tokens, rank, size, group)
    text = field(0, b"kvlease layout name 1") + field(1, model)
    for tag, number in enumerate(numbers, 3):
        text += field(tag, struct.pack("<I", number))
    text += field(11, salt) + (field(14, form) if form else b"")
    text += field(15, struct.pack("<I", planes)) + field(16, struct.pack("<Q", plane_page_bytes))
    return hashlib.sha256(text).hexdigest()[:12]


def chain(parent, tokens):
    packed = struct.pack(f"<{len(tokens)}I", *tokens)
    page = hashlib.sha256(packed[:-32] + b"kvlease page tokens 3").digest()
    return hashlib.sha256(parent + page + packed[-32:] + b"kvlease chain key 3").digest()


if __name__ == "__main__":
    top = root(b"llama-3-8b", b"r1", 3, 32, 8, 128, 16, 1, 2, 3, b"pepper\0x")
    first = chain(top, [1, 2, 0x01020304, 0xFFFFFFFF])
    print("ROOT", top.hex())
    print("CHAIN1", first.hex())
    print("CHAIN2", chain(first, [1]).hex())
    print("ROOT_FORMAT", root(b"llama-3-8b", b"r1", 3, 32, 8, 128, 16, 1, 2, 3, b"pepper\0x", b"vllm 1\0").hex())
    numbers = (3, 32, 8, 128, 16, 1, 2, 3)
    print("NAME", name(b"llama-3-8b", *numbers, b"pepper\0x", b"", 1, 2097152))
    print("NAME_FORMAT", name(b"llama-3-8b", *numbers, b"pepper\0x", b"vllm 1\0", 1, 2097152))
    print("NAME_OTHER", name(b".org/llama 3@8b", *numbers, b"pepper\0x", b"", 1, 2097152))
    print("NAME_LONG", name(b"m" * 128, *numbers, b"pepper\0x", b"", 1, 2097152))
    print("ROOT2", root(b"m", b"", 1, 1, 1, 1, 1, 0, 1, 0, b"").hex())
    print("FULL", chain(bytes(32), [7] + 1023 * [0]).hex())
    root2 = root(b"m", b"", 1, 1, 1, 1, 1, 0, 1, 0, b"")
    print("CHAIN_OF_ROOT2", chain(root2, [7]).hex())
