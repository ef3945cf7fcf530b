"""The pipeline from the source to the step, and the places of a cluster."""

from __future__ import annotations

from drawing import Picture


def draw_pipeline() -> str:
    """Return the picture of one pipeline: what runs in a feed thread, and what in the step."""
    picture = Picture(940, 240, "The pipeline from the source to the step")
    for x, width, words in ((12, 520, "feed threads, while the step runs"), (696, 232, "your step")):
        picture.box(x, 40, width, 150, style="group")
        picture.text(x + 12, 30, words, "head")
    picture.box(28, 80, 120, 64, "source\nnumbered batches")
    picture.box(196, 80, 130, 64, "read, check\nbatch 17, in order")
    picture.box(376, 80, 140, 64, "queue\nshuffles (classic)")
    picture.box(556, 62, 116, 100, style="good")
    picture.text(614, 82, "staging area", anchor="middle")
    picture.text(614, 154, "on the device", "soft", anchor="middle")
    for x, words in ((566, "18"), (618, "19")):
        picture.box(x, 94, 44, 38, words, "ours")
    picture.box(716, 80, 80, 64, "get\nbatch 17", "ours")
    picture.box(830, 80, 84, 64, "train_op", "ours")
    for start, end, words in ((148, 194, "numpy"), (326, 374, ""), (516, 554, "put"), (672, 714, ""), (796, 828, "")):
        picture.arrow(f"M{start} 112 H{end}")
        picture.text((start + end) / 2, 104, words, "soft", anchor="middle")
    picture.arrow("M614 164 V210 H261 V148", "dashed")
    picture.text(437, 228, "a free slot: the next batch may be read (back-pressure)", "soft", anchor="middle")
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
