"""Static probes, for tests: of an ELF file (its notes .note.stapsdt), and those documented in docs/reference/PROBES.md."""
import collections
import re
import struct

# address: as in the file, before it is loaded; offset: of the nop in the file; args: (bytes, negative if signed;
# operand in the assembler's words).
Probe = collections.namedtuple("Probe", "provider name address offset semaphore args")


def _sections(data):
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a little-endian ELF file of 64 bits")
    table, = struct.unpack_from("<Q", data, 0x28)
    size, n, names = struct.unpack_from("<HHH", data, 0x3A)
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(n)]
    for name, _, _, address, offset, length, *_ in rows:
        start = rows[names][4] + name
        yield data[start:data.index(b"\0", start)].decode(), address, offset, length


def _loads(data):
    """(address, offset, bytes in the file) of each loaded segment."""
    table, = struct.unpack_from("<Q", data, 0x20)
    size, n = struct.unpack_from("<HH", data, 0x36)
    for i in range(n):
        kind, _, offset, address, _, length, _, _ = struct.unpack_from("<IIQQQQQQ", data, table + i * size)
        if kind == 1:
            yield address, offset, length


def _offset(loads, address):
    return next(offset + address - at for at, offset, length in loads if at <= address < at + length)


def probes(path):
    """All probes of the file, in its order; none if it has no notes."""
    with open(path, "rb") as f:
        data = f.read()
    sections = {name: rest for name, *rest in _sections(data)}
    loads, found = list(_loads(data)), []
    if ".note.stapsdt" not in sections:
        return found
    _, at, length = sections[".note.stapsdt"]
    end = at + length
    while at < end:
        name_bytes, bytes_, _ = struct.unpack_from("<III", data, at)
        at += 12 + (name_bytes + 3) // 4 * 4
        address, base, semaphore = struct.unpack_from("<QQQ", data, at)
        provider, name, args = data[at + 24:at + bytes_].split(b"\0")[:3]
        address += sections[".stapsdt.base"][0] - base
        found.append(Probe(provider.decode(), name.decode(), address, _offset(loads, address), semaphore,
                           [(int(size), operand) for size, operand in
                            re.findall(r"(-?\d+)@(\S+)", args.decode())]))
        at += (bytes_ + 3) // 4 * 4
    return found


def documented(page):
    """{(provider, name): [argument]} of docs/reference/PROBES.md."""
    table = {}
    with open(page, encoding="utf-8") as f:
        sections = f.read().split("\n## ")[1:]
    for section in sections:
        provider = re.search(r"^Provider `(\w+)`", section, re.M)
        for name, args in re.findall(r"^\| `(\w+)` \|[^|]*\| (.*) \|$", section, re.M) if provider else []:
            table[provider[1], name] = re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", args))
    return table
