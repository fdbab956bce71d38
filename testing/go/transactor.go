// Transactional producers with franz-go: testing/clients/transactor.py says what they are asked.
package main

import (
	"context"
	"errors"
	"fmt"
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

// A session is what franz-go has for producers that consume; it commits the offsets when it ends.
type transactorProducer struct {
	client  *kgo.Client
	session *kgo.GroupTransactSession
}

func transactor() {
	producers := map[string]*transactorProducer{}
	perform := func(ctx context.Context, asked *transactorRequest) (any, error) {
		return performTransactor(ctx, producers, asked)
	}
	serve(perform, refusalOf)
}

// What became of a request whose answer did not come.
var (
	errUnknown   = errors.New("nobody knows whether it was committed")
	errRetriable = errors.New("nobody knows whether it was aborted")
)

// outcome tells an end that was refused from one that was not answered: franz-go then wants an abort, as often as needed.
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
	ctx context.Context, producers map[string]*transactorProducer, asked *transactorRequest,
) (any, error) {
	producer := producers[asked.Producer]
	switch asked.Op {
	case "open":
		opened, err := openTransactor(ctx, asked)
		if err == nil {
			producers[asked.Producer] = opened
		}
		return nil, err
	case "begin":
		if producer.session != nil {
			return nil, producer.session.Begin()
		}
		return nil, producer.client.BeginTransaction()
	case "produce":
		records := make([]*kgo.Record, len(asked.Values))
		for i, value := range asked.Values {
			records[i] = &kgo.Record{Topic: asked.Topic, Partition: asked.Partition, Value: []byte(value)}
		}
		return nil, producer.client.ProduceSync(ctx, records...).FirstErr()
	case "pipe":
		return nil, producer.pipe(ctx, asked)
	case "commit":
		return nil, outcome(producer.end(ctx, kgo.TryCommit), errUnknown)
	case "abort":
		return nil, outcome(producer.end(ctx, kgo.TryAbort), errRetriable)
	case "read":
		return readAll(ctx, asked)
	}
	return nil, fmt.Errorf("no such operation: %s", asked.Op)
}

func openTransactor(ctx context.Context, asked *transactorRequest) (*transactorProducer, error) {
	settings := []kgo.Opt{
		kgo.SeedBrokers(asked.BootstrapServers),
		kgo.TransactionalID(asked.TransactionalID),
		kgo.TransactionTimeout(time.Duration(asked.TimeoutMs) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codec(asked.Codec)),
	}
	if asked.GroupID == nil {
		client, err := kgo.NewClient(settings...)
		if err != nil {
			return nil, err
		}
		_, _, err = client.ProducerID(ctx)
		return &transactorProducer{client: client}, err
	}
	session, err := kgo.NewGroupTransactSession(append(settings,
		kgo.ConsumerGroup(*asked.GroupID),
		kgo.ConsumeTopics(asked.Source),
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

func (producer *transactorProducer) pipe(ctx context.Context, asked *transactorRequest) error {
	for left := asked.Count; left > 0; {
		fetches := producer.session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			left--
			value := append(append([]byte{}, record.Value...), "-piped"...)
			piped := &kgo.Record{Topic: asked.Target, Partition: record.Partition, Value: value}
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

func readAll(ctx context.Context, asked *transactorRequest) (any, error) {
	settings := []kgo.Opt{
		kgo.SeedBrokers(asked.BootstrapServers),
		kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
	}
	if asked.Committed {
		settings[2] = kgo.FetchIsolationLevel(kgo.ReadCommitted())
	}
	asking, err := kgo.NewClient(settings...)
	if err != nil {
		return nil, err
	}
	defer asking.Close()
	admin := kadm.NewClient(asking)
	listed, err := admin.ListEndOffsets(ctx, asked.Topics...)
	if asked.Committed {
		listed, err = admin.ListCommittedOffsets(ctx, asked.Topics...)
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
