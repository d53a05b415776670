import json
from pathlib import Path

import pytest

from mirror_mlx.errors import DataError
from mirror_mlx.train import data


def write(path: Path, *lines: object) -> str:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ({"messages": [{"role": "assistant", "content": "hi", "name": "x"}]}, [{"role": "assistant", "content": "hi"}]),
        (
            {"prompt": "2+2?", "completion": "4"},
            [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}],
        ),
        (
            {"question": "How many? ", "answer": "2+3=<<2+3=5>>5 cats.\n#### 5"},
            [
                {"role": "user", "content": "How many?"},
                {"role": "assistant", "content": "2+3=5 cats.\nThe answer is 5."},
            ],
        ),
        ({"text": "once"}, "once"),
    ],
)
def test_every_kind_of_line_is_read(line: dict[str, object], example: data.Example) -> None:
    assert data.parse(line) == example


def test_an_answer_without_a_final_number_is_kept() -> None:
    assert data.worked_answer("It is <<1+1=2>>two.") == "It is two."


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ([1], "expected a JSON object, found list"),
        ({"prompt": "a"}, "found fields: prompt"),
        ({}, "found fields: none"),
        ({"text": 3}, "text must be a string, found int"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "user"}]}, "message 1 must have a role and a content"),
        ({"messages": [{"role": "user", "content": None}]}, "must be strings"),
        ({"messages": [{"role": "user", "content": "a"}]}, "nothing to learn"),
    ],
)
def test_a_malformed_line_says_why(line: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        data.parse(line)


def test_a_malformed_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"text": "a"}, "", "{not json")
    with pytest.raises(DataError, match=r"a\.jsonl, line 3: is not JSON"):
        data.read([path], 0)
    path = write(tmp_path / "b.jsonl", {"text": "a"}, {"txt": "a"})
    with pytest.raises(DataError, match=r"b\.jsonl, line 2: expected messages"):
        data.read([path], 0)


def test_the_last_lines_of_each_file_are_held_out(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", *({"text": f"a{n}"} for n in range(20)))
    two = write(tmp_path / "two.jsonl", *({"text": f"b{n}"} for n in range(3)))
    train, held = data.read([one, two], 0.1)
    assert held == ["a18", "a19", "b2"]
    assert train == [f"a{n}" for n in range(18)] + ["b0", "b1"]
    assert data.read([two], 0) == (["b0", "b1", "b2"], [])


def test_text_stays_in_one_piece(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one", "two", "three")
    assert data.read([path], 0.3) == (["one\ntwo\n"], ["three\n"])
    assert data.read([path], 0) == (["one\ntwo\nthree\n"], [])


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.jsonl not found"):
        data.read([str(tmp_path / "no.jsonl")], 0)
    with pytest.raises(DataError, match=r"empty\.txt is empty"):
        data.read([write(tmp_path / "empty.txt", "")], 0)
    with pytest.raises(DataError, match="too few to hold 1 out"):
        data.read([write(tmp_path / "one.jsonl", {"text": "a"})], 0.05)
    with pytest.raises(DataError, match="is a folder"):
        data.read([str(tmp_path)], 0)
    (tmp_path / "binary.txt").write_bytes(b"abc\xff")
    with pytest.raises(DataError, match=r"not UTF-8 text \(byte 3\)"):
        data.read([str(tmp_path / "binary.txt")], 0)
