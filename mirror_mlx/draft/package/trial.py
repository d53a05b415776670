"""The first use of a package, in a child process with a time limit.

A package that the Neural Engine's compiler does not like can kill the process that loads it (apple/coremltools#2758) or
hang it for good (#2660). So a child loads it and predicts once with each function, before this process touches it. What
it came to is kept beside the compiled model, for this package, this build of macOS and these versions.
"""

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mirror_mlx import storage
from mirror_mlx.draft.package import child, compiled, manifest
from mirror_mlx.errors import DraftError

LIMIT = 120.0  # seconds
_LIBRARIES = {"coreml": "pyobjc-framework-CoreML", "coremltools": "coremltools"}
_ADVICE = "use --draft-host mlx"


@dataclass(frozen=True)
class Outcome:
    """What a first use came to.

    fault    what went wrong, or None
    seconds  it took
    limit    seconds it had
    """

    fault: str | None
    seconds: float
    limit: float


def require(
    converted: manifest.Manifest,
    folder: Path,
    index: int,
    host: str,
    *,
    cache: Path | None = None,
    limit: float = LIMIT,
    command: Sequence[str] | None = None,
    notify: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Raise DraftError unless `host` loads package `index` and predicts with it in a child process.

    limit     seconds; a hang that is remembered from a shorter one is tried again
    command   of the child, before its arguments; None: this Python, this module
    """
    package = converted.packages[index]
    entry = compiled.Entry(folder / package.file, package.contents, cache)
    file = entry.folder / f"trial-{host}-{_versions(host)}.json"
    outcome = _remembered(file, limit)
    again = ""
    if outcome is None:
        notify(f"preparing {package.file} for the Neural Engine, once: up to {limit:.0f} s")
        start = [*(command or [sys.executable, "-m", __name__]), str(folder), str(index), host]
        outcome = _tried([*start, str(cache or compiled.default_cache())], package.file, limit)
        storage.write(file, asdict(outcome))
    elif outcome.fault:
        again = f", or delete {file} to try again"
    if outcome.fault:
        advice = "" if _ADVICE in outcome.fault else f": {_ADVICE}"
        raise DraftError(f"{outcome.fault}{advice}{again}")
    return outcome


def _tried(command: Sequence[str], what: str, limit: float) -> Outcome:
    """Raises DraftError where the child did not get as far as Core ML: not to be kept."""
    answer = child.ask(command, limit)
    if answer.code is None:
        return Outcome(f"Core ML did not finish its first use of {what} in {limit:.0f} s", limit, limit)
    if answer.crash is not None:
        return Outcome(f"Core ML crashed on its first use of {what} ({answer.crash})", answer.seconds, limit)
    if not isinstance(answer.value, dict) or "fault" not in answer.value:
        raise DraftError(f"the first use of {what} ended with code {answer.code} ({answer.said[-200:]}): {_ADVICE}")
    return Outcome(answer.value["fault"], answer.seconds, limit)


def _remembered(file: Path, limit: float) -> Outcome | None:
    try:
        outcome = Outcome(**storage.read(file))
    except TypeError:
        return None
    hung = outcome.fault is not None and outcome.seconds >= outcome.limit
    return None if hung and limit > outcome.limit else outcome


def _versions(host: str) -> str:
    names = ("mirror-mlx", _LIBRARIES.get(host, host))
    found = [f"python {platform.python_version()}", *(f"{name} {storage.release(name)}" for name in names)]
    return hashlib.sha256("; ".join(found).encode()).hexdigest()[:12]


def main(arguments: Sequence[str]) -> None:
    """In the child: FOLDER INDEX HOST CACHE ANSWER."""
    folder, index, host, cache, answer = arguments
    fault = None
    try:
        _use(Path(folder), int(index), host, Path(cache))
    except compiled.NotKeptError:
        raise
    except DraftError as reason:
        fault = str(reason)
    Path(answer).write_text(json.dumps({"fault": fault}))


def _use(folder: Path, index: int, host: str, cache: Path) -> None:
    converted = manifest.read(folder)
    made: Any
    if host == "coreml":
        from mirror_mlx.draft.package.coreml import CoreMLHost

        made = CoreMLHost(converted, folder, cache=cache, packages=[index], tried=True)
    else:
        from mirror_mlx.draft.package.coremltools_host import CoreMLToolsHost

        made = CoreMLToolsHost(converted, folder, cache=cache, packages=[index], tried=True)
    try:
        for function in converted.packages[index].functions:
            made.call(index, function, made.blank(index, function))
    finally:
        made.close()


if __name__ == "__main__":
    main(sys.argv[1:])
