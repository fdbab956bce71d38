"""What Apache Kafka's DumpLogSegments prints for a damaged file; its exit code is 0 nevertheless."""

import re

COMPLAINTS = re.compile(
    "Mismatches in|not found in the log|out of order timestamp|timestamp mismatch|invalid bytes|isvalid: false"
    "|Ignoring unknown file|Exception|corrupt",
    re.IGNORECASE,
)
