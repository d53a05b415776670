"""Where Core ML means to run a converted draft: the device of every operation, from MLComputePlan. macOS 15 or newer.

Plans are intentions, of this machine and this build of macOS: what an operation really ran on, no API tells. A plan is
of the function that its configuration names, or else of the default one: it lists the operations of all, but has no
devices for those of the others (pytorch/executorch, coreml_compute_plan.py). So each function is asked for by itself:

- host `coreml`, through PyObjC: a plan of the compiled model in the cache.
- host `coremltools`, which cannot name a function (coremlpython, `Model::getComputePlan`): each is saved and compiled
  as a package of its own first. It waits for Core ML without end and holds the GIL meanwhile: a child process does it.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal

from mirror_mlx.draft.package import child, compiled, trial
from mirror_mlx.draft.package.coreml_bridge import Bridge, Device, Planned, one_line, require_mac
from mirror_mlx.draft.package.manifest import Manifest, Package
from mirror_mlx.errors import DraftError

LIMIT = 60.0  # seconds
DEVICES: tuple[Device, ...] = ("neural engine", "gpu", "cpu", "other")
_COREMLTOOLS: dict[str, Device] = {
    "MLNeuralEngineComputeDevice": "neural engine",
    "MLGPUComputeDevice": "gpu",
    "MLCPUComputeDevice": "cpu",
}


@dataclass(frozen=True)
class Operation:
    """One operation that prefers another device than the Neural Engine.

    operator    as Core ML names it, with the opset: "ios18.softmax"
    output      name of its first output; "": it has none
    device      where Core ML would rather run it
    supported   whether the Neural Engine could run it at all
    cost        its share of the function's estimated cost, 0…1
    """

    operator: str
    output: str
    device: Device
    supported: bool
    cost: float


@dataclass(frozen=True)
class Residency:
    """Where one function of one package runs.

    file         of the package
    function     its name
    operations   device → how many operations prefer it; every one of `DEVICES` is there
    costs        device → share of the estimated cost, 0…1; all 0 where Core ML gives no costs
    constants    weights and other constants, compressed ones too: no work of any device, not among `operations`
    unplaced     operations for which Core ML gives no device though they are no constants, not among `operations`
    elsewhere    the operations that prefer another device, in the order of the program
    """

    file: str
    function: str
    operations: Mapping[Device, int]
    costs: Mapping[Device, float]
    constants: int
    unplaced: int
    elsewhere: tuple[Operation, ...]

    @property
    def total(self) -> int:
        """Operations that have a device, at least 1."""
        return sum(self.operations.values())

    @property
    def share(self) -> float:
        """Of the operations that have a device, how many prefer the Neural Engine, 0…1."""
        return self.operations["neural engine"] / self.total

    @property
    def cost_share(self) -> float:
        """Of the estimated cost, how much is on the Neural Engine, 0…1; 0 where Core ML gives no costs."""
        return self.costs["neural engine"]


def residency(
    manifest: Manifest,
    folder: Path,
    *,
    host: Literal["coreml", "coremltools"] = "coreml",
    cache: Path | None = None,
    packages: Collection[int] | None = None,
    tried: bool = False,
    limit: float = LIMIT,
    notify: Callable[[str], None] = lambda line: None,
) -> list[Residency]:
    """Every function of every package, in their order. Takes seconds, minutes where packages must be compiled first.

    manifest, folder  the converted draft
    host              the library that asks Core ML
    cache             of compiled models; None: ~/Library/Caches/mirror-mlx
    packages          only these; one at a time, to go on after one that fails
    tried             their first use was tried in a child process; else it is now: `trial`
    limit             seconds for the plan of one function; with coremltools, to save and compile it too
    notify            told in a line what takes long

        for found in residency(manifest.read(folder), folder):
            print(f"{found.file} {found.function}: {found.share:.0%} of {found.total} operations")

    Raises DraftError: no Core ML, a library missing, a package that does not compile, load or predict, a plan that
    cannot be had, does not come in time or names no device at all.
    """
    ask = _coreml(cache, limit) if host == "coreml" else _coremltools(limit)
    made = []
    for index in range(len(manifest.packages)) if packages is None else packages:
        package = manifest.packages[index]
        if not tried:
            trial.require(manifest, folder, index, host, cache=cache, notify=notify)
        notify(f"asking Core ML where {package.file} runs: up to {limit:g} s for each function")
        for function in package.functions:
            made.append(summary(package.file, function, ask(folder, package, function)))
    return made


def summary(file: str, function: str, planned: Iterable[Planned]) -> Residency:
    """What a plan comes to. Raises DraftError where it has no device for any operation."""
    everything = list(planned)
    working = [one for one in everything if not _is_constant(one[0])]
    counts = Counter(device for _, _, device, _, _ in working)
    unplaced = counts.pop(None, 0)
    if not counts:
        raise DraftError(
            f"Core ML names no device for any of the {unplaced} operations of {file} {function}: delete "
            "~/Library/Caches/*/com.apple.e5rt.e5bundlecache and try again"
        )
    weights = {name: sum(weight for _, _, device, _, weight in working if device == name) for name in DEVICES}
    whole = sum(weights.values()) or 1.0
    return Residency(
        file=file,
        function=function,
        operations={device: counts[device] for device in DEVICES},
        costs={device: weight / whole for device, weight in weights.items()},
        constants=len(everything) - len(working),
        unplaced=unplaced,
        elsewhere=tuple(
            Operation(operator, output, device, "neural engine" in supported, weight / whole)
            for operator, output, device, supported, weight in working
            if device is not None and device != "neural engine"
        ),
    )


def _is_constant(operator: str) -> bool:
    """`const`, or one of MIL's `constexpr_…`, which make a weight of its compressed form; both with an opset or not."""
    name = operator.rpartition(".")[2]
    return name == "const" or name.startswith("constexpr_")


_Ask = Callable[[Path, Package, str], Iterable[Planned]]


def _coreml(cache: Path | None, limit: float) -> _Ask:
    bridge = Bridge()

    def ask(folder: Path, package: Package, function: str) -> Iterable[Planned]:
        model = compiled.Entry(folder / package.file, package.contents, cache).compiled(bridge.compile)
        answers: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        bridge.plan(model, function, lambda plan, error: answers.put((plan, error)))
        where = f"{package.file} {function}"
        try:
            plan, error = answers.get(timeout=limit)
        except Empty:
            raise _late(where, limit) from None
        return bridge.planned(plan, error, function, where)

    return ask


def _coremltools(limit: float) -> _Ask:
    require_mac("the coremltools host")
    if find_spec("coremltools") is None:
        raise DraftError("a plan needs coremltools: pip install 'mirror-mlx[coreml]', or use --draft-host mlx")

    def ask(folder: Path, package: Package, function: str) -> Iterable[Planned]:
        return in_child(folder / package.file, function, limit)

    return ask


def in_child(package: Path, function: str, limit: float, command: Sequence[str] | None = None) -> list[Planned]:
    """`by_coremltools` in a process with `limit` seconds. Raises DraftError.

    command   of the child, before its arguments; None: this Python, this module
    """
    where = f"{package.name} {function}"
    answer = child.ask([*(command or [sys.executable, "-m", __name__]), str(package), function], limit)
    if answer.code is None:
        raise _late(where, limit)
    if answer.value is None:
        reason = one_line(answer.said) if answer.code > 0 else f"coremltools ended with code {answer.code}"
        raise DraftError(f"{where} cannot be planned: {reason}: use --draft-host mlx")
    return [(*known, tuple(supported), cost) for *known, supported, cost in answer.value]


def by_coremltools(package: Path, function: str, scratch: Path) -> list[Planned]:
    """The plan of one function of a package, saved alone in the folder `scratch` and compiled there. May not return."""
    tools = import_module("coremltools")
    described = tools.utils.MultiFunctionDescriptor()
    described.add_function(str(package), function, "main")
    described.default_function_name = "main"
    alone = scratch / package.name
    tools.utils.save_multifunction(described, str(alone))
    model = tools.models.utils.compile_model(str(alone), str(alone.with_suffix(".mlmodelc")))
    plan = tools.models.compute_plan.MLComputePlan.load_from_path(model, tools.ComputeUnit.CPU_AND_NE)
    made: list[Planned] = []
    for operation in plan.model_structure.program.functions["main"].block.operations:
        usage = plan.get_compute_device_usage_for_mlprogram_operation(operation)
        cost = plan.get_estimated_cost_for_mlprogram_operation(operation)
        device = None if usage is None else _device(usage.preferred_compute_device)
        supported = () if usage is None else tuple(map(_device, usage.supported_compute_devices))
        output = operation.outputs[0].name if operation.outputs else ""
        made.append((operation.operator_name, output, device, supported, 0.0 if cost is None else cost.weight))
    return made


def _device(device: Any) -> Device:
    return _COREMLTOOLS.get(type(device).__name__, "other")


def _late(where: str, limit: float) -> DraftError:
    return DraftError(
        f"Core ML has not said in {limit:g} s where {where} runs: restart the Mac and try again, "
        "or use --draft-host mlx"
    )


def main(arguments: Sequence[str]) -> None:
    """In the child: PACKAGE FUNCTION ANSWER."""
    package, function, answer = arguments
    planned = by_coremltools(Path(package), function, Path(answer).parent)
    Path(answer).write_text(json.dumps(planned))


if __name__ == "__main__":
    main(sys.argv[1:])
