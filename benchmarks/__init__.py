"""One file a claim; each prints a table and, as its last line, one line of JSON."""
