"""Which device a draft runs on, and why."""

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mirror_mlx.draft.package import find, manifest, parts
from mirror_mlx.draft.package.host import Host
from mirror_mlx.draft.package.manifest import Manifest
from mirror_mlx.draft.package.segments import PackageSegments
from mirror_mlx.errors import DraftError

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Choice:
    """name: one of `messages.DRAFT_HOSTS`, never "auto"; reason: why that one; package: the converted draft, if any."""

    name: str
    reason: str
    package: tuple[Path, Manifest] | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def choose(asked: str, draft: Path) -> Choice:
    """The host for the draft in a folder. Raises DraftError where what was asked for cannot be."""
    if asked == "mlx":
        return Choice("mlx", "asked for")
    if asked == "auto" and (reason := lacking()):
        return Choice("mlx", reason)
    found = find.of(draft)
    if found is None:
        if asked != "auto":
            raise DraftError(f"{draft} has not been converted: run 'mirror-mlx convert {draft}' first")
        return Choice("mlx", f"the draft has not been converted: run 'mirror-mlx convert {draft}'")
    if asked != "auto":
        return Choice(asked, "asked for", found)
    return Choice(coreml_host(), f"converted as {found[1].name}", found)


def coreml_host() -> str:
    """The better of the two hosts that run on Core ML, where there is one: see `lacking`."""
    return "coreml" if find_spec("CoreML") is not None else "coremltools"


def lacking() -> str:
    """Why Core ML is out of the question, or nothing."""
    if sys.platform != "darwin":
        return "no Neural Engine here"
    if platform.machine() != "arm64":
        return f"Core ML drafts need Apple silicon and a Python for it, this one is for {platform.machine()}"
    if int(platform.mac_ver()[0].partition(".")[0] or 0) < 15:
        return f"Core ML drafts need macOS 15, this is {platform.mac_ver()[0]}"
    if find_spec("CoreML") is None and find_spec("coremltools") is None:
        return "no Core ML for Python: pip install 'mirror-mlx[coreml]'"
    return ""


def segments(choice: Choice, draft: Path, notify: Notify = lambda line: None) -> PackageSegments:
    """The converted draft on the host chosen, checked against its manifest; `notify` is told what takes long. Raises
    DraftError."""
    assert choice.package is not None
    folder, made = choice.package
    manifest.verify(made, folder)
    kept = parts.read(draft, made.shapes)
    return PackageSegments(made, host(choice.name, made, folder, notify), kept)


def host(name: str, made: Manifest, folder: Path, notify: Notify = lambda line: None) -> Host:
    """A host by name, with the packages loaded. Raises DraftError."""
    if name == "coreml":
        from mirror_mlx.draft.package.coreml import CoreMLHost

        return CoreMLHost(made, folder, notify=notify)
    if name == "coremltools":
        from mirror_mlx.draft.package.coremltools_host import CoreMLToolsHost

        return CoreMLToolsHost(made, folder, notify=notify)
    from mirror_mlx.draft.package.reference import ReferenceHost

    return ReferenceHost(made, folder)
