"""Queries with a token that Spark's own provider of delegation tokens for Kafka has obtained, and with Kerberos itself,
over SASL_SSL, in their own process.

On YARN and on Kubernetes, Spark calls the provider and distributes the tokens. Its other schedulers do not, so this
program calls it. Arguments: bootstrap servers of a listener with GSSAPI and SCRAM, the certificate of its authority,
the keytab and the principal of the user, and the topic. It prints the number of tokens. Then it writes 100 rows, reads
the topic and prints the number of its rows, with the token and again with Kerberos.
"""

import sys

from moldau.spark_integration import session

address, authority, keytab, principal, topic = sys.argv[1:]
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
        "spark.kafka.clusters.moldau.security.protocol": "SASL_SSL",
        "spark.kafka.clusters.moldau.ssl.truststore.type": "PEM",
        "spark.kafka.clusters.moldau.ssl.truststore.location": authority,
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
options = {
    "kafka.bootstrap.servers": address,
    # Spark takes everything but these from `spark.kafka.clusters`.
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": authority,
}
rows.write.format("kafka").options(**options, topic=topic).save()
print(spark.read.format("kafka").options(**options, subscribe=topic).load().count())
options |= {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "GSSAPI",
    "kafka.sasl.kerberos.service.name": "kafka",
    "kafka.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
    f'keyTab="{keytab}" principal="{principal}";',
}
rows.write.format("kafka").options(**options, topic=topic).save()
print(spark.read.format("kafka").options(**options, subscribe=topic).load().count())
spark.stop()
