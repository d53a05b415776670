"""How long the target may wait for a window. Pure. ms."""

from mirror_mlx.tuning.costs import Costs
from mirror_mlx.tuning.setting import Setting

_LONG = 3.0  # times what a window should take is waited for it,
_LEAST = 20.0  # and so long in any case
_FIRST = 1.5  # times what the first window should take is waited for it, and as long as a token takes


def drafting(costs: Costs, setting: Setting) -> float:
    """What the part of a window takes that the target waits for."""
    return costs.drafting(setting.way, setting.late, setting.length)


def entering(costs: Costs, setting: Setting) -> float:
    """What it loses to begin with it amid a text, where the target waits for the first window."""
    return max(0.0, costs.verify.at(1) + drafting(costs, setting) - costs.plain)


def late_beside(costs: Costs, setting: Setting, rows: int) -> int:
    """How many proposals of a window there is time for beside a forward of so many rows, which the draft takes in as
    well; no fewer than are waited for."""
    draft = costs.drafts[setting.way]
    passes = int(costs.verify.at(rows) / draft.one.at(1)) - 1
    return max(setting.late, draft.brought(passes, setting.length))


def for_the_first(costs: Costs, setting: Setting, tokens: float) -> float:
    """Somewhat longer than the first window should take, which brings so many tokens, unless plain decoding is further
    by then. Who gives up shortly before it is there has waited for nothing, and decodes a token plainly besides."""
    takes = drafting(costs, setting)
    return _FIRST * takes + costs.plain if takes < tokens * costs.plain else 0.0


def for_the_next(costs: Costs, setting: Setting) -> float | None:
    """A window that takes much longer than it should is not worth more time: the text goes on without it. None: no
    model makes it."""
    draft = costs.drafts.get(setting.way)
    if draft is None:
        return None
    expected = drafting(costs, setting) + draft.beside.at(setting.roots)
    return max(_LEAST, _LONG * expected + 2 * costs.plain)
