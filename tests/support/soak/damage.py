"""Checkpoints that are damaged between two sessions, and what the next session must make of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import tensorflow.compat.v1 as tf
from soak.outcome import Outcome
from soak.plan import Damage, Plan

from staging_tf1.errors import CheckpointError


class Saved:
    """The folder of a resuming case, and where each of its checkpoints resumes.

    Attributes:
      folder: where the next session restores from and saves to.
      begin: for each tower how many batches have been consumed where it begins.
    """

    def __init__(self, plan: Plan, folder: str) -> None:
        self._plan, self._first = plan, folder
        self._consumed: dict[str, list[int]] = {}
        # What the next session may do: "refused", "resumes" or "restarts".
        self._expected = {"resumes"}
        # What the message of a refusal must have: the damaged file, and the checkpoint that is the cure.
        self._named: list[str] = []
        self._older: str | None = None
        self._files: dict[str, bytes] = {}
        self._begin_in(folder)

    def _begin_in(self, folder: str) -> None:
        self.folder, self.begin = folder, [0] * self._plan.towers
        # Saved as a session begins.
        self._consumed[os.path.join(folder, "model.ckpt-0")] = self.begin

    def went_on(self, outcome: Outcome) -> None:
        """Note where the session that has ended has left off."""
        self.begin = [at + len(got) for at, got in zip(self.begin, outcome.got)]
        newest = tf.train.latest_checkpoint(self.folder)
        assert newest is not None, "no checkpoint was saved"
        self._consumed[newest] = self.begin

    def damage(self) -> None:
        """Damages the newest checkpoint, as the plan says."""
        damage = self._plan.damage
        assert damage is not None
        state = tf.train.get_checkpoint_state(self.folder)
        newest, listed = state.model_checkpoint_path, list(state.all_model_checkpoint_paths)
        kept = [path for path in listed[: listed.index(newest)] if tf.train.checkpoint_exists(path)]
        if damage.kind.startswith("state"):
            self._damage_state(damage, newest)
        else:
            self._older = kept[-1] if kept else None
            self._named = [newest, *([repr(self._older)] if self._older else [])]
            # Each bit of the data has a checksum; of the index some say nothing.
            self._expected = {"refused", "resumes"} if damage.kind == "index bit" else {"refused"}
            _damage_files(damage, Path(newest))
        self._files = self._checkpoints()

    def _damage_state(self, damage: Damage, newest: str) -> None:
        path = Path(self.folder, "checkpoint")
        self._named, self._older = [str(path)], newest
        if damage.kind == "state deleted":
            path.unlink()
        elif damage.kind == "state garbage":
            path.write_bytes(_garbage(random.Random(f"{self._plan.seed}/garbage")))
        else:
            _cut(path, damage.place if damage.kind == "state cut" else 0)
        try:
            readable: bool | None = tf.train.get_checkpoint_state(self.folder) is not None
        except ValueError:
            readable = None
        if readable:
            # Cut at the end of a line.
            self._expected = {"resumes"}
        elif damage.kind == "state deleted" or (self._plan.way == "hook" and readable is not None):
            # A hook does not know the folder, and TensorFlow begins again, with a warning.
            self._expected = {"restarts"}
            self.begin = [0] * self._plan.towers
            self._consumed[os.path.join(self.folder, "model.ckpt-0")] = self.begin
        else:
            self._expected = {"refused"}

    def refused(self, outcome: Outcome) -> bool:
        """Whether the session that met the damage was refused; raises AssertionError if it did what it must not.

        A session that was not refused has then to be checked like any other.
        """
        error = outcome.error
        refusals = (CheckpointError, ValueError) if self._named[0].endswith("checkpoint") else CheckpointError
        if not isinstance(error, refusals):
            assert self._expected != {"refused"}, f"{self._plan.damage} was not noticed: {outcome}"
            return False
        assert "refused" in self._expected, f"got {error!r} for {self._plan.damage}"
        # What a hook cannot see is an error of TensorFlow.
        if not (self._plan.way == "hook" and self._named[0].endswith("checkpoint")):
            assert isinstance(error, CheckpointError) and all(name in str(error) for name in self._named), f"{error}"
        assert not (outcome.steps or any(outcome.got) or outcome.ended), f"it went on: {outcome}"
        assert not outcome.threads_left, f"threads left: {outcome.threads_left}"
        assert self._checkpoints() == self._files, "something was saved over what may be rescued"
        return True

    def cure(self) -> None:
        """Do what the message says: go back to an older checkpoint, or begin again in an empty folder."""
        damage = self._plan.damage
        assert damage is not None
        if damage.cure == "older" and self._older is not None:
            tf.train.update_checkpoint_state(self.folder, self._older)
            self.begin = self._consumed[self._older]
        else:
            self._begin_in(f"{self._first}-again")

    def _checkpoints(self) -> dict[str, bytes]:
        files = (path for path in Path(self.folder).iterdir() if path.is_file() and "tfevents" not in path.name)
        return {path.name: path.read_bytes() for path in files}


def _damage_files(damage: Damage, prefix: Path) -> None:
    part, what = damage.kind.split()
    files = sorted(prefix.parent.glob(f"{prefix.name}.*"))
    if part == "all":
        for path in files:
            path.unlink()
        return
    chosen = [path for path in files if path.name.startswith(f"{prefix.name}.{part}") and path.stat().st_size]
    path = chosen[int(damage.place * len(chosen))]
    if what == "deleted":
        path.unlink()
    elif what == "bit":
        content = bytearray(path.read_bytes())
        content[int(damage.place * len(content))] ^= 1 << int(damage.place * 1000) % 8
        path.write_bytes(content)
    else:
        _cut(path, damage.place if what == "cut" else 0)


def _cut(path: Path, place: float) -> None:
    os.truncate(path, int(place * path.stat().st_size))


def _garbage(choose: random.Random) -> bytes:
    size = choose.randint(1, 300)
    return choose.choice([bytes(size), choose.randbytes(size), b"this is no checkpoint state\n" * (size // 20 + 1)])
