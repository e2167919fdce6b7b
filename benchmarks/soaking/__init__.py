"""The daemon over a long time: swaps, memory, and a power switch that somebody plays with."""
