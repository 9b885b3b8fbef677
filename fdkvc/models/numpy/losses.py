"""How well several caches predict a text, and how far each is from the full one."""

import numpy as np

from fdkvc.core.attention import Floats, Ints


def losses(logits: Floats, targets: Ints) -> tuple[Floats, Floats, Ints]:
    """Score logits (C, n, V) for the n tokens that came; they are overwritten.

    Returns, of each cache and token (C, n), the nats, which are −log p of the token; the KL
    divergence from the predictions of the first cache, the full one, in nats; and the likeliest
    token.
    """
    relative, total = logits, np.empty_like(logits[..., 0])
    best: Ints = np.empty(total.shape, np.intp)
    for row in range(len(logits) - 1, -1, -1):  # the full cache's last
        logits[row].argmax(axis=-1, out=best[row])
        relative[row] -= np.take_along_axis(logits[row], best[row, :, None], axis=-1)
        powers = np.exp(relative[row])
        total[row] = powers.sum(axis=-1)
    lost = np.log(total)
    came = relative[:, np.arange(len(targets)), targets]
    powers /= total[0, :, None]
    expected = np.einsum("nv,cnv->cn", powers, relative) - lost  # of log p, under the full
    return lost - came, np.maximum(expected[0] - expected, 0), best
