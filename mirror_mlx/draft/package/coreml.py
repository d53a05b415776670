"""The Core ML host: a converted draft on the Neural Engine, through PyObjC. macOS 15 or newer, Apple silicon."""

from pathlib import Path
from typing import Any

from mirror_mlx.draft.package import compiled
from mirror_mlx.draft.package.coreml_bridge import Bridge
from mirror_mlx.draft.package.coreml_function import Function, Shared
from mirror_mlx.draft.package.coreml_packages import Array, PackageHost
from mirror_mlx.draft.package.manifest import Package


class CoreMLHost(PackageHost):
    """Parameters and errors as of `PackageHost`. Other Python threads run on during a prediction: no GIL is held."""

    name = "coreml"

    def buffers(self, package: int, function: str) -> dict[str, Array]:
        """The inputs' own memory. What is written here and given to `call` as the same array is not copied again:
        worth it for `kv` of a stateless draft, which all functions of a package share."""
        return {name: block.array for name, block in self._functions[package][function].inputs.items()}

    def refused(self) -> dict[str, list[str]]:
        """Package and function → outputs that Core ML has put elsewhere than into our memory: they are copied."""
        loaded = [function for functions in self._functions.values() for function in functions.values()]
        return {function.where: sorted(function.refused) for function in loaded}

    def _open(self) -> None:
        self._bridge = Bridge()

    def _load(self, package: Package, entry: compiled.Entry) -> dict[str, Function]:
        def load(model: Path) -> dict[str, Function]:
            shared: Shared = {}
            return {
                name: Function(self._bridge, self._bridge.load(model, name), f"{package.file} {name}", shared)
                for name in package.functions
            }

        return compiled.load(entry, self._bridge.compile, load)

    def _make_state(self, model: Any) -> Any:
        return self._bridge.state(model)
