#!/usr/bin/env python3
"""Trains the decoder's weights on text that every Debian 12 with Python has.

Usage: train.py OUTPUT_DIRECTORY [--steps N] [--record | --copying]

Needs torch and numpy from PyPI (in a virtual environment: CPU is enough), and Debian's packages
base-files, libpython3.11-minimal and libpython3.11-stdlib. Writes into OUTPUT_DIRECTORY:

  weights.bin           what trained.c reads: a header, then every tensor in fp16, [in][out]
  weights.json          where they come from: files with checksums, seed, steps, time, losses
  held-out.txt          the document that the tests measure perplexity on; never trained on
  recorded.h    logits and losses as computed here, for the tests

The model is that of model.c: RMSNorm, attention with linear biases (no other positions), grouped
queries, SwiGLU. K and V are rounded to fp16 where they are measured, as pages hold them.

It can be cut off, and goes on from state.pt there when started again. --record measures
weights.bin of that directory again and trains nothing. --copying trains them on, until they say
again what stood far before, and writes copying.bin and copying.json; that isn't kept when it is cut
off.
"""

import argparse
import ast
import hashlib
import json
import math
import platform
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import torch
from torch.nn import functional as F

BOS, VOCAB = 256, 257
LAYERS, WIDTH, HEADS, KV_HEADS, FFN = 4, 128, 4, 2, 384
HEAD = WIDTH // HEADS
SEED = 8
STEPS = 612
DECAY = 0.1  # the last part of the steps, in which the rate falls to 0
SHORT, LONG = 256, 512  # tokens of a window; LONG in the last third of the decay
STEP_TOKENS = 4096
RATE, RATE_OF_VECTORS = 0.02, 4e-3
HELD_OUT = "MPL-2.0"
COPY_SEED, COPY_STEPS, COPY_WINDOW = 1, 1500, 512
COPY_RATE = 0.6  # of the other rates
COPY_WARM, COPY_DECAY = 30, 0.15  # steps in which the rate rises; the part in which it falls
LICENSE_TIMES = 3  # each license counts as many times: they are what the demo reads
MODULE_MIN = 4096  # bytes of documentation in a module that is used

PACKAGES = ["base-files", "libpython3.11-minimal", "libpython3.11-stdlib"]
LICENSES = Path("/usr/share/common-licenses")
LIBRARY = Path("/usr/lib/python3.11")


# ---- text ------------------------------------------------------------------------------------------


def prose(text):
    """Without the lines of tables and rules: those of which less than half is letters."""
    lines = [(line, line.replace(" ", "")) for line in text.splitlines()]
    kept = [line for line, ink in lines if 2 * sum(map(str.isalpha, ink)) >= len(ink)]
    return "\n".join(kept) + "\n"


def docstrings(source):
    """What a module says of itself, its classes and functions, in the order of its source."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, kinds)]
    nodes.sort(key=lambda n: getattr(n, "lineno", 0))
    return "\n\n".join(filter(None, map(ast.get_docstring, nodes)))


def topics(source):
    """The language reference, as pydoc has it: a dict of texts."""
    return ast.literal_eval(ast.parse(source).body[0].value)


def packaged(suffix):
    """Files of the packages, sorted; what was put there otherwise doesn't count."""
    lines = subprocess.run(["dpkg", "-L", *PACKAGES], check=True, capture_output=True, text=True)
    return sorted(p for p in set(lines.stdout.splitlines()) if p.endswith(suffix))


def documents():
    """{name: text}, {path: sha256} of all that is used."""
    texts, files = {}, {}

    def read(path):
        data = Path(path).read_bytes()
        files[str(path)] = hashlib.sha256(data).hexdigest()
        return data.decode()

    for path in sorted(LICENSES.iterdir()):
        if not path.is_symlink():
            texts["license/" + path.name] = read(path)
    for name, text in sorted(topics(read(LIBRARY / "pydoc_data/topics.py")).items()):
        texts["topic/" + name] = prose(text)
    for path in packaged(".py"):
        text = prose(docstrings(Path(path).read_text(encoding="utf-8")))
        if len(text.encode()) >= MODULE_MIN and "/pydoc_data/" not in path:
            read(path)
            texts["module" + path.removeprefix(str(LIBRARY))] = text
    return texts, files


def is_held_out(name):
    return name == "license/" + HELD_OUT or zlib.crc32(name.encode()) % 16 == 0


def encode(texts, license_times=1):
    """Tokens of all texts one after the other, each behind a BOS."""
    tokens = []
    for name, text in sorted(texts.items()):
        tokens += [BOS, *text.encode()] * (license_times if name.startswith("license/") else 1)
    return torch.tensor(tokens, dtype=torch.long)


# ---- model -----------------------------------------------------------------------------------------


def tensor_shapes():
    """Names and shapes, in the order of weights.bin."""
    kv = KV_HEADS * HEAD
    shapes = {"embedding": (VOCAB, WIDTH), "w_logits": (WIDTH, VOCAB), "norm_final": (WIDTH,)}
    for i in range(LAYERS):
        shapes |= {
            f"{i}.norm_attention": (WIDTH,),
            f"{i}.wq": (WIDTH, WIDTH),
            f"{i}.wk": (WIDTH, kv),
            f"{i}.wv": (WIDTH, kv),
            f"{i}.wo": (WIDTH, WIDTH),
            f"{i}.norm_ffn": (WIDTH,),
            f"{i}.w_gate": (WIDTH, FFN),
            f"{i}.w_up": (WIDTH, FFN),
            f"{i}.w_down": (FFN, WIDTH),
        }
    return shapes


def initial():
    weights = {}
    for name, shape in tensor_shapes().items():
        if len(shape) == 1:
            w = torch.ones(shape)
        elif name == "embedding":
            w = torch.randn(shape)
        else:
            w = torch.randn(shape) / math.sqrt(shape[0])
            if name.endswith(("wo", "w_down")):
                w /= math.sqrt(2 * LAYERS)
        weights[name] = w.requires_grad_()
    return weights


def slopes():
    """As model_slope(): powers of two, 2^-2 of the first head to 2^-11 of the last."""
    return torch.tensor([2.0 ** -(2 + 9 * h // (HEADS - 1)) for h in range(HEADS)])


def bias(first, end):
    """Added to the scores of positions first..end - 1, for all positions below end."""
    distance = (torch.arange(end)[None, :] - torch.arange(first, end)[:, None]).float()
    return (slopes()[:, None, None] * distance).masked_fill(distance > 0, -math.inf)[None]


def attention(q, k, v):
    """A block of queries at a time, as the biases of a long document take much memory."""
    n, rows = q.shape[2], []
    block = LONG if n <= LONG else 64
    for first in range(0, n, block):
        end = min(first + block, n)
        scores = q[:, :, first:end] @ k[:, :, :end].mT
        weights = F.softmax(scores.float() / math.sqrt(HEAD) + bias(first, end), dim=-1)
        rows.append(weights.to(q.dtype) @ v[:, :, :end])
    return torch.cat(rows, dim=2)


def norm(x, gain):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5) * gain


def forward(w, tokens, round_kv=False):
    """Logits [batch][token][VOCAB]."""
    batch, n = tokens.shape
    x = F.embedding(tokens, w["embedding"])
    for i in range(LAYERS):
        y = norm(x, w[f"{i}.norm_attention"])
        q = (y @ w[f"{i}.wq"]).view(batch, n, HEADS, HEAD).transpose(1, 2)
        k = (y @ w[f"{i}.wk"]).view(batch, n, KV_HEADS, HEAD).transpose(1, 2)
        v = (y @ w[f"{i}.wv"]).view(batch, n, KV_HEADS, HEAD).transpose(1, 2)
        if round_kv:
            k, v = k.half().float(), v.half().float()
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
        y = attention(q, k, v)
        x = x + y.transpose(1, 2).reshape(batch, n, WIDTH) @ w[f"{i}.wo"]
        y = norm(x, w[f"{i}.norm_ffn"])
        x = x + (F.silu(y @ w[f"{i}.w_gate"]) * (y @ w[f"{i}.w_up"])) @ w[f"{i}.w_down"]
    return norm(x, w["norm_final"]) @ w["w_logits"]


# ---- training --------------------------------------------------------------------------------------


def windows(tokens, n, count, generator):
    """Random windows, each with a BOS in place of its first token; and what comes next."""
    starts = torch.randint(len(tokens) - n - 1, (count,), generator=generator)
    rows = tokens[starts[:, None] + torch.arange(n + 1)]
    inputs = rows[:, :-1].clone()
    inputs[:, 0] = BOS
    return inputs, rows[:, 1:]


def rate(step, steps):
    """Of the full one: a constant, so that a longer run begins as a shorter one does."""
    return min(1, (step + 1) / 50, (steps - step) / (DECAY * steps))


def step_loss(weights, tokens, n, generator):
    inputs, wanted = windows(tokens, n, STEP_TOKENS // n, generator)
    with torch.autocast("cpu", torch.bfloat16):
        logits = forward(weights, inputs)
    # A BOS inside a window begins another document: nothing says that it comes.
    return F.cross_entropy(logits.float().flatten(0, 1), wanted.flatten(), ignore_index=BOS)


def orthogonal(m):
    """Each matrix of m with its singular values near 1, by five steps of Newton and Schulz."""
    x = m / (m.norm(dim=(1, 2), keepdim=True) + 1e-7)
    if x.shape[1] > x.shape[2]:
        return orthogonal(m.mT).mT
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x


class Muon:
    """Momentum whose steps are made orthogonal: for the matrices inside the layers."""

    def __init__(self, matrices):
        shapes = {m.shape for m in matrices}
        self.groups = [[m for m in matrices if m.shape == s] for s in sorted(shapes)]
        self.momentum = [torch.zeros(len(g), *g[0].shape) for g in self.groups]

    @torch.no_grad()
    def step(self, part):
        for group, momentum in zip(self.groups, self.momentum):
            gradient = torch.stack([m.grad for m in group])
            momentum.mul_(0.95).add_(gradient)
            change = orthogonal(gradient + 0.95 * momentum)
            scale = max(1, group[0].shape[1] / group[0].shape[0]) ** 0.5
            for m, c in zip(group, change):
                m.mul_(1 - RATE * part * 0.1).sub_(c, alpha=RATE * part * scale)
                m.grad = None


def optimizers(weights):
    inner = [w for name, w in weights.items() if "." in name and w.dim() == 2]
    vectors = [w for w in weights.values() if not any(w is i for i in inner)]
    adam = torch.optim.AdamW(vectors, betas=(0.9, 0.97), weight_decay=0.0)
    return Muon(inner), adam


class State:
    """All that a step changes; kept in a file, so that a run that was cut off goes on."""

    def __init__(self, path):
        torch.manual_seed(SEED)
        self.path, self.step, self.loss, self.seconds = path, 0, None, 0.0
        self.weights = initial()
        self.muon, self.adam = optimizers(self.weights)
        if path.exists():
            kept = torch.load(path)
            self.step, self.loss, self.seconds = kept["step"], kept["loss"], kept["seconds"]
            for name, w in self.weights.items():
                w.data.copy_(kept["weights"][name])
            self.muon.momentum = kept["muon"]
            self.adam.load_state_dict(kept["adam"])

    def save(self):
        kept = {k: getattr(self, k) for k in ("step", "loss", "seconds")}
        kept["weights"] = {name: w.detach() for name, w in self.weights.items()}
        kept |= {"muon": self.muon.momentum, "adam": self.adam.state_dict()}
        torch.save(kept, self.path.with_suffix(".new"))
        self.path.with_suffix(".new").rename(self.path)


def take_step(state, tokens, steps):
    generator = torch.Generator().manual_seed(SEED * 1000003 + state.step)
    n = LONG if state.step >= steps * (1 - DECAY / 3) else SHORT
    part = rate(state.step, steps)
    loss = step_loss(state.weights, tokens, n, generator)
    loss.backward()
    state.adam.param_groups[0]["lr"] = RATE_OF_VECTORS * part
    state.adam.step()
    state.adam.zero_grad(set_to_none=True)
    state.muon.step(part)
    state.loss = loss.item() if state.loss is None else 0.98 * state.loss + 0.02 * loss.item()
    state.step += 1


def train(tokens, steps, path):
    state = State(path)
    if state.step > steps * (1 - DECAY):
        sys.exit(f"{path} was already at step {state.step}, where the rate of {steps} falls")
    while state.step < steps:
        start = time.process_time()
        take_step(state, tokens, steps)
        state.seconds += time.process_time() - start
        if state.step % 50 == 0:
            print(f"{state.step} {state.seconds:.0f} s of CPU, loss {state.loss:.4f}", flush=True)
            if state.step <= steps * (1 - DECAY):
                state.save()
    return state


# ---- copying ---------------------------------------------------------------------------------------


def repeating_windows(tokens, count, generator):
    """As windows(); but every second window says what it began with again and again, and half of
    those begin with random bytes, which nothing else foretells."""
    inputs, wanted = windows(tokens, COPY_WINDOW, count, generator)
    rows = torch.cat([inputs, wanted[:, -1:]], 1)
    for row in rows[::2]:
        period = int(torch.randint(24, COPY_WINDOW // 2, (1,), generator=generator))
        if torch.rand(1, generator=generator) < 0.5:
            row[1 : period + 1] = torch.randint(33, 123, (period,), generator=generator)
        row[period + 1 :] = row[1 + torch.arange(period, COPY_WINDOW) % period]
    return rows[:, :-1], rows[:, 1:]


def train_to_copy(tokens, weights):
    """From these weights on; the seconds of CPU that it takes."""
    muon, adam = optimizers(weights)
    generator = torch.Generator().manual_seed(COPY_SEED)
    start = time.process_time()
    for step in range(COPY_STEPS):
        falls = (COPY_STEPS - step) / (COPY_DECAY * COPY_STEPS)
        part = COPY_RATE * min(1, (step + 1) / COPY_WARM, falls)
        inputs, wanted = repeating_windows(tokens, STEP_TOKENS // COPY_WINDOW, generator)
        with torch.autocast("cpu", torch.bfloat16):
            logits = forward(weights, inputs)
        logits = logits.float().flatten(0, 1)
        losses = F.cross_entropy(logits, wanted.flatten(), ignore_index=BOS, reduction="none")
        losses.mean().backward()
        adam.param_groups[0]["lr"] = RATE_OF_VECTORS * part
        adam.step()
        adam.zero_grad(set_to_none=True)
        muon.step(part)
        if (step + 1) % 50 == 0:
            right = copies_right(weights)
            seconds = time.process_time() - start
            print(f"{step + 1} {seconds:.0f} s of CPU, copies {100 * right:.1f} %", flush=True)
    return time.process_time() - start


@torch.no_grad()
def copies_right(weights, distance=700, length=64):
    """Of random bytes that stood so far before, the part that is likeliest, but for the first 8."""
    generator = torch.Generator().manual_seed(COPY_SEED)
    document = (LICENSES / HELD_OUT).read_bytes()
    n_right = n = 0
    for first in range(0, 12000, 1500):
        tokens = torch.tensor([BOS, *document[first : first + 1024]])
        begin = 100 + distance
        tokens[100 : 100 + length] = torch.randint(33, 123, (length,), generator=generator)
        tokens[begin : begin + length] = tokens[100 : 100 + length].clone()
        likeliest = forward(weights, tokens[None])[0].argmax(-1)
        wanted = tokens[begin + 8 : begin + length]
        n_right += (likeliest[begin + 7 : begin + length - 1] == wanted).sum().item()
        n += length - 8
    return n_right / n


def write_copying(directory, texts):
    """The weights that copy, and where they come from."""
    torch.set_num_threads(2)
    first = (directory / "weights.bin").read_bytes()
    weights = read_weights(directory / "weights.bin")
    weights = {name: w.clone().requires_grad_() for name, w in weights.items()}
    tokens = encode({n: t for n, t in texts.items() if not is_held_out(n)}, LICENSE_TIMES)
    seconds = train_to_copy(tokens, weights)
    write_weights(directory / "copying.bin", weights)
    record_copying(directory, texts, {"train_cpu_seconds": round(seconds)} | facts_of(first))


def facts_of(first):
    """What the training of copying.bin was like."""
    return {
        "begins_with_sha256": hashlib.sha256(first).hexdigest(),
        "torch": torch.__version__,
        "processor": platform.machine() + ", two threads, bf16 products",
        "seed": COPY_SEED,
        "steps": COPY_STEPS,
        "tokens_per_step": STEP_TOKENS,
        "window": COPY_WINDOW,
        "packages": versions(),
    }


def record_copying(directory, texts, facts):
    """Writes them, with what the weights have learnt."""
    weights = read_weights(directory / "copying.bin")
    data = (directory / "copying.bin").read_bytes()
    held_out = {n: t for n, t in texts.items() if is_held_out(n)}
    facts = {"sha256": hashlib.sha256(data).hexdigest()} | facts
    facts["loss_nats_per_byte"] = {"held_out": round(windows_loss(weights, encode(held_out)), 5)}
    facts["copies_right_at_700_bytes"] = round(copies_right(weights), 4)
    (directory / "copying.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="ascii")
    print(json.dumps(facts))


# ---- files and figures -----------------------------------------------------------------------------


def write_weights(path, weights):
    header = b"KVLDECW1" + struct.pack("<5I", LAYERS, WIDTH, HEADS, KV_HEADS, FFN)
    with open(path, "wb") as f:
        f.write(header.ljust(32, b"\0"))
        for name in tensor_shapes():
            f.write(weights[name].detach().half().numpy().astype("<f2").tobytes())


def read_weights(path):
    """As the decoder has them: fp16 widened."""
    data, at, weights = bytearray(path.read_bytes()), 32, {}
    for name, shape in tensor_shapes().items():
        n = math.prod(shape)
        w = torch.frombuffer(data, dtype=torch.float16, count=n, offset=at)
        weights[name] = w.float().view(shape)
        at += 2 * n
    assert at == len(data)
    return weights


@torch.no_grad()
def document_loss(weights, text):
    """Mean loss of a whole document's bytes, nats, each with all before it in sight."""
    tokens = torch.tensor([[BOS, *text]])
    logits = forward(weights, tokens[:, :-1], round_kv=True)
    return F.cross_entropy(logits[0], tokens[0, 1:]).item()


@torch.no_grad()
def windows_loss(weights, tokens):
    """Mean loss over windows of SHORT tokens, one behind the other; at most 256 of them."""
    starts = range(0, len(tokens) - SHORT - 1, SHORT)
    rows = torch.stack([tokens[s : s + SHORT + 1] for s in starts][:: max(1, len(starts) // 256)])
    total, count = 0.0, 0
    for part in rows.split(16):
        inputs = part[:, :-1].clone()
        inputs[:, 0] = BOS
        wanted = part[:, 1:].flatten()
        logits = forward(weights, inputs).flatten(0, 1)
        total += F.cross_entropy(logits, wanted, ignore_index=BOS, reduction="sum").item()
        count += (wanted != BOS).sum().item()
    return total / count


def c_floats(values):
    rows = [", ".join(f"{v:.6f}f" for v in values[i : i + 8]) for i in range(0, len(values), 8)]
    return ",\n        ".join(rows)


@torch.no_grad()
def write_recorded(path, weights, text, losses):
    n = 300
    tokens = torch.tensor([[BOS, *text[:n]]])
    logits = forward(weights, tokens, round_kv=True)[0, -1].tolist()
    path.write_text(
        "/* Written by lab/decoder/train.py: what it computes with the trained weights."
        " */\n/* clang-format off */\n#pragma once\n\n"
        f"/* Logits after a BOS and the first {n} bytes of held-out.txt. */\n"
        f"#define RECORDED_TOKENS {n + 1}\n"
        f"static const float recorded_logits[] = {{\n        {c_floats(logits)},\n}};\n\n"
        "/* Mean loss of the bytes of held-out.txt, nats; of its first 2048. */\n"
        f"#define RECORDED_LOSS       {losses['document']:.6f}\n"
        f"#define RECORDED_LOSS_SHORT {losses['document_first_2048']:.6f}\n",
        encoding="ascii",
    )


def versions():
    form = "${Package} ${Version}\\n"
    lines = subprocess.run(
        ["dpkg-query", "-W", "-f", form, *PACKAGES], check=True, capture_output=True, text=True
    )
    return dict(line.split() for line in lines.stdout.splitlines())


def measure(directory, texts, facts):
    """Losses of weights.bin, and everything that is derived from it."""
    weights = read_weights(directory / "weights.bin")
    held_out = {n: t for n, t in texts.items() if is_held_out(n)}
    trained = {n: t for n, t in texts.items() if not is_held_out(n)}
    document = texts["license/" + HELD_OUT].encode()
    losses = {
        "trained": windows_loss(weights, encode(trained)),
        "held_out": windows_loss(weights, encode(held_out)),
        "document": document_loss(weights, document),
        "document_first_2048": document_loss(weights, document[:2048]),
    }
    facts["loss_nats_per_byte"] = {k: round(v, 5) for k, v in losses.items()}
    (directory / "held-out.txt").write_bytes(document)
    write_recorded(directory / "recorded.h", weights, document, losses)
    (directory / "weights.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="ascii")
    print(json.dumps(facts["loss_nats_per_byte"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--record", action="store_true", help="measure again, train nothing")
    parser.add_argument("--copying", action="store_true", help="train weights.bin on, to copy")
    args = parser.parse_args()

    torch.set_num_threads(1)
    texts, files = documents()
    if args.copying:
        write_copying(args.directory, texts)
        return
    if args.record:
        facts = json.loads((args.directory / "weights.json").read_text(encoding="ascii"))
        if facts["files"] != files:
            sys.exit("the text of this machine isn't what the weights were trained on")
        measure(args.directory, texts, facts)
        return
    tokens = encode({n: t for n, t in texts.items() if not is_held_out(n)}, LICENSE_TIMES)
    args.directory.mkdir(parents=True, exist_ok=True)
    state = train(tokens, args.steps, args.directory / "state.pt")
    write_weights(args.directory / "weights.bin", state.weights)
    data = (args.directory / "weights.bin").read_bytes()
    facts = {
        "sha256": hashlib.sha256(data).hexdigest(),
        "parameters": sum(math.prod(s) for s in tensor_shapes().values()),
        "torch": torch.__version__,
        "processor": platform.machine() + ", one thread, bf16 products",
        "seed": SEED,
        "steps": args.steps,
        "tokens_per_step": STEP_TOKENS,
        "windows": [SHORT, LONG],
        "train_cpu_seconds": round(state.seconds),
        "text_tokens": len(tokens),
        "license_times": LICENSE_TIMES,
        "last_training_loss": round(state.loss, 5),
        "packages": versions(),
        "held_out": sorted(n for n in texts if is_held_out(n)),
        "files": files,
    }
    measure(args.directory, texts, facts)


if __name__ == "__main__":
    main()
