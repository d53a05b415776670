"""coremltools, imported once and kept quiet: it reports on stderr what no user of ours can act on."""

import os
from typing import Any

from mirror_mlx.draft.package.quiet import quiet
from mirror_mlx.errors import UsageError


def _imported() -> Any:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        with quiet():
            import coremltools
            from coremltools.converters.mil.mil.passes import pass_pipeline
    except ImportError as reason:
        raise UsageError(f"converting needs coremltools ({reason}): pip install 'coremltools>=9,<10'") from None
    pass_pipeline.tqdm = lambda passes, **_: passes
    return coremltools


ct = _imported()

from coremltools.converters.mil import Builder as mb  # noqa: E402, N813
from coremltools.converters.mil.mil import Function, Program, types  # noqa: E402

__all__ = ["Function", "Program", "ct", "mb", "quiet", "types"]
