//go:build kerberos

package main

import (
	"context"
	"os"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
)

// kerberosOption authenticates the principal sasl.kerberos.principal with the keytab sasl.kerberos.keytab, in the realm
// of the configuration that KRB5_CONFIG names.
func kerberosOption(req *request) (kgo.Opt, error) {
	realm, err := config.Load(os.Getenv("KRB5_CONFIG"))
	if err != nil {
		return nil, err
	}
	key, err := keytab.Load(req.Security["sasl.kerberos.keytab"])
	if err != nil {
		return nil, err
	}
	principal := req.Security["sasl.kerberos.principal"]
	newClient := func(context.Context) *client.Client {
		// PA-FX-FAST is an extension that MIT's KDC does not require.
		return client.NewWithKeytab(principal, realm.LibDefaults.DefaultRealm, key, realm, client.DisablePAFXFAST(true))
	}
	return kgo.SASL(kerberos.Auth{ClientFn: newClient, Service: "kafka"}.AsMechanism()), nil
}
