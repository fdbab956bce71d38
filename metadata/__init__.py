"""The controller and the metadata image: the state of the cluster, as defined by the metadata log (KIP-500).

The interface is `quorum.Metadata`. The modules, lower layers first:

    records, registrations, features, topic_names   basic terms: the log's records, immutable states, feature levels
    image, image_records, transactions              records to state, and back
    placement, partition_changes, assignment        rules about replicas and leaders
    create_topics, delete_topics, ...               one module per request: state and request to an Outcome
    batches, checkpoint, quorum_state, metadata_log the files, in KRaft's formats
    committed, controller, registration             the committed image; deciding and appending; this node
    sessions, observer_reads                        brokers of other processes: their sessions, what they may fetch
    observer, lifecycle                             a broker of remote controllers: its requests, their responses
    log_copy, difference, followed                  its copy of the log, and the image of what is committed
    broker_metadata, quorum                         what a broker uses; opens and closes the parts of a combined node

docs/metadata.md describes how they work together.
"""
