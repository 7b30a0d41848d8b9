"""labkit: the small package behind the notebooks of the deployment workbook.

Nothing heavy is imported here and nothing happens at import: say `from labkit.measure import
latency`.
"""

__version__ = "0.4.0.dev0"
