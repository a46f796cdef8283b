"""Small GGUF models of random weights, of the families that keep their tokens differently."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

FAMILIES = ("llama", "gemma2", "mamba", "jamba")
VOCABULARY = 512
WINDOW = 256
PROBED = {(7919 * i + 1) % VOCABULARY for i in range(8)}
"""Tokens that kvl_llama_new() decodes."""


def make_model(
    path: Path,
    family: str = "llama",
    seed: int = 0,
    *,
    size: int = 128,
    layers: int = 4,
    twisted: bool = False,
) -> str:
    """Writes a model of so many numbers a token; its path. gemma2: every second layer has a window.
    mamba: recurrent. jamba: every second layer recurrent. twisted: but for the tokens of
    kvl_llama_new(), tokens have other embeddings."""
    model = _Model(path, family, seed, size, layers, twisted)
    model.add_keys()
    model.add_tensors()
    model.writer.write_header_to_file()
    model.writer.write_kv_data_to_file()
    model.writer.write_tensors_to_file()
    model.writer.close()
    return str(path)


class _Model:
    def __init__(
        self, path: Path, family: str, seed: int, size: int, layers: int, twisted: bool
    ) -> None:
        self.writer = gguf.GGUFWriter(str(path), family)
        self._numbers = np.random.default_rng(seed)
        self._family, self._size, self._layers = family, size, layers
        self._heads, self._kv_heads = 4, 2
        self._feed = 3 * size
        self._twisted = twisted
        is_recurrent = {"mamba": range(layers), "jamba": range(0, layers, 2)}
        self._recurrent = set(is_recurrent.get(family, ()))

    def add_keys(self) -> None:
        writer = self.writer
        writer.add_name("random")
        writer.add_context_length(16384)
        writer.add_embedding_length(self._size)
        writer.add_block_count(self._layers)
        writer.add_feed_forward_length(0 if self._family == "mamba" else self._feed)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_file_type(0)
        if self._family == "mamba":
            writer.add_head_count(0)
        else:
            kv_heads = [0 if i in self._recurrent else self._kv_heads for i in range(self._layers)]
            writer.add_head_count(self._heads)
            writer.add_head_count_kv(kv_heads if self._recurrent else self._kv_heads)
            writer.add_key_length(self._size // self._heads)
            writer.add_value_length(self._size // self._heads)
            writer.add_rope_dimension_count(self._size // self._heads)
            writer.add_rope_freq_base(10000.0)
        if self._recurrent:
            writer.add_ssm_conv_kernel(4)
            writer.add_ssm_inner_size(2 * self._size)
            writer.add_ssm_state_size(16)
            writer.add_ssm_time_step_rank(8)
        if self._family == "gemma2":
            writer.add_sliding_window(WINDOW)
        self._add_vocabulary()

    def _add_vocabulary(self) -> None:
        """A token of each byte, and words that no text has."""
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
        kinds = [2, 3, 3, *([6] * 256)]
        n_words = VOCABULARY - len(tokens)
        tokens += [f"\u2581word{i}" for i in range(n_words)]
        kinds += [1] * n_words
        self.writer.add_tokenizer_model("llama")
        self.writer.add_token_list(tokens)
        self.writer.add_token_scores([0.0] * VOCABULARY)
        self.writer.add_token_types(kinds)
        self.writer.add_bos_token_id(1)
        self.writer.add_eos_token_id(2)

    def _add(self, name: str, *shape: int, scale: float = 0.2) -> None:
        values = self._numbers.standard_normal(shape, dtype=np.float32) * scale
        self.writer.add_tensor(name, values)

    def _add_norm(self, name: str, n: int) -> None:
        self.writer.add_tensor(name, np.ones(n, np.float32))

    def add_tensors(self) -> None:
        # Of tied embeddings the last token would otherwise be the next one, too.
        scale = 0.05 if self._family == "gemma2" else 1.0
        shape = (VOCABULARY, self._size)
        embeddings = self._numbers.standard_normal(shape, dtype=np.float32) * scale
        if self._twisted:
            others = sorted(set(range(VOCABULARY)) - PROBED)
            embeddings[others] = embeddings[others[::-1]]
        self.writer.add_tensor("token_embd.weight", embeddings)
        self._add_norm("output_norm.weight", self._size)
        if self._family == "llama":
            self._add("output.weight", VOCABULARY, self._size)
        for i in range(self._layers):
            at = f"blk.{i}."
            self._add_norm(at + "attn_norm.weight", self._size)
            if i in self._recurrent:
                self._add_recurrent(at)
            else:
                self._add_attention(at)
            if self._family != "mamba":
                self._add_feed_forward(at)

    def _add_attention(self, at: str) -> None:
        head = self._size // self._heads
        self._add(at + "attn_q.weight", self._heads * head, self._size)
        self._add(at + "attn_k.weight", self._kv_heads * head, self._size)
        self._add(at + "attn_v.weight", self._kv_heads * head, self._size)
        self._add(at + "attn_output.weight", self._size, self._heads * head)

    def _add_feed_forward(self, at: str) -> None:
        self._add_norm(at + "ffn_norm.weight", self._size)
        self._add(at + "ffn_gate.weight", self._feed, self._size)
        self._add(at + "ffn_up.weight", self._feed, self._size)
        self._add(at + "ffn_down.weight", self._size, self._feed)
        if self._family == "gemma2":
            self._add_norm(at + "post_attention_norm.weight", self._size)
            self._add_norm(at + "post_ffw_norm.weight", self._size)

    def _add_recurrent(self, at: str) -> None:
        inner, state, rank = 2 * self._size, 16, 8
        self._add(at + "ssm_in.weight", 2 * inner, self._size)
        self._add(at + "ssm_conv1d.weight", inner, 4)
        self._add(at + "ssm_conv1d.bias", inner)
        self._add(at + "ssm_x.weight", rank + 2 * state, inner)
        self._add(at + "ssm_dt.weight", inner, rank)
        self._add(at + "ssm_dt.bias", inner)
        decays = np.tile(-np.arange(1, state + 1, dtype=np.float32), (inner, 1))
        self.writer.add_tensor(at + "ssm_a", decays)
        self._add_norm(at + "ssm_d", inner)
        self._add(at + "ssm_out.weight", self._size, inner)
        if self._family == "jamba":
            for name, n in (("dt", rank), ("b", state), ("c", state)):
                self._add_norm(f"{at}ssm_{name}_norm.weight", n)
