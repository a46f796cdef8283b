#!/usr/bin/env python3
"""Writes a file as a C array. Usage: embed.py NAME FILE OUTPUT"""
import sys

name, path, output = sys.argv[1:]
with open(path, "rb") as f:
    data = f.read() + b"\0"  # PTX is text, and ends with a zero
with open(output, "w", encoding="ascii") as f:
    f.write(f"static const unsigned char {name}[] __attribute__((aligned(8))) = {{\n")
    for i in range(0, len(data), 24):
        f.write(",".join(str(b) for b in data[i : i + 24]) + ",\n")
    f.write(f"}};\nstatic const size_t {name}_bytes = sizeof({name});\n")
