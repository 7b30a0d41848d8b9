"""labkit: the small package behind the workbook's notebooks.

Nothing heavy is imported here and nothing happens at import: say `from labkit.measure import latency`.
"""

__version__ = "0.1.0"
