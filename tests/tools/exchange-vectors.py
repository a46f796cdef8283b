#!/usr/bin/env python3
"""Prints the vectors of tests/unit/test_exchange_keys.c, from the description in daemon/exchange/format/keys.h alone."""
import hashlib
import hmac
import struct

SECRET = bytes(range(32))
EPOCH = 0x0123456789ABCDEF
KEY = bytes([0x11]) * 32
RANK_ALL = 0xFFFFFFFF


def fields(*parts):
    """Concatenates the parts, each with its length before it; numbers have 64 bits."""
    raw = [struct.pack("<Q", p) if isinstance(p, int) else p for p in parts]
    return b"".join(struct.pack("<Q", len(r)) + r for r in raw)


def place(secret, kind, *parts):
    return hmac.new(secret, fields(b"kvl:1 " + kind, *parts), hashlib.sha256).digest()


def identity(tenant, scope, model, version, numbers, codecs, salt, form):
    packed = struct.pack(f"<{len(numbers)}Q", *numbers)
    parts = fields(b"kvl:1 identity", tenant, scope, model, version, packed, codecs, salt, form)
    return hashlib.sha256(parts).digest()


def member(secret, model_id, rank):
    return struct.unpack("<I", place(secret, b"member", model_id, rank)[:4])[0] % RANK_ALL


def seal(secret, tenant, epoch):
    """HKDF-SHA256 (RFC 5869), of one block."""
    start = hmac.new(b"kvl:1 seal", secret, hashlib.sha256).digest()
    return hmac.new(start, fields(b"kvl:1 seal", tenant, epoch) + b"\1", hashlib.sha256).digest()


if __name__ == "__main__":
    numbers = (2, 32, 8, 128, 16, 64, 32768, 2, 0)
    model = identity(b"acme", b"llama-set", b"llama-3-8b", b"2024-07", numbers, b"int8", b"salt", b"fmt\0x")
    key = seal(SECRET, b"acme", EPOCH)
    print("ID", model.hex())
    print("PAGE", place(SECRET, b"page", model, EPOCH, KEY).hex())
    print("OPEN", place(b"", b"page", model, EPOCH, KEY).hex())
    print("MEMBER", member(SECRET, model, 1))
    print("EPOCH", place(SECRET, b"epoch", model).hex())
    print("TAG", place(SECRET, b"tag", model, 7).hex())
    print("SESSION", place(SECRET, b"session", model, b"chat-1").hex())
    print("SEAL", key.hex())
    print("SECRET", place(key, b"seal page", model, 1, KEY).hex())
