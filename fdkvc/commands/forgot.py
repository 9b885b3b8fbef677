"""``forgot``: what a session of a coding agent forgot, in the tokens of a model."""

from argparse import Namespace

from fdkvc.conversations.forgot_command import forgot_command
from fdkvc.models.numpy.encoding import Encoding


def forgot(options: Namespace) -> None:
    """Say what each compaction of a session forgot."""
    forgot_command(options, Encoding.of_model(options.tokens))
