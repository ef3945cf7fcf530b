"""The fast path: a step as a callable, with the lockstep puts where a pipeline needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staging_tf1.lifecycle.hook import StagingHook


def make_stepper(hook: StagingHook, fetches: Any, feed_list: Sequence[Any] | None) -> Callable[..., Any]:
    """A callable of `feed_list`'s values that runs `fetches` in the hook's session."""
    feeds = list(feed_list or ())
    needed = hook.needed_in_lockstep(fetches, feeds)
    if not needed:
        plain: Callable[..., Any] = hook.session.make_callable(fetches, feed_list or None)
        return plain

    def step(*values: Any) -> Any:
        puts, more = hook.lockstep_step(needed)
        result, _ = hook.session.run([fetches, puts], {**dict(zip(feeds, values, strict=True)), **more})
        hook.lockstep_done()
        return result

    return step
