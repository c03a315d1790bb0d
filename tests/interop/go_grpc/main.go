// The official gRPC client in Go with its defaults, as one process that goes on until killed.
//
// Prints what `java_grpc`'s program prints: READY, ACK key, NACK key error, GOT key attempt, DONE
// key, UNSURE key error for one whose acknowledgement has no answer, FAILED key, ERROR error.
// `later` sends messages for moments of the next seconds and says LATER key moment; the client
// takes none back. `transact` sends half messages and commits every second one, and says LEFT key of
// each third one of these; the client tells nobody whether a commit failed, so what is undecided is
// asked for, too: CHECKED key. `ordered` sends to message groups by turns, one message behind the
// other. It signs as CLIENT_ACCESS_KEY, with CLIENT_SECRET_KEY, where these are set.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	invisible     = 10 * time.Second
	await         = 5 * time.Second
	atOnce        = 16
	messageGroups = 8
)

var saying sync.Mutex

func say(format string, parts ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Printf(format+"\n", parts...)
}

func word(err error) string {
	return strings.Join(strings.Fields(err.Error()), "_")
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func made(topic string, number int) *rocketmq.Message {
	message := &rocketmq.Message{Topic: topic, Body: []byte(fmt.Sprintf("message %d", number))}
	message.SetKeys(key(number))
	return message
}

func key(number int) string {
	return fmt.Sprintf("key-%d", number)
}

func started(config *rocketmq.Config, topic string) rocketmq.Producer {
	checked := func(message *rocketmq.MessageView) rocketmq.TransactionResolution {
		say("CHECKED %s", message.GetKeys()[0])
		var number int
		if _, err := fmt.Sscanf(message.GetKeys()[0], "key-%d", &number); err == nil && number%2 > 0 {
			return rocketmq.ROLLBACK
		}
		return rocketmq.COMMIT
	}
	producer, err := rocketmq.NewProducer(
		config,
		rocketmq.WithTopics(topic),
		rocketmq.WithTransactionChecker(&rocketmq.TransactionChecker{Check: checked}),
	)
	check(err)
	check(producer.Start())
	say("READY")
	return producer
}

func produce(config *rocketmq.Config, topic string, pause time.Duration, grouped bool) {
	producer := started(config, topic)
	for number := 0; ; number++ {
		message := made(topic, number)
		if grouped {
			message.SetMessageGroup(fmt.Sprintf("group-%d", number%messageGroups))
		}
		if _, err := producer.Send(context.Background(), message); err != nil {
			say("NACK %s %s", key(number), word(err))
		} else {
			say("ACK %s", key(number))
		}
		time.Sleep(pause)
	}
}

func later(config *rocketmq.Config, topic string, pause time.Duration) {
	producer := started(config, topic)
	for number := 0; ; number++ {
		message := made(topic, number)
		moment := time.Now().Add(time.Duration(3000+700*(number%5)) * time.Millisecond)
		moment = moment.Truncate(time.Second) // the client leaves the rest out
		message.SetDelayTimestamp(moment)
		if _, err := producer.Send(context.Background(), message); err != nil {
			say("NACK %s %s", key(number), word(err))
		} else {
			say("LATER %s %d", key(number), moment.UnixMilli())
		}
		time.Sleep(pause)
	}
}

func transact(config *rocketmq.Config, topic string, pause time.Duration) {
	producer := started(config, topic)
	for number := 0; ; number++ {
		transaction := producer.BeginTransaction()
		_, err := producer.SendWithTransaction(context.Background(), made(topic, number), transaction)
		switch {
		case err != nil:
			say("NACK %s %s", key(number), word(err))
		case number%2 > 0:
			check(transaction.RollBack())
			say("DROPPED %s", key(number))
		case number%3 > 0:
			check(transaction.Commit())
			say("ACK %s", key(number))
		default:
			say("LEFT %s", key(number))
		}
		time.Sleep(pause)
	}
}

func push(config *rocketmq.Config, topic string) {
	consume := func(message *rocketmq.MessageView) rocketmq.ConsumerResult {
		key := message.GetKeys()[0]
		say("GOT %s %d", key, message.GetDeliveryAttempt())
		if message.GetDeliveryAttempt() == 1 && strings.HasSuffix(key, "7") {
			say("FAILED %s", key)
			return rocketmq.FAILURE
		}
		say("DONE %s", key)
		return rocketmq.SUCCESS
	}
	all := map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}
	consumer, err := rocketmq.NewPushConsumer(
		config,
		rocketmq.WithPushAwaitDuration(await),
		rocketmq.WithPushSubscriptionExpressions(all),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{Consume: consume}),
	)
	check(err)
	check(consumer.Start())
	say("READY")
	select {}
}

func simple(config *rocketmq.Config, topic string) {
	all := map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}
	consumer, err := rocketmq.NewSimpleConsumer(
		config,
		rocketmq.WithSimpleAwaitDuration(await),
		rocketmq.WithSimpleSubscriptionExpressions(all),
	)
	check(err)
	check(consumer.Start())
	say("READY")
	for {
		messages, err := consumer.Receive(context.Background(), atOnce, invisible)
		if err != nil {
			say("ERROR %s", word(err))
			time.Sleep(100 * time.Millisecond)
		}
		for _, message := range messages {
			key := message.GetKeys()[0]
			say("GOT %s %d", key, message.GetDeliveryAttempt())
			if err := consumer.Ack(context.Background(), message); err != nil {
				say("UNSURE %s %s", key, word(err))
			} else {
				say("DONE %s", key)
			}
		}
	}
}

func main() {
	role, endpoints, topic, last := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	rocketmq.EnableSsl = false
	check(os.Setenv("rocketmq.client.logRoot", os.Getenv("HOME")))
	rocketmq.ResetLogger()
	signs := &credentials.SessionCredentials{
		AccessKey:    os.Getenv("CLIENT_ACCESS_KEY"),
		AccessSecret: os.Getenv("CLIENT_SECRET_KEY"),
	}
	config := &rocketmq.Config{Endpoint: endpoints, Credentials: signs}
	if role == "push" || role == "simple" {
		config.ConsumerGroup = last
		map[string]func(*rocketmq.Config, string){"push": push, "simple": simple}[role](config, topic)
		return
	}
	milliseconds, err := strconv.Atoi(last)
	check(err)
	pause := time.Duration(milliseconds) * time.Millisecond
	switch role {
	case "produce":
		produce(config, topic, pause, false)
	case "ordered":
		produce(config, topic, pause, true)
	case "later":
		later(config, topic, pause)
	case "transact":
		transact(config, topic, pause)
	}
}
