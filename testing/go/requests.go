package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
)

// serve reads one JSON request per line from standard input and writes one JSON response per line to standard output,
// until the input ends: testing/clients/program.py.
func serve[R any](perform func(context.Context, *R) (any, error), codeOf func(error) string) {
	requests := bufio.NewReaderSize(os.Stdin, 1<<20)
	responses := json.NewEncoder(os.Stdout)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			return
		}
		var req R
		if err := json.Unmarshal(line, &req); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		ok, err := perform(ctx, &req)
		cancel()
		response := map[string]any{"ok": ok}
		if err != nil {
			response = map[string]any{"error": map[string]string{"code": codeOf(err), "message": err.Error()}}
		}
		if err := responses.Encode(response); err != nil {
			panic(err)
		}
	}
}
