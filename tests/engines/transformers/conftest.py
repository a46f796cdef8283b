"""What engines of transformers are forked with."""

from support import forks

forks.set_forkserver_preload(
    [
        "kvlease.transformers",
        "transformers.generation.continuous_batching",
        "transformers.models.llama.modeling_llama",
    ]
)
