"""The release that is tested is the one that is asked for."""

import os

import transformers
from transformers.generation.continuous_batching import cache


def test_the_pinned_release() -> None:
    assert transformers.__version__ == os.environ["KVL_ENGINE_VERSION"]
    assert cache.PagedAttentionCache
