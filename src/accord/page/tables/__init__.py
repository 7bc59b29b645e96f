"""Tables that sections share."""
