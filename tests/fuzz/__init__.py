"""A mutation fuzz of the converter: `make fuzz`, ten minutes; `SECONDS=60`, `SEED=7` and `STREAM=1234` change and repeat."""
