"""SpecBench's questions: files of any kind, tasks, and dialogues as token ids."""

import json

import models
import pytest

from mirror_mlx import loading
from mirror_mlx.bench import prompts
from mirror_mlx.bench.spec import Settings
from mirror_mlx.bench.spec_questions import MT_BENCH, ModelTexts, Question, fits, read
from mirror_mlx.errors import DataError, UsageError
from mirror_mlx.train import data


def asked(folder, *lines):
    file = folder / "asked.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(file)


def test_questions_of_every_kind(tmp_path):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    file = asked(
        tmp_path, {"question_id": 81, "category": "writing", "turns": ["one", "two"], "reference": ["x"]},
        {"question": "three", "answer": "x"}, {"messages": chat}, "four", {"prompt": "five", "category": "qa"},
    )  # fmt: skip
    found = read(file, 0)
    assert [(q.id, q.category, q.turns) for q in found] == [
        ("81", "writing", ("one", "two")), ("2", "all", ("three",)), ("3", "all", (chat,)), ("4", "all", ("four",)),
        ("5", "qa", ("five",)),
    ]  # fmt: skip
    assert [q.id for q in read(file, 1)] == ["81", "2", "5"]
    assert [q.task for q in found] == [q.category for q in found]
    made = read(None, 3)
    assert [(q.id, q.category, len(q.turns)) for q in made] == [(str(i), "problems", 1) for i in (1, 2, 3)]


def test_mt_bench_is_one_task(tmp_path):
    lines = [{"question_id": i, "category": c, "turns": ["x"]} for i, c in enumerate([*MT_BENCH, "rag"])]
    assert [q.task for q in read(asked(tmp_path, *lines), 0)] == [*["mt_bench"] * 8, "rag"]
    assert [q.task for q in read(asked(tmp_path, *lines[1:]), 0)] == [
        *MT_BENCH[1:],
        "rag",
    ]  # a file with "math" of its own


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([{"turns": "one"}], "line 1: turns must be a list of texts"),
        ([{"turns": []}], "line 1: turns"),
        ([{"question": "x"}, {"turns": ["one", " "]}], "line 2: turns"),
        ([{"answer": "x"}], "line 1: expected a prompt"),
        ([{"question": "x", "category": 3}], "line 1: category must be a word"),
        ([{"question": "x", "question_id": 2}, {"question": "y"}], "has question_id 2 twice"),
        ([], "has no question in it"),
    ],
    ids=str,
)
def test_questions_that_cannot_be_used(tmp_path, lines, says):
    with pytest.raises(DataError, match=says):
        read(asked(tmp_path, *lines), 0)


def test_dialogues_become_tokens(tmp_path):
    tokenizer = loading.load_tokenizer(models.save_tiny(tmp_path / "model"))
    texts = ModelTexts(tokenizer)
    question = Question("1", "writing", ("ab", "cd"), "writing")
    second = tokenizer.decode(texts.prompt(question, ["yes"]))
    assert second.count("<|im_start|>") == 4
    assert second.index("ab") < second.index("yes") < second.index("cd")
    assert texts.text([*tokenizer.encode(" yes "), models.END]) == "yes"
    assert texts.recount("yes") == 2  # Spec-Bench takes one away, whether there was one at the beginning or not
    length = len(texts.prompt(question, [""]))
    assert fits(question, texts, 10, length + 11)
    assert not fits(question, texts, 10, length + 10)
    assert fits(question, texts, 10, None)


def test_what_is_held_out_is_what_training_holds_out(tmp_path):
    file = tmp_path / "all.jsonl"
    file.write_text("".join(json.dumps({"question": f"q{i}", "answer": f"a{i}"}) + "\n\n" for i in range(47)))
    for share in (0.001, 0.05, 0.3, 0.9):
        asked = [question.turns[0] for question in read(str(file), 0, held_out=share)]
        _, held = data.read([str(file)], share)
        assert asked == [example[0]["content"] for example in held]
        assert asked == prompts.read(str(file), 99, share)
    assert len(read(str(file), 0, held_out=0.0)) == 47


def test_the_bundled_pair_is_asked_what_it_was_not_trained_on(tmp_path, monkeypatch):
    file = tmp_path / "gsm8k_train.jsonl"
    file.write_text('{"question": "Why?", "answer": "#### 1"}\n')
    monkeypatch.delenv("MIRROR_MLX_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    here = Settings().filled()
    assert (here.questions, here.held_out) == ("gsm8k_train.jsonl", 0.05)
    monkeypatch.chdir(tmp_path.parent)
    assert Settings().filled() == Settings()
    monkeypatch.setenv("MIRROR_MLX_DATA", str(tmp_path))
    assert Settings().filled().questions == str(file)
    assert Settings(held_out=0.2).filled().held_out == 0.2
    assert Settings(model="other").filled().questions is None
    assert Settings(questions="mine.jsonl").filled() == Settings(questions="mine.jsonl")


def test_a_share_is_between_nothing_and_all():
    with pytest.raises(UsageError, match="between 0 and 1"):
        Settings(held_out=1.5)
