"""The two capstones: the course scores what a reader hands in, which is data and never code.

Lesson 20 asks for ONNX files: `score` of `labkit.capstone.judge` returns a `Score` for each. Lesson
11 asks for recipes that train fast: `race` of `labkit.capstone.race` returns a `Raced` for each;
`RACES` of the same module are the targets.
"""
