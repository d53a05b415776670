"""Drafts for the Neural Engine: weights → MIL programs → .mlpackage folders and their manifest.

`mirror_mlx.convert.convert.convert` does all of it. Importing this package imports no coremltools.
"""
