"""What docs/design.md says of the rooms: who imports whom, and who may make ops, start threads, touch files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "staging_tf1"
DESIGN = (PACKAGE.parent / "docs" / "design.md").read_text(encoding="utf-8")
# It holds objects of all rooms, and imports their classes for type hints only.
TYPED = "graph/state.py"
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

# A row of the table of floors: floor, room, what lives there, what it may import.
_ROW = re.compile(r"^ +(\d|side) +(\S+) +(\S.*?)(?: {2,}(\S.*))?$", re.MULTILINE)
ROWS = {room.rstrip("/"): (floor, allowed or "") for floor, room, _, allowed in _ROW.findall(DESIGN)}
ZERO = {
    f"{name}.py" for name in "_tf arguments background cores errors fork garbage progress replacing signals".split()
} | {"spec"}


def room_of(file: str) -> str:
    return file.split("/")[0]


def allowed_rooms(room: str) -> set[str] | None:
    """The rooms that `room` may import, itself included; None is any."""
    words = set(re.findall(r"[\w_]+", ROWS[room][1]))
    if "any" in words or room == "__main__.py":
        return None
    rooms = {name for name in set(ROWS) - ZERO if name.removesuffix(".py") in words} | {room}
    if "0" in words or ROWS[room][0] == "0":
        rooms |= ZERO - ({"_tf.py"} if "_tf" in words else set())
    if {"front", "door"} <= words:
        rooms |= {"__init__.py"}
    return rooms


@cache
def nodes_of(file: str) -> tuple[ast.AST, ...]:
    """The parts of a module that these tests look at."""
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    if file == TYPED:
        tree.body = [
            node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        ]
    kinds = (ast.Import, ast.ImportFrom, ast.Call, ast.Attribute)
    return tuple(node for node in ast.walk(tree) if isinstance(node, kinds))


def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The rooms that a module imports, at the top or within a function, as files or folders of the package."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "staging_tf1":
            parts = node.module.split(".")[1:]
            yield from [_as_room(parts[0])] if parts else [_as_room(alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "staging_tf1":
                    yield _as_room([*alias.name.split("."), ""][1])


def _as_room(name: str) -> str:
    if (PACKAGE / name).is_dir() and name:
        return name
    return f"{name}.py" if (PACKAGE / f"{name}.py").exists() and name else "__init__.py"


def test_every_room_stands_in_the_table() -> None:
    rooms = {room_of(file) for file in FILES} - {"__main__.py"}
    assert rooms - ZERO == set(ROWS) - {"_tf.py", "arguments.py", "spec"}
    # The files of floor 0 stand in one row.
    assert all(name in DESIGN for name in ZERO)


def test_imports_go_down_only() -> None:
    # One test, because there are hundreds of files, and a case of its own takes longer than the look at the file.
    wrong = {}
    for file in set(FILES) - {"__main__.py", "__init__.py"}:
        room = room_of(file)
        allowed = allowed_rooms("_tf.py" if room in ZERO else room)
        if allowed is not None and (found := set(imported(nodes_of(file))) - allowed):
            wrong[file] = sorted(found)
    assert wrong == {}, "these import what they must not"


# The table of what a room may do: who may, and which calls that is. Rooms that do what users do are left out.

USERS = {"legacy", "testing", "cli"}
THREADS = {"threading.Thread", "Thread", "Background", "concurrent.futures.ThreadPoolExecutor", "ThreadPoolExecutor"}
RUNS = {"session.run", "sess.run", "run_unwrapped", "fast_callable", "session.make_callable", "sess.make_callable"}
FILES_CALLS = {"open", "os.open", "os.scandir", "glob.glob", "tf.io.gfile.exists", "np.load", "np.memmap", "os.stat"}
RANDOM = {"np.random", "random"}
# What rooms that make no ops use of `tf`: classes, errors, look-ups, what makes no op.
NO_OPS = set(
    """ConfigProto DType DeviceSpec FIFOQueue GraphKeys IndexedSlices Operation QueueBase RaggedTensor RunMetadata
    RunOptions Session SparseTensor Summary Tensor TensorShape Variable as_dtype compat errors estimator
    executing_eagerly get_default_graph get_default_session get_static_value global_variables gfile io is_tensor
    local_variables nest string summary train""".split()
)


def may(*verbs: str) -> set[str]:
    """The rooms and files in the row of the table that ends with these words."""
    row = next(line for line in DESIGN.splitlines() if line.startswith("|") and all(verb in line for verb in verbs))
    return {name.rstrip("/") for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


@cache
def calls(file: str) -> set[str]:
    return {ast.unparse(node.func) for node in nodes_of(file) if isinstance(node, ast.Call)}


def uses_of_tf(file: str) -> set[str]:
    """The names X of `tf.X` that are called or used; type hints are not evaluated, so none of those."""
    found = set()
    for node in nodes_of(file):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tf":
            found.add(node.attr)
    return found


def offenders(allowed: set[str], finds: dict[str, set[str]]) -> dict[str, set[str]]:
    exempt = USERS | {"_tf.py"}
    return {file: found for file, found in finds.items() if found and not {room_of(file), file} & (allowed | exempt)}


def test_only_some_rooms_make_ops() -> None:
    finds = {file: uses_of_tf(file) - NO_OPS for file in FILES}
    assert offenders(may("make ops"), finds) == {}
    assert "placeholder" in finds["define/build.py"] and "FIFOQueue" in uses_of_tf("graph/token_area.py")


def test_only_some_rooms_start_threads() -> None:
    finds = {file: calls(file) & THREADS for file in FILES}
    assert offenders(may("start a thread"), finds) == {}
    # All of them end in the same way.
    by_hand = {file for file, found in finds.items() if found & {"threading.Thread", "Thread"}}
    assert {room_of(file) for file in by_hand} <= {"legacy", "testing"}
    assert {room_of(file) for file, found in finds.items() if found} >= {"feed", "watch", "lifecycle"}


def test_only_some_rooms_run_a_session() -> None:
    finds = {
        file: {call for call in calls(file) if call in RUNS or call.endswith(("_session.run", "sess.run"))}
        for file in FILES
    }
    assert offenders(may("run a session"), finds) == {}
    assert {room_of(file) for file, found in finds.items() if found} >= {"feed", "watch", "lifecycle"}


def test_only_these_touch_files() -> None:
    # To check a path that was given, and to close files after a fork, is no use of them.
    checks = {"arguments.py", "fork.py"}
    finds = {file: calls(file) & FILES_CALLS for file in FILES}
    assert offenders(may("open a file") | checks, finds) == {}
    assert finds["workers/setup.py"] == {"os.open"}


def test_only_the_sources_draw_random_numbers() -> None:
    def draws(file: str) -> set[str]:
        return {call for call in calls(file) if call.startswith(tuple(f"{name}." for name in RANDOM))}

    finds = {file: draws(file) for file in FILES}
    assert offenders(may("draw a random number"), finds) == {}
    assert any(found and room_of(file) == "sources" for file, found in finds.items())


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`?((?:graph|define|feed|lifecycle|watch|sources|spec)/[\w/]+\.py)", DESIGN))
    assert len(named) > 30
    assert sorted(name for name in named if not (PACKAGE / name).exists()) == []
