"""Tests of data sets, and of reading values from intact and damaged files of every kind."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bench_cli import bench

from hpcbench.bench.data import SETS, TENSORS, load_values, make_values
from hpcbench.codecs.types import BFLOAT16
from hpcbench.errors import UserError

F32 = np.dtype(np.float32)
X = np.random.default_rng(3).standard_normal((6, 50)).astype(np.float32)


@pytest.mark.parametrize("name", SETS)
def test_sets_are_the_same_at_each_call(name: str) -> None:
    x = make_values(name, 30_001, F32)
    assert x.dtype == F32 and x.shape == (30_001,) and np.isfinite(x).all() and x.std() > 0
    assert np.array_equal(x, make_values(name, 30_001, F32))
    short = make_values(name, 30_001, BFLOAT16)
    assert short.dtype == BFLOAT16 and np.array_equal(short, x.astype(BFLOAT16))


@pytest.mark.parametrize("name", ["gradient", "activation", "weight", "moment"])
def test_real_tensors_keep_their_scale_and_do_not_repeat(name: str) -> None:
    with np.load(TENSORS) as tensors:
        sample = tensors[name]
    x = make_values(name, 8 * sample.size, F32).reshape(8, -1)
    for part in x:
        assert 0.7 < np.abs(part).mean() / np.abs(sample).mean() < 1.42
        factor = np.sort(np.abs(part))[-1] / np.sort(np.abs(sample))[-1]
        assert np.allclose(np.sort(part), np.sort(sample) * factor, rtol=1e-5), "the values of one sample"
    quadruples = x.reshape(-1, 4)
    assert len(np.unique(quadruples, axis=0)) > 0.99 * len(quadruples)


def safetensors(path: Path, **arrays: np.ndarray) -> None:  # type: ignore[type-arg]
    """Write the format according to its description: length, header and data."""
    names = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64"}
    header, blob = {"__metadata__": {"by": "a test"}}, b""
    for name, array in arrays.items():
        place = [len(blob), len(blob) + array.nbytes]
        header[name] = {"dtype": names[array.dtype.name], "shape": list(array.shape), "data_offsets": place}  # type: ignore[dict-item]
        blob += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + blob)


def test_files_give_their_values(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "fortran.npy", X.astype(">f8"))
    np.save(tmp_path / "bf16.npy", X.astype(BFLOAT16))
    np.savez(tmp_path / "one.npz", only=X)
    np.savez(tmp_path / "two.npz", a=X + 1, b=X.astype(np.float16))
    X.tofile(tmp_path / "x.bin")
    safetensors(tmp_path / "m.safetensors", **{"layer.0:w": X, "h": X.astype(BFLOAT16), "step": np.arange(3)})
    flat = X.ravel()

    def read(name: str, n: int = 1000, dtype: np.dtype = F32) -> np.ndarray:  # type: ignore[type-arg]
        return load_values(str(tmp_path / name), n, dtype)

    for name in ("x.npy", "fortran.npy", "one.npz", "one.npz:only", "x.bin", "m.safetensors:layer.0:w"):
        assert np.array_equal(read(name), flat), name
    assert np.array_equal(read("two.npz:a"), flat + 1)
    assert np.array_equal(read("two.npz:b", dtype=np.dtype(np.float16)), flat.astype(np.float16))
    assert np.array_equal(read("m.safetensors:h"), flat.astype(BFLOAT16).astype(np.float32))
    assert read("m.safetensors:h", dtype=BFLOAT16).tobytes() == flat.astype(BFLOAT16).tobytes()
    assert np.array_equal(read("bf16.npy", dtype=BFLOAT16), flat.astype(BFLOAT16))
    assert read("x.bin", dtype=BFLOAT16).size == 600, "bytes are of the type that is asked for"
    assert np.array_equal(read("x.npy", 7), flat[:7])
    assert read("x.npy").flags.writeable and not isinstance(read("x.bin"), np.memmap)


def test_a_colon_in_a_name_is_no_key(tmp_path: Path) -> None:
    np.save(tmp_path / "a:b.npy", X)
    assert np.array_equal(load_values(str(tmp_path / "a:b.npy"), 300, F32), X.ravel())
    np.savez(tmp_path / "a:b.npz", k=X, l=X)
    assert np.array_equal(load_values(str(tmp_path / "a:b.npz") + ":k", 300, F32), X.ravel())


def header(entry: object) -> bytes:
    text = json.dumps({"w": entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


def entry(**changes: object) -> bytes:
    return header({"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes})


WRONG: dict[str, tuple[str, bytes | Callable[[Path], object], str]] = {
    "missing": ("x.npy", lambda path: None, "x.npy: no such file"),
    "missing with a key": ("x.npz:k", lambda path: None, "x.npz: no such file"),
    "a directory": ("x.npy", lambda path: path.mkdir(), "is a directory"),
    "another kind": ("x.csv", b"1,2\n", "unknown kind of file. Use one of .npy"),
    "empty npy": ("x.npy", b"", "not a NumPy array"),
    "npy of another format": ("x.npy", b"PK\3\4 nothing", "not a NumPy array"),
    "cut npy": (
        "x.npy",
        lambda path: (np.save(path, X), path.write_bytes(path.read_bytes()[:-9])),
        "not a NumPy array",
    ),
    "pickle": ("x.npy", lambda path: np.save(path, np.array([{}], object), allow_pickle=True), "not a NumPy array"),
    "integers": ("x.npy", lambda path: np.save(path, np.arange(9)), "contains int64, not floating-point"),
    "complex": ("x.npy", lambda path: np.save(path, np.ones(4, complex)), "contains complex128"),
    "no values": ("x.npy", lambda path: np.save(path, X[:0]), "contains no values"),
    "a key for one array": ("x.npy:w", lambda path: np.save(path, X), "contains one array. Leave out :w"),
    "wrong key": ("x.npz:w", lambda path: np.savez(path, a=X, b=X), "no array 'w'. Use one of a, b"),
    "no key": ("x.npz", lambda path: np.savez(path, a=X, b=X), "contains 2 arrays. Choose one with"),
    "empty npz": ("x.npz", lambda path: np.savez(path), "contains no array"),
    "npz that is none": ("x.npz:w", b"PK\3\4 nothing", "not a NumPy archive"),
    "npz that is an npy": ("x.npz", lambda path: np.save(path.open("wb"), X), "not a NumPy archive"),
    "odd size": ("x.bin", bytes(4099), "4099 bytes are not a multiple of the size of float32"),
    "empty bin": ("x.bin", b"", "contains no values"),
    "empty safetensors": ("x.safetensors", b"", "the length of its header is wrong"),
    "long header": ("x.safetensors", (2**60).to_bytes(8, "little") + b"{}", "the length of its header is wrong"),
    "no JSON": ("x.safetensors", (4).to_bytes(8, "little") + b"\xff{]x", "header cannot be read"),
    "no tensors": ("x.safetensors", (2).to_bytes(8, "little") + b"{}", "contains no array"),
    "a list": ("x.safetensors", (2).to_bytes(8, "little") + b"[]", "header cannot be read"),
    "an entry without fields": ("x.safetensors", header({}), "header cannot be read"),
    "wrong tensor": ("x.safetensors:v", entry(), "no array 'v'. Use one of w"),
    "integer tensor": ("x.safetensors", entry(dtype="I32"), "contains I32, not floating-point"),
    "behind the end": ("x.safetensors", entry(shape=[4], data_offsets=[0, 16]), "outside of the file"),
    "before the beginning": ("x.safetensors", entry(data_offsets=[-8, 0]), "outside of the file"),
    "another size": ("x.safetensors", entry(shape=[1]), "outside of the file"),
    "no offsets": ("x.safetensors", entry(data_offsets=[]), "x.safetensors"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files_end_in_one_line_with_their_name(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source, content, says = WRONG[case]
    path = Path(source.partition(":")[0])
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content(path)
    assert bench(monkeypatch, "none", "--data", source) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith(f"hpcbench: --data {path}"), err
    assert says in err


def test_torch_files_need_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "x.pt").write_bytes(b"")
    with pytest.raises(UserError, match=r"x\.pt: needs PyTorch. Install it with `pip install torch`"):
        load_values(str(tmp_path / "x.pt"), 10, F32)


def test_torch_files(tmp_path: Path) -> None:
    import torch

    tensor = torch.from_numpy(X.copy())
    torch.save(tensor, tmp_path / "one.pt")
    torch.save({"model": {"w": tensor, "b": tensor.bfloat16().T, "n": 3}, "step": 1}, tmp_path / "many.pt")
    assert np.array_equal(load_values(str(tmp_path / "one.pt"), 300, F32), X.ravel())
    assert np.array_equal(load_values(f"{tmp_path}/many.pt:model.w", 300, F32), X.ravel())
    assert np.array_equal(load_values(f"{tmp_path}/many.pt:model.b", 300, BFLOAT16), X.T.ravel().astype(BFLOAT16))
    (tmp_path / "bad.pt").write_bytes(b"nothing")
    for source, says in (("many.pt", "contains 2 arrays. Choose one"), ("bad.pt", "not a PyTorch file of tensors")):
        with pytest.raises(UserError, match=says):
            load_values(str(tmp_path / source), 300, F32)


def test_without_numpy_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from hpcbench import cli\n"
        "sys.argv = ['hpcbench', 'bench', 'codecs']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hpcbench: bench codecs: needs numpy. Install it with `pip install numpy`\n"
