"""The declarations of all messages of Apache Kafka 4.3, one module per API; imported through `protocol.api`.

Request and response of an API stand in one module. A struct has the name that it has in Kafka; where request and
response use one name for different structs, that of the response begins with Response. Structs stand before what
contains them, so a module is best read from its last class upwards.
"""
