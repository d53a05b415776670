"""`mirror-mlx datastore`: chats and texts become a datastore, in which proposals are looked up."""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_mlx.cli import flags
from mirror_mlx.errors import DataError, ModelError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from numpy.typing import NDArray

    from mirror_mlx.lookup import Datastore
    from mirror_mlx.train.data import Example

    Report = Callable[[str, int, int], None]
    """(what is being done, how much of it is done, of how much)"""

DESCRIPTION = """\
Make a datastore of chats and texts: a file in which a model's last tokens are looked up, to propose what most often
followed them there (REST, arXiv 2311.08252). No draft model is needed. It helps as far as what the model writes is like
what is in it: answers it gave before, code of the same project, documents that are quoted.

It holds the token ids of one tokenizer, so it serves all models of that family.
"""
EPILOG = """examples:
  mirror-mlx datastore --model Qwen3-8B --data chats.jsonl --out chats.datastore
  mirror-mlx datastore --model Qwen3-8B --data src/*.py docs/*.md --out project.datastore

A line of a .jsonl file is {"messages": [...]}, {"prompt": ..., "completion": ...},
{"question": ..., "answer": ...} or {"text": ...}; any other file is taken as one text.
A million tokens take about 8 MB, and some seconds to make. Ctrl-C leaves a file that was there as it was.
"""
_PIECE = 1 << 16  # characters of a text that are encoded at once: the bar moves, and Ctrl-C is heard


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "--model",
        metavar="NAME",
        default="demo",
        help="the target, whose tokenizer it is: folder, hub id, or demo (default: demo)",
    )
    parser.add_argument("--data", metavar="FILE", nargs="+", required=True, help="chats (.jsonl) or texts")
    parser.add_argument("--out", metavar="FILE", required=True, help="the datastore to make, or to replace")
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="run code that the model's folder brings along"
    )


def run(args: argparse.Namespace) -> int:
    """Read, encode, sort, write, and say what was made."""
    began = time.monotonic()
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it finds a document longer than the model's context
    flags.check_writable(args.out, "--out")
    out = Path(args.out).expanduser()
    with _progress() as report:
        store = _made(args, report)
        store.save(out)
    size, seconds = out.stat().st_size / 1e6, time.monotonic() - began
    print(f"{args.out}: {len(store)} tokens of {store.documents} documents, {size:.1f} MB, {seconds:.1f} s")
    return 0


def _made(args: argparse.Namespace, report: "Report") -> "Datastore":
    from mirror_mlx.lookup.datastore import DEPTH, Datastore, fingerprint
    from mirror_mlx.train import data

    # Among a project's files some are empty; if all are, the reader says so.
    paths = [path for path in args.data if not _is_empty(path)] or args.data
    read: list[tuple[str, list[Example]]] = []
    for done, path in enumerate(paths):
        report("reading", done, len(paths))
        read.append((path, data.read([path], 0)[0]))
    tokenizer = _tokenizer(args.model, args.trust_remote_code)
    sequences = list(_encoded(tokenizer, read, report))
    return Datastore.build(
        sequences,
        tokenizer=fingerprint(tokenizer.get_vocab()),
        progress=lambda sorted_by: report("sorting", sorted_by.bit_length(), DEPTH.bit_length()),
    )


def _is_empty(path: str) -> bool:
    return os.path.isfile(path) and not os.path.getsize(path)


def _tokenizer(model: str, trust_remote_code: bool) -> "TokenizerWrapper":
    from mlx_lm.tokenizer_utils import load

    from mirror_mlx.hub import find, one_line
    from mirror_mlx.loading import DEMO

    folder = find(DEMO if model == "demo" else model, ModelError)
    if (folder / "target").is_dir() and not (folder / "config.json").exists():
        folder = folder / "target"
    try:
        return load(folder, {"trust_remote_code": trust_remote_code})
    except Exception as reason:  # whatever transformers says of a folder, the user needs one line
        raise ModelError(f"{folder} has no usable tokenizer: {one_line(reason)}") from None


def _encoded(
    tokenizer: "TokenizerWrapper", read: "Sequence[tuple[str, list[Example]]]", report: "Report"
) -> "Iterator[NDArray[np.int32]]":
    """The token ids of each example of each file."""
    import numpy as np

    documents = [
        (f"{path}, example {number}", _pieces(example))
        for path, examples in read
        for number, example in enumerate(examples, start=1)
    ]
    done, total = 0, sum(len(pieces) for _, pieces in documents)
    for name, pieces in documents:
        ids: list[int] = []
        for piece in pieces:
            report("encoding", done, total)
            ids += _ids(tokenizer, piece, name)
            done += 1
        yield np.array(ids, np.int32)


def _pieces(example: "Example") -> "list[Example]":
    """A conversation whole; a text cut between lines."""
    if not isinstance(example, str):
        return [example]
    pieces: list[Example] = []
    start = 0
    while start < len(example):
        end = example.find("\n", start + _PIECE) + 1 or len(example)
        pieces.append(example[start:end])
        start = end
    return pieces


def _ids(tokenizer: "TokenizerWrapper", piece: "Example", name: str) -> list[int]:
    from mirror_mlx.hub import one_line

    text = piece
    if not isinstance(piece, str):
        if not tokenizer.has_chat_template:
            raise UsageError("this model has no chat template, which chats need: choose its instruction-tuned version")
        try:
            text = tokenizer.apply_chat_template(piece, tokenize=False, add_generation_prompt=False)
        except Exception as reason:  # templates are programs
            raise DataError(f"{name}: the model's chat template refuses it ({one_line(reason)})") from None
    return list(tokenizer.encode(text, add_special_tokens=False))


@contextmanager
def _progress() -> "Iterator[Report]":
    """A bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
