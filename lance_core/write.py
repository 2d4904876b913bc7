"""Write data: as a new version of a dataset, or as files for a later commit."""

from lance_core.dataset import LanceDataset
from lance_core.methods.writing import WriteArguments, write_fragments

__all__ = ["WriteArguments", "write_dataset", "write_fragments"]

write_dataset = LanceDataset.write_dataset
