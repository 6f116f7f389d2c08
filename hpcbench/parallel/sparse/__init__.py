"""The gradient of an embedding by the rows that were touched: which they are, when it pays, and how they are summed."""
