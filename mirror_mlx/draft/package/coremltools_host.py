"""The fallback host: Core ML through coremltools, where PyObjC cannot be had. macOS 15 or newer, Apple silicon.

What it costs beside `coreml.CoreMLHost`: a prediction holds the GIL from beginning to end (coremltools' `coremlpython`
never releases it), so the target must have submitted its GPU work before; and all tensors are copied as fp32.

Its traps, and what is done:

- Core ML lets go of inputs about a second after a prediction, on a thread of its own, and coremltools then counts down
  the numpy array without the GIL (apple/coremltools#2827, #2829). So each call lends array objects of its own, which
  nobody touches for `LINGER` seconds: that thread is never the last to hold one, and races with nobody. The memory
  behind them is the same in every call.
- fp16 inputs would be replaced by temporaries of coremltools' own, which nobody keeps: they are given as fp32.
- fp16 outputs come back as fp32: they are made fp16 again, exactly.
- Two predictions at once on one state are undefined: one at a time.
- `MLModel` compiles a package anew for each function of each process: `CompiledMLModel` is used, on the cache.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mirror_mlx.draft.package import compiled
from mirror_mlx.draft.package.coreml_bridge import one_line, require_mac
from mirror_mlx.draft.package.coreml_features import Features, check
from mirror_mlx.draft.package.coreml_memory import LINGER
from mirror_mlx.draft.package.coreml_packages import Array, PackageHost
from mirror_mlx.draft.package.manifest import Package
from mirror_mlx.errors import DraftError

# MLMultiArrayDataType
_TYPES = {65552: np.dtype(np.float16), 65568: np.dtype(np.float32), 131104: np.dtype(np.int32)}
T = TypeVar("T")


class CoreMLToolsHost(PackageHost):
    """Parameters and errors as of `PackageHost`."""

    name = "coremltools"

    def _open(self) -> None:
        require_mac("the coremltools host")
        logging.getLogger("coremltools").setLevel(
            logging.ERROR
        )  # it warns of every library that it was not tested with
        try:
            self._tools: Any = import_module("coremltools")
        except ImportError:
            raise DraftError(
                "the coremltools host needs coremltools: pip install 'mirror-mlx[coreml]', or use --draft-host mlx"
            ) from None

    def _load(self, package: Package, entry: compiled.Entry) -> dict[str, "Function"]:
        described = features(self._tools, entry.package)
        if missing := sorted(set(package.functions) - described.keys()):
            raise DraftError(f"{package.file} has no function {missing[0]}: convert the draft again")

        def compile_package(path: Path) -> Path:
            return Path(_asked(f"{path.name} cannot be compiled", self._tools.models.utils.compile_model, str(path)))

        def load_function(model: Path, name: str) -> Function:
            what, units = f"{name} of {package.file} cannot be loaded", self._tools.ComputeUnit.CPU_AND_NE
            loaded = _asked(what, self._tools.models.CompiledMLModel, str(model), units, name)
            return Function(loaded, f"{package.file} {name}", *described[name])

        def load(model: Path) -> dict[str, Function]:
            return {name: load_function(model, name) for name in package.functions}

        return compiled.load(entry, compile_package, load)

    def _make_state(self, model: Any) -> Any:
        return _asked("no state can be made", model.make_state)


class Function:
    """One loaded function. Inputs go through fp32 memory of ours, allocated once."""

    def __init__(self, model: Any, where: str, takes: Features, gives: Features) -> None:
        self.model = model
        self.where = where
        self.takes = takes
        self.gives = gives
        self._memory: dict[str, Array] = {
            name: np.zeros(shape, np.float32 if dtype.kind == "f" else dtype) for name, (shape, dtype) in takes.items()
        }
        self._lent: deque[tuple[float, list[Array]]] = deque()

    def run(self, given: Mapping[str, Array], state: Any) -> dict[str, Array]:
        check(given, self.takes, self.where)
        now = time.monotonic()
        while self._lent and self._lent[0][0] <= now:
            self._lent.popleft()
        lent = {}
        for name, memory in self._memory.items():
            np.copyto(memory, given[name])
            lent[name] = memory.view()
        self._lent.append((now + LINGER, list(lent.values())))
        found = _asked(f"{self.where} cannot be predicted", self.model.predict, lent, state)
        if missing := sorted(self.gives.keys() - found.keys()):
            raise DraftError(f"{self.where}: Core ML gave no {', '.join(missing)}: convert the draft again")
        return {
            name: np.asarray(found[name]).astype(dtype, copy=False).reshape(shape)
            for name, (shape, dtype) in self.gives.items()
        }

    def held(self) -> list[Any]:
        return list(self._lent)


def features(tools: Any, package: Path) -> dict[str, tuple[Features, Features]]:
    """Inputs and outputs of every function of a package, states not among them. tools: the coremltools module."""
    what = f"{package.name} cannot be read"
    description = _asked(what, tools.models.utils.load_spec, str(package)).description
    return {one.name: (_features(one.input), _features(one.output)) for one in description.functions}


def _features(described: Iterable[Any]) -> Features:
    arrays = {one.name: one.type.multiArrayType for one in described if one.type.WhichOneof("Type") == "multiArrayType"}
    return {name: (tuple(array.shape), _TYPES[array.dataType]) for name, array in arrays.items()}


def _asked(what: str, question: Callable[..., T], *arguments: Any) -> T:
    """`question(*arguments)`; whatever it raises is a DraftError that begins with `what`."""
    try:
        return question(*arguments)
    except Exception as reason:  # coremltools raises Exception itself
        raise DraftError(f"{what}: {one_line(str(reason))}: run mirror-mlx doctor, or use --draft-host mlx") from reason
