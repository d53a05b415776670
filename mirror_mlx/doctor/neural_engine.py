"""A converted draft on Core ML: does it load, on which devices do its operations run, how fast, and does it last?"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from mirror_mlx import hosting
from mirror_mlx.doctor import endurance, latency
from mirror_mlx.doctor.finding import Finding, Trouble, attempt
from mirror_mlx.draft.package import coreml_plan, trial
from mirror_mlx.draft.package.coreml_plan import Residency
from mirror_mlx.draft.package.host import Host
from mirror_mlx.draft.package.manifest import Manifest
from mirror_mlx.errors import DraftError

NAMES = (
    "first use on Core ML", "says what the draft says (coreml)", "devices of its operations",
    "latency on the Neural Engine", "repeated predictions",
)  # fmt: skip
"""What is examined here, and with Core ML alone."""

_RESIDENT = 0.9
"""Share of operations that should be on the Neural Engine: what is left are casts and the gathering of outputs."""
_SLOWER, _KEPT = 2.0, 0.7
"""Beside a busy GPU: how many times the latency, and what share of the GPU's own speed, are worth a note."""

Figures = tuple[str, Mapping[str, Any]]
Notify = Callable[[str], None]


def first_uses(group: str, made: Manifest, folder: Path, host: str, notify: Notify) -> Iterator[Finding]:
    """Every package, in a process of its own; what it came to is remembered, so that only the first time lasts."""

    def work(index: int) -> Figures:
        found = trial.require(made, folder, index, host, notify=notify)
        return f"compiled, loaded and predicted in {found.seconds:.1f} s", {"seconds": found.seconds}

    for index, package in enumerate(made.packages):
        yield attempt(group, f"first use of {package.file}", partial(work, index))


def examine(group: str, made: Manifest, folder: Path, host: str, notify: Notify) -> Iterator[Finding]:
    """What is left, of packages whose first use went well."""
    for index in range(len(made.packages)):
        yield from _devices(group, made, folder, index, host, notify)
    yield from latencies(group, made, folder, host)
    for index, package in enumerate(made.packages):
        notify(f"{endurance.COUNT} predictions of {package.file}")
        name = f"{endurance.COUNT} predictions of {package.file}"
        yield attempt(group, name, partial(endurance.examine, made, folder, index, host))


def _devices(group: str, made: Manifest, folder: Path, index: int, host: str, notify: Notify) -> Iterator[Finding]:
    try:
        found = coreml_plan.residency(made, folder, host=host, packages=[index], tried=True, notify=notify)
    except DraftError as error:
        yield Finding(group, f"{made.packages[index].file}: devices", "failed", str(error))
        return
    for one in found:
        yield attempt(group, f"{one.file} {one.function}: devices", partial(_resident, one))


def _resident(found: Residency) -> Figures:
    said = f"{found.share:.0%} of {found.total} operations on the Neural Engine"
    if any(found.costs.values()):
        said += f", {found.cost_share:.0%} of the estimated cost"
    elsewhere = Counter(
        f"{one.operator.rpartition('.')[2]} ({one.device}{'' if one.supported else ', not supported'})"
        for one in found.elsewhere
    )
    if elsewhere:
        said += "; elsewhere: " + ", ".join(f"{count} {what}" for what, count in elsewhere.most_common())
    figures = {
        "share": found.share, "cost_share": found.cost_share, "operations": dict(found.operations),
        "costs": dict(found.costs), "elsewhere": dict(elsewhere),
    }  # fmt: skip
    if found.share < _RESIDENT:
        advice = "convert the draft again with --write blend, --stateless or a smaller --context, and compare"
        raise Trouble(said, advice, figures, "failed" if found.share < 0.5 else "note")
    return said, figures


def latencies(group: str, made: Manifest, folder: Path, host: str) -> Iterator[Finding]:
    """Of every function; on Core ML beside a busy GPU as well."""
    if host == "reference" and find_spec("coremltools") is None:
        return
    try:
        runner = hosting.host(host, made, folder)
    except DraftError as error:
        yield Finding(group, f"latency ({host})", "failed", str(error))
        return
    try:
        for index, package in enumerate(made.packages):
            for function in package.functions:
                work = partial(_timed, runner, index, function)
                yield attempt(group, f"{package.file} {function}: latency ({host})", work)
    finally:
        runner.close()


def _timed(runner: Host, index: int, function: str) -> Figures:
    inputs = runner.blank(index, function)

    def call() -> None:
        runner.call(index, function, inputs)

    if runner.name == "reference":
        alone = median(latency.alone(call))
        return f"{alone:.1f} ms", {"alone_ms": alone}
    found = latency.beside(call)
    alone, busy = median(found.alone), median(found.busy)
    said = f"{alone:.2f} ms, {busy:.2f} ms beside a busy GPU, which keeps {found.kept:.0%} of its speed"
    figures = {"alone_ms": alone, "busy_ms": busy, "gpu_kept": found.kept}
    if busy > _SLOWER * alone or found.kept < _KEPT:
        advice = "both read from the same memory, or operations run on the GPU (see devices): try --precision int8"
        raise Trouble(said, advice, figures, "note")
    return said, figures
