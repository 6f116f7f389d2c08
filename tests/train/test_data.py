"""Tests of token sources (text, NumPy arrays, Megatron pairs), and of errors for invalid files."""

import importlib.util
import math
import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hpcbench.contract import text_split
from hpcbench.contract.training import Data
from hpcbench.errors import UserError
from hpcbench.study import schema
from hpcbench.train import corpus as corpora
from hpcbench.train import text, token_files
from hpcbench.train.batches import Batches
from hpcbench.train.corpus import Corpus

WORKER = Path(__file__).with_name("data_worker.py")
CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def index_of(lengths, *, dtype="uint16", documents=None, version=1, code=None):
    """Return the bytes of a Megatron index."""
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(lengths) else []
    documents = range(len(lengths) + 1) if documents is None else documents
    return (
        struct.pack(
            "<9sQBQQ", b"MMIDIDX\0\0", version, CODES[dtype] if code is None else code, len(lengths), len(documents)
        )
        + np.asarray(lengths, "<i4").tobytes()
        + (np.asarray(starts, "<i8") * np.dtype(dtype).itemsize).tobytes()
        + np.asarray(documents, "<i8").tobytes()
    )


def write_pair(directory, documents, *, dtype="uint16", name="corpus"):
    """Write a pair of files like Megatron's preprocessing: one sequence per document, with an end-of-document token."""
    prefix = directory / name
    np.concatenate(documents).astype(dtype).tofile(f"{prefix}.bin")
    Path(f"{prefix}.idx").write_bytes(index_of([len(document) for document in documents], dtype=dtype))
    return prefix


def documents_of(count=40, vocab=900, seed=1):
    draw = np.random.default_rng(seed)
    return [np.append(draw.integers(1, vocab, draw.integers(1, 60)), 0) for _ in range(count)]


# ---------------------------------------------------------------- what is read


@pytest.mark.parametrize("dtype", ["uint16", "int16", "int32", "int64"])
@pytest.mark.parametrize("ending", ["", ".bin", ".idx"])
def test_a_pair_of_megatron_is_its_documents_concatenated(tmp_path, dtype, ending):
    documents = documents_of()
    prefix = write_pair(tmp_path, documents, dtype=dtype)
    corpus = text.load(Data(source="megatron", path=f"{prefix}{ending}", valid_fraction=0.25), 16, 1000)
    joined = np.concatenate(documents)
    assert np.array_equal(np.concatenate([corpus.train, corpus.valid]), joined)
    assert len(corpus.valid) == len(joined) // 4
    assert isinstance(corpus.train, np.memmap) and corpus.train.dtype == dtype
    assert (corpus.train == 0).sum() + (corpus.valid == 0).sum() == len(documents), "ends of documents stay"


def test_a_list_of_modes_after_the_index_is_skipped(tmp_path):
    prefix = write_pair(tmp_path, documents_of())
    path = Path(f"{prefix}.idx")
    path.write_bytes(path.read_bytes() + bytes(40))
    assert len(text.load(Data(source="megatron", path=str(prefix), valid_fraction=0.25), 16, 1000).train) > 100


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", ">i4", "int64"])
def test_an_array_of_numpy_is_mapped(tmp_path, dtype):
    tokens = np.arange(5000) % 200
    np.save(tmp_path / "tokens.npy", tokens.astype(dtype))
    corpus = text.load(Data(source="numpy", path=str(tmp_path / "tokens.npy"), valid_fraction=0.1), 16, 200)
    assert isinstance(corpus.train, np.memmap)
    assert np.array_equal(corpus.train, tokens[:4500]) and np.array_equal(corpus.valid, tokens[4500:])
    window = corpus.window(split="valid", key=1, index=np.arange(3, dtype=np.uint64), seq_len=16)
    assert window.shape == (3, 17) and (np.diff(window) % 200 == 1).all()


@pytest.mark.parametrize("dtype", ["uint16", "int32", None])
def test_bare_numbers_are_mapped(tmp_path, dtype):
    tokens = np.arange(5000) % 777
    tokens.astype(dtype or "uint16").tofile(tmp_path / "train.bin")
    corpus = text.load(Data(source="numpy", path=str(tmp_path / "train.bin"), valid_fraction=0.5, dtype=dtype), 16, 777)
    assert np.array_equal(np.concatenate([corpus.train, corpus.valid]), tokens)
    assert corpus.uniform_loss == pytest.approx(math.log(777))
    assert corpus.unigram_loss() == pytest.approx(math.log(777), rel=0.1)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_samples_of_a_mapped_file_do_not_depend_on_the_layout(tmp_path, size):
    prefix = write_pair(tmp_path, documents_of())
    corpus = text.load(Data(source="megatron", path=str(prefix), valid_fraction=0.25), 16, 1000)
    in_memory = Corpus(np.array(corpus.train), np.array(corpus.valid), 1000)

    def samples(corpus, rank, of):
        batches = Batches(corpus, seed=3, seq_len=16, global_batch=8, micro_batch=2, rank=rank, size=of, device="cpu")
        return torch.cat([batch.inputs for batch in batches.train(5)])

    assert torch.equal(torch.cat([samples(corpus, rank, size) for rank in range(size)]), samples(in_memory, 0, 1))


def test_every_rank_maps_tokens_and_one_reads_text(mpi_results, tmp_path_factory):
    root = tmp_path_factory.mktemp("shared")
    prefix = write_pair(root, documents_of())
    (root / "text").write_bytes(b"".join(b"%d bottles, " % i for i in range(40_000)))
    small = write_pair(root, [np.arange(5)], name="small")
    all_data = [
        Data(source="megatron", path=str(prefix), valid_fraction=0.25),
        Data(source="file", path=str(root / "text"), valid_fraction=0.3),
        Data(source="megatron", path=str(small), valid_fraction=0.2),
    ]
    results = mpi_results(2, WORKER, *(data.model_dump_json() for data in all_data))
    pair, texts, refused = (results[i : i + 2] for i in (0, 2, 4))
    for both in (pair, texts):
        assert both[0]["digest"] == both[1]["digest"] and both[0]["window"] == both[1]["window"]
    assert [result["mapped"] for result in pair] == [True, True]
    assert [result["mapped"] for result in texts] == [False, False]
    assert "too short for seq_len" in refused[0]["error"] and refused[0]["error"] == refused[1]["error"]


# ---------------------------------------------------------------- digests and baselines


def test_the_digest_of_a_text_does_not_change():
    import hashlib

    corpus = Corpus(np.frombuffer(b"training", np.uint8), np.frombuffer(b"evaluation", np.uint8))
    assert corpus.digest == hashlib.sha256(b"training\0evaluation").hexdigest()


def test_the_digest_of_a_large_file_is_of_blocks_size_and_time(tmp_path, monkeypatch):
    monkeypatch.setattr(token_files, "_WHOLE", 1000)
    monkeypatch.setattr(token_files, "_BLOCK", 16)
    path = tmp_path / "tokens.bin"
    tokens = (np.arange(4000) % 500).astype("uint16")

    def digest(content, time=1_000_000_000):
        content.tofile(path)
        os.utime(path, ns=(time, time))
        return text.load(Data(source="numpy", path=str(path), valid_fraction=0.5), 16, 500).digest

    first = digest(tokens)
    assert digest(tokens) == first
    assert digest(tokens, time=2_000_000_000) != first
    assert digest(tokens[:-1]) != first
    for place in (0, 3999):
        changed = tokens.copy()
        changed[place] = 7 if place else 3
        assert digest(changed) != first, "the first and the last block are in the digest"


def test_baselines_of_many_tokens_are_counted_in_blocks(monkeypatch):
    draw = np.random.default_rng(3)
    tokens = draw.zipf(1.5, 200_000) % 100
    corpus = Corpus(tokens, tokens[:50_000], 100)
    exact = corpus.unigram_loss()
    assert corpus.unigram_tokens == 200_000
    monkeypatch.setattr(corpora, "_COUNTED", 64 * 500)
    assert corpus.unigram_tokens == 32_000
    assert corpus.unigram_loss() == pytest.approx(exact, rel=0.02) and corpus.unigram_loss() != exact


# ---------------------------------------------------------------- tokens of a text


def test_text_becomes_tokens(tmp_path, need):
    need(None if importlib.util.find_spec("tokenizers") else "the library tokenizers is not installed")
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    prose = "the größe of the café is the größe of a café, as far as we see; " * 9000
    training = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([prose[:5000]], training)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "words").write_text(prose, encoding="utf-8")
    data = Data(
        source="file", path=str(tmp_path / "words"), valid_fraction=0.4, tokenizer=str(tmp_path / "tokenizer.json")
    )
    vocabulary = tokenizer.get_vocab_size()
    corpus = text.load(data, 16, vocabulary)
    assert 0 < corpus.train.max() < vocabulary and corpus.symbols == vocabulary
    pieces = list(text._file(data.path, characters=True))
    assert b"".join(pieces) == prose.encode() and len(pieces) > 5
    expected = [
        i for piece in pieces if not text_split.is_valid(piece, 0.4) for i in tokenizer.encode(piece.decode()).ids
    ]
    assert corpus.train.tolist() == expected
    with pytest.raises(
        UserError, match=f"has {vocabulary} tokens, but model.vocab is 256: set model.vocab to {vocabulary}"
    ):
        text.load(data, 16, 256)
    (tmp_path / "words").write_bytes(b"caf\xe9 " * 50_000)
    with pytest.raises(UserError, match="not UTF-8"):
        text.load(data, 16, vocabulary)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"must name a tokenizer\.json") as caught:
        text.load(data, 16, vocabulary)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"no\.json: No such file"):
        text.load(data.changed(tokenizer=str(tmp_path / "no.json")), 16, vocabulary)


def test_a_missing_library_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "words").write_text("words " * 1000)
    with pytest.raises(UserError, match="tokenizers is not installed: pip install tokenizers"):
        text.load(Data(source="file", path=str(tmp_path / "words"), valid_fraction=0.4, tokenizer="t.json"), 16)


@given(st.text(min_size=1, max_size=200).map(lambda prose: prose * (70_000 // len(prose.encode()) + 1)))
@settings(max_examples=10, deadline=None)
def test_no_piece_ends_within_a_character(tmp_path_factory, prose):
    path = tmp_path_factory.mktemp("pieces") / "words"
    path.write_bytes(prose.encode())
    assert "".join(piece.decode() for piece in text._file(str(path), characters=True)) == prose


# ---------------------------------------------------------------- what is wrong with a file


@pytest.mark.parametrize(("token", "place"), [(900, 1234), (65535, 0), (901, 4999)])
def test_a_token_outside_the_vocabulary_is_named_with_its_position(tmp_path, token, place):
    tokens = (np.arange(5000) % 900).astype("uint16")
    tokens[place] = token
    tokens.tofile(tmp_path / "t")
    with pytest.raises(
        UserError, match=f"position {place} contains token {token}, but model.vocab is 900: increase model.vocab"
    ):
        text.load(Data(source="numpy", path=str(tmp_path / "t"), valid_fraction=0.1), 16, 900)


def test_a_token_that_the_first_check_missed_is_found_in_its_sample():
    tokens = np.full(100, 5, np.int32)
    tokens[40] = -1
    corpus = Corpus(tokens, tokens, 10, "t.bin")
    with pytest.raises(UserError, match=r"t\.bin: position 40 contains token -1, but"):
        corpus.window(split="train", key=1, index=np.arange(8, dtype=np.uint64), seq_len=90)
    with pytest.raises(UserError, match="position 140 contains token -1, but"):
        corpus.window(split="valid", key=1, index=np.arange(8, dtype=np.uint64), seq_len=90)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an index of tokens"),
        (b"MMIDIDX\0\0" + bytes(10), "not an index of tokens"),
        (b"TNTIDX\0\0\0" + index_of([5])[9:], "not an index of tokens"),
        (index_of([5], version=2), "version 2 of the index is not supported"),
        (index_of([5], code=7), "code 7 is not a supported dtype of tokens"),
        (index_of([5])[:-1], "bytes, but 1 sequences and 2 document entries require 62"),
        (struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 2**64 - 1, 2**63), "bytes, but 18446744073709551615 sequences"),
        (index_of([5, -5, 5]), "sequence 1 does not begin where the previous sequence ends"),
        (index_of([5], documents=[0, 9]), "the documents end at sequence 9, but there are 1"),
        (index_of([6]), "10 bytes, but .* describes 6 tokens of 2 bytes"),
    ],
)
def test_a_damaged_index_is_one_line(tmp_path, content, message):
    (tmp_path / "c.idx").write_bytes(content)
    np.arange(5, dtype="uint16").tofile(tmp_path / "c.bin")
    with pytest.raises(UserError, match=message) as caught:
        text.load(Data(source="megatron", path=str(tmp_path / "c"), valid_fraction=0.5), 1, 256)
    assert "\n" not in str(caught.value) and str(tmp_path / "c") in str(caught.value)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_any_wrong_index_is_an_error_of_one_line(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("spoilt")
    documents = documents_of(8, seed=data.draw(st.integers(0, 9)))
    prefix = write_pair(directory, documents)
    path = Path(f"{prefix}.idx")
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    path.write_bytes(content + data.draw(st.binary(max_size=9)))
    try:
        corpus = text.load(Data(source="megatron", path=str(prefix), valid_fraction=0.5), 4, 2**16)
    except UserError as error:
        assert "\n" not in str(error) and str(prefix) in str(error)
    else:
        stored = np.fromfile(f"{prefix}.bin", corpus.train.dtype)
        assert np.array_equal(np.concatenate([corpus.train, corpus.valid]), stored), "never beyond the file"


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_wrong_array_is_an_error_of_one_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("spoilt") / "a.npy"
    np.save(path, (np.arange(300) % 200).astype("uint16"))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 140))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    try:
        text.load(Data(source="numpy", path=str(path), valid_fraction=0.5), 4, 2**16)
    except UserError as error:
        assert "\n" not in str(error) and str(path) in str(error)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.write_bytes(b""), "not a NumPy array"),
        (
            lambda path: np.save(path, np.zeros((3, 4), int)),
            r"contains int64 of shape \(3, 4\): .* one-dimensional array of integers",
        ),
        (lambda path: np.save(path, np.zeros(9)), "contains float64 of shape"),
        (lambda path: np.save(path, np.array([{}] * 9), allow_pickle=True), "not a NumPy array"),
        (lambda path: path.write_bytes(np.lib.format.magic(1, 0)), "not a NumPy array"),
    ],
)
def test_an_array_without_tokens_is_an_error_of_one_line(tmp_path, write, message):
    path = tmp_path / "a.npy"
    write(path)
    with pytest.raises(UserError, match=message) as caught:
        text.load(Data(source="numpy", path=str(path), valid_fraction=0.5), 4, 256)
    assert "\n" not in str(caught.value) and "a.npy" in str(caught.value)


def test_bare_numbers_of_another_size_are_refused(tmp_path):
    (tmp_path / "t").write_bytes(bytes(4001))
    with pytest.raises(UserError, match=r"1 bytes remain after 1000 tokens: check data\.dtype \(int32\)"):
        text.load(Data(source="numpy", path=str(tmp_path / "t"), valid_fraction=0.5, dtype="int32"), 4)


@pytest.mark.parametrize("source", ["numpy", "megatron"])
def test_too_few_tokens_are_refused(tmp_path, source):
    prefix = write_pair(tmp_path, [np.arange(20)])
    path = f"{prefix}.bin" if source == "numpy" else str(prefix)
    with pytest.raises(UserError, match="the validation split has 2 tokens, which is too short for seq_len 4"):
        text.load(Data(source=source, path=path, valid_fraction=0.1), 4)


# ---------------------------------------------------------------- the study's section


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": "megatron"}, "path does not fit source"),
        ({"source": "stdlib", "path": "x"}, "path does not fit source"),
        ({"source": "megatron", "path": "x", "tokenizer": "t"}, "tokenizer is for text"),
        ({"source": "numpy", "path": "x.npy", "dtype": "int32"}, "dtype is for"),
        ({"source": "file", "path": "x", "dtype": "int32"}, "dtype is for"),
        ({"source": "numpy", "path": "x", "dtype": "int8"}, "uint16"),
    ],
)
def test_contradictory_settings_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        schema.Data(**fields)


def test_consistent_settings_are_accepted():
    for fields in (
        {},
        {"source": "file", "path": "x", "tokenizer": "t"},
        {"source": "stdlib", "tokenizer": "t"},
        {"source": "numpy", "path": "x", "dtype": "uint16"},
        {"source": "megatron", "path": "x"},
    ):
        schema.Data(**fields)


def test_the_standard_library_is_read_without_its_tests_and_installed_packages(tmp_path, monkeypatch):
    for name in (
        "b.py",
        "a.py",
        "sub/c.py",
        "sub/test/d.py",
        "site-packages/e.py",
        "sub/__pycache__/f.py",
        "sub/g.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.setattr(text.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    assert list(text._stdlib()) == [b"a.py", b"b.py", b"sub/c.py"]
