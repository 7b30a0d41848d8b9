"""For who writes lessons: reading time, sections, and the register of the published experiments."""
