"""What a query reads: plans, filters, fragments, single rows, order."""
