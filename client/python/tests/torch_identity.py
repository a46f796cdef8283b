"""Digests of what computes. Not for the part "python": the part "torch" installs torch."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kvlease import _digest, _identity
from kvlease._digest import Unreadable, hash_tensors
from kvlease._identity import Watched

SMALL_PIECES = pytest.mark.parametrize("piece", [1 << 10, 64 << 20], ids=["pieces", "whole"])


class Layer(torch.nn.Module):  # type: ignore[misc]
    """Has all that a module may have."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(40, 24))
        self.register_buffer("table", torch.arange(8.0), persistent=False)
        self.scale = 0.5
        self.steer = torch.zeros(24)
        self.plan = {"a": torch.ones(2), "b": [1, "word"]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Calls a method and a function of the file."""
        return scaled(self.rows(x), self.scale) + self.steer

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """Looks rows up."""
        return self.weight[x]

    def unused(self) -> None:
        """Isn't called."""


class Model(torch.nn.Module):  # type: ignore[misc]
    """Two layers, the second of which has the table of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(), Layer()])
        self.layers[1].weight = self.layers[0].weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum."""
        return self.layers[0](x) + self.layers[1](x)


def scaled(x: torch.Tensor, by: float, more: float = 1.0) -> torch.Tensor:
    """Uses a constant of a set, whose order is another one in each process."""
    if by in {0.25, 0.125, "quarter", "eighth", "half"}:
        return x
    return x * by * more


N_CALLS = 0
SCALE = 1.0
TABLE = {"twice": lambda x: x * 2, "steer": [torch.zeros(2)], "set": {"a", "b", "c"}}


class RowConfig:
    """Isn't in the settings, whatever it is called."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __getitem__(self, at: int) -> int:
        return self.width * at


CONFIG = RowConfig(3)


class Reader(torch.nn.Module):  # type: ignore[misc]
    """Reads what isn't its own."""

    shift = torch.zeros(1)

    def forward(self, x: torch.Tensor) -> Any:
        """Its counter doesn't change the numbers it computes."""
        global N_CALLS  # noqa: PLW0603
        N_CALLS += 1
        made: Any = TABLE["twice"](x) * SCALE + RowConfig(3)[2] + CONFIG[2]  # type: ignore[operator]
        return torch.nn.functional.silu(made) + self.shift + TABLE["steer"][0]  # type: ignore[index]


def make() -> Model:
    torch.manual_seed(0)
    return Model()


def digest(model: torch.nn.Module) -> bytes:
    return Watched(model, None).identity


def having(value: Any) -> bytes:
    """The digest of a model that has one attribute more."""
    model = make()
    model.layers[1].extra = value
    return digest(model)


def limit_pieces(monkeypatch: pytest.MonkeyPatch, n_bytes: int) -> None:
    monkeypatch.setattr(_digest, "_PIECE_BYTES", n_bytes)
    monkeypatch.setattr(_digest, "_LEAF_BYTES", min(n_bytes, 4 << 20) // 4)


@SMALL_PIECES
def test_how_a_tensor_lies_makes_no_difference(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    """Views, transposed, strided, over several leaves and pieces: what counts is the elements."""
    limit_pieces(monkeypatch, piece)
    plain = torch.randn(37, 11, 29)
    expected = hash_tensors({"a": plain})
    wide = torch.zeros(37, 11, 58)
    wide[:, :, ::2] = plain
    back = plain.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    part = torch.cat([torch.zeros(3, 11, 29), plain])[3:]
    for same in (wide[:, :, ::2], back, part, torch.nn.Parameter(plain)):
        assert hash_tensors({"a": same}) == expected
    assert hash_tensors({"a": plain.view(37, 29, 11)}) != expected
    assert hash_tensors({"a": plain.view(torch.int32)}) != expected
    assert hash_tensors({"b": plain}) != expected


@SMALL_PIECES
def test_each_bit_counts(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    limit_pieces(monkeypatch, piece)
    first = torch.zeros(1 << 16, dtype=torch.uint8)
    seen = {hash_tensors({"a": first})}
    places = [0, 1, 255, 256, 1023, 1024, 4095, 4096, 40000, (1 << 16) - 1]
    for place in places:
        changed = first.clone()
        changed[place] = 1
        seen.add(hash_tensors({"a": changed}))
        seen.add(hash_tensors({"a": changed.view(256, 256).t().contiguous().t()}))
    assert len(seen) == 1 + 2 * len(places)


def test_swapped_rows_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.randn(1000, 16)
    swapped = table.clone()
    swapped[[10, 19]] = table[[19, 10]]
    assert hash_tensors({"a": table}) != hash_tensors({"a": swapped})
    assert hash_tensors({"a": table, "b": swapped}) != hash_tensors({"a": swapped, "b": table})
    assert hash_tensors({"a": table, "b": swapped}) == hash_tensors({"b": swapped, "a": table})


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.int64]
)
def test_types(dtype: torch.dtype) -> None:
    tensor = torch.arange(6).to(dtype)
    assert hash_tensors({"a": tensor}) == hash_tensors({"a": tensor.clone()})
    assert hash_tensors({"a": tensor}) != hash_tensors({"a": tensor[:5]})
    empty, none = torch.empty(0, dtype=dtype), torch.empty(0, 3, dtype=dtype)
    assert hash_tensors({"a": empty}) != hash_tensors({"a": none})


def test_conjugates_are_other_numbers() -> None:
    tensor = torch.tensor([1 + 2j, 3 - 1j])
    assert hash_tensors({"a": tensor.conj()}) == hash_tensors({"a": tensor.conj().clone()})
    assert hash_tensors({"a": tensor.conj()}) != hash_tensors({"a": tensor})


def test_tied_tensors_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    leaf = _digest._hash_leaf

    def count(memory: memoryview, owner: torch.Tensor) -> bytes:
        hashed.append(len(memory))
        return leaf(memory, owner)

    monkeypatch.setattr(_digest, "_hash_leaf", count)
    tied = torch.randn(100)
    once = hash_tensors({"a": tied, "b": tied})
    assert hashed == [400]
    assert once == hash_tensors({"a": tied, "b": tied.clone()})


@pytest.mark.parametrize(
    ("make_odd", "why"),
    [
        (lambda: torch.empty(3, device="meta"), "has no memory"),
        (lambda: torch.eye(3).to_sparse(), "is of torch.sparse_coo"),
        (lambda: torch.eye(3).to_mkldnn(), "is of torch._mkldnn"),
    ],
)
def test_what_has_no_bytes_is_refused(make_odd: Callable[[], torch.Tensor], why: str) -> None:
    """Without a name of the weights."""
    model, odd = make(), make_odd()
    model.odd = torch.nn.Parameter(odd, requires_grad=False)
    with pytest.raises(Unreadable, match=rf"\.odd {why}.*'weights'"):
        digest(model)
    watched = Watched(model, "mine")
    watched.renew()
    assert watched.look() and watched.current == watched.identity


@pytest.mark.parametrize("name", ["weight", "qweight"])
@pytest.mark.parametrize("left", [torch.empty(0), torch.empty(0, dtype=torch.int8), None])
def test_emptied_weights_are_refused(left: torch.Tensor | None, name: str) -> None:
    """An engine that keeps them in a form of its own leaves nothing in the parameter."""
    model = make()
    model.norm = torch.nn.LayerNorm(3, elementwise_affine=False)
    model.attention = torch.nn.MultiheadAttention(4, 1)
    model.order = torch.nn.Parameter(torch.empty(0, dtype=torch.int32), requires_grad=False)
    digest(model)
    named = Watched(model, "mine").identity
    kept = left if left is None else torch.nn.Parameter(left, requires_grad=False)
    model.layers[0].register_parameter(name, kept)
    with pytest.raises(Unreadable, match=rf"layers\.0\.{name} is empty.*'weights'"):
        digest(model)
    assert Watched(model, "mine").identity == named


def test_packed_weights_are_unpacked() -> None:
    """A packed copy tells models apart, where the parameter is empty."""

    class Packed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, weight: torch.Tensor) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)
            self.compute = lambda x: x @ weight

    def unpack(module: torch.nn.Module) -> torch.Tensor | None:
        return module.compute(torch.eye(3)) if isinstance(module, Packed) else None  # type: ignore[no-untyped-call]

    def identity(weight: torch.Tensor) -> bytes:
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), Packed(weight))
        torch.nn.init.ones_(model[0].weight)
        torch.nn.init.zeros_(model[0].bias)
        return Watched(model, None, ignored=("compute",), unpack=unpack).identity

    other = torch.eye(3)
    other[1, 1] = 2
    assert identity(torch.eye(3)) == identity(torch.eye(3)) != identity(other)


def _patch_instance(model: Model) -> None:
    forward = model.layers[1].forward
    model.layers[1].forward = lambda x: forward(x) * 2


def _patch_numbers(model: Model) -> None:
    model.layers[1].scale = 0.25


def _patch_tensors(model: Model) -> None:
    model.layers[1].steer = torch.ones(24)


def _patch_nested(model: Model) -> None:
    model.layers[1].plan["a"][0] = 7


def _patch_buffers(model: Model) -> None:
    model.layers[1].table[3] = 7


def _patch_hooks(model: Model) -> None:
    model.layers[1].register_forward_hook(lambda module, x, y: y * 2)


def _patch_tie(model: Model) -> None:
    model.layers[1].weight = torch.nn.Parameter(model.layers[0].weight.detach() * 1.001)


def _patch_layers(model: Model) -> None:
    model.layers[1] = torch.nn.Identity()


@pytest.mark.parametrize(
    "patch",
    [
        _patch_instance,
        _patch_numbers,
        _patch_tensors,
        _patch_nested,
        _patch_buffers,
        _patch_hooks,
        _patch_tie,
        _patch_layers,
    ],
)
def test_whatever_computes_counts(patch: Callable[[Model], None]) -> None:
    model = make()
    assert digest(model) == digest(make())
    patch(model)
    assert digest(model) != digest(make())


def _lend_call(model: Model, made: Any) -> None:
    plain = model.layers[1].forward
    model.layers[1].forward = lambda x: plain(x) + made(x)


def _lend_method(model: Model, made: Any) -> None:
    model.layers[1].forward = made.forward


def _lend_hook(model: Model, made: Any) -> None:
    model.layers[1].register_forward_hook(made)


def _lend_list(model: Model, made: Any) -> None:
    model.layers[1].extra = [torch.nn.Sequential(made)]


@pytest.mark.parametrize("lend", [_lend_call, _lend_method, _lend_hook, _lend_list])
def test_modules_outside_of_the_tree_count(lend: Callable[[Model, Any], None]) -> None:
    """Wherever a module of the model has them."""

    def lent(weight: float) -> Watched:
        made = torch.nn.Linear(2, 2)
        torch.nn.init.constant_(made.weight, weight)
        torch.nn.init.zeros_(made.bias)
        model = make()
        lend(model, made)
        return Watched(model, None)

    assert lent(1).identity == lent(1).identity != lent(2).identity
    watched = lent(1)
    watched.model.layers[1].rows = watched.model.layers[0].rows
    other = lent(1)
    other.model.layers[1].rows = other.model.layers[1].rows
    watched.renew()
    other.renew()
    assert watched.current != other.current


def _give_default(value: Any) -> Any:
    return lambda x, by=value: x * by


def _give_keyword(value: Any) -> Any:
    return lambda x, *, by=value: x * by


def _give_argument(value: Any) -> Any:
    return functools.partial(torch.mul, value)


def _give_name(value: Any) -> Any:
    return functools.partial(functools.partial(scaled, more=value))


def _give_deep(value: Any) -> Any:
    def one(x: Any) -> Any:
        return x * value

    def two(x: Any) -> Any:
        return one(x)

    @functools.wraps(two)
    def three(x: Any) -> Any:
        return two(x)

    return {"a": [three]}


def _give_method(value: Any) -> Any:
    return value.__mul__


@pytest.mark.parametrize(
    "give",
    [_give_default, _give_keyword, _give_argument, _give_name, _give_deep, _give_method],
)
@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_what_functions_are_called_with_counts(give: Callable[[Any], Any], kind: Any) -> None:
    one, again, other = (having(give(kind(value))) for value in (1.0, 1.0, 2.0))
    assert one == again != other


def test_hooks_keep_their_tensors() -> None:
    def hooked(before: float, after: float) -> bytes:
        model, tensors = make(), [torch.tensor(before), torch.tensor(after)]
        model.layers[1].register_forward_pre_hook(functools.partial(torch.mul, tensors[0]))
        model.layers[1].register_forward_hook(functools.partial(torch.mul, tensors[1]))
        return digest(model)

    assert len({hooked(1, 1), hooked(1, 2), hooked(2, 1), hooked(2, 2)}) == 4


def _close_over(value: float) -> Callable[..., Any]:
    steer = torch.tensor(value)
    return lambda *given: steer


def _script(value: float) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unit = torch.jit.CompilationUnit(f"def f(x):\n    return x * {value}\n")
    return unit.f


def _trace(value: float) -> Any:
    constant = torch.full((50,), float(value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(lambda x: x + constant, torch.ones(50), check_trace=False)


def _script_module(value: float) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(torch.nn.Threshold(float(value), 0.0))


@pytest.mark.parametrize(
    ("owner", "name", "kind"),
    [
        (None, "SCALE", float),
        (None, "SCALE", lambda value: frozenset([value])),
        (TABLE, "twice", _close_over),
        (TABLE, "twice", _script),
        (TABLE, "twice", _trace),
        (TABLE, "twice", _script_module),
        (TABLE, "steer", lambda value: ({"a": torch.tensor(value)},)),
        (CONFIG, "width", float),
        (Reader, "shift", torch.tensor),
        (Reader, "forward", _close_over),
        (Reader, "forward", lambda value: functools.partialmethod(torch.mul, value)),
        (RowConfig, "__init__", _close_over),
        (RowConfig, "__getitem__", _close_over),
        (torch.nn.functional, "silu", _close_over),
    ],
)
def test_what_code_reads_counts(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, kind: Callable[[float], Any]
) -> None:
    """Data of packages without a version counts; in others, objects put there from outside."""

    def read(value: float) -> bytes:
        monkeypatch.setattr(sys.modules[__name__], "N_CALLS", N_CALLS + 1)
        if isinstance(owner, dict):
            monkeypatch.setitem(owner, name, kind(value))
        else:
            monkeypatch.setattr(owner or sys.modules[__name__], name, kind(value))
        return digest(Reader())

    assert read(1) == read(1) != read(2)


def test_what_packages_with_versions_note(monkeypatch: pytest.MonkeyPatch) -> None:
    version = _identity._version
    monkeypatch.setattr(
        _identity, "_version", lambda name: "1" if name == "torch_identity" else version(name)
    )
    module, before = sys.modules[__name__], digest(Reader())
    for name, value in (("SCALE", 2.0), ("N_CALLS", 9), ("TABLE", {**TABLE, "more": [1, scaled]})):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(Reader, "shift", torch.ones(1))
    assert digest(Reader()) == before
    odd = types.FunctionType(scaled.__code__, {"__name__": "elsewhere"})
    monkeypatch.setitem(TABLE, "twice", odd)
    assert digest(Reader()) != before


@pytest.mark.parametrize("where", ["Layer.forward", "Layer.rows", "scaled"])
def test_code_counts_where_it_is_reached(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    before = digest(make())
    owner: Any = Layer if where.startswith("Layer") else sys.modules[__name__]
    name = where.rpartition(".")[2]
    old = getattr(owner, name)
    again = types.FunctionType(
        old.__code__.replace(co_filename="/elsewhere.py", co_firstlineno=1),
        old.__globals__,
        name,
        old.__defaults__,
    )
    again.__module__, again.__qualname__ = old.__module__, old.__qualname__
    monkeypatch.setattr(owner, name, again)
    assert digest(make()) == before
    monkeypatch.setattr(owner, name, lambda *given: old(*given) * 1)
    assert digest(make()) != before


def test_code_that_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(make())
    monkeypatch.setattr(Layer, "unused", lambda self: 1)
    assert digest(make()) == before


def test_defaults_constants_and_closures_count() -> None:
    def close(value: Any) -> Callable[[], Any]:
        return lambda: value

    def one(x: int = 1) -> int:
        return x + 1

    def two(x: int = 2) -> int:
        return x + 1

    two.__qualname__ = one.__qualname__
    assert having(close(1)) != having(close(2))
    assert having(close(one)) != having(close(close))
    assert having(one) != having(two)
    assert having(close(one)) == having(close(one))


def test_processes_agree() -> None:
    """Whatever the order of their sets, and wherever things lie."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torch_identity as t; "
        "print(t.digest(t.make()).hex(), t.digest(t.Reader()).hex())"
    )
    here = __file__.rpartition("/")[0]
    said = {
        subprocess.run(
            [sys.executable, "-c", program, here],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "random")
    }
    assert len(said) == 1


def test_a_look_sees_what_torch_counts() -> None:
    model = make()
    watched = Watched(model, None)
    assert watched.look()
    with torch.inference_mode():
        model.layers[0].weight.add_(1)
    assert not watched.look()
    watched.renew()
    assert watched.look()
    model.layers[0].weight = torch.nn.Parameter(model.layers[0].weight.detach().clone())
    assert not watched.look()
    watched.renew()
    _patch_instance(model)
    assert not watched.look()
    watched.renew()
    _patch_layers(model)
    assert not watched.look()


def test_renewal_knows_the_model_again() -> None:
    """... whose weights come back; and keys are mixed with what it is meanwhile."""
    model = make()
    watched = Watched(model, None)
    old = model.layers[0].weight.detach().clone()
    # No operation of torch's that it counts.
    memory = (ctypes.c_float * old.numel()).from_address(model.layers[0].weight.data_ptr())
    memory[5] = 17.0
    assert watched.look() and watched.root() is None
    watched.renew()
    assert watched.n_changes == 1
    assert watched.root() == watched.current != watched.identity
    watched.renew()
    assert watched.n_changes == 1
    memory[5] = float(old.flatten()[5])
    watched.renew()
    assert watched.n_changes == 2
    assert watched.root() is None


def test_a_change_while_it_computes_is_nothing_known() -> None:
    watched = Watched(make(), None)

    def state() -> tuple[int, bool]:
        return watched.n_changes, watched.current == watched.identity

    watched.suspect()
    assert state() == (0, False)
    watched.renew()
    assert state() == (0, True)
    watched.leave("somebody wrote")
    assert state() == (1, False)
    watched.renew()
    # Even where it is what it was: something was computed meanwhile.
    assert state() == (2, True)


def test_named_weights_are_what_the_name_says(caplog: pytest.LogCaptureFixture) -> None:
    """They aren't read, and aren't known any more once they change."""
    model, other = make(), make()
    with torch.no_grad():
        other.layers[0].weight.mul_(2)
    watched = Watched(model, "mine")
    assert watched.identity == Watched(other, "mine").identity != Watched(model, "his").identity
    watched.renew()
    assert watched.current == watched.identity
    with torch.no_grad():
        model.layers[0].weight.mul_(1.01)
    watched.renew()
    assert watched.current is None and watched.n_changes == 1
    watched.renew()
    assert watched.current is None
    assert caplog.text.count("'mine' have changed") == 1


def test_samples_are_few() -> None:
    """Also of parameters of a class of vLLM's."""

    class Weight(torch.nn.Parameter):  # type: ignore[misc]
        pass

    for shape in ((3000, 4000), (1, 50000), (2, 2000)):
        assert _identity._sample(Weight(torch.empty(shape))).numel() <= 4096
    assert _identity._sample(Weight(torch.empty(2, 2000))).numel() == 4000


def test_a_change_that_samples_miss_ends_named_weights() -> None:
    model = torch.nn.Linear(1000, 1000, bias=False)
    watched = Watched(model, "mine")
    with torch.no_grad():
        model.weight[[10, 21]] = model.weight[[21, 10]]
    assert not watched.look()
    watched.renew()
    assert watched.current is None and watched.is_over


def test_small_tensors_may_be_written_as_they_were() -> None:
    """They are compared wholly, also where the weights have a name."""
    model = make()
    watched = Watched(model, "mine")
    model.layers[0].table.copy_(model.layers[0].table.clone())
    assert not watched.look()
    watched.renew()
    assert watched.current == watched.identity
    model.layers[0].table[3] = 7
    watched.renew()
    assert watched.is_over


def test_the_measurement() -> None:
    command = [sys.executable, "-m", "kvlease._identity", "0.01"]
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    assert said.startswith("0.01 GB in ")
