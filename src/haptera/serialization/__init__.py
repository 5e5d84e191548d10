"""Values to bytes and back, versioned; what this version does not know is kept as it is."""
