"""Training the models of a pair: `lm` makes a causal language model from chats or text.

A run is its `settings`: `data` reads and splits the files, `tokenizer` turns them into samples, `batches` orders
them, `model` builds what is trained, `loss` says how wrong it is, `lm` is the loop, `checkpoint` lets it be
interrupted, and `export` writes the folder that `mlx_lm.load` reads.
"""
