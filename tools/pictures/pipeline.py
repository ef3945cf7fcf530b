"""The pipeline from the source to the step, and the places of a cluster."""

from __future__ import annotations

from drawing import Picture


def draw_pipeline() -> str:
    """Return the picture of one pipeline: what runs in a feed thread, and what in the step.

    It is narrow, with two rows, because a phone shows it as wide as its screen.
    """
    picture = Picture(440, 300, "The pipeline from the source to the step")
    picture.text(16, 26, "feed threads, while the step runs", "head")
    picture.box(6, 36, 428, 92, style="group")
    picture.text(16, 190, "your step", "head")
    picture.box(6, 200, 284, 84, style="group")
    for x, words in ((16, "source\nnumbered batches"), (160, "read, check\nin order")):
        picture.box(x, 50, 120, 64, words)
    picture.box(304, 50, 120, 64, "queue\nshuffles (classic)")
    picture.box(304, 184, 120, 100, style="good")
    picture.text(364, 204, "staging area", anchor="middle")
    picture.text(364, 276, "on the device", "soft", anchor="middle")
    for x, words in ((316, "18"), (368, "19")):
        picture.box(x, 216, 44, 38, words, "ours")
    picture.box(160, 210, 120, 64, "get\nbatch 17", "ours")
    picture.box(16, 210, 120, 64, "train_op", "ours")
    for path in ("M136 82 H158", "M280 82 H302", "M398 114 V182", "M304 242 H282", "M160 242 H138"):
        picture.arrow(path)
    picture.text(405, 154, "put", "soft")
    picture.arrow("M338 184 V156 H220 V118", "dashed")
    picture.text(212, 150, "a free slot: read the next batch", "soft", anchor="end")
    picture.text(212, 166, "(back-pressure)", "soft", anchor="end")
    return picture.svg()


def draw_cluster() -> str:
    """Return the picture of what runs on which task of a cluster."""
    picture = Picture(940, 300, "What runs where in a cluster")
    picture.box(12, 40, 500, 240, style="group")
    picture.text(24, 30, "each worker: its own task", "head")
    picture.box(36, 120, 120, 64, "feed threads\nits share")
    picture.box(206, 120, 140, 64, "area\nslots, tokens, meters", "good")
    picture.box(396, 120, 96, 64, "the step", "ours")
    picture.arrow("M156 152 H204")
    picture.arrow("M346 152 H394")
    picture.box(640, 40, 288, 140, style="group")
    picture.text(652, 30, "the first parameter server", "head")
    picture.box(664, 58, 240, 46, "position of all workers\nin every checkpoint")
    picture.box(664, 116, 240, 46, "ledger\nruns, fences, signs of life")
    picture.box(640, 220, 288, 60, style="group")
    picture.text(652, 212, "all parameter servers", "head")
    picture.box(664, 230, 240, 40, "the model's variables")
    picture.arrow("M492 140 C 570 140 580 84 662 84", "ours")
    picture.text(560, 82, "fence, + 1", "soft", anchor="middle")
    picture.arrow("M492 152 C 570 152 580 139 662 139")
    picture.arrow("M492 166 C 570 166 580 250 662 250")
    picture.text(560, 246, "gradients", "soft", anchor="middle")
    return picture.svg()
