"""Measurements. Of the machine at hand: the lab (`lab`), what is run on it (`law`), and how it is shown (`plot`). Of a
pair's predictions: decoding with every tap read (`collect`), the rates (`hits`), how they are shown (`plot_hits`)."""
