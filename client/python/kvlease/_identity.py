"""What computes, told apart by a digest of it as it is in memory: the tensors of a model, and code.

    python -m kvlease._identity GIGABYTES

says how long the tensors of a model of that size take.
"""

from __future__ import annotations

import argparse
import contextlib
import dis
import enum
import functools
import importlib.metadata
import json
import logging
import os
import re
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from kvlease._digest import Unreadable, hash_parts, hash_tensors, is_readable

_logger = logging.getLogger("kvlease")

# Elements of a tensor that tell whether it may have changed.
_N_SAMPLES = 4096

# Packages whose code isn't looked at: their versions say what they compute. kvlease computes
# nothing.
_BY_VERSION = frozenset(
    {"torch", "torchvision", "torchaudio", "triton", "numpy", "functorch", "kvlease"}
) | frozenset(sys.stdlib_module_names)
# Attributes of a module of torch that say nothing of what it computes, or are looked at otherwise.
_OF_MODULES = frozenset(vars(torch.nn.Module())) - {"training"}
# Of attributes that are written while the model computes, or say where it is from.
_SCRATCH = ("kv_cache", "workspace", "scratch", "buffer_pool", "name_or_path")
# Parameters without which a layer computes nothing. torch's attention has other names, for some
# that may be missing.
_WEIGHTS = ("weight", "qweight", "weight_packed")
# vLLM's, such as the output layer of an embedding model.
_MISSING = "vllm.model_executor.models.utils.StageMissingLayer"
# Methods that make objects.
_MAKING = ("__new__", "__init__", "__post_init__", "__init_subclass__")
# How deep objects are looked into, from a module of torch or a function on: numbers of those that
# it has, of theirs the code alone.
_DEPTH = 2
_DATA_DEPTH = 8

Roots = Iterable[tuple[str, Any]]


# ---- the model


def hash_values(value: Any) -> bytes:
    """Of tensors, numbers and words in objects that are data: lists, dictionaries, attributes."""
    tensors: dict[str, torch.Tensor] = {}
    words: list[bytes] = []

    def add(name: str, value: Any, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        elif (word := _word(value)) is not None or depth > _DATA_DEPTH:
            words.append(f"{name} {word}".encode())
        elif isinstance(value, list | tuple):
            for i, each in enumerate(value):
                add(f"{name}.{i}", each, depth + 1)
        else:
            inner = value if isinstance(value, dict) else getattr(value, "__dict__", {})
            words.append(f"{name} {_name_of(type(value))}".encode())
            for key in sorted(inner, key=str):
                add(f"{name}.{key}", inner[key], depth + 1)

    add("", value, 0)
    return hash_parts(hash_tensors(tensors), *words)


class _State:
    """What a model has in memory: its tensors by name, its numbers, and where its code is."""

    def __init__(self, model: torch.nn.Module, ignored: frozenset[str], roots: Roots) -> None:
        """ignored: names of attributes that don't change what modules compute. roots: functions and
        classes that compute beside the model's."""
        self.tensors: dict[str, torch.Tensor] = {}
        self.words: list[tuple[str, str]] = []
        self.dropped: list[str] = []
        """Names of weights that were there. A norm may have none."""
        self.modules: list[torch.nn.Module] = []
        """Those of the model, and others that its modules or their functions have."""
        self._ignored = ignored | _OF_MODULES
        self._met: dict[int, tuple[str, Any]] = {}
        self._code = _Code(self)
        self._add_modules("", model)
        hooks = torch.nn.modules.module
        self._add_hooks("", hooks._global_forward_pre_hooks, hooks._global_forward_hooks)
        for name, value in roots:
            self._code.add(name, value)
        self.code = self._code.digest()

    def _add_modules(self, name: str, root: torch.nn.Module) -> None:
        if self._is_met(name, root):
            return
        modules = list(root.named_modules(prefix=name, remove_duplicate=False))
        for each, module in modules:
            if module is root or not self._is_met(each, module):
                self.modules.append(module)
        for each, module in modules:
            self._add_module(each, module)

    def _is_met(self, name: str, value: Any) -> bool:
        """A module or function that was met before is said by the name that it had then."""
        if is_met := id(value) in self._met:
            self.words.append((name, f"is {self._met[id(value)][0]}"))
        else:
            self._met[id(value)] = name, value
        return is_met

    def _add_module(self, name: str, module: torch.nn.Module) -> None:
        self.words.append((name, _name_of(type(module))))
        self._code.add("", type(module))
        for kind in (module._parameters, module._buffers):
            for key, tensor in kind.items():
                if tensor is not None:
                    self.add(f"{name}.{key}", tensor)
                elif key in _WEIGHTS and "norm" not in type(module).__name__.lower():
                    self.dropped.append(f"{name}.{key}")
        self._add_hooks(name, module._forward_pre_hooks, module._forward_hooks)
        # An adapter's layers have tensors of the adapters beside those of the model. A missing
        # layer computes nothing, and the layer that it stands for may have no memory.
        own = type(module)
        if _package(own.__module__, 2) != "vllm.lora" and _name_of(own) != _MISSING:
            self._add_attributes(name, module, 0)
        if isinstance(module, torch.jit.ScriptModule):
            self._code.add(name, module)

    def _add_hooks(self, name: str, *kinds: Mapping[int, Any]) -> None:
        for each, kind in enumerate(kinds):
            for i, hook in enumerate(kind.values()):
                self.add(f"{name}.hook{each}.{i}", hook)

    def _add_attributes(self, name: str, owner: Any, depth: int) -> None:
        for key, value in sorted(getattr(owner, "__dict__", {}).items(), key=lambda pair: pair[0]):
            if key not in self._ignored and not _is_scratch(key):
                self.add(f"{name}.{key}", value, depth)

    def add(self, name: str, value: Any, depth: int = 0, nested: int = 0) -> None:
        """depth: of the object that has it. nested: in so many lists and dictionaries."""
        if isinstance(value, torch.Tensor):
            # Functions that are called alike may have other tensors each.
            while self.tensors.setdefault(name, value) is not value:
                name += "'"
        elif isinstance(value, torch.nn.Module):
            self._add_modules(name, value)
        elif isinstance(value, type):
            self.words.append((name, _name_of(value)))
            self._code.add("", value)
        elif (word := _word(value)) is not None:
            self.words.append((name, word))
        elif isinstance(value, list | tuple | dict):
            for key, each in _items(value) if nested < _DATA_DEPTH else ():
                self.add(f"{name}.{key}", each, depth, nested + 1)
        elif isinstance(value, set | frozenset):
            self.words += [(name, word) for word in sorted(filter(None, map(_word, value)))]
        elif (callable(value) or isinstance(value, functools.partialmethod)) and not _is_followed(
            type(value)
        ):
            self.words.append((name, _name_of(_function(value))))
            self._code.add(name, value)
            self.add_bound(name, value, depth)
        elif _is_followed(type(value)) and depth < _DEPTH and not _is_configuration(value):
            self.words.append((name, _name_of(type(value))))
            self._code.add("", type(value))
            if depth + 1 < _DEPTH:
                self._add_attributes(name, value, depth + 1)

    def add_bound(self, name: str, function: Any, depth: int = 0) -> None:
        """What a function has beside its code."""
        if not self._is_met(name, function):
            for key, part in _bound(function):
                self.add(f"{name}<{key}>", part, depth)


def _word(value: Any) -> str | None:
    """A number, or a word, that is the same in every process; None: it is something else."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | float | complex | torch.dtype):
        return repr(value)
    if isinstance(value, str) and "/" not in value:
        return repr(value)
    return None


def _items(value: Any) -> list[tuple[str | int, Any]]:
    """The pairs of a list or dictionary, in an order that is the same in each process; [] where
    there are more than _N_SAMPLES. Entries that a dictionary makes on demand aren't among them."""
    pairs = list(dict.items(value) if isinstance(value, dict) else enumerate(value))
    found = [pair for pair in pairs if isinstance(pair[0], str | int)]
    return sorted(found, key=lambda pair: str(pair[0])) if len(pairs) <= _N_SAMPLES else []


def _is_scratch(name: str) -> bool:
    return any(word in name for word in _SCRATCH)


def _is_configuration(value: Any) -> bool:
    """It is in the settings, or has nothing to do with what is computed."""
    names = [_name_of(kind) for kind in type(value).__mro__ if not _is_own(kind)]
    return any("config" in name.lower() for name in names) or names[0].startswith(
        ("vllm.distributed", "vllm.lora")
    )


def _package(module: str, n_parts: int = 1) -> str:
    return ".".join(module.split(".")[:n_parts])


def _name_of(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"


def _module_of(value: Any) -> str | None:
    """ "": of a function that was made without one; None: nothing has code by itself there."""
    module = getattr(value, "__module__", None)
    return "" if module is None and isinstance(value, types.FunctionType) else module


def _is_followed(value: Any) -> bool:
    """Whether its code is looked at."""
    module = _module_of(value)
    return isinstance(module, str) and _package(module) not in _BY_VERSION


def _is_own(value: Any) -> bool:
    """Whether its package has no version, as the model's own code or a patch of the user's."""
    module = _module_of(value)
    return isinstance(module, str) and _is_own_module(module)


def _is_own_module(name: str) -> bool:
    return _package(name) not in _BY_VERSION and not _version(_package(name))


def _function(value: Any) -> Any:
    """What is called in the end."""
    while True:
        if isinstance(value, functools.partial | functools.partialmethod):
            value = value.func
        elif isinstance(value, staticmethod | classmethod | types.MethodType):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, functools.cached_property):
            value = value.func
        else:
            return value


_FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)


def _bound(value: Any) -> list[tuple[str, Any]]:
    """Parts of a function beside its code: cells, the function it wraps, the object it is bound to,
    defaults and arguments, each with a name."""
    if isinstance(value, functools.partial | functools.partialmethod):
        given = [*enumerate(value.args), *sorted(value.keywords.items())]
        return [("func", value.func), *((str(key), part) for key, part in given)]
    if isinstance(value, types.MethodType):
        return [("self", value.__self__), ("func", value.__func__)]
    if isinstance(value, types.BuiltinMethodType | types.MethodWrapperType):
        return [("self", value.__self__)]
    found = [("wrapped", getattr(value, "__wrapped__", None))]
    if isinstance(value, types.FunctionType):
        for key, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # it is empty
                found.append((key, cell.cell_contents))
        found += _defaults(value)
    return found


def _defaults(function: types.FunctionType) -> list[tuple[str, Any]]:
    given = [*enumerate(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    return [(f"{key}=", value) for key, value in given]


# ---- code


class _Code:
    """A digest of all functions that compute.

    A function counts where a function that counts uses its name; a method does whatever its class.
    Its bytecode counts, not its file or line. Packages of _BY_VERSION count by their version alone.

    Numbers, tensors and objects that functions read, of a Python module or a class, count where
    that belongs to a package without a version: the model's own. A package with a version begins
    with the same ones everywhere, and keeps counters and caches there as it runs. Exceptions:
    - Global names that a function assigns don't count: they are such counters.
    - Functions and objects of packages without a version count wherever they were put.
    """

    def __init__(self, state: _State) -> None:
        """state: gets what isn't code."""
        self._state = state
        self._said: set[bytes] = set()
        self._packages: set[str] = set()
        self._seen: dict[int, Any] = {}
        self._left: list[types.FunctionType] = []
        self._asked = {"forward"}
        self._unasked: dict[str, list[tuple[type, Any]]] = {}
        # By the place where they are: names of modules that have no version, and those assigned.
        self._read: dict[tuple[int, str], tuple[str, Any]] = {}
        self._to_read: list[tuple[int, str]] = []
        self._assigned: set[tuple[int, str]] = set()

    def digest(self) -> bytes:
        """When all was added."""
        while self._left or self._to_read:
            while self._left:
                self._open_function(self._left.pop())
            places, self._to_read = self._to_read, []
            for place in places:
                name, value = self._read[place]
                is_noted = place in self._assigned or _is_scratch(place[1])
                if callable(value) or not is_noted:
                    self._add_found(name, value, True)
        versions = [f"{name} {_version(name)}".encode() for name in sorted(self._packages)]
        python = f"{sys.implementation.cache_tag}".encode()
        return hash_parts(b"kvlease code 1", python, *versions, *sorted(self._said))

    def add(self, name: str, value: Any) -> None:
        """A name stands for it."""
        value = _function(value)
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None and wrapped is not value and callable(wrapped):
            self.add(f"{name}<wrapped>", wrapped)
        if isinstance(value, type):
            self._say(name, _name_of(value).encode())
            for each in value.__mro__:
                if self._is_new(each):
                    self._open_class(each)
        elif isinstance(value, types.FunctionType):
            self._say(name, _hash_function(value))
            if self._is_new(value):
                self._left.append(value)
        elif (word := _word(value)) is not None:
            self._say(name, word.encode())
        elif isinstance(value, torch.jit.ScriptFunction | torch.jit.ScriptModule):
            self._add_script(name, value)
        elif callable(value) and _is_followed(type(value)):
            self.add(f"{name}<type>", type(value))
        elif isinstance(getattr(value, "fn", None), types.FunctionType):  # a kernel of triton's
            self.add(f"{name}<fn>", value.fn)

    def _add_script(self, name: str, value: Any) -> None:
        try:
            graph = value.inlined_graph
        except (AttributeError, RuntimeError):  # a module without a forward()
            return
        # Types that are called alike are numbered as they are made.
        self._say(name, re.sub(r"___torch_mangle_\d+\.", "", graph.str(False)).encode())
        for node in graph.findAllNodes("prim::Constant"):
            if node.hasAttribute("value") and node.kindOf("value") == "t":
                self._state.add(f"{name}<constant>", node.t("value"))

    def _add_found(self, name: str, value: Any, is_own: bool) -> None:
        """What code asks for; is_own: the module, class or function that has it has no version."""
        if isinstance(value, _FUNCTIONS):
            self.add(name, value)
        elif is_own or _is_own(_function(value)):
            is_noted = _is_followed(type(value)) and not _is_own(value)
            self._state.add(name, value, _DEPTH - 1 if is_noted else 0)
        elif isinstance(value, list | tuple | dict):
            for key, each in _items(value):
                if _is_own(_function(each)):
                    self._add_found(f"{name}.{key}", each, False)
        else:
            self.add(name, value)

    def _is_new(self, value: Any) -> bool:
        """Whether it is to be looked into, and wasn't yet."""
        module = _module_of(value)
        if id(value) in self._seen or not isinstance(module, str):
            return False
        if _package(module) not in sys.stdlib_module_names:
            self._packages.add(_package(module))
        self._seen[id(value)] = value
        return _is_followed(value)

    def _say(self, name: str, what: bytes) -> None:
        self._said.add(hash_parts(name.encode(), what))

    def _open_class(self, kind: type) -> None:
        for name, value in list(vars(kind).items()):
            if name in self._asked or _is_special(kind, name, value):
                self._add_member(kind, name, value)
            else:
                self._unasked.setdefault(name, []).append((kind, value))

    def _add_member(self, kind: type, name: str, value: Any) -> None:
        if isinstance(value, type):
            self._say(f"{_name_of(kind)}.{name}", _name_of(value).encode())
        else:
            self._add_found(f"{_name_of(kind)}.{name}", value, _is_own(kind))

    def _open_function(self, function: types.FunctionType) -> None:
        where = f"{_name_of(function)} "
        if _is_own(function):
            self._state.add_bound(where, function)
        else:
            for key, part in _bound(function):
                is_given = isinstance(part, torch.Tensor | torch.nn.Module)
                self._add_found(f"{where}<{key}>", part, is_given)
        found, names = function.__globals__, _names(function.__code__)
        is_own = _is_own_module(str(found.get("__name__", "")))
        if is_own:
            self._assigned |= {(id(found), name) for name in _assigned(function.__code__)}
        for name in sorted(names):
            if name not in self._asked:
                self._asked.add(name)
                for kind, member in self._unasked.pop(name, ()):
                    self._add_member(kind, name, member)
            if name in found:
                if isinstance(found[name], types.ModuleType):
                    self._look_into(f"{where}{name}", found[name], names, 0)
                else:
                    self._ask_for(where, found, name, is_own)

    def _look_into(self, name: str, module: Any, names: set[str], depth: int) -> None:
        """names: all that a function may ask of a Python module that it names."""
        found = vars(module)
        is_own = _is_own_module(str(found.get("__name__", "")))
        for each in sorted(names & found.keys()):
            inner = found[each]
            if isinstance(inner, types.ModuleType):
                if depth < _DEPTH:
                    self._look_into(f"{name}.{each}", inner, names, depth + 1)
            elif is_own or not callable(inner) or _is_followed(_function(inner)):
                self._ask_for(f"{name}.", found, each, is_own)

    def _ask_for(self, where: str, module: dict[str, Any], name: str, is_own: bool) -> None:
        """What a module has, under a name that a function asks it for."""
        value, place = module[name], (id(module), name)
        if is_own and place not in self._read:
            self._read[place] = f"{module.get('__name__')}.{name}", value
            self._to_read.append(place)
        elif not is_own and (
            callable(value) or isinstance(value, list | tuple | dict) or _is_own(value)
        ):
            self._add_found(f"{where}{name}", value, False)


def _is_special(kind: type, name: str, value: Any) -> bool:
    """Whether it is a method that is called without being named."""
    function = _function(value)
    if name in _MAKING:
        return not issubclass(kind, torch.nn.Module) and _is_own(function)
    return name.startswith("__") and name.endswith("__") and callable(function)


def _assigned(code: types.CodeType) -> set[str]:
    """Global names that a function and those in it assign."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname == "STORE_GLOBAL"}
    return found.union(*(_assigned(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def _names(code: types.CodeType) -> set[str]:
    """All that a function and those in it may look up."""
    found = set(code.co_names)
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            found |= _names(value)
    return found


def _hash_function(function: types.FunctionType) -> bytes:
    """Of what it runs, and of the plain values it is called with by default."""
    words = [f"{key}{_word(value)}".encode() for key, value in _defaults(function)]
    return hash_parts(_name_of(function).encode(), _hash_run(function.__code__), *words)


@functools.lru_cache(maxsize=1 << 16)
def _hash_run(code: types.CodeType) -> bytes:
    numbers = (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
    )
    constants = [_hash_constant(value) for value in code.co_consts]
    return hash_parts(repr(numbers).encode(), code.co_code, code.co_exceptiontable, *constants)


def _hash_constant(value: Any) -> bytes:
    if isinstance(value, types.CodeType):
        return _hash_run(value)
    if isinstance(value, tuple):
        return hash_parts(b"tuple", *map(_hash_constant, value))
    if isinstance(value, frozenset):
        return hash_parts(b"set", *sorted(map(_hash_constant, value)))
    return f"{type(value).__name__} {value!r}".encode()


@functools.cache
def _version(package: str) -> str:
    if package in sys.stdlib_module_names or package in ("", "kvlease", "__main__"):
        return ""
    made = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(made, str):
        return made
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def settings_of(config: Any) -> str:
    """What a configuration of transformers says of a model, but for where that is from."""
    given = config.to_dict().items()
    settings = {k: v for k, v in given if k not in ("transformers_version", "_name_or_path")}
    return json.dumps(settings, sort_keys=True, default=str)


def plug_ins(*groups: str) -> bytes:
    """Names and versions of installed packages that change an engine, but for kvlease."""
    found = {
        f"{group} {point.name} {point.value} {point.dist.name} {point.dist.version}"
        for group in groups
        for point in importlib.metadata.entry_points(group=group)
        if point.dist is not None and point.dist.name != "kvlease"
    }
    return "\n".join(sorted(found)).encode()


# ---- a model that runs


class Watched:
    """A model, its identity when this is made, and what it is later.

    A change is seen by look(), where torch counts it or a tensor or function has another place, and
    by renew(), which compares everything. What look() can't see: writes by fused optimizers, by
    kernels, and by other processes.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        name: str | None,
        *,
        ignored: Iterable[str] = (),
        roots: Callable[[], Roots] = tuple,
        unpack: Callable[[torch.nn.Module], torch.Tensor | None] = lambda _: None,
    ) -> None:
        """name: of the weights, which the user vouches for: their bytes don't count. roots: code
        that computes beside the model's own. unpack: the weight of a module that computes with
        a packed copy of it; None: the module doesn't. Unreadable where the tensors can't be
        compared."""
        self.model = model
        """Where it is exchanged, renew() says what that makes of it."""
        self._name = name
        self._ignored = frozenset(ignored)
        self._roots = roots
        self._unpack = unpack
        self._lock = threading.Lock()
        self._samples: bytes | None = None
        self._first: tuple[bytes, set[str]] | None = None
        self._known = self.identity = self._take()
        """Of the model as it was first."""
        self.current: bytes | None = self.identity
        """Of the model as it is; None: it may be another one."""
        self.n_changes = 0
        self.is_over = False
        """Nothing makes it known again: it can't be read, or isn't what its name says."""

    def _take(self) -> bytes:
        began = time.monotonic()
        state = _State(self.model, self._ignored, self._roots())
        code = state.code
        modules = state.modules
        # Those that are empty now may be left out: what uses them later is other code.
        self._held = [kind for m in modules for kind in (m._parameters, m._buffers) if kind]
        self._children = [m._modules for m in modules if m._modules]
        self._hooks = [each for m in modules for each in (m._forward_hooks, m._forward_pre_hooks)]
        self._own = [vars(m) for m in modules]
        self._classes: list[Any] = sorted(set(map(type, modules)), key=_name_of)
        # What is written meanwhile is seen by the next look().
        self._marks = self._mark()
        if self._first is None:
            self._first = code, {name for name, _ in state.words}
        # Engines note things in their modules as they run, which the same code can do without.
        known = self._first[1] if code == self._first[0] else {name for name, _ in state.words}
        words = hash_parts(*(f"{n} {word}".encode() for n, word in state.words if n in known))
        if self._name is None:
            tensors = self._hash_tensors(state)
        else:
            tensors = self._name.encode()
            readable = {k: v for k, v in state.tensors.items() if is_readable(v)}
            self._samples = hash_tensors({k: _sample(v) for k, v in readable.items()})
        _logger.debug("told the model apart in %.2f s", time.monotonic() - began)
        return hash_parts(tensors, words, code)

    def _hash_tensors(self, state: _State) -> bytes:
        """One unpacked weight is in memory at a time."""
        packed = {}
        for name, module in self.model.named_modules():
            weight = self._unpack(module)
            if weight is not None:
                packed[module] = hash_tensors({name: weight})
        for name in _emptied(state):
            if self.model.get_submodule(name.rpartition(".")[0]) not in packed:
                raise Unreadable(
                    f"the model's parameter {name} is empty: the engine keeps its numbers "
                    "elsewhere, where they can't be read, and 'weights' has to name them"
                )
        tensors = hash_tensors(state.tensors)
        return hash_parts(tensors, *packed.values()) if packed else tensors

    def _mark(self) -> tuple[int, int]:
        """Another one where something was changed in a way that torch tells; the second number says
        that of named weights which samples don't tell wholly. Asked with each step of an engine."""
        tensors = [t for held in self._held for t in held.values() if t is not None]
        forwards = [getattr(kind, "forward", None) for kind in self._classes]
        marks: list[Any] = [getattr(forward, "__code__", None) for forward in forwards]
        marks += [id(child) for children in self._children for child in children.values()]
        marks += [id(own["forward"]) for own in self._own if "forward" in own]
        marks += [tuple(hooks) for hooks in self._hooks if hooks]
        marks += _counts(tensors)
        named = tensors if self._name is not None else []
        large = [t for t in named if t.numel() > _N_SAMPLES or not is_readable(t)]
        return hash(tuple(marks)), hash(tuple(_counts(large)))

    def look(self) -> bool:
        """Whether nothing has changed that can be seen in a moment."""
        return self._mark() == self._marks

    def root(self) -> bytes | None:
        """What keys are mixed with where the model isn't the one that it was first; else None."""
        if self.current == self.identity or self.current is None:
            return None
        return self.current

    def suspect(self) -> None:
        """It may be changed from now on, and computes nothing before renew()."""
        self.current = None

    def leave(self, why: str) -> None:
        """It has changed, and computes on: it is nothing that is known until renew()."""
        if self.current is not None:
            _logger.warning("%s: nothing is found or published until that is over", why)
            self.n_changes += 1
        self._known = b""
        self.current = None

    def renew(self) -> None:
        """Compares all there is. A model whose weights the user has named isn't known any more
        once they have changed. Several threads may ask at once."""
        with self._lock:
            self._renew()

    def _renew(self) -> None:
        if self.is_over:
            return
        samples, marks = self._samples, self._marks
        try:
            made: bytes | None = self._take()
        except Unreadable as error:
            self.leave(str(error))
            self.is_over = True
            return
        if self._name is not None and (
            not self._known or samples != self._samples or marks[1] != self._marks[1]
        ):
            _logger.warning(
                "the weights that are named %r have changed: nothing is found or published before "
                "the engine starts anew",
                self._name,
            )
            self.is_over, made = True, None
        if made != self._known:
            self.n_changes += 1
            self._known = made or b""
            if made is not None:
                _logger.info("the model has changed: its pages are those of %s", made.hex()[:12])
        self.current = made


def _emptied(state: _State) -> list[str]:
    """Names of weights that an engine keeps in a form of its own, and nothing in the tensor.
    Integers that aren't weights, as orders of channels, may be empty."""
    return state.dropped + [
        name
        for name, tensor in state.tensors.items()
        if isinstance(tensor, torch.nn.Parameter)
        and not tensor.numel()
        and (tensor.is_floating_point() or name.endswith(_WEIGHTS))
    ]


def _counts(tensors: list[torch.Tensor]) -> list[Any]:
    """Which tensors these are, where they lie, and how many writes to each torch has counted."""
    try:
        addresses, versions = [t.data_ptr() for t in tensors], [t._version for t in tensors]
        return [*map(id, tensors), *addresses, *versions]
    except RuntimeError:
        # A sparse tensor has no address, and torch counts no write to a tensor of inference mode.
        return [
            (id(t), t.data_ptr() if is_readable(t) else 0, t.is_inference() or t._version)
            for t in tensors
        ]


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Some elements, at equal distances; all, where these are few."""
    if tensor.numel() <= _N_SAMPLES or hasattr(tensor, "__tensor_flatten__"):
        return tensor
    n_each = max(1, round(_N_SAMPLES ** (1 / tensor.dim())))
    return tensor.detach()[tuple(slice(None, None, -(-n // n_each) or 1) for n in tensor.shape)]


def main() -> None:
    """Hashes one GB as often as is asked for, as other tensors each time."""
    parser = argparse.ArgumentParser(prog="python -m kvlease._identity", description=__doc__)
    parser.add_argument("gigabytes", type=float)
    n_bytes = int(parser.parse_args().gigabytes * 1e9)
    n_each = min(n_bytes, 10**9)
    memory = torch.empty(n_each + 64 * (n_bytes // n_each), dtype=torch.uint8).random_()
    tensors = {
        str(i): memory[64 * i : 64 * i + n_each].view(torch.bfloat16)
        for i in range(n_bytes // n_each)
    }
    began = time.perf_counter()
    hash_tensors(tensors)
    seconds = time.perf_counter() - began
    n_gigabytes = n_each * len(tensors) / 1e9
    n_processors = len(os.sched_getaffinity(0))
    print(f"{n_gigabytes:g} GB in {seconds:.1f} s, {n_processors} processors")


if __name__ == "__main__":
    main()
