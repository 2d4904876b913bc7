"""Reports for people: what a table and its files hold, what is damaged, and how it is repaired."""
