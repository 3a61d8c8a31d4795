"""CI before `make test`: a browser exists, is installed, or a message says that it is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "chromium"
BASH = shutil.which("bash")

pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash here")


class Machine:
    """A machine with these commands alone; what they are asked goes to a file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, folder / "asked"
        self.asked.touch()

    def has(self, name: str, does: str = "") -> None:
        file = self.folder / name
        file.write_text(f'#!{BASH}\necho "{name} $*" >> {self.asked}\n{does}\n', encoding="utf-8")
        file.chmod(0o755)

    def run(self) -> str:
        assert BASH is not None
        self.has("timeout", 'shift; "$@"')
        done = subprocess.run(
            [BASH, SCRIPT], env={"PATH": str(self.folder)}, capture_output=True, text=True, check=True
        )
        return done.stdout

    @property
    def installed(self) -> list[str]:
        return [line for line in self.asked.read_text(encoding="utf-8").splitlines() if line.startswith("apt-get")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("browser", ["chromium", "chromium-browser", "google-chrome"])
def test_a_browser_that_is_there_is_enough(machine: Machine, browser: str) -> None:
    machine.has(browser)
    machine.has("id", "echo 0")
    machine.has("apt-get")
    assert machine.run() == "" and not machine.installed


def test_root_installs_one(machine: Machine) -> None:
    machine.has("id", "echo 0")
    machine.has("apt-get")
    assert machine.run() == ""
    assert machine.installed == ["apt-get -qq update", "apt-get -qq install -y --no-install-recommends chromium"]


@pytest.mark.parametrize(("user", "apt"), [(1000, True), (0, False)])
def test_who_may_not_install_goes_on_with_a_sentence(machine: Machine, user: int, apt: bool) -> None:
    machine.has("id", f"echo {user}")
    if apt:
        machine.has("apt-get")
    assert "only root with apt-get could install it here" in machine.run() and not machine.installed


def test_an_apt_get_that_fails_stops_nothing(machine: Machine) -> None:
    machine.has("id", "echo 0")
    machine.has("apt-get", "exit 100")
    assert "apt-get could not install it" in machine.run() and len(machine.installed) == 1
