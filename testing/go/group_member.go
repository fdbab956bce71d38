// A member of a consumer group with franz-go: testing/clients/group_member.py describes its output.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type memberOptions struct {
	BootstrapServers string  `json:"bootstrap_servers"`
	GroupID          string  `json:"group_id"`
	Topic            string  `json:"topic"`
	Protocol         string  `json:"protocol"`
	InstanceID       *string `json:"instance_id"`
	SessionTimeoutMs int64   `json:"session_timeout_ms"`
}

var outputMutex sync.Mutex

func report(event string, fields map[string]any) {
	entry := map[string]any{"event": event, "at": time.Now().UnixNano()}
	for name, value := range fields {
		entry[name] = value
	}
	line, err := json.Marshal(entry)
	if err != nil {
		panic(err)
	}
	outputMutex.Lock()
	defer outputMutex.Unlock()
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

func groupMember(argument string) {
	var options memberOptions
	if err := json.Unmarshal([]byte(argument), &options); err != nil {
		panic(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the input ends or fails
		leave()
	}()
	client, err := kgo.NewClient(memberSettings(&options)...)
	if err != nil {
		panic(err)
	}
	uncommitted := false
	for ctx.Err() == nil {
		polled, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollFetches(polled)
		cancel()
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				report("error", map[string]any{"code": codeOf(err), "reason": err.Error()})
			}
		})
		reportConsumed(fetches)
		if uncommitted || fetches.NumRecords() > 0 {
			uncommitted = !commit(client)
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	report("left", nil)
}

func memberSettings(options *memberOptions) []kgo.Opt {
	heartbeat := min(300, options.SessionTimeoutMs/6)
	settings := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(options.BootstrapServers, ",")...),
		kgo.ConsumerGroup(options.GroupID),
		kgo.ConsumeTopics(options.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.SessionTimeout(time.Duration(options.SessionTimeoutMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(heartbeat) * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, found map[string][]int32) {
			_, generation := client.GroupMetadata()
			report("assigned", map[string]any{"partitions": numbers(found, options.Topic), "generation": generation})
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, found map[string][]int32) {
			report("revoked", map[string]any{"partitions": numbers(found, options.Topic)})
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, found map[string][]int32) {
			report("lost", map[string]any{"partitions": numbers(found, options.Topic)})
		}),
	}
	switch options.Protocol {
	case "cooperative":
		settings = append(settings, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case "range":
		settings = append(settings, kgo.Balancers(kgo.RangeBalancer()))
	case "consumer":
		settings = append(settings, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	if options.InstanceID != nil {
		settings = append(settings, kgo.InstanceID(*options.InstanceID))
	}
	return settings
}

// numbers is never nil, because that would be null in JSON.
func numbers(found map[string][]int32, topic string) []int32 {
	return append([]int32{}, found[topic]...)
}

func reportConsumed(fetches kgo.Fetches) {
	fetches.EachPartition(func(found kgo.FetchTopicPartition) {
		records := found.Records
		for start := 0; start < len(records); {
			end := start + 1
			for end < len(records) && records[end].Offset == records[end-1].Offset+1 {
				end++
			}
			report("consumed", map[string]any{
				"partition": found.Partition, "first": records[start].Offset, "last": records[end-1].Offset,
			})
			start = end
		}
	})
}

func commit(client *kgo.Client) bool {
	// At most as long as a rebalance may have to wait for the commit.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		report("refused", map[string]any{"reason": err.Error()})
		return false
	}
	report("committed", nil)
	return true
}
