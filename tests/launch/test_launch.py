"""`staging-tf1 launch`: the tasks of a cluster, their output, restarts and failures. It leaves no process behind."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
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
from staging_tf1.launch.supervisor import MOST_IN_LINE, LineSplitter, wants_colour
from staging_tf1.launch.tasks import Program, find_program, make_tasks

Launch = Callable[..., Launched]
# Told by every task that is ready, in the order of `facts`.
TWO_AND_ONE = ["chief 0", "ps 0", "worker 0"]


@pytest.fixture
def launch(tmp_path: Path) -> Any:
    """Start `staging-tf1 launch OPTIONS` with a program. Once it has ended, its tasks must be gone."""
    started: list[Launched] = []

    def start(options: str, program: str, **kwargs: Any) -> Launched:
        started.append(Launched(tmp_path, options, program, **kwargs))
        return started[-1]

    yield start
    for each in started:
        with each:
            if each.process.poll() is not None:
                each.wait_until_all_are_gone()


def said(*lines: str) -> str:
    """What launch itself writes to stderr."""
    return "".join(f"staging-tf1 launch: {line}\n" for line in lines)


def signals(kind: str, pid: int) -> int:
    """The bits of signals that `/proc` shows of a process: those that are ignored, or that wait to be delivered."""
    return int(re.search(rf"^{kind}:\s+(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1], 16)


# The tasks and their programs: without processes.


@pytest.mark.parametrize(("workers", "servers", "sync"), [(1, 1, {}), (4, 3, {"STAGING_TF1_SYNC": "1"})])
def test_each_task_has_its_place_in_the_same_cluster(workers: int, servers: int, sync: dict[str, str]) -> None:
    program = Program(("{task}.py",), ("{ps_hosts}", "{worker_hosts}", "{job_name}", "{task_index}", "{task}"))
    tasks = make_tasks(program, workers, servers, range(5000, 5000 + workers + servers), bool(sync))
    hosts = [f"127.0.0.1:{port}" for port in range(5000, 5000 + workers + servers)]
    cluster = {"chief": hosts[:1], "worker": hosts[1:workers], "ps": hosts[workers:]}
    cluster = {job: addresses for job, addresses in cluster.items() if addresses}
    places = [(job, index) for job, addresses in cluster.items() for index in range(len(addresses))]
    for task, (job, index) in zip(tasks, places, strict=True):
        assert task.name == f"{job} {index}"
        flags = ["ps", str(index)] if job == "ps" else ["worker", str(index + (job == "worker"))]
        filled = (",".join(hosts[workers:]), ",".join(hosts[:workers]), *flags, f"{job}-{index}")
        assert task.command == ("{task}.py", *filled)
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        assert task.environment == {"TF_CONFIG": config, "PYTHONUNBUFFERED": "1", **sync}


def test_scripts_and_modules_run_with_this_python_and_others_are_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, program = tmp_path / "a.py", tmp_path / "prog"
    script.touch()
    program.touch(mode=0o755)
    python = (sys.executable, "-u")
    assert find_program([str(script), "-x", "--"]) == Program((*python, str(script)), ("-x", "--"))
    assert find_program(["-m", "a.b", "c"]) == Program((*python, "-m", "a.b"), ("c",))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program(["prog", "x"]) == Program((str(program),), ("x",))
    # This Python's own environment comes last.
    beside = os.path.basename(sys.executable)
    assert find_program([beside]).command == (os.path.join(os.path.dirname(sys.executable), beside),)
    (tmp_path / beside).touch(mode=0o755)
    assert find_program([beside]).command == (str(tmp_path / beside),)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "got no program, expected script.py, -m and a module, or a program, after --"),
        ("-- -m", "-m needs the name of a module"),
        ("-- no/such.py", "file 'no/such.py' does not exist; check its path"),
        ("no-such-program x", "program 'no-such-program' was not found on PATH; give its path"),
        (
            "-- prog",
            "program 'prog' cannot be run: it is not an executable file on PATH; run ./prog after chmod +x, or name a "
            "script with .py",
        ),
        ("--workers 0 -- true", "argument --workers: got '0', expected a whole number from 1 to 1000"),
        ("--grace -1 -- true", "argument --grace: got '-1', expected a number of seconds from 0 to 86400"),
    ],
)
def test_bad_arguments_are_one_line(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prog").touch(mode=0o644)
    with pytest.raises(SystemExit) as exit_:
        main(["launch", *words.split()])
    assert exit_.value.code == 2
    assert capsys.readouterr() == ("", said(f"{message} (see staging-tf1 launch --help)"))


# Lines: without processes.


@given(
    data=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\xff", b""]), max_size=12),
    size=st.integers(1, 9),
)
def test_lines_do_not_depend_on_how_the_bytes_arrive(data: list[bytes], size: int) -> None:
    text = b"".join(data)
    whole, parts = LineSplitter(), LineSplitter()
    expected = (whole.feed(text) if text else []) + whole.feed(b"")
    found = [line for at in range(0, len(text), size) for line in parts.feed(text[at : at + size])]
    assert found + parts.feed(b"") == expected
    assert b"".join(expected) == text.replace(b"\r", b"").replace(b"\n", b"")


def test_empty_lines_are_lines_and_updates_of_a_progress_bar_are_too() -> None:
    assert LineSplitter().feed(b"a\r\n\r\nb\n\nc\n") == [b"a", b"", b"b", b"", b"c"]
    assert LineSplitter().feed(b"\r 10%\r 20%\n") == LineSplitter().feed(b" 10%\r 20%\r\n") == [b" 10%", b" 20%"]


@pytest.mark.parametrize("end", [[], [b"\n"]])
def test_a_long_line_comes_in_pieces(end: list[bytes]) -> None:
    splitter, found = LineSplitter(), list[bytes]()
    for data in [*[b"x" * 999] * 300, *end, b""]:
        found += splitter.feed(data)
        assert len(splitter._rest) <= MOST_IN_LINE
    assert b"".join(found) == b"x" * 999 * 300
    assert {len(piece) for piece in found[:-1]} == {MOST_IN_LINE}


# Real processes: the environment, the arguments and the output.


def test_each_process_has_its_environment_and_can_serve_its_port(launch: Launch) -> None:
    run = launch(
        "--workers 3 --ps 2 --sync",
        """
host, port = config["cluster"][job][index].split(":")
with socket.socket() as server:
    server.bind((host, int(port)))
    server.listen()
    ready([config["cluster"], os.environ["PYTHONUNBUFFERED"], os.environ["STAGING_TF1_SYNC"], sys.stdin.read(),
        os.getsid(0) == os.getpgid(0) == os.getpid()])
    wait_for_go()  # every server listens while the others do
""",
    )
    facts = run.facts(5)
    run.go(5)
    assert run.end() == (0, "", "")
    cluster = facts[0][1][0]
    # Without the terminal: Ctrl-C reaches only launch.
    leads_a_session = True
    tasks = ["chief 0", "ps 0", "ps 1", "worker 0", "worker 1"]
    assert facts == [(task, [cluster, "1", "1", "", leads_a_session]) for task in tasks]


def run_program(*words: str, **kwargs: Any) -> tuple[int, str, str]:
    """Run `staging-tf1 launch WORDS` to its end. Return exit code, stdout and stderr."""
    command = [*LAUNCH, *words]
    done = subprocess.run(
        command, env=environment(), capture_output=True, timeout=PATIENCE_SECS, check=False, text=True, **kwargs
    )
    return done.returncode, done.stdout, done.stderr


def test_a_module_runs_and_the_dashes_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("import sys; print(sys.argv[1:], __name__)")
    code, out, err = run_program("--workers=1", "-m", "mod", "{task_index}", "--ps", cwd=tmp_path)
    assert sorted(out.splitlines()) == ["[chief 0] ['0', '--ps'] __main__", "[ps 0]    ['0', '--ps'] __main__"]
    assert (code, err) == (0, "")


def test_other_programs_get_their_arguments_with_other_braces_as_they_are() -> None:
    words = ["{job_name}", "-x", "--", "{no}", "{{task_index}}"]
    code, out, err = run_program("--workers", "1", "--", "sh", "-c", 'echo "$@"', "sh", *words)
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == ["[chief 0] worker -x -- {no} {0}", "[ps 0]    ps -x -- {no} {0}"]


def test_a_line_is_printed_with_its_tasks_name_as_soon_as_it_ends(launch: Launch) -> None:
    run = launch(
        "--workers 1",
        """
os.write(1, b"here" if job == "chief" else b"\\xff\\r\\n")
wait_for_go()
os.write(1, b" I am")
os.write(2, b"error")
""",
    )
    assert run.process.stdout.readline() == b"[ps 0]    \xff\n"
    run.go(2)
    code, out, err = run.end()
    assert sorted(out.splitlines()) == ["[chief 0] here I am", "[ps 0]     I am"]
    assert (code, sorted(err.splitlines())) == (0, ["[chief 0] error", "[ps 0]    error"])


def test_names_are_coloured_on_a_terminal_only(launch: Launch) -> None:
    master, terminal = pty.openpty()
    run = launch("--workers 1", "print('out'); print('err', file=sys.stderr)", stderr=terminal)
    assert sorted(run.end()[1].splitlines()) == ["[chief 0] out", "[ps 0]    out"]
    shown = b""
    while shown.count(b"\n") < 2:
        shown += os.read(master, 65536)
    assert sorted(shown.decode().splitlines()) == ["\x1b[33m[ps 0]\x1b[0m    err", "\x1b[36m[chief 0]\x1b[0m err"]
    assert not any(wants_colour(terminal, env) for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}))
    os.close(terminal)
    os.close(master)


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


def test_a_reader_that_leaves_ends_the_tasks(launch: Launch) -> None:
    run = launch("--workers 2", "ready()\nwhile True: print('y' * 100)")
    run.facts(3)
    run.process.stdout.close()
    assert run.process.wait(PATIENCE_SECS) == 128 + signal.SIGPIPE


def test_a_full_disk_ends_the_tasks(launch: Launch) -> None:
    with open("/dev/full", "wb") as full:
        run = launch("--workers 1", "ready(); print('x'); wait_forever()", stdout=full)
        ended = run.end()
    message = "the output of the tasks cannot be written: No space left on device; ending the other tasks"
    assert ended == (1, "", said(message))


# Failures and restarts.


@pytest.mark.parametrize(
    ("failing", "ending", "code", "outcome"),
    [
        ("chief 0", "sys.exit(3)", 3, "exited with code 3"),
        ("worker 0", "os.kill(os.getpid(), signal.SIGKILL)", 137, "was ended by SIGKILL"),
        ("ps 0", "os.kill(os.getpid(), signal.SIGTERM)", 143, "was ended by SIGTERM"),
    ],
)
def test_the_first_failure_ends_all_and_gives_the_exit_code(
    launch: Launch, failing: str, ending: str, code: int, outcome: str
) -> None:
    run = launch(
        "--workers 2",
        f"""
signal.signal(signal.SIGTERM, signal.SIG_DFL if name == {failing!r} else lambda *_: sys.exit(99))
ready()
if name == {failing!r}:
    wait_for_go()
    {ending}
wait_forever()
""",
    )
    run.facts(3)
    run.go()
    assert run.end() == (code, "", said(f"{failing} {outcome}; ending the other tasks"))


def test_each_task_has_its_own_restarts_and_keeps_its_address(launch: Launch) -> None:
    run = launch("--workers 2 --restarts 2", "ready([os.getpid(), config]); wait_forever()")
    tasks = dict(run.facts(3))
    for name in TWO_AND_ONE * 2:
        os.kill(tasks[name][0], signal.SIGKILL)
        ((again, (pid, config)),) = run.facts(1)
        assert (again, config) == (name, tasks[name][1])
        tasks[name] = pid, config
    os.kill(tasks["ps 0"][0], signal.SIGKILL)
    lines = [f"{name} was ended by SIGKILL; restarting it ({n} of 2)" for n in (1, 2) for name in TWO_AND_ONE]
    assert run.end() == (137, "", said(*lines, "ps 0 was ended by SIGKILL; ending the other tasks"))


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
    assert done == (126, "", said("chief 0 cannot be started: Exec format error"))


# The end of a run.


def test_servers_that_do_not_return_are_ended_without_a_failure(launch: Launch) -> None:
    run = launch("--workers 2 --ps 2 --grace 0.1", "ready()\nwait_forever() if job == 'ps' else wait_for_go()")
    run.facts(4)
    run.go(2)
    message = "ending ps 0, ps 1: still running 0.1 s after all workers had finished"
    assert run.end() == (0, "", said(message))


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_server_that_fails_after_the_workers(launch: Launch, restarts: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "chief")
    run = launch(
        f"--workers 1 --grace 100 --restarts {restarts}",
        """
if job == "ps":
    chief = int(open("chief").read())
    # The chief's process id is free once launch knows that the chief has exited.
    while os.path.exists(f"/proc/{chief}"):
        os.sched_yield()
    sys.exit(3)
with open("chief", "w") as file:
    file.write(str(os.getpid()))
""",
    )
    reason = "; not restarting it, because all workers have finished" if restarts else ""
    assert run.end() == (0 if restarts else 3, "", said(f"ps 0 exited with code 3{reason}"))


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

LEAVES = """
def leave(number, frame):
    tell(number)
    if waits:
        wait_for_go()
        tell("ends")
    sys.exit(3)

for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, leave)
ready(os.getpid())
"""
ENDING = "ending all tasks, because of"
AGAIN = "; Ctrl-C again kills them"


@pytest.mark.parametrize(
    ("number", "forwarded", "again"),
    [
        (signal.SIGINT, signal.SIGINT, AGAIN),
        (signal.SIGTERM, signal.SIGTERM, ""),
        (signal.SIGHUP, signal.SIGTERM, ""),
    ],
)
def test_a_signal_ends_all_tasks_and_what_they_have_started(
    launch: Launch, number: signal.Signals, forwarded: int, again: str
) -> None:
    starts = "subprocess.Popen(['sleep', '300'], close_fds=False); tell('started'); wait_forever()"
    run = launch("--workers 2 --restarts 5", f"waits = False{LEAVES}{starts}")
    run.facts(6)
    run.process.send_signal(number)
    assert run.facts(3) == [(task, forwarded) for task in TWO_AND_ONE]
    assert run.end() == (128 + number, "", said(f"{ENDING} {number.name}{again}"))


STUBBORN = """
ignore(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ready()
subprocess.Popen(["sleep", "300"], close_fds=False)  # ignores them as well
tell(os.getpid())
wait_forever()
"""


@pytest.mark.parametrize(
    ("first", "second", "code", "killed"),
    [
        (None, None, 137, "chief 0: still running 0.1 s after SIGTERM"),
        (signal.SIGINT, None, 130, "chief 0, ps 0: still running 0.1 s after SIGINT"),
        (None, signal.SIGINT, 130, "chief 0: still running when SIGINT came"),
        (signal.SIGINT, signal.SIGTERM, 130, "chief 0, ps 0: still running when SIGTERM came"),
    ],
)
def test_tasks_that_ignore_signals_are_killed_after_the_grace_or_at_a_second_signal(
    launch: Launch, first: signal.Signals | None, second: int | None, code: int, killed: str
) -> None:
    """Without a first signal, the server fails."""
    run = launch(f"--workers 1 --grace {1000 if second else 0.1}", STUBBORN)
    pids = {name: pid for name, pid in run.facts(4) if pid}
    if first is None:
        os.kill(pids["ps 0"], signal.SIGKILL)
        message = "ps 0 was ended by SIGKILL; ending the other tasks"
    else:
        run.process.send_signal(first)
        message = f"{ENDING} {first.name}{AGAIN if first == signal.SIGINT else ''}"
    assert run.process.stderr.readline().decode() == said(message)
    if second:
        run.process.send_signal(second)
    assert run.end() == (code, "", said(f"killing {killed}"))


def test_servers_end_after_the_workers_and_a_second_hangup_kills_nothing(launch: Launch, tmp_path: Path) -> None:
    run = launch(
        "--workers 1 --grace 1000",
        f"""
if job == "ps":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
waits = job == "chief"
{LEAVES}
while job == "ps" and not os.path.exists("unblock"):
    time.sleep(0.01)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
wait_forever()
""",
    )
    server = dict(run.facts(2))["ps 0"]
    run.process.send_signal(signal.SIGHUP)
    assert run.facts(1) == [("chief 0", signal.SIGTERM)]
    run.process.send_signal(signal.SIGHUP)
    assert run.process.stderr.readline().decode() == said(f"{ENDING} SIGHUP")
    assert signals("ShdPnd", server) == 0, "no signal yet"
    run.go()
    assert run.facts(1) == [("chief 0", "ends")]
    (tmp_path / "unblock").touch()
    assert run.facts(1) == [("ps 0", signal.SIGTERM)]
    assert run.end() == (129, "", "")


def test_ctrl_c_waits_less_for_a_server_that_ignores_it(launch: Launch) -> None:
    run = launch("--workers 1 --grace 1000", "if job == 'ps': ignore(signal.SIGINT)\nready(); wait_forever()")
    run.facts(2)
    run.process.send_signal(signal.SIGINT)
    code, _, err = run.end()
    assert code == 130 and err.endswith(said("killing ps 0: still running 1.5 s after SIGINT"))


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
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(2 * slowdown()) == 130
    # What waits in launch is bounded.
    assert sum(written for _, written in run.facts(2)) < 4 * 2**20


def test_nohup_is_respected(launch: Launch) -> None:
    run = launch("--workers 1", "ready(); wait_forever()", preexec_fn=ignore_hangup)
    run.facts(2)
    assert signals("SigIgn", run.process.pid) & 1 << (signal.SIGHUP - 1)
    run.process.send_signal(signal.SIGHUP)
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 143


def test_tasks_die_with_launch(launch: Launch, run_python: RunPython) -> None:
    run = launch("--workers 3", "ignore(signal.SIGINT, signal.SIGTERM, signal.SIGHUP); ready(); wait_forever()")
    run.facts(4)
    run.process.kill()
    assert run.end() == (-signal.SIGKILL, "", "")
    # A task whose parent has died before it starts does not start.
    code = (
        "import socket; from staging_tf1.signals import die_with; here, there = socket.socketpair(); {}; "
        "die_with(there.fileno()); print('started')"
    )
    assert run_python("-c", code.format("pass")).stdout == "started\n"
    done = run_python("-c", code.format("here.close()"))
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def test_launch_imports_no_tensorflow(run_python: RunPython) -> None:
    code = "import staging_tf1.cli.launch, sys; sys.exit('tensorflow' in sys.modules)"
    assert run_python("-c", code).returncode == 0
