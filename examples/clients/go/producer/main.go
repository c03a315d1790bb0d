// Send ten messages: `go run ./producer [ENDPOINT [TOPIC]]`.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func main() {
	endpoint, topic := argument(1, "127.0.0.1:8081"), argument(2, "greetings")
	rocketmq.EnableSsl = false // true where the proxy speaks TLS
	os.Setenv("rocketmq.client.logRoot", os.TempDir())
	rocketmq.ResetLogger() // or its log goes to /logs
	producer, err := rocketmq.NewProducer(
		&rocketmq.Config{Endpoint: endpoint, Credentials: &credentials.SessionCredentials{}},
		rocketmq.WithTopics(topic),
	)
	check(err)
	check(producer.Start())
	defer producer.GracefulStop()
	for number := range 10 {
		message := &rocketmq.Message{Topic: topic, Body: fmt.Appendf(nil, "hello %d from Go", number)}
		message.SetKeys(fmt.Sprintf("greeting-%d", number))
		receipts, err := producer.Send(context.Background(), message)
		check(err) // none only if it is stored on enough replicas
		fmt.Println("sent", receipts[0].MessageID)
	}
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
