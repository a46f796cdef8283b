"""What vLLM's CPU platform calls of its own kernels, in plain torch.

The package of the index is built for CUDA, and has no kernels for the CPU. They are what these
tests don't test: vLLM's scheduler, its block tables and its model runner are its own. vLLM imports
this module as a plugin, in each of its processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

_library = torch.library.Library("_C", "FRAGMENT")


def _define(schema: str, function: Callable[..., object]) -> None:
    _library.define(schema)
    _library.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")


def _write(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
    *_: object,
) -> None:
    """Caches are (blocks, heads, tokens of a block, head size); a slot below 0 is padding."""
    n_tokens = key_cache.shape[2]
    places = slots[slots >= 0].long()
    blocks, offsets = places // n_tokens, places % n_tokens
    chosen = (slots >= 0).nonzero().flatten()
    key_cache[blocks, :, offsets] = key[chosen].to(key_cache.dtype)
    value_cache[blocks, :, offsets] = value[chosen].to(value_cache.dtype)


def _gather(cache: torch.Tensor, blocks: torch.Tensor, n: int, repeats: int) -> torch.Tensor:
    """(heads of the query, n, head size)."""
    tokens = cache[blocks].transpose(1, 2).flatten(0, 1)[:n]
    return tokens.transpose(0, 1).repeat_interleave(repeats, 0)


def _attend_text(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> torch.Tensor:
    """One text's attention, (heads, n, head size): the last n tokens ask, each all up to itself.
    Attends to the tokens before them and to themselves alone, and joins both: no mask is made."""
    n = query.shape[1]
    before = keys.shape[1] - n
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    own, own_sum = attend(
        query[None], keys[None, :, before:], values[None, :, before:], is_causal=True, scale=scale
    )
    if before == 0:
        return own[0]
    past, past_sum = attend(
        query[None], keys[None, :, :before], values[None, :, :before], scale=scale
    )
    share = (own_sum - past_sum).sigmoid()[..., None].to(own.dtype)
    return torch.lerp(past, own, share)[0]


def _attend(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    causal: bool,
    _alibi: object,
    window: int,
    table: torch.Tensor,
    *_: object,
) -> None:
    n_tokens = key_cache.shape[2]
    repeats = query.shape[1] // key_cache.shape[1]
    for i, length in enumerate(lengths.tolist()):
        first, end = int(starts[i]), int(starts[i + 1])
        if end <= first:
            continue
        blocks = table[i, : -(-length // n_tokens)].long()
        keys = _gather(key_cache, blocks, length, repeats)
        values = _gather(value_cache, blocks, length, repeats)
        asked = query[first:end].transpose(0, 1)
        if causal and window <= 0:
            got = _attend_text(asked, keys, values, scale)
        else:
            scores = asked @ keys.transpose(1, 2) * scale
            if causal:
                at = torch.arange(length - (end - first), length)[:, None]
                places = torch.arange(length)[None]
                scores = scores.masked_fill((places > at) | (places <= at - window), float("-inf"))
            got = scores.float().softmax(-1).to(values.dtype) @ values
        out[first:end] = got.transpose(0, 1).reshape(out[first:end].shape)


def _attend_latents(
    query: torch.Tensor,
    latents: torch.Tensor,
    out: torch.Tensor,
    rows: torch.Tensor,
    lengths: torch.Tensor,
    n_new: torch.Tensor,
    scale: float,
) -> None:
    """MLA: all heads attend to one vector of each token, which lies in that row of the cache; its
    first numbers are the value. The last n_new tokens of a text ask."""
    first = 0
    for row, length, n in zip(rows, lengths.tolist(), n_new.tolist(), strict=False):
        keys = latents[row[:length].long(), 0]
        scores = torch.einsum("qhc,kc->hqk", query[first : first + n], keys) * scale
        at = torch.arange(length - n, length)[:, None]
        scores = scores.masked_fill(torch.arange(length)[None] > at, float("-inf"))
        values = keys[:, : out.shape[-1]]
        weights = scores.float().softmax(-1).to(values.dtype)
        out[first : first + n] = torch.einsum("hqk,kc->qhc", weights, values)
        first += n


def _decode_latents(query: torch.Tensor, latents: torch.Tensor, *others: object) -> None:
    _, out, _, _, _, _, rows, _, lengths, scale, *_ = others
    _attend_latents(query, latents, out, rows, lengths, torch.ones_like(lengths), scale)


def _extend_latents(query: torch.Tensor, *others: object) -> None:
    _, _, out, latents, _, rows, _, lengths, n_new, _, _, scale, *_ = others
    _attend_latents(query, latents, out, rows, lengths, n_new, scale)


def _write_latents(
    latents: torch.Tensor, rotated: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor
) -> None:
    vectors = torch.cat([latents, rotated], -1)
    cache.view(-1, vectors.shape[-1])[slots[slots >= 0].long()] = vectors[slots >= 0]


def _multiply(out: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *_: object) -> None:
    out.copy_(x @ y.transpose(1, 2))


def _place(
    starts: torch.Tensor,
    positions: torch.Tensor,
    table: torch.Tensor,
    out: torch.Tensor,
    n_tokens: int,
) -> None:
    for i in range(len(starts) - 1):
        first, end = int(starts[i]), int(starts[i + 1])
        at = positions[first:end].long()
        slots = table[i, at // n_tokens] * n_tokens + at % n_tokens
        out[first:end] = slots.to(out.dtype)
    out[int(starts[-1]) :] = -1


def _sample(logits: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    """One token a row, by its probability: the noise of a row is its seed's."""
    tokens = []
    for row, seed in zip(logits, seeds.tolist(), strict=True):
        generator = torch.Generator().manual_seed(seed)
        noise = torch.rand(row.shape, generator=generator).clamp_min(1e-20).log().neg().log().neg()
        tokens.append((row + noise).argmax())
    return torch.stack(tokens)


def _accept(
    out: torch.Tensor,
    ends: torch.Tensor,
    guessed: torch.Tensor,
    chosen: torch.Tensor,
    behind: torch.Tensor,
    *_: object,
) -> None:
    """Of each row the chosen tokens to the first one that wasn't guessed, or one more."""
    first = 0
    for row, end in enumerate(ends.tolist()):
        right = (guessed[first:end] == chosen[first:end]).long().cumprod(0).sum()
        tokens = torch.cat([chosen[first:end], behind[row].view(1)])[: int(right) + 1]
        out[row, : len(tokens)] = tokens
        first = end


_define("init_cpu_memory_env(int[] nodes) -> ()", lambda nodes: None)
_define(
    "get_scheduler_metadata(int a, int b, int c, int d, Tensor e, ScalarType f, Tensor g, bool h, "
    "int i, str j, bool k, Tensor? l, str m) -> Tensor",
    lambda *_: torch.zeros(1),
)
_define(
    "cpu_attn_reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, "
    "Tensor(b!) value_cache, Tensor slots, str isa, float ks, float vs, str dt) -> ()",
    _write,
)
_define(
    "cpu_attention_with_kv_cache(Tensor q, Tensor kc, Tensor vc, Tensor(a!) out, Tensor starts, "
    "Tensor lengths, float scale, bool causal, Tensor? alibi, int window, Tensor table, "
    "float softcap, Tensor metadata, Tensor? sinks, Tensor? dynamic, float ks, float vs, str dt) "
    "-> ()",
    _attend,
)
_define(
    "compute_slot_mapping_kernel_impl(Tensor starts, Tensor positions, Tensor table, "
    "Tensor(a!) out, int n_tokens) -> ()",
    _place,
)
_define("fused_gumbel_argmax(Tensor x, Tensor seeds) -> Tensor", _sample)
_define(
    "rejection_greedy_sample_kernel_impl(Tensor(a!) out, Tensor ends, Tensor guessed, "
    "Tensor chosen, Tensor behind, Tensor? greedy, int n) -> ()",
    _accept,
)
# Of vLLM's MLA for CPUs with AMX, whose kernels attend to what is cached before a prompt's chunk.
_define("convert_weight_packed(Tensor x) -> Tensor", lambda x: x.clone())
_define(
    "bmm_cpu(Tensor(a!) out, Tensor x, Tensor y, bool packed, Tensor? scale) -> ()",
    _multiply,
)
_define(
    "concat_and_cache_mla_cpu(Tensor new, Tensor rotated, Tensor(a!) cache, Tensor slots) -> ()",
    _write_latents,
)
_define(
    "decode_attention_cpu(Tensor q, Tensor k, Tensor v, Tensor(a!) out, Tensor? nk, Tensor? nv, "
    "Tensor? loc, Tensor logits, Tensor rows, Tensor pool, Tensor lengths, float scale, float cap, "
    "bool cross, int window, Tensor? lens, Tensor? sinks) -> ()",
    _decode_latents,
)
_define(
    "extend_attention_cpu(Tensor q, Tensor? nk, Tensor? nv, Tensor(a!) out, Tensor k, Tensor v, "
    "Tensor rows, Tensor pool, Tensor lengths, Tensor new, Tensor start, int most, float scale, "
    "float cap, bool cross, int window, Tensor? lens, Tensor? sinks, Tensor? mask) -> ()",
    _extend_latents,
)
_define("greedy_argmax(Tensor x) -> Tensor", lambda x: x.argmax(-1))


def register() -> None:
    """Importing this has defined them. vLLM makes what a stage of a pipeline receives into when it
    compiles a model, which these tests leave out."""
    from vllm.distributed.parallel_state import get_pp_group  # noqa: PLC0415
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner  # noqa: PLC0415

    load = CPUModelRunner.load_model

    def load_model(runner: CPUModelRunner, *arguments: object, **keywords: object) -> None:
        load(runner, *arguments, **keywords)
        if not get_pp_group().is_first_rank:
            runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
                batch_size=runner.max_num_tokens, dtype=runner.dtype, device=runner.device
            )

    CPUModelRunner.load_model = load_model
    # vLLM caches prefixes of MLA only where the CPU has AMX, which these kernels don't need.
    has_amx = torch.cpu._is_amx_tile_supported
    torch.cpu._is_amx_tile_supported = lambda: "KVLEASE_TEST_AMX" in os.environ or has_amx()
