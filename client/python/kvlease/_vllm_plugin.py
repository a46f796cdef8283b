"""Tells vLLM of its connector to kvlease; imported by every vLLM that has kvlease beside it."""

NAME = "KvleaseConnector"


def register() -> None:
    """Entry point of the group vllm.general_plugins; called in every process of vLLM."""
    from vllm.distributed.kv_transfer.kv_connector.factory import (  # noqa: PLC0415
        KVConnectorFactory,
    )

    if NAME not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector(NAME, "kvlease.vllm", NAME)
