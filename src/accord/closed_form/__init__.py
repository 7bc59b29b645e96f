"""The closed form: sums of fixed features, the ridge regression on them, its probabilities."""
