"""Names of the fault points (base/fault-point.h) in C sources, as a header: X(name) in FAULT_POINTS.

usage: fault-points.py OUTPUT SOURCE...
"""
import re
import sys

output, sources = sys.argv[1], sys.argv[2:]
places = {}
for path in sources:
    with open(path, encoding="utf-8") as f:
        for name in re.findall(r'FAULT_POINT\("([^"]*)"\)', f.read()):
            places.setdefault(name, set()).add(path)
for name, paths in places.items():
    if len(paths) > 1:
        sys.exit(f"fault point {name} is in {' and '.join(sorted(paths))}: a name stands for one place")
if not places:
    sys.exit(f"no fault point is in {' '.join(sources) or 'no source'}")
with open(output, "w", encoding="utf-8") as f:
    f.write("#define FAULT_POINTS(X) \\\n")
    f.write(" \\\n".join(f'        X("{name}")' for name in sorted(places)))
    f.write("\n")
