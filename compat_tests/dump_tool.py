"""What Apache Kafka's DumpLogSegments says of a file with which something is wrong: it exits with 0 all the same."""

import re

COMPLAINTS = re.compile(
    "Mismatches in|not found in the log|out of order timestamp|timestamp mismatch|invalid bytes|isvalid: false"
    "|Ignoring unknown file|Exception|corrupt",
    re.IGNORECASE,
)
