"""What Core ML takes on this machine: how long a state, and compressed weights. The bundled draft is converted for it,
into a folder that is gone afterwards."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mirror_mlx import hosting
from mirror_mlx.doctor import endurance
from mirror_mlx.doctor.finding import Finding, Trouble, attempt
from mirror_mlx.draft.package import trial
from mirror_mlx.draft.package.manifest import Manifest, Precision
from mirror_mlx.errors import DraftError
from mirror_mlx.loading import DEMO

GROUP = "limits of Core ML"
CONTEXTS = (1024, 2048, 4096, 8192, 16384)
"""State lengths, in key-value slots."""
ENOUGH = 2048
PRECISIONS: tuple[Precision, ...] = ("int8", "lut6", "lut4")

Notify = Callable[[str], None]


def examine(host: str | None, notify: Notify) -> Iterator[Finding]:
    """host: "coreml" or "coremltools"; None: there is no Core ML here."""
    names = ["state length", *(f"{precision} weights" for precision in PRECISIONS)]
    why = hosting.lacking() if host is None else "it takes coremltools" if find_spec("coremltools") is None else ""
    if host is None or why:
        advice = "" if host is None else "pip install 'mirror-mlx[coreml]', and run the doctor again"
        for name in names:
            yield Finding(GROUP, name, "skipped", why, advice)
        return
    yield attempt(GROUP, names[0], lambda: _state_length(host, notify))
    for name, precision in zip(names[1:], PRECISIONS, strict=True):
        yield attempt(GROUP, name, lambda precision=precision: _weights(precision, host, notify))


def _state_length(host: str, notify: Notify) -> tuple[str, Mapping[str, Any]]:
    seconds: dict[str, float] = {}
    fault = ""
    for context in CONTEXTS:
        notify(f"state of {context} slots")
        with _converted(context, "float16") as (made, folder):
            try:
                tries = [trial.require(made, folder, i, host, cache=folder) for i in range(len(made.packages))]
            except DraftError as error:
                fault = f"; {context} slots: {error}"
                break
        seconds[str(context)] = sum(one.seconds for one in tries)
    longest = max(map(int, seconds), default=0)
    said, figures = f"up to {longest} slots{fault}", {"slots": longest, "first_use_seconds": seconds}
    if longest < ENOUGH:
        advice = f"convert with --context {longest}" if longest else "use --draft-host mlx"
        raise Trouble(said, advice, figures, "note" if longest else "failed")
    return said, figures


def _weights(precision: Precision, host: str, notify: Notify) -> tuple[str, Mapping[str, Any]]:
    notify(f"{precision} weights, {endurance.COUNT} predictions")
    with _converted(512, precision) as (made, folder):
        try:
            for index in range(len(made.packages)):
                trial.require(made, folder, index, host, cache=folder)
            index = len(made.packages) - 1
            return endurance.examine(made, folder, index, host)
        except (DraftError, Trouble) as error:
            said = " ".join(str(error).split())
            raise Trouble(said, f"do not convert with --precision {precision} on this machine", status="note") from None


@contextmanager
def _converted(context: int, precision: Precision) -> Iterator[tuple[Manifest, Path]]:
    """The bundled draft in a temporary folder, for windows as it is used with."""
    from mirror_mlx.convert.convert import convert
    from mirror_mlx.convert.options import Build

    with tempfile.TemporaryDirectory(prefix="mirror-mlx-") as scratch:
        folder = Path(scratch) / "demo"
        yield convert(DEMO / "draft", folder, replace(Build(), context=context, precision=precision)), folder
