"""A query with a token that Spark's own provider of delegation tokens for Kafka has obtained, in its own process.

On YARN and on Kubernetes, Spark calls the provider and distributes the tokens. Its other schedulers do not, so this
program calls it. Arguments: bootstrap servers of a listener with GSSAPI and SCRAM, the keytab and the principal of the
user, and the topic. It prints the number of tokens, writes 100 rows, reads them, and prints how many there are.
"""

import sys

from moldau.spark_integration import session

address, keytab, principal, topic = sys.argv[1:]
spark = session(
    "delegation-token",
    {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "500m",
        "spark.hadoop.hadoop.security.authentication": "kerberos",
        "spark.kerberos.keytab": keytab,
        "spark.kerberos.principal": principal,
        "spark.kafka.clusters.moldau.auth.bootstrap.servers": address,
        "spark.kafka.clusters.moldau.security.protocol": "SASL_PLAINTEXT",
        "spark.kafka.clusters.moldau.sasl.kerberos.service.name": "kafka",
    },
)
jvm, context = spark.sparkContext._jvm, spark.sparkContext._jsc
credentials = jvm.org.apache.hadoop.security.Credentials()
provider = jvm.org.apache.spark.kafka010.KafkaDelegationTokenProvider()
provider.obtainDelegationTokens(context.hadoopConfiguration(), context.sc().conf(), credentials)
print(credentials.numberOfTokens())
jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().addCredentials(credentials)

rows = spark.range(100).selectExpr("cast(id AS string) AS value")
options = {"kafka.bootstrap.servers": address}
rows.write.format("kafka").options(**options, topic=topic).save()
print(spark.read.format("kafka").options(**options, subscribe=topic).load().count())
spark.stop()
