"""The controller and the image: what the cluster is, as the records of Kafka's metadata log make it (KIP-500).

From the outside there is `quorum.Metadata`. Inside, from what knows least to what knows most:

    records, registrations, features, topic_names   words: the log's records, immutable states, levels
    image, image_records, transactions              records to state, and back
    placement, partition_changes, assignment        rules about replicas and leaders
    create_topics, delete_topics, ...               one module for each request: state and request to an Outcome
    batches, checkpoint, quorum_state, metadata_log the files, in KRaft's formats
    quorum                                          puts them in order

docs/metadata.md tells how they work together.
"""
