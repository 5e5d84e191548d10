"""Wire protocols: pure encoders and decoders, one file each, the same section order in all."""
