"""Nothing in the tree runs code from a file or text that a user hands in: no eval, no unpickling."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import epochzero
import epochzero_papers

ROOTS = [Path(epochzero.__file__).parent, Path(epochzero_papers.__file__).parent]
ALLOWED = {
    "unpickling.py": "pickle._Unpickler",  # the restricted reader itself
    "executors/process_worker.py": "pickle.load pickle.loads",  # what the parent process writes
    "executors/processes.py": "pickle.load",  # what a worker answers
    "user_code.py": "exec_module",  # a module that the user names: `file.py:name`
    "export/standalone.py": "exec_module",  # the code that an export printed, to check it
    "testing/networks.py": "compile exec",  # the same in the contract checks
    "moved.py": "compile",  # old import paths, a text of its own
}
RUN = {"eval", "exec", "compile", "__import__", "execfile"}
UNPICKLE = {"load", "loads", "Unpickler", "_Unpickler"}
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}


def dangers(tree: ast.AST) -> Iterator[str]:
    """Calls that run a text, unpickle, or could."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in RUN and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            yield f"{node.module}.{node.names[0].name}"
        elif isinstance(node, ast.Import):
            yield from (f"import {name.name}" for name in node.names if name.name in MODULES - {"pickle"})
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "pickle" and node.attr in UNPICKLE:
                yield f"pickle.{node.attr}"
        elif isinstance(node, ast.Attribute) and node.attr == "exec_module":
            yield "exec_module"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            said = {keyword.arg: keyword.value for keyword in node.keywords}
            whole = ast.unparse(node.func)
            if whole == "torch.load" and ast.unparse(said.get("weights_only", ast.Constant(None))) != "True":
                yield "torch.load without weights_only"
            if whole in ("np.load", "numpy.load") and ast.unparse(said.get("allow_pickle", node)) != "False":
                yield "np.load with pickles"


def test_no_eval_and_no_unpickling() -> None:
    found: dict[str, set[str]] = {}
    for root in ROOTS:
        for file in root.rglob("*.py"):
            name = file.relative_to(root).as_posix()
            if names := set(dangers(ast.parse(file.read_text(encoding="utf-8")))):
                found[name] = names
    assert found == {name: set(names.split()) for name, names in ALLOWED.items()}


def test_the_test_sees_each_danger() -> None:
    for text in (
        "eval('1')",
        "f = exec",
        "import pickle; pickle.loads(b'')",
        "class A(pickle.Unpickler): ...",
        "from pickle import load",
        "import joblib",
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "np.load(f, allow_pickle=True)",
    ):
        assert list(dangers(ast.parse(text))), text
    assert not list(dangers(ast.parse("model.eval(); torch.load(f, weights_only=True); re.compile('a')")))
