"""Measurements of the machine at hand: the lab (`lab`), what is run on it (`law`), and how it is shown (`plot`)."""
