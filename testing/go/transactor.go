// Transactional producers with franz-go: testing/clients/transactor.py describes the operations.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type transactorRequest struct {
	Op               string   `json:"op"`
	BootstrapServers string   `json:"bootstrap_servers"`
	Producer         string   `json:"producer"`
	TransactionalID  string   `json:"transactional_id"`
	TimeoutMs        int64    `json:"timeout_ms"`
	Codec            string   `json:"codec"`
	GroupID          *string  `json:"group_id"`
	Source           string   `json:"source"`
	Topic            string   `json:"topic"`
	Topics           []string `json:"topics"`
	Partition        int32    `json:"partition"`
	Values           []string `json:"values"`
	Target           string   `json:"target"`
	Count            int      `json:"count"`
	Committed        bool     `json:"committed"`
}

// The session is franz-go's type for consume-transform-produce; it commits the offsets when it ends.
type transactorProducer struct {
	client  *kgo.Client
	session *kgo.GroupTransactSession
}

func transactor() {
	producers := map[string]*transactorProducer{}
	perform := func(ctx context.Context, req *transactorRequest) (any, error) {
		return performTransactor(ctx, producers, req)
	}
	serve(perform, refusalOf)
}

// The outcome of a request whose response was not received.
var (
	errUnknown   = errors.New("it is unknown whether the transaction was committed")
	errRetriable = errors.New("it is unknown whether the transaction was aborted")
)

// outcome distinguishes a rejected end from a missing response, after which franz-go requires an abort, with retries.
func outcome(err, unanswered error) error {
	var kafka *kerr.Error
	if err == nil || errors.As(err, &kafka) {
		return err
	}
	return fmt.Errorf("%w: %w", unanswered, err)
}

func refusalOf(err error) string {
	switch {
	case errors.Is(err, errUnknown):
		return "UNKNOWN"
	case errors.Is(err, errRetriable):
		return "RETRIABLE"
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
		return "FENCED"
	case errors.Is(err, kerr.TransactionAbortable):
		return "ABORTABLE"
	case kerr.IsRetriable(err):
		return "RETRIABLE"
	}
	return codeOf(err)
}

func performTransactor(
	ctx context.Context, producers map[string]*transactorProducer, req *transactorRequest,
) (any, error) {
	producer := producers[req.Producer]
	switch req.Op {
	case "open":
		opened, err := openTransactor(ctx, req)
		if err == nil {
			producers[req.Producer] = opened
		}
		return nil, err
	case "begin":
		if producer.session != nil {
			return nil, producer.session.Begin()
		}
		return nil, producer.client.BeginTransaction()
	case "produce":
		records := make([]*kgo.Record, len(req.Values))
		for i, value := range req.Values {
			records[i] = &kgo.Record{Topic: req.Topic, Partition: req.Partition, Value: []byte(value)}
		}
		return nil, producer.client.ProduceSync(ctx, records...).FirstErr()
	case "pipe":
		return nil, producer.pipe(ctx, req)
	case "commit":
		return nil, outcome(producer.end(ctx, kgo.TryCommit), errUnknown)
	case "abort":
		return nil, outcome(producer.end(ctx, kgo.TryAbort), errRetriable)
	case "read":
		return readAll(ctx, req)
	}
	return nil, fmt.Errorf("unknown operation %s", req.Op)
}

func openTransactor(ctx context.Context, req *transactorRequest) (*transactorProducer, error) {
	settings := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(req.BootstrapServers, ",")...),
		kgo.TransactionalID(req.TransactionalID),
		kgo.TransactionTimeout(time.Duration(req.TimeoutMs) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codec(req.Codec)),
	}
	if req.GroupID == nil {
		client, err := kgo.NewClient(settings...)
		if err != nil {
			return nil, err
		}
		_, _, err = client.ProducerID(ctx)
		return &transactorProducer{client: client}, err
	}
	session, err := kgo.NewGroupTransactSession(append(settings,
		kgo.ConsumerGroup(*req.GroupID),
		kgo.ConsumeTopics(req.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.FetchMaxWait(100*time.Millisecond),
	)...)
	if err != nil {
		return nil, err
	}
	_, _, err = session.Client().ProducerID(ctx)
	return &transactorProducer{client: session.Client(), session: session}, err
}

func (producer *transactorProducer) pipe(ctx context.Context, req *transactorRequest) error {
	for left := req.Count; left > 0; {
		fetches := producer.session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			left--
			value := append(append([]byte{}, record.Value...), "-piped"...)
			piped := &kgo.Record{Topic: req.Target, Partition: record.Partition, Value: value}
			if err := producer.client.ProduceSync(ctx, piped).FirstErr(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (producer *transactorProducer) end(ctx context.Context, how kgo.TransactionEndTry) error {
	if producer.session == nil {
		return producer.client.EndTransaction(ctx, how)
	}
	committed, err := producer.session.End(ctx, how)
	if err == nil && committed != bool(how) {
		return errors.New("the session has aborted the transaction")
	}
	return err
}

func readAll(ctx context.Context, req *transactorRequest) (any, error) {
	settings := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(req.BootstrapServers, ",")...),
		kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
	}
	if req.Committed {
		settings[2] = kgo.FetchIsolationLevel(kgo.ReadCommitted())
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	listed, err := admin.ListEndOffsets(ctx, req.Topics...)
	if req.Committed {
		listed, err = admin.ListCommittedOffsets(ctx, req.Topics...)
	}
	if err != nil {
		return nil, err
	}
	found := map[string]map[int32][]string{}
	left := 0
	from := map[string]map[int32]kgo.Offset{}
	listed.Each(func(each kadm.ListedOffset) {
		if found[each.Topic] == nil {
			found[each.Topic], from[each.Topic] = map[int32][]string{}, map[int32]kgo.Offset{}
		}
		found[each.Topic][each.Partition] = []string{}
		if each.Offset > 0 {
			from[each.Topic][each.Partition] = kgo.NewOffset().AtStart()
			left++
		}
	})
	// Control records are kept, because a partition may end with one.
	consumer, err := kgo.NewClient(append(settings, kgo.ConsumePartitions(from), kgo.KeepControlRecords())...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	for left > 0 {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			if !record.Attrs.IsControl() {
				values := found[record.Topic]
				values[record.Partition] = append(values[record.Partition], string(record.Value))
			}
			end, _ := listed.Lookup(record.Topic, record.Partition)
			if record.Offset == end.Offset-1 {
				left--
			}
		}
	}
	return found, nil
}
