"""The broker's settings of security: authorization, delegation tokens, TLS, SASL."""

from typing import Final

from .definition import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    NonNull,
    OneOfAnyCase,
    Section,
    Setting,
    at_least,
    between,
    list_of,
    one_of,
)

# fmt: off
SECTIONS: Final = (
    Section(
        "Authorization",
        Setting(
            "authorizer.class.name", STRING, "", NonNull(), LOW,
            "Empty, or org.apache.kafka.metadata.authorizer.StandardAuthorizer: requests are authorized by ACLs.",
            acted_on=True,
        ),
        Setting(
            "principal.builder.class", CLASS,
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
            None, MEDIUM,
            "Java class that derives a principal from a connection. Not loaded: with another value than the default, "
            "listeners with TLS or SASL prevent startup.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "security.providers", STRING, None, None, LOW,
            "Java classes that add security algorithms. Not loaded.",
        ),
        Setting(
            "delegation.token.secret.key", PASSWORD, None, None, MEDIUM,
            "Secret from which delegation tokens are made, the same on all nodes. Without it there are no tokens.",
            acted_on=True,
        ),
        Setting(
            "delegation.token.expiry.time.ms", LONG, 86_400_000, at_least(1), MEDIUM,
            "Time after which a delegation token must be renewed.",
            acted_on=True,
        ),
        Setting(
            "delegation.token.max.lifetime.ms", LONG, 604_800_000, at_least(1), MEDIUM,
            "Time after which a delegation token can no longer be renewed.",
            acted_on=True,
        ),
        Setting(
            "delegation.token.expiry.check.interval.ms", LONG, 3_600_000, at_least(1), LOW,
            "Interval between checks for expired delegation tokens.",
            acted_on=True,
        ),
    ),
    Section(
        "TLS",
        Setting(
            "ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), MEDIUM,
            "Whether clients must present a certificate.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.protocol", STRING, "TLSv1.3", None, MEDIUM,
            "Newest TLS version.",
            update=PER_BROKER,
        ),
        Setting(
            "ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), list_of(), MEDIUM,
            "Allowed TLS versions.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.cipher.suites", LIST, (), list_of(), MEDIUM,
            "Allowed cipher suites; empty is the library's default.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.endpoint.identification.algorithm", STRING, "https", None, LOW,
            "Whether the certificate of another node must be for its host: https, or empty for no check.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.keystore.type", STRING, "JKS", None, MEDIUM,
            "Format of the key store: JKS, PKCS12 or PEM.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.keystore.location", STRING, None, None, MEDIUM,
            "File of the key store.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.keystore.password", PASSWORD, None, None, MEDIUM,
            "Password of the key store.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.key.password", PASSWORD, None, None, MEDIUM,
            "Password of the private key.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.keystore.key", PASSWORD, None, None, MEDIUM,
            "Private key, in PEM.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.keystore.certificate.chain", PASSWORD, None, None, MEDIUM,
            "Certificate chain, in PEM.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.truststore.type", STRING, "JKS", None, MEDIUM,
            "Format of the trust store: JKS, PKCS12 or PEM.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.truststore.location", STRING, None, None, MEDIUM,
            "File of the trust store.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.truststore.password", PASSWORD, None, None, MEDIUM,
            "Password of the trust store.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.truststore.certificates", PASSWORD, None, None, MEDIUM,
            "Trusted certificates, in PEM.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.keymanager.algorithm", STRING, "SunX509", None, MEDIUM,
            "Java's algorithm for key managers. Has no effect.",
            update=PER_BROKER,
        ),
        Setting(
            "ssl.trustmanager.algorithm", STRING, "PKIX", None, MEDIUM,
            "Java's algorithm for trust managers. Has no effect.",
            update=PER_BROKER,
        ),
        Setting(
            "ssl.secure.random.implementation", STRING, None, None, LOW,
            "Java's random number generator. Has no effect.",
            update=PER_BROKER,
        ),
        Setting(
            "ssl.provider", STRING, None, None, MEDIUM,
            "Java's security provider. Has no effect.",
            update=PER_BROKER,
        ),
        Setting(
            "ssl.engine.factory.class", CLASS, None, None, LOW,
            "Java class that creates TLS engines. Not loaded: with another value than the default, listeners with TLS "
            "prevent startup.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW,
            "Rules that turn a certificate's name into a principal.",
            acted_on=True,
        ),
        Setting(
            "ssl.allow.dn.changes", BOOLEAN, False, None, LOW,
            "Whether a new certificate may have a different distinguished name.",
            acted_on=True,
        ),
        Setting(
            "ssl.allow.san.changes", BOOLEAN, False, None, LOW,
            "Whether a new certificate may have different alternative names.",
            acted_on=True,
        ),
    ),
    Section(
        "SASL",
        Setting(
            "sasl.enabled.mechanisms", LIST, ("GSSAPI",), list_of(), MEDIUM,
            "Enabled SASL mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI. Others are errors.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, MEDIUM,
            "SASL mechanism between brokers, one of `sasl.enabled.mechanisms`.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "sasl.mechanism.controller.protocol", STRING, "GSSAPI", None, HIGH,
            "SASL mechanism for connections to controllers.",
            acted_on=True,
        ),
        Setting(
            "sasl.jaas.config", PASSWORD, None, None, MEDIUM,
            "Login modules and their options, as in a JAAS file; with the prefix of a listener and a mechanism.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "sasl.server.max.receive.size", INT, 524_288, None, MEDIUM,
            "Maximum size of a request before authentication is complete.",
            acted_on=True,
        ),
        Setting(
            "sasl.server.callback.handler.class", CLASS, None, None, MEDIUM,
            "Java class that handles the server's callbacks during SASL. Not loaded: the server does not start with "
            "another one than those of OAUTHBEARER.",
            acted_on=True,
        ),
        Setting(
            "sasl.client.callback.handler.class", CLASS, None, None, MEDIUM,
            "Java class that handles the client's callbacks during SASL. Not loaded.",
        ),
        Setting(
            "sasl.login.callback.handler.class", CLASS, None, None, MEDIUM,
            "Java class that handles callbacks during login. Not loaded; OAUTHBEARER has one of Apache Kafka's.",
            acted_on=True,
        ),
        Setting(
            "sasl.login.class", CLASS, None, None, MEDIUM,
            "Java class that logs in. Not loaded.",
        ),
        Setting(
            "sasl.login.connect.timeout.ms", INT, None, None, LOW,
            "Timeout of a connection to an external provider (OAUTHBEARER).",
        ),
        Setting(
            "sasl.login.read.timeout.ms", INT, None, None, LOW,
            "Timeout of a request to an external provider (OAUTHBEARER).",
        ),
        Setting(
            "sasl.login.refresh.buffer.seconds", SHORT, 300, None, MEDIUM,
            "Minimum time between a refresh and the expiry.",
            update=PER_BROKER,
        ),
        Setting(
            "sasl.login.refresh.min.period.seconds", SHORT, 60, None, MEDIUM,
            "Minimum time between two refreshes of a credential.",
            update=PER_BROKER,
        ),
        Setting(
            "sasl.login.refresh.window.factor", DOUBLE, 0.8, None, MEDIUM,
            "Part of a credential's lifetime after which it is refreshed.",
            update=PER_BROKER,
        ),
        Setting(
            "sasl.login.refresh.window.jitter", DOUBLE, 0.05, None, MEDIUM,
            "Random part of the lifetime added to that.",
            update=PER_BROKER,
        ),
        Setting(
            "sasl.login.retry.backoff.ms", LONG, 100, None, LOW,
            "First delay before a login is retried.",
        ),
        Setting(
            "sasl.login.retry.backoff.max.ms", LONG, 10_000, None, LOW,
            "Maximum delay before a login is retried.",
        ),
        Setting(
            "sasl.kerberos.service.name", STRING, None, None, MEDIUM,
            "Kerberos name of the brokers: the first part of their principals.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, MEDIUM,
            "Path of kinit.",
            update=PER_BROKER,
        ),
        Setting(
            "sasl.kerberos.min.time.before.relogin", LONG, 60_000, None, MEDIUM,
            "Minimum time between two Kerberos logins.",
            update=PER_BROKER,
        ),
        Setting(
            "sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), list_of(), MEDIUM,
            "Rules that turn a Kerberos principal into a short name.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, None, MEDIUM,
            "Random part added to the renewal time of a ticket.",
            update=PER_BROKER,
        ),
        Setting(
            "sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, None, MEDIUM,
            "Part of a ticket's lifetime after which it is renewed.",
            update=PER_BROKER,
        ),
    ),
    Section(
        "SASL OAUTHBEARER",
        Setting(
            "sasl.oauthbearer.jwks.endpoint.url", STRING, None, None, MEDIUM,
            "Address of the provider's keys.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, None, LOW,
            "Interval between two refreshes of the provider's keys.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, None, LOW,
            "First delay before the request for the keys is retried.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, None, LOW,
            "Maximum delay before the request for the keys is retried.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.token.endpoint.url", STRING, None, None, MEDIUM,
            "Address at which tokens are issued.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.expected.issuer", STRING, None, None, HIGH,
            "Issuer that a token must name.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.expected.audience", LIST, (), list_of(), HIGH,
            "Audiences, one of which a token must name.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.clock.skew.seconds", INT, 30, None, LOW,
            "Tolerated clock skew.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.scope", STRING, None, None, MEDIUM,
            "Scope of a token request.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW,
            "Claim that holds the scope.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW,
            "Claim that holds the subject.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.jwt.retriever.class", CLASS,
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
            None, MEDIUM,
            "Java class that fetches tokens. Not loaded.",
        ),
        Setting(
            "sasl.oauthbearer.jwt.validator.class", CLASS,
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
            None, MEDIUM,
            "Java class that validates tokens. Not loaded: with another value than the default, listeners with "
            "OAUTHBEARER prevent startup.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.client.credentials.client.id", STRING, None, None, MEDIUM,
            "Client id for token requests.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, None, MEDIUM,
            "Secret for token requests.",
            acted_on=True,
        ),
        Setting(
            "sasl.oauthbearer.assertion.algorithm", STRING, "RS256", OneOfAnyCase(("ES256", "RS256")), MEDIUM,
            "Algorithm that signs an assertion.",
        ),
        Setting(
            "sasl.oauthbearer.assertion.claim.aud", STRING, None, None, MEDIUM,
            "Audience claim of an assertion.",
        ),
        Setting(
            "sasl.oauthbearer.assertion.claim.iss", STRING, None, None, MEDIUM,
            "Issuer claim of an assertion.",
        ),
        Setting(
            "sasl.oauthbearer.assertion.claim.sub", STRING, None, None, MEDIUM,
            "Subject claim of an assertion.",
        ),
        Setting(
            "sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, between(0, 86_400), LOW,
            "Validity of an assertion, in seconds.",
        ),
        Setting(
            "sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, between(0, 3600), LOW,
            "Start of the validity of an assertion, in seconds before its creation.",
        ),
        Setting(
            "sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False, None, MEDIUM,
            "Whether an assertion has a unique id.",
        ),
        Setting(
            "sasl.oauthbearer.assertion.file", STRING, None, None, MEDIUM,
            "File with a prepared assertion.",
        ),
        Setting(
            "sasl.oauthbearer.assertion.template.file", STRING, None, None, MEDIUM,
            "File with headers and claims of assertions.",
        ),
        Setting(
            "sasl.oauthbearer.assertion.private.key.file", STRING, None, None, MEDIUM,
            "File with the key that signs assertions.",
        ),
        Setting(
            "sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, None, MEDIUM,
            "Passphrase of that key.",
        ),
    ),
)
# fmt: on
