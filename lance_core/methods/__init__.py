"""Methods of `LanceDataset`, one module for each topic; the first parameter of each is the dataset."""
