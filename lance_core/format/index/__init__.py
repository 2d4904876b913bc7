"""Contents of index files to frozen values and back, one module for each kind of index or of what it stores."""
