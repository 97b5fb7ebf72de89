"""Sources of the CPU device's runtime and shim; compiled on first use, shipped as package data."""
