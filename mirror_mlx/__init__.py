"""Mirror Speculative Decoding for Apple silicon. See `mirror_mlx.load` and `mirror_mlx.Engine`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mirror_mlx import blas

blas.preload()

__version__ = "0.1.0"

_LAZY = {
    "load": "mirror_mlx.loading",
    "Engine": "mirror_mlx.engine",
    "Sampling": "mirror_mlx.sampling",
    "MirrorError": "mirror_mlx.errors",
}
__all__ = ["Engine", "MirrorError", "Sampling", "__version__", "load"]

if TYPE_CHECKING:
    from mirror_mlx.engine import Engine
    from mirror_mlx.errors import MirrorError
    from mirror_mlx.loading import load
    from mirror_mlx.sampling import Sampling


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'mirror_mlx' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
