//go:build !kerberos

package main

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kerberosOption needs packages that only tests of GSSAPI download.
func kerberosOption(*request) (kgo.Opt, error) {
	return nil, errors.New("this program was built without the tag kerberos")
}
