"""For authors of lessons: reading time, sections, and the register of the published experiments."""
