"""The two capstone tasks: what a reader hands in is scored as data, and never run as code.

In lesson 20 a reader hands in a network as an ONNX file: `score` of `labkit.capstone.judge` returns
a `Score` for each. In lesson 11 a reader hands in a recipe, a TOML file of settings that train
fast: `race` of `labkit.capstone.race` returns a `Raced` for each. `RACES` of the same module holds
the accuracies that a recipe has to reach.
"""
