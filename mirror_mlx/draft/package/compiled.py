"""Compiled models, kept: what Core ML makes of a package on one build of macOS, so that it makes it once.

    <cache>/<package>/<build>/model/segment-1.mlmodelc      as Core ML compiled it
    <cache>/<package>/<build>/model/files.json              its files and their sizes
    <cache>/<package>/<build>/trial-….json                  what its first use came to: `trial`

<package> is a hash of the package's contents, <build> the build of macOS; the cache is ~/Library/Caches/mirror-mlx.
Everything in it can be deleted at any time.
"""

import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from mirror_mlx import storage
from mirror_mlx.errors import DraftError

FILES = "files.json"
T = TypeVar("T")


class NotKeptError(DraftError):
    """The cache cannot be written: no fault of the package's."""


def default_cache() -> Path:
    return storage.folder()


@functools.cache
def build() -> str:
    """The build of macOS, as 24F74: it decides what a compiled model looks like, and whether one still loads."""
    try:
        told = subprocess.run(["sw_vers", "-buildVersion"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return f"{platform.system()}-{platform.release()}"
    return told.stdout.strip()


class Entry:
    """One package's place in the cache, for the build of macOS that runs.

    package   the .mlpackage
    contents  file inside it → SHA-256, as in the manifest
    """

    def __init__(self, package: Path, contents: Mapping[str, str], cache: Path | None = None) -> None:
        listed = "".join(f"{name}\0{digest}\n" for name, digest in sorted(contents.items()))
        key = hashlib.sha256(listed.encode()).hexdigest()[:32]
        self.package = package
        self.folder = (cache or default_cache()) / key / build()
        self.model = self.folder / "model" / f"{package.stem}.mlmodelc"

    def is_whole(self) -> bool:
        """Whether the compiled model is there with every file it had, none of them cut short."""
        try:
            expected = json.loads((self.model.parent / FILES).read_text())
        except (OSError, ValueError):
            return False
        return self.model.is_dir() and bool(expected == _sizes(self.model))

    def compiled(self, compile_package: Callable[[Path], Path]) -> Path:
        """The compiled model. `compile_package` is called if it is not here: package → a folder that may be moved."""
        if not self.is_whole():
            self.drop()
            self._keep(compile_package(self.package))
        return self.model

    def drop(self) -> None:
        """Forget the compiled model."""
        shutil.rmtree(self.model.parent, ignore_errors=True)

    def _keep(self, made: Path) -> None:
        """Move a compiled model in: complete, or not at all. Those of other builds of macOS go."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            staging = Path(tempfile.mkdtemp(prefix="compiling-", dir=self.folder))
            try:
                shutil.move(made, staging / self.model.name)
                (staging / FILES).write_text(json.dumps(_sizes(staging / self.model.name)))
                os.rename(staging, self.model.parent)
            except OSError:
                if not self.is_whole():  # if it is, another process was faster
                    raise
            finally:
                shutil.rmtree(staging, ignore_errors=True)
        except OSError as reason:
            raise NotKeptError(
                f"the compiled draft cannot be kept in {self.folder} ({reason.strerror}): free some space, "
                "or use --draft-host mlx"
            ) from None
        for other in self.folder.parent.iterdir():
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)


def load(entry: Entry, compile_package: Callable[[Path], Path], load_model: Callable[[Path], T]) -> T:
    """`load_model` of the compiled model. One from the cache that does not load is compiled anew, once."""
    was_kept = entry.is_whole()
    try:
        return load_model(entry.compiled(compile_package))
    except DraftError:
        if not was_kept:
            raise
    entry.drop()
    return load_model(entry.compiled(compile_package))


def _sizes(folder: Path) -> dict[str, int]:
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
