"""Results of the published experiments that the lessons rebuild, with their hardware and source."""
