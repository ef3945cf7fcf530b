"""`staging-tf1 launch`: the tasks of a cluster, their output, restarts and failures. It leaves no process behind."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launching import LAUNCH, PATIENCE_SECS, Launched, environment, ignore_hangup
from load import slowdown
from processes import RunPython

from staging_tf1.cli.main import main
from staging_tf1.launch.supervisor import MOST_IN_LINE, LineSplitter
from staging_tf1.launch.tasks import Program, ProgramError, fill, find_program, free_ports, make_tasks

ROOT = Path(__file__).parents[2]
Launch = Callable[..., Launched]
# Told by every task that is ready, in the order of `facts`.
TWO_AND_ONE = ["chief 0", "ps 0", "worker 0"]


@pytest.fixture
def launch(tmp_path: Path) -> Any:
    """Start `staging-tf1 launch OPTIONS` with a program, and kill it after the test."""
    started: list[Launched] = []

    def start(options: str, program: str, **kwargs: Any) -> Launched:
        started.append(Launched(tmp_path, options, program, **kwargs))
        return started[-1]

    yield start
    for each in started:
        with each:
            pass


def names(facts: list[tuple[str, Any]]) -> list[str]:
    return [name for name, _ in facts]


# What each task is: without processes.


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 1), (4, 3)])
def test_each_task_has_its_place_in_the_same_cluster(workers: int, servers: int, sync: bool) -> None:
    words = ("{ps_hosts}", "{worker_hosts}", "{job_name}", "{task_index}", "{task}")
    tasks = make_tasks(Program(("{task}.py",), words), workers, servers, range(5000, 5000 + workers + servers), sync)
    hosts = [f"127.0.0.1:{port}" for port in range(5000, 5000 + workers + servers)]
    cluster = {"chief": hosts[:1], "worker": hosts[1:workers], "ps": hosts[workers:]}
    if workers == 1:
        del cluster["worker"]
    places = [("chief", 0), *(("worker", i) for i in range(workers - 1)), *(("ps", i) for i in range(servers))]
    assert [task.name for task in tasks] == [f"{job} {index}" for job, index in places]
    for task, (job, index) in zip(tasks, places, strict=True):
        flags = ["ps", str(index)] if job == "ps" else ["worker", str(index + (job == "worker"))]
        filled = [",".join(hosts[workers:]), ",".join(hosts[:workers]), *flags, f"{job}-{index}"]
        assert list(task.command) == ["{task}.py", *filled]
        environment = dict(task.environment)
        assert json.loads(environment.pop("TF_CONFIG")) == {"cluster": cluster, "task": {"type": job, "index": index}}
        assert environment == {"PYTHONUNBUFFERED": "1", **({"STAGING_TF1_SYNC": "1"} if sync else {})}


def test_other_braces_stay_as_they_are() -> None:
    words = ["{}", "{tasks}", "{ task }", "{task", "${HOME}", "{0}", "{TASK}", '{"a": {"b": 1}}', ""]
    assert fill(words, {"task": "chief-0"}) == words


def test_a_value_is_not_searched_for_placeholders() -> None:
    assert fill(["{task}{{task_index}}"], {"task": "{task_index}", "task_index": "7"}) == ["{task_index}{7}"]


def test_ports_differ_and_are_free() -> None:
    ports = free_ports("127.0.0.1", 50)
    assert len(set(ports)) == 50
    for port in ports:
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))


# Programs.


def test_scripts_and_modules_run_with_this_python(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.touch()
    python = (sys.executable, "-u")
    assert find_program([str(script), "-x", "--"]) == Program((*python, str(script)), ("-x", "--"))
    assert find_program(["-m", "a.b", "c"]) == Program((*python, "-m", "a.b"), ("c",))


def test_other_programs_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "prog"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program(["prog", "x"]) == Program((str(program),), ("x",))
    # This Python's own environment comes last.
    beside = os.path.basename(sys.executable)
    assert find_program([beside]).command == (os.path.join(os.path.dirname(sys.executable), beside),)
    (tmp_path / beside).touch(mode=0o755)
    assert find_program([beside]).command == (str(tmp_path / beside),)


def test_a_file_that_cannot_be_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prog").touch(mode=0o644)
    with pytest.raises(ProgramError, match=r"^program 'prog' cannot be run: .*; run \./prog after chmod \+x"):
        find_program(["prog"])


# Lines: without processes.


@given(data=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\xff", b""]), max_size=12), cuts=st.data())
def test_lines_do_not_depend_on_how_the_bytes_arrive(data: list[bytes], cuts: st.DataObject) -> None:
    text = b"".join(data)
    whole, parts = LineSplitter(), LineSplitter()
    expected = (whole.feed(text) if text else []) + whole.feed(b"")
    found, start = [], 0
    while start < len(text):
        size = cuts.draw(st.integers(1, len(text) - start))
        found += parts.feed(text[start : start + size])
        start += size
    assert found + parts.feed(b"") == expected
    assert b"".join(expected) == text.replace(b"\r", b"").replace(b"\n", b"")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"a\r\n\r\nb\r\n", [b"a", b"", b"b"]),
        # Progress bars: the carriage return in front of each update, or after it.
        (b"\r 10%\r 20%\n", [b" 10%", b" 20%"]),
        (b" 10%\r 20%\r", [b" 10%", b" 20%"]),
        (b"\xff\xfe\x00\n", [b"\xff\xfe\x00"]),
    ],
)
def test_what_ends_a_line(text: bytes, lines: list[bytes]) -> None:
    splitter = LineSplitter()
    assert (splitter.feed(text) if text else []) + splitter.feed(b"") == lines


@pytest.mark.parametrize("ended", [False, True])
def test_a_long_line_comes_in_pieces(ended: bool) -> None:
    text, splitter, found = b"x" * 300_000, LineSplitter(), list[bytes]()
    for start in range(0, len(text), 999):
        found += splitter.feed(text[start : start + 999])
    assert len(splitter._rest) <= MOST_IN_LINE
    found += [*(splitter.feed(b"\n") if ended else ()), *splitter.feed(b"")]
    assert b"".join(found) == text
    assert {len(piece) for piece in found[:-1]} == {MOST_IN_LINE}


# Real processes: the environment and the arguments.


def test_each_process_has_its_environment_and_can_serve_its_port(launch: Launch) -> None:
    run = launch(
        "--workers 3 --ps 2 --sync",
        """
host, port = config["cluster"][job][index].split(":")
with socket.socket() as server:
    server.bind((host, int(port)))
    server.listen()
    ready({"config": config, "env": [os.environ[name] for name in ("PYTHONUNBUFFERED", "STAGING_TF1_SYNC")],
        "stdin": sys.stdin.read(), "leads": os.getsid(0) == os.getpgid(0) == os.getpid()})
    wait_for_go()  # every server listens while the others do
""",
    )
    facts = run.facts(5)
    run.go(5)
    assert run.end() == (0, "", "")
    assert names(facts) == ["chief 0", "ps 0", "ps 1", "worker 0", "worker 1"]
    cluster = facts[0][1]["config"]["cluster"]
    assert {job: len(hosts) for job, hosts in cluster.items()} == {"chief": 1, "worker": 2, "ps": 2}
    hosts = [host for job in cluster.values() for host in job]
    assert len(set(hosts)) == 5 and all(re.fullmatch(r"127\.0\.0\.1:\d+", host) for host in hosts)
    for name, fact in facts:
        job, index = name.split()
        assert fact.pop("config") == {"cluster": cluster, "task": {"type": job, "index": int(index)}}
        assert fact == {"env": ["1", "1"], "stdin": "", "leads": True}


def run_program(*words: str, env: dict[str, str] | None = None, **kwargs: Any) -> tuple[int, str, str]:
    """Run `staging-tf1 launch WORDS` to its end. Return exit code, stdout and stderr."""
    done = subprocess.run(
        [*LAUNCH, *words], env=environment(env), capture_output=True, timeout=PATIENCE_SECS, check=False, **kwargs
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_program_on_path_gets_its_arguments(tmp_path: Path) -> None:
    program = tmp_path / "prog"
    program.write_text('#!/bin/sh\necho "$@"')
    program.chmod(0o755)
    words = ("--workers", "1", "--", "prog", "{job_name}", "-x", "--", "{no}")
    done = run_program(*words, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert sorted(done[1].splitlines()) == ["[chief 0] worker -x -- {no}", "[ps 0]    ps -x -- {no}"]
    assert (done[0], done[2]) == (0, "")


def test_a_module_runs_and_the_dashes_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("import sys; print(sys.argv[1:], __name__)")
    code, out, err = run_program("--workers=1", "-m", "mod", "{task_index}", "--ps", cwd=tmp_path)
    assert sorted(out.splitlines()) == ["[chief 0] ['0', '--ps'] __main__", "[ps 0]    ['0', '--ps'] __main__"]
    assert (code, err) == (0, "")


@pytest.mark.slow
def test_an_example_trains_as_a_cluster() -> None:
    """Real processes, each with its own TensorFlow."""
    code, out, err = run_program("--workers", "2", "--ps", "1", "--", str(ROOT / "examples" / "cluster.py"))
    assert code == 0, err
    assert out.count(" of 2: trained on 7210 of 14420 digits\n") == 2
    accuracy = re.search(r"^\[chief 0\]  accuracy on 355 other digits: (\d\.\d+)$", out, re.MULTILINE)
    assert accuracy is not None and float(accuracy[1]) >= 0.9, out
    assert "Traceback" not in err


def test_signals_that_python_ignores_have_their_default_in_the_tasks() -> None:
    code, out, _ = run_program("--workers", "1", "--", "grep", "SigIgn", "/proc/self/status")
    assert code == 0
    for line in out.splitlines():
        ignored = int(line.split()[-1], 16)
        assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))


# Output.


def test_the_lines_of_a_task_carry_its_name(launch: Launch) -> None:
    run = launch(
        "--workers 2",
        """
out = sys.stdout.buffer
out.write(f"first of {name}\\n".encode())
sys.stderr.write(f"error of {name}\\n")
out.write(b"\\xff\\xfe\\x00\\r\\n\\nlast without end")
""",
    )
    out, err = run.process.communicate(timeout=PATIENCE_SECS)
    lines, errors = out.split(b"\n"), err.split(b"\n")
    assert lines.pop() == errors.pop() == b""
    for tag, task in ((b"[chief 0]  ", b"chief 0"), (b"[worker 0] ", b"worker 0"), (b"[ps 0]     ", b"ps 0")):
        assert [line for line in lines if line.startswith(tag)] == [
            tag + line for line in (b"first of " + task, b"\xff\xfe\x00", b"", b"last without end")
        ]
        assert [line for line in errors if line.startswith(tag)] == [tag + b"error of " + task]
    assert (len(lines), len(errors)) == (12, 3)


def test_a_line_is_printed_as_soon_as_it_ends(launch: Launch) -> None:
    run = launch("--workers 1", "print('here', end='\\n' if job == 'ps' else ''); wait_for_go(); print(' I am')")
    assert run.process.stdout.readline() == b"[ps 0]    here\n"
    run.go(2)
    assert sorted(run.end()[1].splitlines()) == ["[chief 0] here I am", "[ps 0]     I am"]


def test_lines_of_several_tasks_do_not_mix(launch: Launch) -> None:
    run = launch(
        "--workers 3",
        """
for number in range(300):
    for half in "ab":
        os.write(1 + number % 2, half.encode() * 7000 + (b"\\n" if half == "b" else b""))
""",
        stderr=subprocess.STDOUT,
    )
    lines = run.end()[1].splitlines()
    assert len(lines) == 4 * 300
    assert {re.sub(r"^\[(chief|worker|ps) \d\] +", "", line) for line in lines} == {"a" * 7000 + "b" * 7000}


def test_a_line_of_10_mb_without_an_end(launch: Launch) -> None:
    run = launch("--workers 1", "os.write(1, b'') if job == 'ps' else sys.stdout.write('0123456789' * 1_000_000)")
    code, out, err = run.end()
    assert (code, err) == (0, "")
    pieces = out.splitlines()
    assert all(piece.startswith("[chief 0] ") for piece in pieces)
    assert max(map(len, pieces)) == len("[chief 0] ") + MOST_IN_LINE
    assert "".join(piece.removeprefix("[chief 0] ") for piece in pieces) == "0123456789" * 1_000_000


def on_terminal(folder: Path, program: str, env: dict[str, str]) -> str:
    """Return what a run prints on a terminal that is its stdout and stderr."""
    (folder / "program.py").write_text(program)
    master, terminal = pty.openpty()
    command = [*LAUNCH, "--workers", "1", "--", "program.py"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(env), stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal
    ):
        os.close(terminal)
        shown = read_terminal(master)
    os.close(master)
    return shown.replace("\r\n", "\n")


def read_terminal(master: int) -> str:
    """Read until no process has the terminal open."""
    shown = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            return shown.decode()
        if not data:
            return shown.decode()
        shown += data


def test_the_names_are_coloured_on_a_terminal(tmp_path: Path) -> None:
    program = "import sys; print('out'); print('err', file=sys.stderr)"
    coloured = on_terminal(tmp_path, program, {})
    chief, server = "\x1b[36m[chief 0]\x1b[0m ", "\x1b[33m[ps 0]\x1b[0m    "
    assert sorted(coloured.splitlines()) == sorted(tag + word for tag in (chief, server) for word in ("out", "err"))
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = on_terminal(tmp_path, program, env)
        assert plain and "\x1b" not in plain


def test_a_reader_that_leaves_ends_the_tasks(launch: Launch) -> None:
    run = launch("--workers 2", "ready()\nwhile True: print('y' * 100)")
    run.facts(3)
    assert run.process.stdout is not None
    run.process.stdout.close()
    assert run.process.wait(PATIENCE_SECS) == 128 + signal.SIGPIPE
    run.wait_until_all_are_gone()


def test_a_full_disk_ends_the_tasks(launch: Launch) -> None:
    with open("/dev/full", "wb") as full:
        run = launch("--workers 1", "ready(); wait_for_go(); print('x'); wait_forever()", stdout=full)
        run.facts(2)
        run.go(2)
        code, _, err = run.end()
    assert code == 1
    assert err == (
        "staging-tf1 launch: the output of the tasks cannot be written: No space left on device; ending the other "
        "tasks\n"
    )
    run.wait_until_all_are_gone()


# Failures and restarts.


# Each ending of one task, and each task with one ending.
@pytest.mark.slow_cases("(chief|ps) 0-os.*")
@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        ("sys.exit(3)", 3, "exited with code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was ended by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, "was ended by SIGTERM"),
    ],
)
@pytest.mark.parametrize("failing", TWO_AND_ONE)
def test_the_first_failure_ends_all_and_gives_the_exit_code(
    launch: Launch, failing: str, ending: str, code: int, said: str
) -> None:
    run = launch(
        "--workers 2",
        f"""
signal.signal(signal.SIGTERM, lambda *_: sys.exit(99) if name != {failing!r} else None)
ready()
if name == {failing!r}:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    wait_for_go()
    {ending}
wait_forever()
""",
    )
    run.facts(3)
    run.go()
    assert run.end() == (code, "", f"staging-tf1 launch: {failing} {said}; ending the other tasks\n")
    run.wait_until_all_are_gone()


ENDS_WHEN_TOLD = """
def leave(number, frame):
    tell("asked to end")
    if job == "chief":
        wait_for_go()
    tell("ends")
    sys.exit()

signal.signal(signal.SIGTERM, leave)
ready()
"""


def test_servers_end_after_the_workers(launch: Launch) -> None:
    run = launch(
        "--workers 2 --grace 1000",
        ENDS_WHEN_TOLD
        + """
if name == "worker 0":
    wait_for_go()
    sys.exit(3)
wait_forever()
""",
    )
    run.facts(3)
    run.go()
    assert run.facts(1) == [("chief 0", "asked to end")]
    run.go()
    assert [run.facts(1)[0] for _ in range(3)] == [("chief 0", "ends"), ("ps 0", "asked to end"), ("ps 0", "ends")]
    assert run.end()[0] == 3
    run.wait_until_all_are_gone()


def test_tasks_that_ignore_sigterm_are_killed_after_the_grace(launch: Launch) -> None:
    run = launch(
        "--workers 2 --grace 0.1",
        "if name == 'worker 0':\n    ready(); wait_for_go(); sys.exit(3)\n"
        "ignore(signal.SIGTERM); ready(); wait_forever()",
    )
    run.facts(3)
    run.go()
    assert run.end() == (
        3,
        "",
        "staging-tf1 launch: worker 0 exited with code 3; ending the other tasks\n"
        "staging-tf1 launch: killing chief 0, ps 0: still running 0.1 s after SIGTERM\n",
    )
    run.wait_until_all_are_gone()


def test_the_last_task_that_fails_ends_no_others(launch: Launch) -> None:
    run = launch("--workers 1", "if job == 'ps': sys.exit()\nready(); wait_for_go(); sys.exit(4)")
    run.facts(1)
    run.go()
    code, _, err = run.end()
    assert code == 4
    assert err.startswith("staging-tf1 launch: chief 0 exited with code 4")


def test_a_task_that_fails_is_restarted_with_the_same_address(launch: Launch) -> None:
    run = launch(
        "--workers 2 --restarts 3",
        """
ready(config)
if name == "worker 0":
    with open("starts", "a") as file:
        file.write(".")
    starts = os.path.getsize("starts")
    if starts < 4:
        print("start", starts)
        os.kill(os.getpid(), signal.SIGKILL) if starts < 3 else sys.exit(5)
wait_for_go()
""",
    )
    facts = run.facts(6)
    assert names(facts) == ["chief 0", "ps 0", *["worker 0"] * 4]
    assert len({json.dumps(config) for _, config in facts}) == 3
    run.go(3)
    assert run.end() == (
        0,
        "[worker 0] start 1\n[worker 0] start 2\n[worker 0] start 3\n",
        "staging-tf1 launch: worker 0 was ended by SIGKILL; restarting it (1 of 3)\n"
        "staging-tf1 launch: worker 0 was ended by SIGKILL; restarting it (2 of 3)\n"
        "staging-tf1 launch: worker 0 exited with code 5; restarting it (3 of 3)\n",
    )
    run.wait_until_all_are_gone()


def test_each_task_has_its_own_restarts(launch: Launch) -> None:
    run = launch("--workers 2 --restarts 1", "ready(os.getpid()); wait_forever()")
    pids = dict(run.facts(3))
    for task in TWO_AND_ONE:
        os.kill(pids[task], signal.SIGKILL)
        ((again, pids[task]),) = run.facts(1)
        assert again == task
    os.kill(pids["ps 0"], signal.SIGKILL)
    code, _, err = run.end()
    assert code == 137
    assert err.splitlines() == [
        *(f"staging-tf1 launch: {task} was ended by SIGKILL; restarting it (1 of 1)" for task in TWO_AND_ONE),
        "staging-tf1 launch: ps 0 was ended by SIGKILL; ending the other tasks",
    ]
    run.wait_until_all_are_gone()


def test_what_a_dead_task_has_started_is_gone_before_its_restart(launch: Launch) -> None:
    run = launch(
        "--workers 1 --restarts 1",
        """
if name == "ps 0" and not os.path.exists("again"):
    open("again", "w").close()
    ready()
    subprocess.Popen(["sleep", "300"], close_fds=False)
    sys.exit(1)
elif name == "ps 0":
    tell("restarted")
    wait_for_go()
else:
    wait_for_go()
""",
    )
    assert run.facts(2) == [("ps 0", "restarted"), ("ps 0", None)]
    run.wait_until_all_are_gone()
    run.go(2)
    assert run.end()[0] == 0


def test_a_program_that_cannot_be_executed_fails(tmp_path: Path) -> None:
    program = tmp_path / "prog"
    program.write_bytes(b"\x7fELF, but not really")
    program.chmod(0o755)
    done = run_program("--workers", "1", "--", str(program))
    assert done == (126, "", "staging-tf1 launch: chief 0 cannot be started: Exec format error\n")


def test_arguments_that_are_too_long_fail() -> None:
    # Linux takes words of up to 128 KiB, which this one exceeds once the hosts are in it.
    code, out, err = run_program("--workers", "3", "--", "echo", "{worker_hosts}" * 8000)
    assert (code, out) == (126, "")
    assert err == "staging-tf1 launch: chief 0 cannot be started: Argument list too long\n"


# The end of a run.


def test_servers_may_return_by_themselves(launch: Launch) -> None:
    run = launch("--workers 2 --ps 2 --grace 100", "ready()\nif job == 'ps': wait_for_go(); print('done')")
    run.facts(4)
    run.go(2)
    code, out, err = run.end()
    assert (code, sorted(out.splitlines()), err) == (0, ["[ps 0]     done", "[ps 1]     done"], "")


def test_servers_that_do_not_return_are_ended_without_a_failure(launch: Launch) -> None:
    run = launch("--workers 2 --ps 2 --grace 0.1", "ready()\nwait_forever() if job == 'ps' else wait_for_go()")
    run.facts(4)
    run.go(2)
    assert run.end() == (
        0,
        "",
        "staging-tf1 launch: ending ps 0, ps 1: still running 0.1 s after all workers had finished\n",
    )
    run.wait_until_all_are_gone()


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_server_that_fails_after_the_workers(launch: Launch, restarts: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "chief")
    run = launch(
        f"--workers 1 --grace 100 --restarts {restarts}",
        """
if job == "ps":
    chief = int(open("chief").read())
    ready()
    # The chief's process id is free once launch knows that the chief has exited.
    while os.path.exists(f"/proc/{chief}"):
        os.sched_yield()
    sys.exit(3)
with open("chief", "w") as file:
    file.write(str(os.getpid()))
""",
    )
    said = "ps 0 exited with code 3"
    if restarts:
        said += "; not restarting it, because all workers have finished"
    assert run.end() == (0 if restarts else 3, "", f"staging-tf1 launch: {said}\n")


def test_a_process_that_has_left_the_group_does_not_hold_up_the_end(launch: Launch) -> None:
    run = launch(
        "--workers 1",
        "if job == 'ps':\n    child = subprocess.Popen(['sleep', '300'], start_new_session=True)\n    tell(child.pid)",
    )
    ((_, pid),) = run.facts(1)
    try:
        # Its stdout and stderr are the task's pipes.
        assert run.end() == (0, "", "")
    finally:
        os.kill(pid, signal.SIGKILL)


# Signals to launch itself.

STUBBORN = """
ignore(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ready()
subprocess.Popen(["sleep", "300"], close_fds=False)  # ignores them as well
tell("started")
wait_forever()
"""


@pytest.mark.parametrize(
    ("number", "code", "forwarded"),
    [
        (signal.SIGINT, 130, signal.SIGINT),
        (signal.SIGTERM, 143, signal.SIGTERM),
        (signal.SIGHUP, 129, signal.SIGTERM),
    ],
)
def test_a_signal_ends_all_tasks_and_what_they_have_started(
    launch: Launch, number: int, code: int, forwarded: int
) -> None:
    run = launch(
        "--workers 2 --restarts 5",
        """
def leave(number, frame):
    tell(number)
    sys.exit(3)

for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, leave)
ready()
subprocess.Popen(["sleep", "300"], close_fds=False)
tell("started")
wait_forever()
""",
    )
    run.facts(6)
    run.process.send_signal(number)
    assert run.facts(3) == [(task, forwarded) for task in TWO_AND_ONE]
    again = "; Ctrl-C again kills them" if number == signal.SIGINT else ""
    said = f"staging-tf1 launch: ending all tasks, because of {signal.Signals(number).name}{again}\n"
    assert run.end() == (code, "", said)
    run.wait_until_all_are_gone()


# Two of the three signals are enough.
@pytest.mark.slow_cases(r"Signals\.SIGTERM|15")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_tasks_that_ignore_it_are_killed_after_the_grace(launch: Launch, number: int) -> None:
    run = launch("--workers 2 --grace 0.1", STUBBORN)
    run.facts(6)
    run.process.send_signal(number)
    code, _, err = run.end()
    run.wait_until_all_are_gone()
    assert code == 128 + number
    forwarded = signal.Signals(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM).name
    assert err.splitlines()[1] == (
        f"staging-tf1 launch: killing chief 0, worker 0, ps 0: still running 0.1 s after {forwarded}"
    )


def test_ctrl_c_in_a_terminal_reaches_only_launch(launch: Launch) -> None:
    # A new session whose terminal this is, as a shell in a window has it.
    takes_terminal = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    master, terminal = pty.openpty()
    run = launch(
        "--workers 2",
        """
def leave(number, frame):
    tell("SIGINT")
    sys.exit()

signal.signal(signal.SIGINT, leave)
try:
    ready(os.open("/dev/tty", os.O_RDWR))
except OSError:
    ready("no terminal")
wait_forever()
""",
        before=[sys.executable, "-c", takes_terminal],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    assert run.facts(3) == [(task, "no terminal") for task in TWO_AND_ONE]
    os.write(master, b"\x03")
    assert run.facts(3) == [(task, "SIGINT") for task in TWO_AND_ONE]
    assert "ending all tasks, because of SIGINT" in read_terminal(master)
    os.close(master)
    assert run.end()[0] == 130
    run.wait_until_all_are_gone()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_kills(launch: Launch, number: int) -> None:
    run = launch("--workers 1 --grace 1000", STUBBORN)
    run.facts(4)
    run.process.send_signal(signal.SIGINT)
    assert run.process.stderr is not None
    said = b"staging-tf1 launch: ending all tasks, because of SIGINT; Ctrl-C again kills them\n"
    assert run.process.stderr.readline() == said
    run.process.send_signal(number)
    name = signal.Signals(number).name
    assert run.end() == (130, "", f"staging-tf1 launch: killing chief 0, ps 0: still running when {name} came\n")
    run.wait_until_all_are_gone()


def test_a_second_hangup_kills_nothing(launch: Launch) -> None:
    run = launch("--workers 1 --grace 1000", ENDS_WHEN_TOLD + "wait_forever()")
    run.facts(2)
    assert run.process.stderr is not None
    run.process.send_signal(signal.SIGHUP)
    assert run.facts(1) == [("chief 0", "asked to end")]
    run.process.send_signal(signal.SIGHUP)
    assert run.process.stderr.readline() == b"staging-tf1 launch: ending all tasks, because of SIGHUP\n"
    run.go()
    assert run.end() == (129, "", "")
    assert [run.facts(1)[0] for _ in range(3)] == [("chief 0", "ends"), ("ps 0", "asked to end"), ("ps 0", "ends")]
    run.wait_until_all_are_gone()


def test_ctrl_c_waits_less_for_a_server_that_ignores_it(launch: Launch) -> None:
    run = launch("--workers 1 --grace 1000", "if job == 'ps': ignore(signal.SIGINT)\nready(); wait_forever()")
    run.facts(2)
    run.process.send_signal(signal.SIGINT)
    code, _, err = run.end()
    assert (code, err.splitlines()[-1]) == (
        130,
        "staging-tf1 launch: killing ps 0: still running 1.5 s after SIGINT",
    )
    run.wait_until_all_are_gone()


def test_ctrl_c_ends_the_grace_after_a_failure(launch: Launch) -> None:
    run = launch(
        "--workers 1 --grace 1000",
        "if job == 'ps':\n    ready(); tell(0); wait_for_go(); sys.exit(3)\n" + STUBBORN,
    )
    run.facts(4)
    run.go()
    assert run.process.stderr is not None
    assert run.process.stderr.readline().endswith(b"ps 0 exited with code 3; ending the other tasks\n")
    run.process.send_signal(signal.SIGINT)
    assert run.end() == (130, "", "staging-tf1 launch: killing chief 0: still running when SIGINT came\n")
    run.wait_until_all_are_gone()


def test_ctrl_c_works_while_nobody_reads_the_output(launch: Launch) -> None:
    run = launch(
        "--workers 1",
        """
written = 0

def leave(number, frame):
    tell(written)
    sys.exit()

signal.signal(signal.SIGINT, leave)
ready()
while job == "chief":
    written += os.write(1, (b"x" * 127 + b"\\n") * 512)
    if written == 4 * 65536:
        tell("much")  # more than the two pipes hold, so the rest waits in launch
wait_forever()
""",
    )
    run.facts(3)
    start = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(PATIENCE_SECS) == 130
    assert time.monotonic() - start < 2 * slowdown()
    # What waits in launch is bounded.
    assert sum(written for _, written in run.facts(2)) < 4 * 2**20
    run.wait_until_all_are_gone()


def test_nohup_is_respected(launch: Launch) -> None:
    run = launch("--workers 1", "ready(); wait_forever()", preexec_fn=ignore_hangup)
    run.facts(2)
    run.process.send_signal(signal.SIGHUP)
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 143
    run.wait_until_all_are_gone()


def test_tasks_die_with_launch(launch: Launch) -> None:
    run = launch("--workers 3", "ignore(signal.SIGINT, signal.SIGTERM, signal.SIGHUP); ready(); wait_forever()")
    run.facts(4)
    run.process.kill()
    run.wait_until_all_are_gone()
    assert run.end() == (-signal.SIGKILL, "", "")


def test_a_task_whose_parent_has_died_before_it_starts_does_not_start(run_python: RunPython) -> None:
    code = "from staging_tf1.launch.supervisor import die_with; die_with({}); print('started')"
    assert run_python("-c", code.format(os.getpid())).stdout == "started\n"
    done = run_python("-c", code.format(1))
    assert (done.returncode, done.stdout) == (137, "")


# Bad arguments.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "got no program, expected script.py, -m and a module, or a program, after --"),
        (["--"], "got no program, expected script.py, -m and a module, or a program, after --"),
        (["--", "-m"], "-m needs the name of a module"),
        (["--", "no/such.py"], "file 'no/such.py' does not exist; check its path"),
        (["no-such-program", "x"], "program 'no-such-program' was not found on PATH; give its path"),
        (["--", ""], "program '' was not found on PATH; give its path"),
        (["--workers", "0", "--", "true"], "argument --workers: got '0', expected a whole number from 1 to 1000"),
        (["--ps", "0", "--", "true"], "argument --ps: got '0', expected a whole number from 1 to 1000"),
        (
            ["--restarts", "-1", "--", "true"],
            "argument --restarts: got '-1', expected a whole number from 0 to 1000000",
        ),
        (["--grace", "-1", "--", "true"], "argument --grace: got '-1', expected a number of seconds from 0 to 86400"),
        (["--worker", "2", "--", "true"], "unrecognized arguments: --worker. Did you mean '--workers'?"),
        (["--sync=1", "--", "true"], "argument --sync: ignored explicit argument '1'"),
        (["--workers"], "argument --workers: expected one argument"),
    ],
)
def test_bad_arguments_are_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["launch", *words])
    assert exit_.value.code == 2
    assert capsys.readouterr() == ("", f"staging-tf1 launch: {message} (see staging-tf1 launch --help)\n")


def test_launch_imports_no_tensorflow(run_python: RunPython) -> None:
    code = "import staging_tf1.cli.launch, sys; sys.exit('tensorflow' in sys.modules)"
    assert run_python("-c", code).returncode == 0
