"""The command line: Hydra for train and sample, plain flags for the file tools."""
