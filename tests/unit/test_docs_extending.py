"""docs/extending.md shows the plug-in package as it is, and calls public what a plug-in may import and nothing less."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "extending.md"
PROJECT = ROOT / "tests" / "third_party"
# A code block under the name of the file that it stands in; a line "..." leaves lines of the file out.
_BLOCK = re.compile(r"(?:<!-- (\S+) -->\n)?```(python|toml)\n(.*?)```", re.DOTALL)
_LEFT_OUT = re.compile(r"^\.\.\.\n", re.MULTILINE)
_ROW = re.compile(r"^\| `(memcon[\w.]*)` \| (.*) \|$", re.MULTILINE)


@cache
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def blocks() -> list[tuple[str, str]]:
    """File -> code, in the order of the page."""
    return [(file, code) for file, _, code in _BLOCK.findall(page())]


def public() -> dict[str, str]:
    """Module -> what the page says that it is for."""
    return dict(_ROW.findall(page()))


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Module and name of everything that `path` imports from memcon."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0].startswith("memcon"):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith("memcon"))


def sources() -> list[Path]:
    return sorted((PROJECT / "src").rglob("*.py"))


def test_every_piece_of_code_names_its_file() -> None:
    assert len(blocks()) >= 10
    assert [code.splitlines()[0] for file, code in blocks() if not file] == []
    # Each kind of plug-in is shown by its own code.
    shown = {Path(file).name for file, _ in blocks()}
    assert {path.name for path in sources()} - shown == {"__init__.py"}


@pytest.mark.parametrize(("file", "code"), blocks(), ids=lambda value: value.split("\n")[0][:40])
def test_a_piece_of_code_stands_in_its_file(file: str, code: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    start = 0
    for piece in _LEFT_OUT.split(code):
        found = text.find("\n" + piece.strip("\n") + "\n", max(0, start - 1))
        assert found >= 0, f"{file} has not, or not in this order:\n{piece}"
        start = found + len(piece.strip("\n")) + 1


def test_what_the_page_calls_public_is_there() -> None:
    assert len(public()) >= 15
    for module, told in public().items():
        exported = getattr(importlib.import_module(module), "__all__", [])
        assert exported, module
        names = {
            name for name in re.findall(r"`(\w+)`", told) if name not in {"connection", "storage_errors", "rollbacks"}
        }
        assert names <= set(exported), module


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.name)
def test_the_package_imports_what_the_page_calls_public_and_nothing_else(path: Path) -> None:
    found = list(imports(path))
    foreign = [
        (module, name)
        for module, name in found
        if not module.startswith("memcon_notebook")
        and module not in public()
        # `from memcon import checks`
        and (module != "memcon" or f"memcon.{name}" not in public())
    ]
    assert foreign == []
    for module, name in found:
        if module in public():
            assert name in importlib.import_module(module).__all__, (module, name)
