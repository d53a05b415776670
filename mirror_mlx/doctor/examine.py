"""Everything the doctor looks at, in order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mirror_mlx import hosting, hub
from mirror_mlx.doctor import limits, machine, packages, run
from mirror_mlx.doctor.finding import Finding, attempt
from mirror_mlx.draft.package import find, manifest
from mirror_mlx.errors import DraftError
from mirror_mlx.loading import DEMO
from mirror_mlx.trace import Trace

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What to examine.

    model   the pair to run
    drafts  folders or hub ids of drafts that were converted, besides the bundled one
    quick   leave out what converts drafts anew: limits of Core ML
    """

    model: str = "demo"
    drafts: tuple[str, ...] = ()
    quick: bool = False


def examine(settings: Settings, notify: Notify, keep: list[Trace]) -> Iterator[Finding]:
    """Findings as they come. `notify` is told what takes long; the pair's run is appended to `keep`.

    Raises DraftError for a draft that cannot be found.
    """
    drafts = [DEMO / "draft", *(hub.find(name, DraftError) for name in settings.drafts)]
    host = None if hosting.lacking() else hosting.coreml_host()
    yield from machine.examine()
    folders = converted()
    if not folders:
        advice = "convert one: mirror-mlx convert DRAFT"
        yield Finding("converted drafts", "where they are kept", "note", "there is none", advice)
    for folder in folders:
        notify(f"{folder}")
        yield from packages.examine(folder, drafts, host, notify)
    if not settings.quick:
        yield from limits.examine(host, notify)
    notify(f"a run of {settings.model}")
    yield attempt(
        "mirror", f"a run of {settings.model}", lambda: run.examine(settings.model, _host(settings, host), keep)
    )


def converted() -> list[Path]:
    """Folders of converted drafts, damaged ones too, each once."""
    found = [file.parent.resolve() for root in find.roots() for file in sorted(root.glob(f"*/{manifest.FILE}"))]
    return list(dict.fromkeys(found))


def _host(settings: Settings, host: str | None) -> str:
    """Off the Mac the bundled draft's packages are executed by MLX, so that they are run at all."""
    return "reference" if host is None and settings.model == "demo" and _executes() else "auto"


def _executes() -> bool:
    from importlib.util import find_spec

    return find_spec("coremltools") is not None and find.of(DEMO / "draft") is not None
