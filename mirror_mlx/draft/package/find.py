"""Where converted drafts lie, and which one is of a given draft."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mirror_mlx.draft.package import manifest
from mirror_mlx.draft.package.manifest import Manifest
from mirror_mlx.errors import DraftError

NAME = "ane_models"
CACHE = Path("~/.cache/mirror-mlx") / NAME
BUNDLED = Path(__file__).parents[2] / NAME


def roots() -> list[Path]:
    """Folders of converted drafts, the user's own first."""
    return [Path(NAME), CACHE.expanduser(), BUNDLED]


def of(draft: Path) -> tuple[Path, Manifest] | None:
    """The packages made of the draft in this folder, with their manifest, or None. What is damaged or of another
    version is passed over: `mirror-mlx doctor` speaks of it."""
    wanted: tuple[str, str] | None = None  # hashing a draft takes seconds: only where there is something to compare
    for folder, found in _readable():
        wanted = wanted or manifest.source(draft)
        if (found.draft.weights, found.draft.tokenizer) == wanted:
            return folder, found
    return None


def _readable() -> Iterator[tuple[Path, Manifest]]:
    for root in roots():
        for file in sorted(root.glob(f"*/{manifest.FILE}")):
            with suppress(DraftError):
                made = manifest.read(file.parent)
                if made.parity:  # else it was never compared with its draft
                    yield file.parent, made
