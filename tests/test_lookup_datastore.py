"""The datastore: its order, what is found in it, what is proposed from it, and its file."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.errors import DraftError, UsageError
from mirror_mlx.lookup import Datastore, Retrieval, fingerprint
from mirror_mlx.lookup.datastore import END
from mirror_mlx.lookup.suffixes import sort_suffixes

DOCUMENTS = st.lists(st.lists(st.integers(0, 3), max_size=20), max_size=6)


@given(st.lists(st.integers(0, 3) | st.just(END), max_size=60), st.sampled_from([1, 2, 3, 8, 64]))
def test_suffixes_are_sorted_as_deep_as_asked(tokens, depth):
    order = sort_suffixes(np.array(tokens, np.int32), depth).tolist()
    assert sorted(order) == list(range(len(tokens)))
    beginnings = [tokens[place : place + depth] for place in order]
    assert beginnings == sorted(beginnings)


def test_sorting_ends_where_order_is_no_longer_read():
    told = []
    order = sort_suffixes(np.zeros(1000, np.int32), 64, told.append)
    assert told == [2, 4, 8, 16, 32, 64]
    assert order.tolist() == [*range(999, 936, -1), *range(937)]  # those that agree in 64 tokens keep their order


@given(DOCUMENTS, st.lists(st.integers(0, 4), max_size=5))
def test_all_and_only_the_occurrences_are_found(documents, wanted):
    if not any(documents):
        return
    store = Datastore.build(documents)
    tokens = store.tokens.tolist()
    naive = [
        place
        for place, token in enumerate(tokens)
        if token != END and tokens[place : place + len(wanted)] == wanted and END not in wanted
    ]
    found = store.find(wanted)
    assert sorted(store.suffixes[found.start : found.stop].tolist()) == naive
    assert len(store) == sum(map(len, documents))
    assert store.documents == sum(map(bool, documents))


@given(DOCUMENTS, st.lists(st.integers(0, 4), max_size=12), st.integers(1, 3), st.integers(0, 3))
def test_retrieval_proposes_what_a_search_of_all_documents_would(documents, text, min_ngram, more):
    if not any(documents):
        return
    retrieval = Retrieval(Datastore.build(documents), min_ngram + more, min_ngram)
    retrieval.begin(text)
    assert retrieval.propose(5) == searched(documents, text, min_ngram + more, min_ngram, 5)


def searched(documents, text, max_ngram, min_ngram, length):
    for n in range(min(max_ngram, len(text)), min_ngram - 1, -1):
        rests = [d[at + n :] for d in documents for at in range(len(d) - n + 1) if d[at : at + n] == text[-n:]]
        chain = []
        while len(chain) < length:
            rests = [rest for rest in rests if rest]
            counts = Counter(rest[0] for rest in rests)
            if not counts:
                break
            chain.append(min(counts, key=lambda token: (-counts[token], token)))
            rests = [rest[1:] for rest in rests if rest[0] == chain[-1]]
        if chain:
            return chain
    return []


def test_a_sample_keeps_proportions():
    retrieval = Retrieval(Datastore.build([[1, 2]] * 300 + [[1, 3]] * 700), min_ngram=1, samples=10)
    retrieval.begin([1])
    assert retrieval.propose(3) == [3]


def test_a_proposal_is_at_most_as_long_as_the_store_is_deep():
    retrieval = Retrieval(Datastore.build([range(500)]))
    retrieval.begin([7, 8])
    assert retrieval.propose(10**12) == list(range(9, 9 + 64))


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([], "there is no token"),
        ([[], []], "there is no token"),
        ([[1], [2, -1]], "document 2 holds no token ids"),
        ([[0.5]], "document 1 holds no token ids"),
        ([[END]], "document 1 holds no token ids"),
        ([["a"]], "document 1 holds no token ids"),
    ],
)
def test_only_token_ids_are_stored(documents, said):
    with pytest.raises(UsageError, match=said):
        Datastore.build(documents)


def test_what_is_saved_is_loaded(tmp_path):
    path = tmp_path / "a.datastore"
    made = Datastore.build([[1, 2, 3], np.array([1, 2, 4], np.int64)], tokenizer="abcd", depth=8)
    made.save(path)
    for tokenizer in ("abcd", None):
        store = Datastore.load(path, tokenizer=tokenizer)
        assert (store.tokens.tolist(), store.suffixes.tolist()) == (made.tokens.tolist(), made.suffixes.tolist())
        assert (store.depth, store.tokenizer, store.documents, len(store)) == (8, "abcd", 2, 6)
        assert len(store.find([1, 2])) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["a.datastore"]
    made.save(path)  # while another has it mapped
    assert len(store.find([1, 2])) == 2


def test_one_of_another_tokenizer_is_refused(tmp_path):
    path = tmp_path / "a.datastore"
    Datastore.build([[1]], tokenizer=fingerprint({"a": 1})).save(path)
    with pytest.raises(DraftError, match=r"a\.datastore was made with another tokenizer: make one for this model"):
        Datastore.load(path, tokenizer=fingerprint({"b": 1}))


def test_a_fingerprint_is_that_of_the_vocabulary():
    assert fingerprint({"a": 0, "b\n1": 1}) != fingerprint({"a": 0, "b": 1})
    assert len(fingerprint({})) == 16


def _header(**changed):
    def change(contents):
        magic, facts, arrays = contents.split(b"\n", 2)
        return magic + b"\n" + json.dumps(json.loads(facts) | changed).encode() + b"\n" + arrays

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda contents: contents[:-1], "is damaged: make it again"),
        (lambda contents: contents + b"x", "is damaged: make it again"),
        (lambda contents: contents[:-3] + bytes([contents[-3] ^ 1]) + contents[-2:], "is damaged: make it again"),
        (lambda contents: contents[:30], "is damaged: make it again"),
        (lambda contents: contents[:21] + b"[" * 60000 + b"\n", "is damaged: make it again"),
        (lambda contents: contents[:21] + b"3\n", "is damaged: make it again"),
        (_header(tokens="many"), "is damaged: make it again"),
        (_header(tokens=-1), "is damaged: make it again"),
        (_header(tokens=10**30), "is damaged: make it again"),
        (_header(depth=None), "is damaged: make it again"),
        (_header(version=2), "is of format 2, not 1: make it again with 'mirror-mlx datastore'"),
        (lambda contents: b"PK" + contents, "is no datastore: make one"),
        (lambda contents: b"", "is no datastore: make one"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path, change, said):
    path = tmp_path / "a.datastore"
    Datastore.build([[1, 2, 3], [1, 2, 4]]).save(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DraftError, match=said) as error:
        Datastore.load(path)
    assert "\n" not in str(error.value)


def test_no_file_a_folder_and_nowhere_to_write(tmp_path):
    with pytest.raises(DraftError, match=r"there is no datastore .*none: make one with 'mirror-mlx datastore'"):
        Datastore.load(tmp_path / "none")
    with pytest.raises(DraftError, match="is a folder: name the datastore's file"):
        Datastore.load(tmp_path)
    store = Datastore.build([[1]])
    with pytest.raises(DraftError, match="is a folder: name a file in it"):
        store.save(tmp_path)
    with pytest.raises(DraftError, match="cannot be written: No such file"):
        store.save(tmp_path / "none" / "a")
    (tmp_path / "file").write_text("")
    with pytest.raises(DraftError, match="cannot be written: Not a directory"):
        store.save(tmp_path / "file" / "a")


def test_a_save_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "a.datastore"
    Datastore.build([[1]]).save(path)
    before = path.read_bytes()

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Datastore.build([[2]]).save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.datastore"]
    assert path.read_bytes() == before
