from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Protocol, Self, SupportsIndex, TypeAlias, final, overload

from typing_extensions import Buffer

from kvlease._types import (
    Announcement,
    Codec,
    Event,
    Explanation,
    Hint,
    HostsProbe,
    Layout,
    NamespaceInfo,
    SessionInfo,
    Span,
    Tier,
)

class _Array(Protocol):
    """Of numpy, whose stubs know of no Buffer before Python 3.12."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...

KeysLike: TypeAlias = Buffer | _Array | Sequence[Buffer]
TokensLike: TypeAlias = Buffer | _Array | Sequence[int]
NumbersLike: TypeAlias = Pages | Buffer | _Array | Sequence[int]
RequestLike: TypeAlias = Request | int | None
ViewDType: TypeAlias = Literal["u8", "i8", "f16", "f32", "bf16", "f8_e4m3", "f8_e5m2"]

class Error(Exception):
    reason: str
    code: int

class Full(Error): ...
class Quota(Error): ...

class NoParent(Error, LookupError):
    published: Pages

class Stale(Error):
    published: Pages

class Draining(Error): ...
class LayoutMismatch(Error, ValueError): ...
class VersionMismatch(Error): ...
class Timeout(Error, TimeoutError): ...
class Disconnected(Error, ConnectionError): ...
class Unreachable(Error, ConnectionError): ...
class NotFound(Error, LookupError): ...
class Busy(Error): ...
class Denied(Error, PermissionError): ...
class Invalid(Error, ValueError): ...
class DeviceFailure(Error): ...
class Forked(Error): ...
class Closed(Error, ValueError): ...

class _Entered:
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Connection(_Entered):
    @property
    def tenant(self) -> str: ...
    @property
    def client_id(self) -> int: ...
    @property
    def group_token(self) -> bytes: ...
    @property
    def wants_write(self) -> bool: ...
    @property
    def is_connected(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def n_views(self) -> int: ...
    @overload
    def namespace(
        self,
        name: str | None,
        layout: Layout,
        *,
        device: str | None = None,
        keep_page_zero: bool = False,
        same_address: bool = False,
        set: str | None = None,
        set_size: int = 0,
        expire: float | None = 0,
        host_codec: Codec | int | str = 0,
        disk_codec: Codec | int | str = 0,
        stride_bytes: int = 0,
        back_holes: bool = False,
        first_plane: int = 0,
        n_planes: int | None = None,
    ) -> Namespace: ...
    @overload
    def namespace(
        self,
        name: str | None = None,
        *,
        layout: Layout,
        device: str | None = None,
        keep_page_zero: bool = False,
        same_address: bool = False,
        set: str | None = None,
        set_size: int = 0,
        expire: float | None = 0,
        host_codec: Codec | int | str = 0,
        disk_codec: Codec | int | str = 0,
        stride_bytes: int = 0,
        back_holes: bool = False,
        first_plane: int = 0,
        n_planes: int | None = None,
    ) -> Namespace: ...
    def set_event_handler(self, handler: Callable[[Event], object] | None, /) -> None: ...
    def fileno(self) -> int: ...
    def dispatch(self) -> int: ...
    def safepoint(self, stream: int | None = 0) -> int: ...
    def close(self) -> None: ...

@final
class Namespace(_Entered):
    @property
    def name(self) -> str: ...
    @property
    def info(self) -> NamespaceInfo: ...
    @property
    def connection(self) -> Connection: ...
    @property
    def uses_shm(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def n_views(self) -> int: ...
    def lookup(self, keys: KeysLike, request: RequestLike = 0) -> Pages: ...
    def find(self, keys: KeysLike, request: RequestLike = 0) -> Pages: ...
    def lookup_wait(
        self, keys: KeysLike, timeout: float | None, *, request: RequestLike = 0
    ) -> Pages: ...
    def probe(self, keys: KeysLike, /) -> bytes: ...
    def probe_hosts(self, keys: KeysLike, timeout: float | None = 1) -> HostsProbe: ...
    def expect(self, keys: KeysLike, ttl: float | None = None) -> bool: ...
    def note_prefill(self, n_tokens: int, seconds: float) -> bool: ...
    def leasable_pages(self) -> int: ...
    def check_room(self, n_pages: int, /) -> None: ...
    def lease(
        self,
        n_pages: int,
        request: RequestLike = 0,
        *,
        min_pages: int = 0,
        max_wait: float | None = None,
        contiguous: bool | Literal["prefer"] = False,
    ) -> Pages: ...
    def publish(
        self,
        pages: NumbersLike,
        keys: KeysLike,
        *,
        parent: KeysLike | None = None,
        last_tokens: int | None = None,
        request: RequestLike = 0,
        session: Session | None = None,
        tag: int = 0,
        window_passed: bool = False,
        token_ids: TokensLike | None = None,
        lora_name: str | None = None,
        cache_salt: str | None = None,
    ) -> Pages: ...
    def release(self, pages: Buffer | _Array | Sequence[int], /) -> None: ...
    def free(self, pages: Buffer | _Array | Sequence[int], /) -> None: ...
    def pin(self, pages: Buffer | _Array | Sequence[int], /) -> None: ...
    def report(self, pages: NumbersLike, /) -> int: ...
    def page_tier(self, page: int, /) -> Tier: ...
    def invalidate(
        self, key: KeysLike | None = None, *, tag: int = ..., mismatch: bool = False
    ) -> int: ...
    def announce(self, pages: NumbersLike, keys: KeysLike) -> Announcement: ...
    def wait(self, key: KeysLike, timeout: float | None = 600) -> bool: ...
    def explain(self, keys: KeysLike, /) -> list[Explanation]: ...
    def start_lookup(
        self,
        callback: Callable[[Pages | None, Exception | None], object],
        keys: KeysLike,
        request: RequestLike = 0,
    ) -> None: ...
    def start_lease(
        self,
        callback: Callable[[Pages | None, Exception | None], object],
        n_pages: int,
        request: RequestLike = 0,
        *,
        min_pages: int = 0,
        max_wait: float | None = None,
        contiguous: bool | Literal["prefer"] = False,
    ) -> None: ...
    def start_publish(
        self,
        pages: NumbersLike,
        keys: KeysLike,
        *,
        parent: KeysLike | None = None,
        last_tokens: int | None = None,
        request: RequestLike = 0,
        session: Session | None = None,
        tag: int = 0,
        window_passed: bool = False,
        token_ids: TokensLike | None = None,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        callback: Callable[[Pages | None, Exception | None], object],
        stream: int | None = None,
    ) -> None: ...
    def start_fetch(
        self, callback: Callable[[Pages | None, Exception | None], object], pages: Pages
    ) -> None: ...
    def start_wait(
        self,
        callback: Callable[[bool | None, Exception | None], object],
        key: KeysLike,
        timeout: float | None = 600,
    ) -> None: ...
    def start_import(
        self,
        callback: Callable[[bool | None, Exception | None], object],
        keys: KeysLike,
        *,
        parent: KeysLike | None = None,
        timeout: float | None = 600,
    ) -> bool: ...
    def arena(self, plane: int = 0, *, writable: bool = False, dtype: ViewDType = "u8") -> View: ...
    def session(
        self,
        id: str | Buffer,
        *,
        must_exist: bool = False,
        expire: float | None = 0,
        load: float | None = 0,
    ) -> Session: ...
    def request(self) -> Request: ...
    def window(
        self,
        *,
        first_tokens: int = 0,
        last_tokens: int = 0,
        chunk_pages: int = 0,
        request: RequestLike = 0,
        session: Session | None = None,
    ) -> Window: ...
    def adopt(self, pages: NumbersLike, state: Literal["leased", "pinned", "mapped"]) -> Pages: ...
    def close(self) -> None: ...

@final
class Pages(_Entered):
    @property
    def numbers(self) -> tuple[int, ...]: ...
    @property
    def state(self) -> Literal["leased", "pinned", "mapped", "closed"]: ...
    @property
    def namespace(self) -> Namespace: ...
    @property
    def n_tokens(self) -> int: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def waited(self) -> float: ...
    @property
    def is_pending(self) -> bool: ...
    @property
    def spans(self) -> tuple[Span, ...] | None: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def n_views(self) -> int: ...
    def close(self, *, stream: int | None = None) -> None: ...
    def close_soon(self) -> None: ...
    def detach(self) -> tuple[int, ...]: ...
    def take(self, n_pages: int, /) -> Pages: ...
    def pin(self) -> Pages: ...
    def fetch(self) -> None: ...
    def tier(self, index: SupportsIndex, /) -> Tier: ...
    def read(
        self, index: SupportsIndex, n_bytes: int | None = None, *, plane: int = 0, offset: int = 0
    ) -> bytes: ...
    def write(
        self, index: SupportsIndex, data: Buffer | _Array, *, plane: int = 0, offset: int = 0
    ) -> None: ...
    @overload
    def read_many(
        self,
        indices: NumbersLike | None = None,
        n_bytes: int | None = None,
        *,
        first_plane: int = 0,
        n_planes: int | None = None,
        offset: int = 0,
        into: None = None,
    ) -> bytes: ...
    @overload
    def read_many(
        self,
        indices: NumbersLike | None = None,
        n_bytes: int | None = None,
        *,
        first_plane: int = 0,
        n_planes: int | None = None,
        offset: int = 0,
        into: Buffer | _Array,
    ) -> None: ...
    def write_many(
        self,
        data: Buffer | _Array,
        indices: NumbersLike | None = None,
        *,
        n_bytes: int | None = None,
        first_plane: int = 0,
        n_planes: int | None = None,
        offset: int = 0,
    ) -> None: ...
    def copy_page(
        self, index: SupportsIndex, source: Pages, source_index: SupportsIndex
    ) -> None: ...
    def page(self, index: SupportsIndex, plane: int = 0, *, dtype: ViewDType = "u8") -> View: ...
    def view(
        self, plane: int = 0, *, start: int = 0, stop: int = ..., dtype: ViewDType = "u8"
    ) -> View: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> int: ...
    def __iter__(self) -> Iterator[int]: ...

@final
class View(_Entered):
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> ViewDType: ...
    @property
    def address(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def is_read_only(self) -> bool: ...
    @property
    def is_released(self) -> bool: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def release(self) -> None: ...

@final
class Session(_Entered):
    @property
    def info(self) -> SessionInfo: ...
    @property
    def is_closed(self) -> bool: ...
    def pages(self, start: int = 0, max_pages: int = 65536) -> Pages: ...
    def truncate(self, first_tokens: int, last_tokens: int) -> int: ...
    def keep(self, ranges: Sequence[tuple[int, int | None]]) -> int: ...
    def hint(self, hint: Hint | int, *, after: float | None = 0) -> None: ...
    def close(self, *, drop: bool = False) -> None: ...

@final
class KeyMemo: ...

@final
class Request(_Entered):
    @property
    def id(self) -> int: ...
    def end(self, *, ending: int = 0) -> None: ...

@final
class RawFollower:
    def next(
        self, timeout: float | None = 0
    ) -> (
        tuple[
            int,
            int,
            tuple[int, str, str, str, str, bytes, int, int, int, int] | None,
            bytes | None,
            bytes | None,
            tuple[int, ...] | None,
            int,
            int,
            int,
            int,
            int,
            bytes | None,
            bytes | None,
        ]
        | None
    ): ...
    def reset(self) -> None: ...
    def is_connected(self) -> bool: ...
    def close(self) -> None: ...

@final
class Window(_Entered):
    @property
    def pages(self) -> tuple[int, ...]: ...
    def append(self, pages: NumbersLike, *, stream: int | None = 0) -> None: ...
    def take(
        self,
        first: int,
        n_pages: int,
        *,
        first_plane: int = 0,
        n_planes: int | None = None,
        stream: int | None = 0,
    ) -> Pages: ...
    def close(self, *, stream: int | None = 0) -> None: ...

@final
class LlamaContext:
    @property
    def info(self) -> dict[str, Any]: ...
    def attach(self, connection: Connection, /) -> None: ...
    def detach(self) -> None: ...
    def find(self, tokens: Buffer, /) -> int: ...
    def load(self, sequence: int, tokens: Buffer, n_have: int = 0) -> int: ...
    def save(self, sequence: int, tokens: Buffer) -> int: ...
    def verify(self, sequence: int, tokens: Buffer) -> int: ...
    def close(self) -> None: ...

def llama_new(
    context: int,
    library: str | None,
    weights: str,
    *,
    model: str | None = None,
    salt: Buffer = b"",
    device: str | None = None,
    chunk_tokens: int = 0,
    scratch: int = 0,
    swa_full: bool = False,
) -> LlamaContext: ...
def llama_hash(file: str | PathLike[str], /) -> str: ...
def connect(
    socket: str | PathLike[str] | None = None,
    *,
    client_name: str | None = None,
    group_token: Buffer | None = None,
    group_secret: Buffer | None = None,
    metadata_only: bool = False,
    shm: bool = True,
    safepoints: bool = False,
    timeout: float | None = 30,
    reconnect: float | None = 60,
) -> Connection: ...
def follow(
    socket: str | PathLike[str] | None = None,
    *,
    tenant: str | None = None,
    client_name: str | None = None,
    timeout: float | None = 30,
) -> RawFollower: ...
def lookup_set(
    namespaces: Sequence[Namespace], keys: KeysLike, request: RequestLike = 0
) -> list[Pages]: ...
def version() -> str: ...
def key_root(layout: Layout, /) -> bytes: ...
def layout_name(layout: Layout, /) -> str: ...
def chain_keys(
    parent: KeysLike,
    tokens: TokensLike,
    page_tokens: int,
    *,
    partial: bool = False,
    memo: KeyMemo | None = None,
) -> bytes: ...
def key_memo(page_tokens: int, *, max_bytes: int = 67108864) -> KeyMemo: ...
def bench_lookup(namespace: Namespace, keys: KeysLike, rounds: int) -> float: ...
