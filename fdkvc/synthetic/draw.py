"""Draw dialogs from scenarios, each from its own random stream."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import SFC64, Generator, SeedSequence

from fdkvc.core.attention import Floats, lengths_of
from fdkvc.core.dialogs import Bits, DialogBatch
from fdkvc.core.parameters import check_count
from fdkvc.synthetic.scenarios import Scenario, World

TOPIC_THRESHOLD = 0.3
"""A token has a topic if its cosine with it exceeds this (the paper's evaluation metrics)."""


@dataclass(frozen=True, eq=False)
class Draws:
    """The random numbers of some dialogs, enough for several scenarios.

    Dialog i of a seed draws the same numbers in the same order in every scenario and every batch.
    """

    projections: Floats
    """Shape (3, B, d, h). W_Q, W_K and W_V."""
    directions: Floats
    """Shape (B, K, d). The topics before orthonormalization, in order of appearance."""
    noise: Floats
    """Shape (B, N, d). Noise of each token, scaled."""


def draw(
    scenarios: Sequence[Scenario], dialogs: int | range, seed: int, world: World
) -> Draws:
    """Draw the numbers for these scenarios; parameters and errors as in `generate`."""
    if not isinstance(dialogs, range):
        check_count("the number of dialogs", dialogs)
        dialogs = range(dialogs)
    check_count("the number of dialogs", len(dialogs))
    check_count("the number of a dialog", min(dialogs), low=0)
    check_count("seed", seed, low=0)
    topics = max(len(scenario.topic_names) for scenario in scenarios)
    d = world.dimension
    h = world.head_dimension
    if topics > d:
        raise ValueError(
            f"the schedule has {topics} topics, but {d} dimensions hold at most {d}"
        )
    turns = max(len(scenario.schedule) for scenario in scenarios)
    tokens = turns * world.tokens_per_turn
    rows = len(dialogs)
    draws = Draws(
        projections=np.empty((3, rows, d, h), np.float32),
        directions=np.empty((rows, topics, d), np.float32),
        noise=np.empty((rows, tokens, d), np.float32),
    )
    for row, index in enumerate(dialogs):
        # Two streams: the number of topics does not shift the random numbers of the tokens.
        setting, noise = SeedSequence(seed, spawn_key=(index,)).spawn(2)
        generator = Generator(SFC64(setting))
        projections = generator.standard_normal((3, d, h), dtype=np.float32)
        # Variance 1/d: a coordinate of a projected unit vector has variance 1/d, whatever h.
        draws.projections[:, row] = projections * np.float32(d**-0.5)
        generator.standard_normal(out=draws.directions[row], dtype=np.float32)
        Generator(SFC64(noise)).standard_normal(out=draws.noise[row], dtype=np.float32)
        draws.noise[row] *= np.float32(world.noise)
    return draws


def build(scenario: Scenario, draws: Draws, world: World) -> DialogBatch:
    """Make the dialogs of a scenario from the random numbers."""
    d = world.dimension
    n = world.tokens_per_turn
    names = scenario.topic_names
    mixture = scenario.mixture
    rows = len(draws.noise)
    turns = len(mixture)
    tokens = turns * n

    # 1. Orthonormal topics. QR orthonormalizes in order of appearance, so a topic does not depend
    # on later ones; then they are sorted as `names` (B, K, d).
    directions = draws.directions[:, : len(names)]
    columns, _ = np.linalg.qr(directions.swapaxes(1, 2))
    orthonormal = columns.swapaxes(1, 2)
    appearance = list(dict.fromkeys(scenario.schedule))
    order = [*map(appearance.index, names)]
    topics = orthonormal[:, order]
    # 2. A token is its turn's mixture of topics plus noise; keys and values are projected from it.
    signal = np.float32(world.topic_strength) * (mixture @ topics)  # (B, T, d)
    noise = draws.noise[:, :tokens].reshape(rows, turns, n, d)
    embeddings = (noise + signal[:, :, None]).reshape(rows, tokens, d)
    return DialogBatch(
        embeddings=embeddings,
        keys=embeddings @ draws.projections[1],
        values=embeddings @ draws.projections[2],
        bounds=np.tile(np.arange(0, tokens + 1, n, dtype=np.intp), (rows, 1)),
        turn_counts=np.full(rows, turns, np.intp),
        topic_bits=_label_bits(embeddings, topics, mixture, n),
        current=np.tile(scenario.current, (rows, 1)),
        topic_names=names,
        surprisal=np.ones((rows, tokens), np.float32),  # all tokens are equally likely
        topics=topics,
        projections=draws.projections,
    )


def generate(
    scenario: Scenario, dialogs: int | range = 1, seed: int = 0, world: World | None = None
) -> DialogBatch:
    """Draw dialogs of a scenario: a number of them from dialog 0, or a range.

    Dialog i of a seed does not depend on the others. Its topics and projections come from one
    stream and its tokens from another, both in order of appearance, so that schedules with the same
    beginning give dialogs with the same beginning.

    Raises a ValueError for fewer than one dialog, a negative seed, or more topics than dimensions.

    Examples
    --------
    >>> from fdkvc.synthetic.scenarios import SCENARIOS
    >>> batch = generate(SCENARIOS["shift"], dialogs=2, seed=7)
    >>> batch.embeddings.shape, batch.keys.shape
    ((2, 320, 64), (2, 320, 16))
    """
    world = world or World()
    return build(scenario, draw([scenario], dialogs, seed, world), world)


def _label_bits(embeddings: Floats, topics: Floats, mixture: Floats, n: int) -> Bits:
    """Label each token (B, N) with its topic; in a blend, with those above `TOPIC_THRESHOLD`."""
    drawn_from = np.repeat(mixture > 0, n, axis=0)  # (N, K)
    bit = np.uint32(1) << np.arange(mixture.shape[1], dtype=np.uint32)
    token_bits = (drawn_from * bit).sum(axis=1, dtype=np.uint32)
    bits = np.tile(token_bits, (len(embeddings), 1))
    # In a blend, noise may hide a topic: a token has those that its embedding shows.
    blended = np.flatnonzero(drawn_from.sum(axis=1) > 1)
    if blended.size:
        mixed = embeddings[:, blended]
        products = np.einsum("bnd,bkd->bnk", mixed, topics)
        cosines = products / lengths_of(mixed)[:, :, None]
        has_topic = (cosines > TOPIC_THRESHOLD) & drawn_from[blended]
        bits[:, blended] = (has_topic * bit).sum(axis=2, dtype=np.uint32)
    return bits
