"""A datastore: token sequences and their suffix array, in one file that is mapped, not read."""

import hashlib
import json
import os
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirror_mlx.errors import DraftError, UsageError
from mirror_mlx.lookup.suffixes import sort_suffixes

END = 2**31 - 2
"""Follows every document; above all tokens, so that suffixes which begin with it are the last."""

DEPTH = 64  # tokens: more than a match and what is proposed after it have together
_MAGIC = b"mirror-mlx datastore\n"
_VERSION = 1
_MAKE = "'mirror-mlx datastore'"


class Datastore:
    """Documents of token ids in which any sequence is found by binary search (REST: He et al. 2023, arXiv 2311.08252).

    tokens     [N]  the documents one after the other, each followed by `END`; big-endian, so that bytes sort as tokens
    suffixes   [N - documents]  the places of all tokens, sorted by the `depth` tokens from there on
    depth      the longest sequence that can be found
    tokenizer  the fingerprint of the tokenizer whose ids these are; "": not known

    >>> store = Datastore.build([[1, 2, 3], [1, 2, 4]])
    >>> [store.suffixes[slot] for slot in store.find([1, 2])]
    [np.int32(0), np.int32(4)]
    """

    def __init__(
        self, tokens: NDArray[Any], suffixes: NDArray[Any], *, depth: int = DEPTH, tokenizer: str = ""
    ) -> None:
        """Takes arrays as they are; `build` and `load` make them."""
        self.tokens, self.suffixes, self.depth, self.tokenizer = tokens, suffixes, depth, tokenizer
        self._bytes = tokens.view(np.uint8).data  # far quicker to cut and compare than arrays
        self._places = suffixes.data

    def __len__(self) -> int:
        """How many tokens there are."""
        return len(self.suffixes)

    @property
    def documents(self) -> int:
        return len(self.tokens) - len(self.suffixes)

    @classmethod
    def build(
        cls,
        sequences: Iterable[Sequence[int] | NDArray[Any]],
        *,
        tokenizer: str = "",
        depth: int = DEPTH,
        progress: Callable[[int], None] = lambda sorted_by: None,
    ) -> "Datastore":
        """A datastore of these documents; empty ones are left out.

        tokenizer  see `fingerprint`
        depth      the longest sequence that can be found
        progress   told by how many tokens the suffixes are sorted so far: 2, 4, 8 … `depth`

        Raises UsageError where there is no token at all, or one is no token id.
        """
        if depth < 1:
            raise UsageError(f"depth is {depth}: it must be 1 or more")
        parts: list[NDArray[Any]] = []
        for sequence in sequences:
            part = np.asarray(sequence)
            if not part.size:
                continue
            if part.dtype.kind not in "iu" or part.min() < 0 or part.max() >= END:
                raise UsageError(f"document {len(parts) // 2 + 1} holds no token ids: they are whole numbers from 0 on")
            parts += part.astype(np.int32, copy=False), np.array([END], np.int32)
        if not parts:
            raise UsageError("there is no token to build a datastore of: give it at least one document with text")
        tokens = np.concatenate(parts)
        if len(tokens) >= END:
            raise UsageError(f"{len(tokens)} tokens are too many for a datastore: give it fewer than {END} at once")
        suffixes = sort_suffixes(tokens, depth, progress)[: len(tokens) - len(parts) // 2]
        return cls(tokens.astype(">i4"), suffixes, depth=depth, tokenizer=tokenizer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, under another name until it is complete: one that is there stays, or is replaced whole.

        Raises DraftError where it cannot be written.
        """
        path = Path(path)
        if path.is_dir():
            raise DraftError(f"{path} is a folder: name a file in it")
        partial = path.with_name(f".{path.name}.partial")
        arrays = self.tokens, self.suffixes.astype("<i4", copy=False)
        facts = {
            "version": _VERSION, "tokens": len(self.tokens), "suffixes": len(self.suffixes), "depth": self.depth,
            "tokenizer": self.tokenizer, "crc32": _checksum(*arrays),
        }  # fmt: skip
        try:
            with partial.open("wb") as file:
                file.write(_header(facts))
                for array in arrays:
                    file.write(array.view(np.uint8).data)
            partial.replace(path)
        except OSError as error:
            raise DraftError(f"{path} cannot be written: {error.strerror}") from None
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, tokenizer: str | None = None) -> "Datastore":
        """Map the file, after a look at its checksum.

        tokenizer  the fingerprint of the tokenizer it must have been made with; None: any

        Raises DraftError where it is missing, damaged, of another format or of another tokenizer.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                if file.read(len(_MAGIC)) != _MAGIC:
                    raise DraftError(f"{path} is no datastore: make one with {_MAKE}")
                facts = json.loads(file.readline(1 << 16))
                start = file.tell()
            if facts["version"] != _VERSION:
                raise DraftError(f"{path} is of format {facts['version']}, not {_VERSION}: make it again with {_MAKE}")
            tokens = _mapped(path, ">i4", start, facts["tokens"])
            suffixes = _mapped(path, "<i4", start + tokens.nbytes, facts["suffixes"])
            if path.stat().st_size != start + tokens.nbytes + suffixes.nbytes:
                raise ValueError("size")
            if _checksum(tokens, suffixes) != facts["crc32"]:
                raise ValueError("checksum")
            made_with, depth = str(facts["tokenizer"]), int(facts["depth"])
        except FileNotFoundError:
            raise DraftError(f"there is no datastore {path}: make one with {_MAKE}") from None
        except IsADirectoryError:
            raise DraftError(f"{path} is a folder: name the datastore's file") from None
        except OSError as error:
            raise DraftError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise DraftError(f"{path} is damaged: make it again with {_MAKE}") from None
        store = cls(tokens, suffixes.astype(np.int32, copy=False), depth=depth, tokenizer=made_with)
        if tokenizer is not None:
            store.check_tokenizer(tokenizer, str(path))
        return store

    def check_tokenizer(self, tokenizer: str, name: str = "the datastore") -> None:
        """Raise DraftError, with the datastore's `name`, unless it was made with the tokenizer of this fingerprint."""
        if tokenizer != self.tokenizer:
            raise DraftError(f"{name} was made with another tokenizer: make one for this model with {_MAKE}")

    def find(self, sequence: Sequence[int]) -> range:
        """The slots of `suffixes` that begin with `sequence`, of at most `depth` tokens; maybe none."""
        slots = range(len(self.suffixes))
        if not all(0 <= token < END for token in sequence):
            return slots[:0]
        wanted = np.array(sequence, ">i4").tobytes()
        size, text, places = len(wanted), self._bytes, self._places

        def beginning(slot: int) -> bytes:
            start = 4 * places[slot]
            return bytes(text[start : start + size])

        low = bisect_left(slots, wanted, key=beginning)
        if low == len(slots) or beginning(low) != wanted:
            return slots[:0]
        return slots[low : bisect_right(slots, wanted, low + 1, key=beginning)]


def fingerprint(vocabulary: Mapping[str, int]) -> str:
    """A tokenizer's vocabulary, token → id, as 16 hexadecimal digits.

    >>> fingerprint({"a": 0, "b": 1}) == fingerprint({"b": 1, "a": 0})
    True
    """
    lines = (f"{i} {json.dumps(token)}\n" for token, i in sorted(vocabulary.items(), key=lambda item: item[::-1]))
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def _header(facts: Mapping[str, Any]) -> bytes:
    """One line of JSON, ended so that the arrays after it lie at a multiple of 64 bytes."""
    line = json.dumps(facts).encode()
    return _MAGIC + line + b" " * (-(len(_MAGIC) + len(line) + 1) % 64) + b"\n"


def _mapped(path: Path, kind: str, start: int, count: int) -> NDArray[Any]:
    return np.asarray(np.memmap(path, kind, "r", start, (count,)))


def _checksum(*arrays: NDArray[Any]) -> int:
    value = 0
    for array in arrays:
        value = zlib.crc32(array.view(np.uint8).data, value)
    return value
