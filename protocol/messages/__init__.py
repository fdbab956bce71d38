"""The declarations of all messages of Apache Kafka 4.3, one module per API; imported through `protocol.api`.

Request and response of an API are in one module. A struct has Kafka's name; if request and response use one name for
different structs, that of the response begins with Response. Structs are defined before the structs that contain them,
so a module is best read from its last class upwards.
"""
