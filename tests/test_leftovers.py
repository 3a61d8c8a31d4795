"""Incomplete files of killed processes are removed by the next writer, and those of running ones are kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from epochzero.files import remove_leftovers, work_folder, write

WRITER = """
import sys
from pathlib import Path
from epochzero.files import replacing, work_folder
folder = Path(sys.argv[1])
with replacing(folder / "scores.csv") as file, work_folder(folder) as place:
    (place / "model.py").write_text("half")
    file.write(b"half")
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        for other_machine in (False, True):  # where no process has that number
            if other_machine:
                monkeypatch.setattr("epochzero.files._runs", lambda process: False)
            remove_leftovers(tmp_path, ".scores.csv.")
            remove_leftovers(tmp_path, ".export-")
            assert len(list(tmp_path.iterdir())) == 2
        monkeypatch.undo()
        writer.kill()
    kept = {
        tmp_path / name for name in (".scores.csv.old.part", ".scores.csv.1.part.txt", ".export-mine", ".other.9.part")
    }
    for path in kept:
        path.write_text("not ours")
    write(tmp_path / "scores.csv", "whole")
    with work_folder(tmp_path) as place:
        assert set(tmp_path.iterdir()) == kept | {tmp_path / "scores.csv", place}
    assert (tmp_path / "scores.csv").read_text() == "whole"
