"""The release that is tested is the one that is asked for."""

import importlib.metadata
import os


def test_the_pinned_release() -> None:
    assert importlib.metadata.version("vllm") == os.environ["KVL_ENGINE_VERSION"]
