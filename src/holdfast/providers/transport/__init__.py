"""Transport: HTTP, frames and their errors; the only room that knows the HTTP client."""
