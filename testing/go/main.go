// A driver around franz-go: one JSON request per line on standard input, one JSON response per line on standard output.
// testing/clients/program.py has the table of operations.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const deadline = 60 * time.Second

type request struct {
	Op               string            `json:"op"`
	BootstrapServers string            `json:"bootstrap_servers"`
	Security         map[string]string `json:"security"`
	Topic            string            `json:"topic"`
	Partition        int32             `json:"partition"`
	Partitions       int32             `json:"partitions"`
	Codec            string            `json:"codec"`
	Acks             string            `json:"acks"`
	Idempotent       bool              `json:"idempotent"`
	MaxRequestSize   int32             `json:"max_request_size"`
	LingerMs         int64             `json:"linger_ms"`
	GiveUpMs         int64             `json:"give_up_ms"`
	RequestTimeoutMs *int64            `json:"request_timeout_ms"`
	Group            string            `json:"group"`
	Records          []record          `json:"records"`
	Start            *int64            `json:"start"`
	FetchMaxBytes    *int32            `json:"fetch_max_bytes"`
	Timestamp        int64             `json:"timestamp"`
	Count            int64             `json:"count"`
	Timeout          float64           `json:"timeout"`
	Configs          map[string]string `json:"configs"`
	Total            int               `json:"total"`
	Key              string            `json:"key"`
	Value            string            `json:"value"`
	Before           int64             `json:"before"`
}

// record is encoded as [partition, timestamp, key, value, [[name, value], ...]]; encoding/json decodes base64 to []byte.
type record struct {
	partition  int32
	timestamp  *int64
	key, value []byte
	headers    []kgo.RecordHeader
}

func (r *record) UnmarshalJSON(data []byte) error {
	var headers [][2]*string
	fields := []any{&r.partition, &r.timestamp, &r.key, &r.value, &headers}
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	for _, header := range headers {
		var value []byte
		if header[1] != nil {
			if err := json.Unmarshal([]byte(strconv.Quote(*header[1])), &value); err != nil {
				return err
			}
		}
		r.headers = append(r.headers, kgo.RecordHeader{Key: *header[0], Value: value})
	}
	return nil
}

var running *stream

func main() {
	if len(os.Args) == 3 && os.Args[1] == "group-member" {
		groupMember(os.Args[2])
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "transactor" {
		transactor()
		return
	}
	serve(perform, codeOf)
}

func codeOf(err error) string {
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return kafka.Message
	}
	return fmt.Sprintf("%T", err)
}

func perform(ctx context.Context, req *request) (any, error) {
	switch req.Op {
	case "produce":
		return produce(ctx, req)
	case "read":
		return read(ctx, req)
	case "stream_start":
		var err error
		running, err = startStream(req)
		return nil, err
	case "stream_wait":
		return nil, running.waitAcknowledged(req.Count, time.Duration(req.Timeout*float64(time.Second)))
	case "stream_stop":
		return running.finish(ctx)
	}
	options, err := connection(req)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return administer(ctx, kadm.NewClient(client), req)
}

// connection has the addresses, and TLS and SASL from the properties of librdkafka, and
// sasl.oauthbearer.token.
func connection(req *request) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(req.BootstrapServers, ",")...)}
	if path := req.Security["ssl.ca.location"]; path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(pem)
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
	}
	user, password := req.Security["sasl.username"], req.Security["sasl.password"]
	switch req.Security["sasl.mechanism"] {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: req.Security["sasl.oauthbearer.token"]}.AsMechanism()))
	case "GSSAPI":
		option, err := kerberosOption(req)
		if err != nil {
			return nil, err
		}
		options = append(options, option)
	}
	return options, nil
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

func produce(ctx context.Context, req *request) (any, error) {
	options, err := connection(req)
	if err != nil {
		return nil, err
	}
	options = append(options,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codec(req.Codec)),
		kgo.ProducerBatchMaxBytes(req.MaxRequestSize),
		kgo.ProducerLinger(time.Duration(req.LingerMs)*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond),
	)
	if !req.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	switch req.Acks {
	case "0":
		options = append(options, kgo.RequiredAcks(kgo.NoAck()))
	case "1":
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()))
	}
	if req.RequestTimeoutMs != nil {
		// The client waits for the server's deadline and some overhead.
		half := time.Duration(*req.RequestTimeoutMs) * time.Millisecond / 2
		options = append(options, kgo.ProduceRequestTimeout(half), kgo.RequestTimeoutOverhead(half))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(req.Records))
	for _, each := range req.Records {
		made := &kgo.Record{
			Topic: req.Topic, Partition: each.partition, Key: each.key, Value: each.value, Headers: each.headers,
		}
		if each.timestamp != nil {
			made.Timestamp = time.UnixMilli(*each.timestamp)
		}
		records = append(records, made)
	}
	// Not RecordDeliveryTimeout: that counts from the record's timestamp, which may be years ago.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.GiveUpMs)*time.Millisecond)
	defer cancel()
	// Results are in the order of the responses, so the offsets are read from the records, which ProduceSync sets.
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	delivered := make([][2]int64, len(records))
	for i, each := range records {
		offset := each.Offset
		if req.Acks == "0" {
			offset = -1
		}
		delivered[i] = [2]int64{int64(each.Partition), offset}
	}
	return delivered, nil
}

func read(ctx context.Context, req *request) (any, error) {
	where := kgo.NewOffset().AtStart()
	if req.Start != nil {
		where = kgo.NewOffset().At(*req.Start)
	}
	options, err := connection(req)
	if err != nil {
		return nil, err
	}
	options = append(options,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{req.Topic: {req.Partition: where}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(50*time.Millisecond),
	)
	if req.FetchMaxBytes != nil {
		options = append(options, kgo.FetchMaxBytes(*req.FetchMaxBytes), kgo.FetchMaxPartitionBytes(*req.FetchMaxBytes))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	first, end, err := offsets(ctx, kadm.NewClient(client), req)
	if err != nil {
		return nil, err
	}
	position := first
	if req.Start != nil {
		position = *req.Start
	}
	outOfRange := position > end
	received := [][]any{}
	for position < end || outOfRange {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, each := range fetches.Records() {
			headers := [][2]any{}
			for _, header := range each.Headers {
				headers = append(headers, [2]any{header.Key, header.Value})
			}
			kind := "CreateTime"
			if each.Attrs.TimestampType() == 1 {
				kind = "LogAppendTime"
			}
			received = append(received, []any{
				each.Offset, each.Timestamp.UnixMilli(), kind, each.Key, each.Value, headers,
			})
			position = each.Offset + 1
		}
	}
	return received, nil
}

func offsets(ctx context.Context, admin *kadm.Client, req *request) (first, end int64, err error) {
	starts, err := admin.ListStartOffsets(ctx, req.Topic)
	if err != nil {
		return 0, 0, err
	}
	ends, err := admin.ListEndOffsets(ctx, req.Topic)
	if err != nil {
		return 0, 0, err
	}
	start, _ := starts.Lookup(req.Topic, req.Partition)
	if start.Err != nil {
		return 0, 0, start.Err
	}
	last, _ := ends.Lookup(req.Topic, req.Partition)
	return start.Offset, last.Offset, last.Err
}

// stream is an idempotent producer that sends numbered records to the partitions in turn until it is stopped.
type stream struct {
	client       *kgo.Client
	room         chan struct{}
	stopping     chan struct{}
	stopOnce     sync.Once
	sent         sync.WaitGroup
	changed      chan struct{}
	mutex        sync.Mutex
	acknowledged map[int32][]string
	count        int64
	waitedFor    int64
	failure      error
}

func startStream(req *request) (*stream, error) {
	options, err := connection(req)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(options,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond),
	)...)
	if err != nil {
		return nil, err
	}
	s := &stream{
		client:       client,
		room:         make(chan struct{}, 400),
		stopping:     make(chan struct{}),
		changed:      make(chan struct{}, 1),
		acknowledged: map[int32][]string{},
	}
	s.sent.Add(1)
	go s.run(req.Topic, req.Partitions)
	return s, nil
}

func (s *stream) run(topic string, partitions int32) {
	defer s.sent.Done()
	for number := 0; ; number++ {
		for partition := range partitions {
			select {
			case <-s.stopping:
				return
			case s.room <- struct{}{}:
			}
			value := fmt.Sprintf("%d-%d", partition, number)
			made := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
			s.client.Produce(context.Background(), made, func(done *kgo.Record, err error) {
				<-s.room
				s.done(done.Partition, value, err)
			})
		}
	}
}

func (s *stream) done(partition int32, value string, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err == nil {
		s.acknowledged[partition] = append(s.acknowledged[partition], value)
		s.count++
	} else if s.failure == nil {
		s.failure = err
		s.stopOnce.Do(func() { close(s.stopping) })
	}
	if err != nil || s.count >= s.waitedFor {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

func (s *stream) waitAcknowledged(more int64, timeout time.Duration) error {
	s.mutex.Lock()
	s.waitedFor = max(s.waitedFor, s.count) + more
	s.mutex.Unlock()
	late := time.After(timeout)
	for {
		s.mutex.Lock()
		count, reached, failure := s.count, s.count >= s.waitedFor, s.failure
		s.mutex.Unlock()
		if reached || failure != nil {
			return failure
		}
		select {
		case <-s.changed:
		case <-late:
			return fmt.Errorf("%d records acknowledged in %s", count, timeout)
		}
	}
}

func (s *stream) finish(ctx context.Context) (any, error) {
	s.stopOnce.Do(func() { close(s.stopping) })
	s.sent.Wait()
	if err := s.client.Flush(ctx); err != nil {
		return nil, err
	}
	s.client.Close()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.acknowledged, s.failure
}

func administer(ctx context.Context, admin *kadm.Client, req *request) (any, error) {
	switch req.Op {
	case "offset_for_time":
		listed, err := admin.ListOffsetsAfterMilli(ctx, req.Timestamp, req.Topic)
		if err != nil {
			return nil, err
		}
		// If no record is late enough, kadm returns the end of the partition without a timestamp.
		found, _ := listed.Lookup(req.Topic, req.Partition)
		if found.Err != nil || found.Timestamp == -1 {
			return nil, found.Err
		}
		return found.Offset, nil
	case "offsets":
		first, end, err := offsets(ctx, admin, req)
		return [2]int64{first, end}, err
	case "commit_offset":
		offsets := kadm.Offsets{}
		offsets.AddOffset(req.Topic, req.Partition, *req.Start, -1)
		committed, err := admin.CommitOffsets(ctx, req.Group, offsets)
		if err == nil {
			err = committed.Error()
		}
		return nil, err
	case "committed_offset":
		fetched, err := admin.FetchOffsetsForTopics(ctx, req.Group, req.Topic)
		if err != nil {
			return nil, err
		}
		found, _ := fetched.Lookup(req.Topic, req.Partition)
		if found.Err != nil || found.At < 0 {
			return nil, found.Err
		}
		return found.At, nil
	case "create_topic":
		configs := map[string]*string{}
		for key, value := range req.Configs {
			configs[key] = kadm.StringPtr(value)
		}
		_, err := admin.CreateTopic(ctx, req.Partitions, 1, configs, req.Topic)
		return nil, err
	case "topics":
		topics := map[string]int{}
		listed, err := admin.ListTopicsWithInternal(ctx)
		for name, found := range listed {
			topics[name] = len(found.Partitions)
		}
		return topics, err
	case "delete_topic":
		deleted, err := admin.DeleteTopics(ctx, req.Topic)
		if err == nil {
			err = deleted.Error()
		}
		return nil, err
	case "create_partitions":
		updated, err := admin.UpdatePartitions(ctx, req.Total, req.Topic)
		if err == nil {
			err = updated.Error()
		}
		return nil, err
	case "topic_configs":
		described, err := admin.DescribeTopicConfigs(ctx, req.Topic)
		if err != nil {
			return nil, err
		}
		configs := map[string]*string{}
		for _, each := range described[0].Configs {
			configs[each.Key] = each.Value
		}
		return configs, described[0].Err
	case "set_topic_config":
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: req.Key, Value: &req.Value}
		altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, req.Topic)
		if err != nil {
			return nil, err
		}
		return nil, altered[0].Err
	case "delete_records":
		before := kadm.Offsets{}
		before.AddOffset(req.Topic, req.Partition, req.Before, -1)
		deleted, err := admin.DeleteRecords(ctx, before)
		if err != nil {
			return nil, err
		}
		result, _ := deleted.Lookup(req.Topic, req.Partition)
		return result.LowWatermark, result.Err
	case "groups":
		listed, err := admin.ListGroups(ctx)
		return listed.Groups(), err
	case "describe_group":
		described, err := admin.DescribeGroups(ctx, req.Group)
		if err != nil {
			return nil, err
		}
		found := described[req.Group]
		return [2]any{found.State, len(found.Members)}, found.Err
	case "delete_group":
		deleted, err := admin.DeleteGroups(ctx, req.Group)
		if err == nil {
			err = deleted.Error()
		}
		return nil, err
	}
	return nil, fmt.Errorf("unknown operation %s", req.Op)
}
