"""The release that is tested is the one that is asked for."""

import os

import vllm


def test_the_pinned_release() -> None:
    assert vllm.__version__.partition("+")[0] == os.environ["KVL_ENGINE_VERSION"]
