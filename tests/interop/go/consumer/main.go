// A push consumer of RocketMQ's Go client: prints the body of each message on a line.
//
//	consumer NAMESERVERS TOPIC GROUP
//
// It ends when its standard input does.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("fatal")
	client, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(strings.Split(os.Args[1], ";")),
		consumer.WithGroupName(os.Args[3]),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	check(client.Subscribe(os.Args[2], consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				fmt.Println(string(message.Body))
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(client.Start())
	_, _ = io.Copy(io.Discard, os.Stdin)
	check(client.Shutdown())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
