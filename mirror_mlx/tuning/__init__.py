"""From measured costs and running counts to what to do next: how to decode, and how far to look ahead."""
