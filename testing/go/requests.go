package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
)

// serve answers one JSON object a line on standard input by one a line on standard output, until the input ends:
// testing/clients/program.py.
func serve[R any](perform func(context.Context, *R) (any, error), codeOf func(error) string) {
	requests := bufio.NewReaderSize(os.Stdin, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked R
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		ok, err := perform(ctx, &asked)
		cancel()
		answer := map[string]any{"ok": ok}
		if err != nil {
			answer = map[string]any{"error": map[string]string{"code": codeOf(err), "message": err.Error()}}
		}
		if err := answers.Encode(answer); err != nil {
			panic(err)
		}
	}
}
