"""Where images come from, how they are dealt to clients and how they are augmented."""
