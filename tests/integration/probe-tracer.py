#!/usr/bin/env python3
"""Stops at every static probe of running processes, and prints its arguments: a tracer without BPF.

    probe-tracer.py PROBES.MD FILE PID [FILE PID]...

A breakpoint takes the place of each probe's nop, so that who meets it just goes on after it. First a
line "attached"; then one of JSON for each pass: {"probe": "provider:name", "pid": N, ARGUMENT: VALUE...},
names as PROBES.MD has them, and the text where it says `tenant`, `namespace` or `by`. Ends with the
last of the processes. x86_64; exit status 77 where processes can't be traced.
"""
import ctypes
import errno
import json
import os
import pathlib
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from usdt import documented, probes

PTRACE_CONT, PTRACE_GETREGS, PTRACE_SEIZE, PTRACE_O_TRACECLONE = 7, 12, 0x4206, 8
WALL = 0x40000000
INT3, NOP = b"\xcc", b"\x90"
SKIPPED = 77
TEXTS = {"tenant", "namespace", "by"}
# struct user_regs_struct
REGISTERS = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
             "fs_base gs_base ds es fs gs").split()

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, pid, address=0, data=0):
    if libc.ptrace(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace({request:#x}, {pid}): {os.strerror(ctypes.get_errno())}")


def sub_registers():
    """{name in an operand: name of the whole}"""
    names = {}
    for r in "abcd":
        names.update({f"r{r}x": f"r{r}x", f"e{r}x": f"r{r}x", f"{r}x": f"r{r}x", f"{r}l": f"r{r}x"})
    for r in ("si", "di", "bp", "sp"):
        names.update({f"r{r}": f"r{r}", f"e{r}": f"r{r}", r: f"r{r}", f"{r}l": f"r{r}"})
    for n in range(8, 16):
        names.update({f"r{n}{part}": f"r{n}" for part in ("", "d", "w", "b")})
    return {**names, "rip": "rip"}


WHOLE = sub_registers()


class Process:
    """One that is traced: its memory, and where its probes are."""

    def __init__(self, file, pid):
        self.pid = pid
        self.memory = open(f"/proc/{pid}/mem", "r+b", buffering=0)
        self.sites = {self.place(file, p.offset): p for p in probes(file)}

    def place(self, file, offset):
        for line in open(f"/proc/{self.pid}/maps", encoding="utf-8"):
            m = re.match(r"(\w+)-(\w+) ..x. (\w+) \S+ \d+ +(.*)$", line)
            start, end, at = (int(x, 16) for x in m.groups()[:3]) if m else (0, 0, 0)
            if m and os.path.samefile(m[4], file) and at <= offset < at + end - start:
                return start + offset - at
        sys.exit(f"process {self.pid} hasn't loaded {file}")

    def read(self, address, n):
        return os.pread(self.memory.fileno(), n, address)

    def text(self, address):
        """Up to its 0; a page may end after it."""
        out = b""
        while address and len(out) < 256 and not out.endswith(b"\0"):
            out += self.read(address + len(out), 1)
        return out.rstrip(b"\0").decode()

    def break_all(self):
        for address, p in self.sites.items():
            if self.read(address, 1) != NOP:
                sys.exit(f"{p.provider}:{p.name} at {address:#x} of process {self.pid} is no nop")
            os.pwrite(self.memory.fileno(), INT3, address)

    def value(self, size, operand, registers):
        if operand[0] == "$":
            raw = int(operand[1:], 0)
        elif operand[0] == "%":
            raw = registers[WHOLE[operand[1:]]]
        else:
            m = re.fullmatch(r"(-?\w*)\(%(\w+)(?:,%(\w+)(?:,(\d))?)?\)", operand)
            index = registers[WHOLE[m[3]]] * int(m[4] or 1) if m[3] else 0
            at = int(m[1] or "0", 0) + registers[WHOLE[m[2]]] + index
            raw = int.from_bytes(self.read(at % 2**64, abs(size)), "little")
        bits = 8 * abs(size)
        raw %= 2**bits
        return raw - 2**bits if size < 0 and raw >> (bits - 1) else raw


def attach(pid):
    """All its threads; those that they make come by themselves."""
    seen = set()
    while True:
        threads = {int(t) for t in os.listdir(f"/proc/{pid}/task")} - seen
        if not threads:
            return seen
        for thread in threads:
            try:
                ptrace(PTRACE_SEIZE, thread, 0, PTRACE_O_TRACECLONE)
            except OSError as e:
                if e.errno == errno.EPERM and not seen:
                    print(f"process {pid} can't be traced: {e.strerror}", flush=True)
                    sys.exit(SKIPPED)
                if e.errno not in (errno.EPERM, errno.ESRCH):  # of a new one: it is traced already
                    raise
            seen.add(thread)


def registers_of(thread):
    values = (ctypes.c_ulonglong * len(REGISTERS))()
    ptrace(PTRACE_GETREGS, thread, 0, ctypes.addressof(values))
    return dict(zip(REGISTERS, values))


def report(process, probe, registers, names):
    row = {"probe": f"{probe.provider}:{probe.name}", "pid": process.pid}
    for (size, operand), name in zip(probe.args, names[probe.provider, probe.name]):
        value = process.value(size, operand, registers)
        row[name] = process.text(value) if name in TEXTS else value
    print(json.dumps(row), flush=True)


def process_of(thread, processes):
    with open(f"/proc/{thread}/status", encoding="utf-8") as f:
        return processes[int(re.search(r"^Tgid:\s+(\d+)", f.read(), re.M)[1])]


def step(thread, status, processes, names):
    """What a thread has stopped for."""
    number, event = os.WSTOPSIG(status), status >> 16
    if event == 0 and number == signal.SIGTRAP:
        registers = registers_of(thread)
        process = process_of(thread, processes)
        probe = process.sites.get(registers["rip"] - 1)
        if probe:
            report(process, probe, registers, names)
            number = 0
    try:
        ptrace(PTRACE_CONT, thread, 0, 0 if event else number)
    except OSError as e:
        if e.errno != errno.ESRCH:  # killed meanwhile
            raise


def main(page, *words):
    names, processes = documented(page), {}
    for file, pid in zip(words[::2], words[1::2]):
        attach(int(pid))
        processes[int(pid)] = Process(file, int(pid))
        processes[int(pid)].break_all()
    print("attached", flush=True)
    while True:
        try:
            thread, status = os.waitpid(-1, WALL)
        except ChildProcessError:
            return
        if os.WIFSTOPPED(status):
            step(thread, status, processes, names)


main(*sys.argv[1:])
