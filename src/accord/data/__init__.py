"""Images: how they are found, decoded, distributed to clients and augmented."""
