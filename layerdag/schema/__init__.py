"""What the codes of a data set mean: words, bins, conditions, costs."""
