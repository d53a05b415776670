"""Proposers by the names that options and flags have for them."""

import os

from mirror_mlx.errors import UsageError
from mirror_mlx.lookup.datastore import Datastore
from mirror_mlx.lookup.lookahead import Lookahead
from mirror_mlx.lookup.prompt import PromptLookup
from mirror_mlx.lookup.protocol import Proposer
from mirror_mlx.lookup.recycling import TokenRecycling
from mirror_mlx.lookup.retrieval import Retrieval

NAMES = ("lookup", "recycle", "lookahead", "retrieve")


def by_name(
    name: str, *, datastore: Datastore | str | os.PathLike[str] | None = None, tokenizer: str | None = None
) -> Proposer:
    """A new proposer of this name, with the usual parameters.

    datastore  for "retrieve": a datastore, or its file
    tokenizer  the fingerprint of the target's tokenizer, which the datastore must have been made with; None: any

    Raises UsageError for an unknown name or a missing datastore, DraftError for one that cannot be used.
    """
    if name == "lookup":
        return PromptLookup()
    if name == "recycle":
        return TokenRecycling()
    if name == "lookahead":
        return Lookahead()
    if name != "retrieve":
        raise UsageError(f"there is no proposer {name!r}: choose from {', '.join(NAMES)}")
    if datastore is None:
        raise UsageError("retrieve needs a datastore: make one with 'mirror-mlx datastore' and name its file")
    if not isinstance(datastore, Datastore):
        datastore = Datastore.load(datastore, tokenizer=tokenizer)
    elif tokenizer is not None:
        datastore.check_tokenizer(tokenizer)
    return Retrieval(datastore)
