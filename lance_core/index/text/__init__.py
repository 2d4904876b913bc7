"""Full-text search: texts as words, scores, and the kind of index that has the rows of each word."""
