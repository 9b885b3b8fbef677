"""How well several caches predict a text, and how far each is from the full one."""

import numpy as np

from fdkvc.core.attention import Floats, Ints


def losses(logits: Floats, targets: Ints) -> tuple[Floats, Floats, Ints]:
    """Score logits (C, n, V) for the true next tokens (n,); the logits are overwritten.

    Returns, for each cache and token (C, n): the nats, which are −log p of the true token; the KL
    divergence from the predictions of the first cache, the full one, in nats; and the likeliest
    token.
    """
    # 1. Logits relative to the largest, so that no power overflows, and the sum of powers. In
    #    place, as a copy would double the memory. The full cache comes last, so that its powers
    #    remain.
    best: Ints = logits.argmax(axis=-1)
    total = np.empty_like(logits[..., 0])
    for row in reversed(range(len(logits))):
        relative = logits[row]
        relative -= relative.max(axis=-1, keepdims=True)
        powers = np.exp(relative)
        total[row] = powers.sum(axis=-1)
    # 2. −log p of the true token: log p = relative − log total.
    log_total = np.log(total)
    places = np.arange(len(targets))
    of_targets = logits[:, places, targets]
    # 3. KL(full ‖ cache) = E[log p_full] − E[log p_cache], both expected under the full cache;
    #    rounding may bring it below 0.
    powers /= total[0, :, None]
    expected = np.einsum("nv,cnv->cn", powers, logits) - log_total
    nats = log_total - of_targets
    kl = np.maximum(expected[0] - expected, 0)
    return nats, kl, best
