#!/usr/bin/env python3
"""embed.py OUTPUT FILE...: the files as arrays of C, each called as its file: web_status_js."""
import pathlib
import sys

output, *files = map(pathlib.Path, sys.argv[1:])
lines = ['#include "client/exporter/web.h"', ""]
for path in files:
    name, data = "web_" + path.name.replace(".", "_"), path.read_bytes()
    lines.append(f"const char {name}[] = {{")
    lines += [f"        {', '.join(str(b) for b in data[i : i + 24])}," for i in range(0, len(data), 24)]
    lines += ["};", f"const size_t {name}_len = sizeof({name});", ""]
output.write_text("\n".join(lines))
