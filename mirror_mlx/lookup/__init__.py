"""Proposers that need no model: they guess the next tokens from what was seen before. See `protocol.Proposer`."""

from mirror_mlx.lookup.combined import Combined
from mirror_mlx.lookup.datastore import Datastore, fingerprint
from mirror_mlx.lookup.lookahead import Lookahead
from mirror_mlx.lookup.names import NAMES, by_name
from mirror_mlx.lookup.prompt import PromptLookup
from mirror_mlx.lookup.protocol import Proposer
from mirror_mlx.lookup.recycling import TokenRecycling
from mirror_mlx.lookup.retrieval import Retrieval

__all__ = [
    "NAMES", "Combined", "Datastore", "Lookahead", "PromptLookup", "Proposer", "Retrieval", "TokenRecycling",
    "by_name", "fingerprint",
]  # fmt: skip
