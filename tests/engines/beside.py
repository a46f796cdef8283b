"""A connector of vLLM beside kvlease's: it keeps files, and tells its scheduler something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorHandshakeMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector


@dataclass
class Greeting(KVConnectorHandshakeMetadata):
    """What a worker's connector says."""

    words: str


class Beside(ExampleConnector):  # type: ignore[misc]
    """vLLM's, which has no handshake."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.heard: dict[Any, Any] = {}

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata:
        """The worker's."""
        return Greeting("hello")

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[Any, Any]) -> None:
        """The scheduler's."""
        self.heard = metadata

    def get_num_new_matched_tokens(self, request: Any, *arguments: Any) -> Any:
        """Only once it has heard its worker."""
        assert self.heard == {(0, 0): Greeting("hello")}
        return super().get_num_new_matched_tokens(request, *arguments)
