from __future__ import annotations

import bz2
import pickle
import pickletools
import tarfile
import tracemalloc
import zipfile
from collections import OrderedDict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from epochzero.errors import DataError
from epochzero.tables import pickles
from tests.command import refusal
from tests.tables.official import Hostile, nats_folder, pickled


def loaded(content: bytes) -> Any:
    with pickles.refusing("x.pth", "a pickle"):
        return pickles.load(BytesIO(content))


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_and_numpy_numbers(protocol: int) -> None:
    numbers = [np.float64(0.1), np.float32(0.5), np.int64(-3), np.uint8(255), np.bool_(True), np.float16(1.5)]
    value = {("cifar10", 777): [1, 2.5, None, "é", b"\x00\xff", numbers], "s": {1, 2}, "o": OrderedDict(a=1)}
    found = loaded(pickle.dumps(value, protocol))
    assert found == value
    assert [type(number) for number in found["cifar10", 777][5]] == [float, float, int, int, bool, float]


def test_the_old_name_of_numpys_scalars() -> None:
    content = pickled({"flop": np.float64(113.95137)})
    assert "numpy.core.multiarray" in [arg for _, arg, _ in pickletools.genops(content)]
    assert loaded(content) == {"flop": 113.95137}


def test_a_number_of_the_other_byte_order() -> None:
    content = pickle.dumps(np.array([1.5, 2.5], ">f8")[0], 4)
    assert loaded(content) == 1.5
    dtype = pickle.dumps(np.dtype(">f4"), 2)[:-1]  # without its end
    scalar = (
        b"\x80\x02cnumpy.core.multiarray\nscalar\n" + dtype[2:] + b"C\x04" + np.array(1.5, ">f4").tobytes() + b"\x86R."
    )
    assert loaded(scalar) == 1.5


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_runs_nothing(tmp_path: Path, protocol: int) -> None:
    content = pickle.dumps({"arch2infos": [1.0, Hostile(tmp_path / "written")]}, protocol)
    with pytest.raises(pickles.HostilePickleError) as caught:
        loaded(content)
    assert "x.pth is refused, and nothing in it was run: its pickle asks for" in str(caught.value)
    assert ".open, which no table of accuracies needs" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    pickle.loads(content)["arch2infos"][1].close()
    assert [child.name for child in tmp_path.iterdir()] == ["written"], "the pickle was not hostile at all"


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"cbuiltins\ngetattr\n(c__builtin__\nset\nS'pop'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
        b"\x80\x02c_codecs\ndecode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.",
        b"\x80\x02cnumpy\nload\nX\x01\x00\x00\x00a\x85R.",
        b"\x80\x02ctorch\nload\nX\x01\x00\x00\x00a\x85R.",
        b"\x80\x04\x8c\x0bcollections\x8c\x0fabc.sys.modules\x93.",
        b"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93.",
        b"\x80\x02\x82\x01.",  # an extension of copyreg
    ],
)
def test_other_names_are_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"refused|is not a pickle"):
        loaded(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04.",
        b"text",
        pickle.dumps([1.0, 2.0])[:-1],
        b"\x80\x02cnumpy\ndtype\nX\x01\x00\x00\x00O\x85R.",
        b"\x80\x02cnumpy.core.multiarray\nscalar\nK\x01K\x02\x86R.",
        b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.",
        b"\x80\x02ccollections\nOrderedDict\n}X\x03\x00\x00\x00popK\x01sb.",  # a new attribute of the class
        b"\x80\x02cnumpy\ndtype\nN}X\x05\x00\x00\x00orderX\x01\x00\x00\x00>s\x86b.",  # the same by slots
        b"\x80\x02})" + 100_000 * b"\x85" + b"K\x01s.",  # a key so deep that Python would die of its hash
        b"\x80\x02})" + 2000 * b"K\x01" + b"tK\x01s.",
    ],
)
def test_broken_pickles_are_one_sentence(content: bytes) -> None:
    with pytest.raises(DataError, match=r"x\.pth is not a pickle, or it is damaged or cut short"):
        loaded(content)
    assert callable(OrderedDict.pop) and not hasattr(pickles._Type, "order")


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(pickles.LEGACY_MAGIC, 2) + b"\x80\x02]r\x00\x00\x00\x10K\x01a.",  # a memo of 2^28 places
        pickle.dumps(pickles.LEGACY_MAGIC, 2) + b"\x80\x05\x96\x00\x00\x00\x40\x00\x00\x00\x00.",  # 1 GB
        pickle.dumps(pickles.LEGACY_MAGIC, 2) + b"\x80\x05\x8e\x00\x00\x00\x40\x00\x00\x00\x00.",
    ],
)
def test_a_claimed_size_takes_no_memory(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.pth").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"x\.pth is not a file of torch\.save"):
        pickles.load_pth(tmp_path / "x.pth")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_small_file_that_unpacks_to_a_large_one(tmp_path: Path) -> None:
    bomb = b"\x80\x02" + (1 << 24) * b"]" + b"."
    (tmp_path / "a.pickle.pbz2").write_bytes(bz2.compress(bomb))
    with zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b/data.pkl", bomb)
    for name in ("a.pickle.pbz2", "b.pth"):
        said = refusal("data", "import", tmp_path / name, "--space", "nb201", "--out", tmp_path / "out.ezb")
        assert name in said and "unpack to more than" in said


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch_are_read_without_their_tensors(tmp_path: Path, zipped: bool) -> None:
    value = {"a": [1.5, np.float64(2.5)], "weights": OrderedDict(w=torch.ones(3), n=torch.tensor(7)), "end": {"x": 1}}
    torch.save(value, tmp_path / "x.pth", _use_new_zipfile_serialization=zipped)
    found = pickles.load_pth(tmp_path / "x.pth")
    assert found["a"] == [1.5, 2.5] and found["end"] == {"x": 1}
    assert repr(found["weights"]["w"]) == "a tensor"


@pytest.mark.parametrize("zipped", [True, False])
def test_hostile_and_broken_files_of_torch(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "x.pth"
    torch.save({"a": Hostile(tmp_path / "written")}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(pickles.HostilePickleError, match=r"x\.pth is refused"):
        pickles.load_pth(path)
    assert [child.name for child in tmp_path.iterdir()] == ["x.pth"]
    torch.save({"a": list(range(100))}, path, _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    for length in range(0, len(content) - (0 if zipped else 40), 97):
        path.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"x\.pth is not a file of torch\.save, or it is damaged"):
            pickles.load_pth(path)


def test_a_changed_byte_in_a_zip_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.pth"
    torch.save({"accuracy": 93.25}, path)
    content = path.read_bytes()
    place = content.index(np.array(93.25, ">f8").tobytes())
    path.write_bytes(content[:place] + b"\x40\x50" + content[place + 2 :])
    with pytest.raises(DataError, match="Bad CRC"):
        pickles.load_pth(path)


def test_a_pickle_or_zip_that_is_not_torchs(tmp_path: Path) -> None:
    path = tmp_path / "x.pth"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(DataError, match="does not begin with torch's number"):
        pickles.load_pth(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(DataError, match=r"it has no data\.pkl"):
        pickles.load_pth(path)


def test_the_command_refuses_hostile_files_of_every_kind(tmp_path: Path) -> None:
    """Through the command line: exit code 2, one sentence, nothing run and nothing written."""
    work = tmp_path / "work"
    work.mkdir()
    hostile = Hostile(tmp_path / "written")
    torch.save({"arch2infos": hostile}, work / "a.pth")
    torch.save({"metrics_dict": hostile}, work / "b.pth", _use_new_zipfile_serialization=False)
    (work / "c.pickle.pbz2").write_bytes(bz2.compress(pickle.dumps({"arch2infos": hostile})))
    folder = nats_folder(work / "folder")
    (folder / "000001.pickle.pbz2").write_bytes(bz2.compress(pickle.dumps({"12": hostile})))
    with tarfile.open(work / "d.tar", "w") as archive:
        archive.add(folder, "NATS")
    before = sorted(work.rglob("*"))
    for source in ("a.pth", "b.pth", "c.pickle.pbz2", "folder", "d.tar"):
        said = refusal("data", "import", work / source, "--space", "nb201", "--out", work / "out.ezb")
        assert "is refused, and nothing in it was run" in said and source in said
    assert sorted(work.rglob("*")) == before
    assert not (tmp_path / "written").exists()
