"""What settings of a measurement may be."""

from math import inf
from typing import Any

from mirror_mlx.errors import UsageError


def at_least(settings: Any, below: float = inf, **least: float) -> None:
    """Raise UsageError for the first field that is less than it must be, or not below the limit."""
    for name, low in least.items():
        if not low <= getattr(settings, name) < below:
            raise UsageError(f"{name} is {getattr(settings, name)}: it must be {low} or more")
