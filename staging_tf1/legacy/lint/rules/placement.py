"""Areas placed on a different device than the ops that use them."""

from __future__ import annotations

from staging_tf1.legacy.lint.facts import Area, Call, Facts
from staging_tf1.legacy.lint.rule import Found, Rule


def not_on_the_gpu(facts: Facts) -> Found:
    """STG108."""
    for number, area in enumerate(facts.areas):
        if area.call.place.devices:
            continue
        user = _gpu_user(facts, area, number)
        if user is not None:
            yield (
                area.call.place,
                f"the area is made outside any tf.device scope, and line {user.place.line} uses it on a GPU: the area "
                "is on the CPU, and every step waits for the copy; make it in the same tf.device scope",
            )


def asked_elsewhere(facts: Facts) -> Found:
    """STG115."""
    for area in facts.areas:
        made_in = area.call.place.devices
        if area.ours or not made_in:
            continue
        for call in facts.methods(area, "size", "clear"):
            if call.place.devices != made_in:
                yield (
                    call.place,
                    f"{call.method}() is called outside the tf.device scope of the area ({made_in[-1]}) and acts on "
                    "the empty store of another device; call it in the same scope, or use staging_tf1.StagingArea",
                )


def _gpu_user(facts: Facts, area: Area, number: int) -> Call | None:
    for call in facts.calls:
        if not any("gpu" in device.lower() for device in call.place.devices):
            continue
        if any(call is get for get in facts.methods(area, "get", "unstage")):
            return call
        if call.name.startswith("tensorflow.") and f"get@{number}" in facts.closure(call.reads):
            return call
    return None


RULES = (
    Rule("STG108", "not-on-the-gpu", not_on_the_gpu),
    Rule("STG115", "asked-elsewhere", asked_elsewhere),
)
