"""Streams that read tables, on machines that are busy."""

from pyspark.errors import PySparkException


def run_stream(start):
    """Run a query that reads a table, until it has read all.

    Spark gives the Python process that plans such a query, or its batches in Connect, ten seconds to start, and has no
    setting for it. On a busy machine that is too little; the query then begins again where it stopped, as it would for
    a user.
    """
    for attempt in range(3):
        try:
            query = start()
            assert query.awaitTermination(240)
        except PySparkException as error:
            if attempt == 2 or "Python worker failed to connect back" not in str(error):
                raise
        else:
            return query
    return None
