"""Looking at log directories offline: is every byte what it should be, and what can be mended without losing anything.

    finding.py      what is found: data, with a severity and what a repair would do about it
    batches.py      a `.log` file batch by batch, in bounded memory, on over damage
    indexes.py      entries of an index beside the batches that they stand for
    partition.py    one partition's directory
    directory.py    a log directory's own files: whose it is, checkpoints, leftovers
    repair.py       from findings to actions, and what an action does

Nothing here changes a file but `repair.py`, and nothing there is cut off a log unless that was asked for.

It is the judgement of an examiner, and stricter than a start: a start believes what a clean stop has left, and looks
only at what may not have reached the device after any other.
"""
