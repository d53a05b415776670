"""Training the models of a pair: `lm` a language model, `draft` a streaming draft for it, `tap` its early exits.

A run is its `settings`; `loop` is the loop of them all, and `task` what it asks of each kind. `data` reads and splits
the files, `tokenizer` turns them into samples, `batches` orders them, `checkpoint` lets a run be interrupted, `export`
writes the folder that is used. For a draft `answers` lets the target write the text and `teacher` keeps its opinion.
"""
