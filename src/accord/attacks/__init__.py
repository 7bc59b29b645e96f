"""What hostile clients do to their labels, their counts and their uploads, one file per attack.

It imports nothing, because the settings of a study are read without torch.
"""
