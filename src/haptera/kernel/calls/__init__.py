"""Tool calls of a query: which run, who is asked, how they run."""
