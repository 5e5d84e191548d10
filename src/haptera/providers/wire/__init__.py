"""Wire protocols: pure encoders and decoders, one package or file for each provider API."""
