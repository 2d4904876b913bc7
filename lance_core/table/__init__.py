"""Tables: versions, transactions, commits, scans."""
