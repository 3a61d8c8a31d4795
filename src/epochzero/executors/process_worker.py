"""The other end of a pipe of `processes.py`: chunks come in on standard input, answers go out on standard output."""

from __future__ import annotations

import os
import pickle
import threading
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from epochzero.executors.worker import Key, answer

Question = tuple[Key, bytes, list[str]]
"""the recipe is empty where it was sent before"""


def main() -> None:
    """Answer until standard input ends, then end at once, even in the middle of a chunk: nobody is left to read it."""
    questions, answers = os.dup(0), os.dup(1)
    with Path(os.devnull).open("rb") as nothing:  # for plug-ins: nothing to read, and what they print is no answer
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    asked: SimpleQueue[Question] = SimpleQueue()
    threading.Thread(target=_read, args=(questions, asked), daemon=True).start()
    with os.fdopen(answers, "wb") as out:
        while True:
            key, recipe, texts = asked.get()
            pickle.dump(answer(key, partial(pickle.loads, recipe), texts), out)
            out.flush()


def _read(questions: int, asked: SimpleQueue[Question]) -> None:
    try:
        with os.fdopen(questions, "rb") as coming:
            while True:
                asked.put(pickle.load(coming))
    except (EOFError, pickle.UnpicklingError):
        os._exit(0)
