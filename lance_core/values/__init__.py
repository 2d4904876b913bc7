"""Values that public methods take and return, beside those of Arrow."""
