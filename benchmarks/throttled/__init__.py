"""Training on links that are really slow: what is run, how it is started, compared and shown; one mechanism a file."""
