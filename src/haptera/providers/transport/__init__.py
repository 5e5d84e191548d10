"""Transport: HTTP, frames and their errors; the only package that imports the HTTP client."""
