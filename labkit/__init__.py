"""labkit: the small package behind the notebooks of the deployment workbook.

`import labkit` imports no module of the package, so it takes no time. Import what you need: `from
labkit.measure import latency`.
"""

__version__ = "0.4.0.dev0"
