"""What both Core ML hosts share: packages tried, loaded, called one prediction at a time, and closed."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mirror_mlx.draft.package import compiled, trial
from mirror_mlx.draft.package.coreml_features import Features, blank
from mirror_mlx.draft.package.coreml_gate import Gate
from mirror_mlx.draft.package.coreml_memory import retire
from mirror_mlx.draft.package.manifest import Manifest, Package

_CLOSE = 5.0  # seconds that closing waits for a prediction in flight

Array = np.ndarray[Any, Any]


class Loaded(Protocol):
    """One function of a package.

    model  Core ML's, of whatever kind
    takes  its inputs
    """

    model: Any
    takes: Features

    def run(self, given: Mapping[str, Array], state: Any) -> dict[str, Array]: ...

    def held(self) -> list[Any]:
        """What Core ML may hold for a while after the last prediction."""


class PackageHost(ABC):
    """See `host.Host`. All calls come from one thread.

    manifest, folder  the converted draft
    cache             of compiled models; None: ~/Library/Caches/mirror-mlx
    packages          load only these
    tried             their first use was tried in a child process; else it is now: `trial`
    notify            told in a line what takes long

    Raises DraftError: no Core ML, a library missing, a package that does not compile, load or predict.
    """

    name = ""

    def __init__(
        self,
        manifest: Manifest,
        folder: Path,
        *,
        cache: Path | None = None,
        packages: Collection[int] | None = None,
        tried: bool = False,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._manifest = manifest
        self._functions: dict[int, dict[str, Any]] = {}
        self._states: dict[int, Any] = {}
        self._gates: dict[int, Gate] = {}
        self._closed = False
        wanted = range(len(manifest.packages)) if packages is None else packages
        try:
            self._open()
            for index in wanted:
                if not tried:
                    trial.require(manifest, folder, index, self.name, cache=cache, notify=notify)
            for index in wanted:
                package = manifest.packages[index]
                self._gates[index] = Gate(package.file)
                entry = compiled.Entry(folder / package.file, package.contents, cache)
                self._functions[index] = self._load(package, entry)
                self._states[index] = self._new_state(package, self._functions[index])
        except BaseException:
            self.close()
            raise

    def call(self, package: int, function: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One prediction. The outputs may be views, good until the next call of the same package.

        Raises DraftError where Core ML fails, inputs do not fit or the host is closed; RuntimeError where another
        thread's prediction of this package is in flight.
        """
        with self._gates[package]:
            loaded: Loaded = self._functions[package][function]
            return loaded.run(inputs, self._states[package])

    def blank(self, package: int, function: str) -> dict[str, Array]:
        """Inputs of zeros, of the right shapes and types."""
        return blank(self._functions[package][function].takes)

    def close(self) -> None:
        """Drop everything. A prediction that does not end in a few seconds keeps its memory for good. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for index, gate in self._gates.items():
            ended = gate.shut(_CLOSE)
            functions: dict[str, Loaded] = self._functions.pop(index, {})
            state = self._states.pop(index, None)
            held = [thing for function in functions.values() for thing in function.held()]
            retire(held if ended else [*held, functions, state], for_good=not ended)

    def _new_state(self, package: Package, functions: Mapping[str, Loaded]) -> Any:
        """The one state of a package, which all its functions use. None: it has none.

        Apple documents that `newState` makes the state of "the model", and that predictions on one state must be
        serialised (MLState). Each function is loaded as a model of its own, and no page says whether one may use the
        state that another made. It is done everywhere:

        - ANEMLL (tests/chat.py `create_unified_state`, InferenceManager.swift `initState`) makes it with the model of
          the `prefill` function and predicts with those of `prefill` and `infer`, even of other packages.
        - john-rocky/CoreML-LLM does so within a package (conversion/sanity_prefill_bn.py, Qwen3VL2BStatefulGenerator),
          run on Macs. Where it copies one state into another (`withMultiArray`) there are two packages.
        - apple/coremltools#2686, a guide, shares one `make_state()` between `prefill` and `decode`; not merged.

        So the model of `prefill` makes it. `mirror-mlx doctor` proves it on a machine: rows that `prefill` wrote must
        be what `rollout` reads.
        """
        if not self._manifest.stateful or package.state is None:
            return None
        maker = functions.get("prefill") or next(iter(functions.values()))
        return self._make_state(maker.model)

    @abstractmethod
    def _open(self) -> None:
        """Find the library. Raises DraftError."""

    @abstractmethod
    def _load(self, package: Package, entry: compiled.Entry) -> dict[str, Any]:
        """Every function, by name. Each is a model of its own; Core ML shares their weights."""

    @abstractmethod
    def _make_state(self, model: Any) -> Any:
        """A new state of this model, zeros."""
