"""Every error mirror-mlx raises on purpose, as one tree.

    MirrorError              base; `str(error)` is one line: what was wrong, and what to do
    ├── UsageError           an argument, flag or option is out of range or contradicts another
    ├── ModelError           a target cannot be found, read or run
    ├── DraftError           a draft cannot be used with this target
    ├── PromptError          a prompt is empty or longer than the context
    └── DataError            a training or prompt file is missing, empty or malformed

The command line prints the line on stderr and exits with 2. A draft that fails while decoding raises none of
these: the request goes on as plain decoding and says so in its stats.
"""


class MirrorError(Exception):
    """Base of all errors a user can mend."""


class UsageError(MirrorError, ValueError):
    """An argument, flag or option is out of range or contradicts another."""


class ModelError(MirrorError):
    """A target cannot be found, read or run."""


class DraftError(MirrorError):
    """A draft cannot be used with this target."""


class PromptError(MirrorError, ValueError):
    """A prompt is empty or longer than the context."""


class DataError(MirrorError):
    """A training or prompt file is missing, empty or malformed."""
