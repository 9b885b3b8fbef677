"""``learn``: fit the weights of the policy `learned` to your own dialogs."""

import json
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path

from fdkvc.commands.console import print_results, progress
from fdkvc.commands.dialogs import check_file, read_sources
from fdkvc.corpora.lexical import LexicalRecordings
from fdkvc.experiments.learning import draw_pairs, fit, split_by_cluster
from fdkvc.experiments.replay import Replay, replay
from fdkvc.files.options import settings_from
from fdkvc.files.write import check_folder, write_files
from fdkvc.grid import Grid
from fdkvc.kinds.replay import replay_text
from fdkvc.parameters import SEED, check_parameter, parameters_of
from fdkvc.policies import policy_named
from fdkvc.policies.learned import Learned
from fdkvc.words import count, signed


def learn(options: Namespace) -> None:
    """Fit weights on dialogs with calls, write them, and compare on held-out dialogs."""
    out = check_file(options.out, ".json")
    check_parameter("--out", parameters_of(Learned)["weights"], options.out, str)
    SEED.check(options.seed, "seed")
    settings = settings_from(Replay, options, policies=(policy_named("fifo"),), best=False)
    check_folder(out.parent, [out.name])
    transcripts, digest = read_sources(options).read_transcripts()
    training, held_out = split_by_cluster(transcripts, options.seed)
    weights = fit(*draw_pairs(LexicalRecordings(training), options.seed)).record()
    record = {
        "training": {
            "file": Path(options.dialogs).name,
            "sha256": digest,
            "dialogs": len(training),
            "clusters": len({transcript.services for transcript in training}),
            "seed": options.seed,
            "date": datetime.now(UTC).date().isoformat(),
        },
        "features": weights,
    }
    write_files(out.parent, {out.name: json.dumps(record, indent=1) + "\n"})
    others = [*map(policy_named, ("fifo", "surprisal", "learned"))]
    policies = (*others, policy_named("learned", weights=options.out))
    settings = settings_from(Replay, options, policies=policies, best=False)
    with progress() as on_progress:
        table = replay(settings, LexicalRecordings(held_out), on_progress=on_progress)
    text = (
        f"Trained on {count(len(training), 'dialog')}; compared on {len(held_out)} of other "
        "services",
        Grid(["feature", "weight"], [[n, signed(weights[n]["weight"], 2)] for n in weights]).text(),
        replay_text(table[table.metric == "call_recall"], others[0].name),
    )
    print_results("\n\n".join(text), options.out)
