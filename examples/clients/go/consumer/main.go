// Print what comes until Ctrl-C: `go run ./consumer [ENDPOINT [TOPIC [CONSUMER_GROUP]]]`.
package main

import (
	"fmt"
	"log"
	"os"
	"os/signal"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func main() {
	endpoint, topic := argument(1, "127.0.0.1:8081"), argument(2, "greetings")
	rocketmq.EnableSsl = false // true where the proxy speaks TLS
	os.Setenv("rocketmq.client.logRoot", os.TempDir())
	rocketmq.ResetLogger() // or its log goes to /logs
	listener := &rocketmq.FuncMessageListener{Consume: consume}
	subscriptions := map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}
	consumer, err := rocketmq.NewPushConsumer(
		&rocketmq.Config{
			Endpoint:      endpoint,
			ConsumerGroup: argument(3, "readers-in-go"),
			Credentials:   &credentials.SessionCredentials{},
		},
		rocketmq.WithPushSubscriptionExpressions(subscriptions),
		rocketmq.WithPushMessageListener(listener),
	)
	check(err)
	check(consumer.Start())
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	<-interrupted
	check(consumer.GracefulStop())
}

func consume(message *rocketmq.MessageView) rocketmq.ConsumerResult {
	fmt.Printf("got %s\n", message.GetBody())
	return rocketmq.SUCCESS // or FAILURE: it comes again
}

func argument(place int, fallback string) string {
	if len(os.Args) > place {
		return os.Args[place]
	}
	return fallback
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
