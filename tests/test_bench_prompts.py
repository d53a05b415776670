"""Prompts for measurements: from files of any kind people have, or made on the spot."""

import json

import pytest

from mirror_mlx.bench import prompts
from mirror_mlx.errors import DataError, PromptError

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]


def write(folder, *lines, name="asked.jsonl"):
    (folder / name).write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return str(folder / name)


def test_every_shape_of_a_line(tmp_path):
    answer = {"role": "assistant", "content": "4"}
    file = write(
        tmp_path,
        {"prompt": "one", "completion": "x"},
        "",
        {"question": "two", "answer": "#### 3"},
        {"turns": ["three", "more"], "category": "math"},
        {"text": "four"},
        '"five"',
        {"messages": [*CHAT, answer]},
    )
    assert prompts.read(file, 99) == ["one", "two", "three", "four", "five", CHAT]
    assert prompts.read(file, 2) == ["one", "two"]


def test_any_other_file_has_a_prompt_a_line(tmp_path):
    assert prompts.read(write(tmp_path, "How many? ", " ", "And now?", name="asked.txt"), 9) == [
        "How many?",
        "And now?",
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{oops", "line 2: it is not JSON"),
        ({"answer": "3"}, "line 2: expected a prompt"),
        ({"prompt": "  "}, "line 2: expected"),
        ({"messages": [{"role": "assistant", "content": "4"}]}, "line 2: expected"),
        ({"messages": "hello"}, "line 2: expected"),
        ([1, 2], "line 2: expected"),
        ({"turns": []}, "line 2: expected"),
    ],
    ids=str,
)
def test_a_malformed_line_is_named(tmp_path, line, says):
    with pytest.raises(DataError, match=says):
        prompts.read(write(tmp_path, {"prompt": "fine"}, line), 9)


def test_files_that_cannot_be_used(tmp_path):
    with pytest.raises(DataError, match="there is no file '/no/file': check --prompts"):
        prompts.read("/no/file", 1)
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        prompts.read(str(tmp_path), 1)
    with pytest.raises(DataError, match="has no prompt in it"):
        prompts.read(write(tmp_path, " "), 1)
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="is not UTF-8 text"):
        prompts.read(str(tmp_path / "bytes.txt"), 1)


def test_made_prompts_follow_from_the_seed():
    assert prompts.made(3, 4) == prompts.made(3, 5)[:4] != prompts.made(4, 4)


def test_a_prompt_that_fills_the_context_is_named():
    assert prompts.fitting([1] * 9, 10, 1) == 1
    assert prompts.fitting([1] * 9, None, 1) > 10**9
    with pytest.raises(PromptError, match="prompt 3 has 10 tokens and the model's context is 10"):
        prompts.fitting([1] * 10, 10, 3)
